"""Reads AgentRewardBench (arXiv 2504.08942): cleaned trajectories,
<benchmark>/<agent>/<experiment>/<task>.json, and annotations.csv.

The fields are those that the package agent-reward-bench 0.1.2 writes. The published files may
differ in details, so the targets of screenshot paths, and whether the goal is a text or a list of
parts, are detected. The human annotations are one table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from prill.datasets.reading.browsergym import (
    BrowserGymTurn,
    Summary,
    build_steps,
    oracle_label,
    plain_task_id,
)
from prill.datasets.reading.records import Record, date_in, decode_json, read_file, read_record
from prill.datasets.reading.sources import Source, members
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import LabelRecord, Observation, StrPath, Task, Trajectory


class _Part(Record):
    type: str = "text"
    text: str | None = None


class _Step(Record):
    action: str | None = None
    reasoning: str | None = None
    url: str | None = None
    axtree: str | None = None
    axtree_pruned: str | None = None
    screenshot_path: str | None = None


class _Run(Record):
    goal: str | tuple[_Part, ...]
    steps: tuple[_Step, ...]
    benchmark: str | None = None
    agent: str | None = None
    model: str | None = None
    experiment: str | None = None
    seed: int | None = None
    summary_info: Summary | None = None


class _Outcome(Record):
    benchmark: str | None = None
    agent: str | None = None
    model: str | None = None
    summary_info: Summary | None = None


def recognise(source: Source) -> bool:
    """Returns whether documents have a benchmark, a goal and steps, but no id."""
    return source.has(
        lambda file: {"goal", "steps", "benchmark"} <= file.keys and "id" not in file.keys,
        "*.json",
        "*.json.gz",
    )


def load(source: StrPath) -> Iterator[Trajectory | BadLine]:
    """Yields every run of a file or a folder, without its outcome.

    The id is `<benchmark>/<agent>/<task>`, `site` the benchmark.

    The text of a state is the pruned accessibility tree, else the whole one. Screenshots are
    searched by the ends of their recorded paths, below `source` and next to it;
    `metadata["screenshots_missing"]` counts missing ones, and `metadata["date"]` is the date in
    these paths.
    """
    root = Path(source)
    for path in _files(root):
        yield read_record(str(path), partial(_trajectory, path, root))


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the environment's verdict on each run (`summary_info.cum_reward`), source `oracle`.

    See `oracle_label`.
    """
    for path in _files(Path(source)):
        label = read_record(str(path), partial(_label, path))
        if label is not None:
            yield label


def _label(path: Path) -> LabelRecord | None:
    run = decode_json(read_file(path), _Outcome)
    return oracle_label(_id(path, run), run.summary_info or Summary())


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    paths = members(root, "**/*.json", "**/*.json.gz")
    if not paths:
        raise UsageError(f"{root}: expected a file, or a folder with .json files")
    return paths


def _id(path: Path, run: _Run | _Outcome) -> str:
    agent = (run.agent or run.model or "unknown").removeprefix("GenericAgent-")
    return f"{run.benchmark or 'unknown'}/{agent}/{_task_name(path)}"


def _task_name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json")


def _trajectory(path: Path, root: Path) -> Trajectory:
    run = decode_json(read_file(path), _Run)
    screenshots = _Screenshots(path, root)
    turns = [
        BrowserGymTurn(
            Observation(
                screenshots.path(step.screenshot_path),
                step.axtree_pruned or step.axtree or None,
                step.url or None,
            ),
            step.action,
            step.reasoning,
        )
        for step in run.steps
    ]
    if not turns:
        raise InputError("the run has no steps")
    steps, final, answer = build_steps(turns)
    goal = (
        run.goal
        if isinstance(run.goal, str)
        else "\n".join(part.text for part in run.goal if part.text)
    )
    name = _task_name(path)
    summary = run.summary_info or Summary()
    extra = {
        "benchmark_task_id": name,
        "experiment": run.experiment,
        "seed": run.seed,
        "terminated": summary.terminated,
        "truncated": summary.truncated,
        "screenshots_missing": screenshots.missing or None,
        # AgentLab's run folder has its date in the name.
        "date": next(
            (date for step in run.steps if (date := date_in(step.screenshot_path or ""))), None
        ),
    }
    return Trajectory(
        id=_id(path, run),
        task=Task(id=plain_task_id(name), goal=goal.strip(), platform="web", site=run.benchmark),
        agent=run.agent or run.model,
        steps=steps,
        final=final,
        answer=answer,
        metadata={key: value for key, value in extra.items() if value is not None},
        error=summary.failure,
    )


class _Screenshots:
    """Finds the files for paths recorded on another machine."""

    def __init__(self, path: Path, root: Path) -> None:
        folder = root if root.is_dir() else root.parent
        self._beside = path.resolve().parent
        self._bases = (folder.resolve(), folder.resolve().parent)
        self.missing = 0

    def path(self, recorded: str | None) -> str | None:
        """Returns the file with the longest matching end of the recorded path.

        If there is none, it is counted as missing and the result is None.
        """
        # A missing screenshot was written as the word None.
        if not recorded or recorded == "None":
            return None
        parts = Path(recorded.replace("\0", "")).parts
        for first in range(len(parts)):
            end = Path(*parts[first:])
            # A bare file name could belong to any run: it matches only next to the run's own file.
            for base in self._bases if len(end.parts) > 1 else (self._beside,):
                if (
                    not end.is_absolute()
                    and os.path.isfile(base / end)
                    and (base / end).resolve().is_relative_to(base)
                ):
                    return str((base / end).resolve())
        self.missing += 1
        return None


# The leaderboard's columns of precision, and which runs are in each.
_LEADERBOARD = {
    "AB": ("assistantbench", False),
    "VWA": ("visualwebarena", False),
    "WA": ("webarena", False),
    "Work": ("workarena", False),
    "Work++": ("workarena", True),
}


def leaderboard_row(
    judge: str, judged: Iterable[tuple[Task, bool | None, bool]]
) -> dict[str, str | float | None]:
    """Returns a judge's row of AgentRewardBench's leaderboard, as a submission states it.

    WorkArena++ are WorkArena's tasks whose id contains `l2`. Source: McGill-NLP/agent-reward-bench
    `scripts/score_judgments.py`, and the leaderboard's `results.jsonl`.

    Args:
        judge: The judge's name.
        judged: For each run its task, the verdict (None: unscored, which counts as a failure there)
            and the truth.

    Returns:
        Precision (`Overall` and by benchmark), recall and F1 in percent, rounded to a tenth; None
        where a benchmark has no run that the judge calls a success. Author and addresses are empty.
    """
    counts = {name: [0, 0, 0] for name in ("all", *_LEADERBOARD)}  # right, called, true successes
    for task, verdict, truth in judged:
        harder = "l2" in task.id.lower()
        for name in ("all", *_LEADERBOARD):
            site, wanted = _LEADERBOARD.get(name, (task.site, harder))
            if site == task.site and (site != "workarena" or wanted == harder):
                row = counts[name]
                row[0] += bool(verdict and truth)
                row[1] += bool(verdict)
                row[2] += truth

    def percent(part: float, of: float) -> float | None:
        return round(100 * part / of, 1) if of else None

    right, called, true = counts["all"]
    return {
        "Judge": judge,
        "Overall": percent(right, called),
        "Recall": percent(right, true),
        "F1": percent(2 * right, called + true),
        **{name: percent(*counts[name][:2]) for name in _LEADERBOARD},
        "Author": "",
        "Project URL": "",
        "Logs URL": "",
    }
