"""Reads AgentRewardBench (arXiv 2504.08942): cleaned trajectories,
<benchmark>/<agent>/<experiment>/<task>.json, and annotations.csv.

The fields are those that the package agent-reward-bench 0.1.2 writes. The published files may
differ in details, so the targets of screenshot paths, and whether the goal is a text or a list of
parts, are detected. The human annotations are one table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from prill.datasets.reading.browsergym import (
    BrowserGymTurn,
    Summary,
    build_steps,
    oracle_label,
    plain_task_id,
)
from prill.datasets.reading.records import date_in, decode_json, read_file, read_record
from prill.datasets.reading.sources import Source
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import LabelRecord, Observation, Task, Trajectory


@dataclass(frozen=True)
class _Part:
    type: str = "text"
    text: str | None = None


@dataclass(frozen=True)
class _Step:
    action: str | None = None
    reasoning: str | None = None
    url: str | None = None
    axtree: str | None = None
    axtree_pruned: str | None = None
    screenshot_path: str | None = None


@dataclass(frozen=True)
class _Run:
    goal: str | tuple[_Part, ...]
    steps: tuple[_Step, ...]
    benchmark: str | None = None
    agent: str | None = None
    model: str | None = None
    experiment: str | None = None
    seed: int | None = None
    summary_info: Summary | None = None


@dataclass(frozen=True)
class _Outcome:
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


def load(source: str | PathLike[str]) -> Iterator[Trajectory | BadLine]:
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


def load_labels(source: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
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
    paths = sorted(
        path for path in root.rglob("*.json*") if path.name.removesuffix(".gz").endswith(".json")
    )
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
