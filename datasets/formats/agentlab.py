"""Reads result folders of AgentLab and BrowserGym experiments: exp_args.pkl, goal_object.pkl.gz,
step_<n>.pkl.gz, screenshots.

The pickles are read as plain data (see `safe_pickle`); neither package is needed. A run is a folder
with step_0.pkl.gz or exp_args.pkl. Folders whose names begin with `_` are earlier attempts that
AgentLab moved away, and are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from prill.datasets.reading.browsergym import (
    BrowserGymTurn,
    Summary,
    build_steps,
    oracle_label,
    plain_task_id,
)
from prill.datasets.reading.records import date_in, decode_json, image_in, read_file, read_record
from prill.datasets.reading.safe_pickle import fields, load_pickle
from prill.datasets.reading.sources import Source, members
from prill.errors import InputError, UsageError
from prill.io.lines import valid_unicode
from prill.io.store import BadLine
from prill.types import LabelRecord, Observation, StrPath, Task, Trajectory

_STEP = re.compile(r"step_(\d+)\.pkl\.gz")
# The text of a state is the first of these that the agent's preprocessing left in the observation.
_TEXTS = ("axtree_txt", "pruned_html", "dom_txt")


def recognise(source: Source) -> bool:
    """Returns whether the source is a folder with AgentLab's pickles of steps or settings."""
    pickles = source.files("step_0.pkl.gz", "exp_args.pkl")
    return source.is_folder and any(file.head.startswith(b"\x80") for file in pickles)


def load(source: StrPath) -> Iterator[Trajectory | BadLine]:
    """Yields every run below a folder, without its outcome.

    The id is the run's folder, relative to `source`.

    `site` is the benchmark, the first word of the task's name. States have text only if the agent
    made it: the raw page trees are not converted to text here. `error` is the message of a run that
    failed. `metadata["date"]` is the date in the name of the run's folder, or else of an enclosing
    folder up to `source`.
    """
    root = Path(source)
    for folder in _runs(root):
        yield read_record(str(folder), partial(_trajectory, folder, root))


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the environment's verdict (`cum_reward` of summary_info.json), source `oracle`; see
    `oracle_label`.

    A run without that file did not finish and has no label.
    """
    root = Path(source)
    for folder in _runs(root):
        label = read_record(str(folder), partial(_label, folder, root))
        if label is not None:
            yield label


def _label(folder: Path, root: Path) -> LabelRecord | None:
    return oracle_label(_id(folder, root), _summary(folder))


def _runs(root: Path) -> list[Path]:
    markers = members(root, "**/exp_args.pkl", "**/step_0.pkl.gz")
    folders = sorted({path.parent for path in markers if not path.parent.name.startswith("_")})
    if not folders:
        raise UsageError(
            f"{root}: expected a folder that contains exp_args.pkl or step_0.pkl.gz, also "
            "in subfolders"
        )
    return folders


def _id(folder: Path, root: Path) -> str:
    return folder.resolve().name if folder == root else folder.relative_to(root).as_posix()


def _seed(value: object) -> int | None:
    """Returns a seed if it fits a line of JSON.

    A pickle's integers are unbounded; larger ones are not seeds.
    """
    return value if isinstance(value, int) and value.bit_length() < 64 else None


def _summary(folder: Path) -> Summary:
    path = folder / "summary_info.json"
    if not path.is_file():
        return Summary()
    try:
        return decode_json(read_file(path), Summary)
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None


def _trajectory(folder: Path, root: Path) -> Trajectory:
    numbers = sorted(
        int(match[1]) for path in members(folder, "*") if (match := _STEP.fullmatch(path.name))
    )
    if not numbers:
        raise InputError("no step was recorded")
    if numbers != list(range(len(numbers))):
        gap = next(i for i in range(len(numbers)) if i != numbers[i])
        raise InputError(f"step_{gap}.pkl.gz is missing")
    turns, goal = [], ""
    for number in numbers:
        step = fields(load_pickle(folder / f"step_{number}.pkl.gz"))
        observed = fields(step.get("obs"))
        goal = goal or _text(observed.get("goal")) or ""
        turns.append(
            BrowserGymTurn(
                _observation(observed, folder, number),
                _text(step.get("action")),
                _text(fields(step.get("agent_info")).get("think")),
            )
        )
    arguments = _arguments(folder)
    steps, final, answer = build_steps(turns)
    summary, name = _summary(folder), _text(fields(arguments.get("env_args")).get("task_name"))
    extra = {
        "benchmark_task_id": name,
        "seed": _seed(fields(arguments.get("env_args")).get("task_seed")),
        "terminated": summary.terminated,
        "truncated": summary.truncated,
        "date": _date(folder, root),
    }
    id, goal = _id(folder, root), _goal(folder) or goal
    if not goal:
        raise InputError("no goal was recorded")
    site = name.partition(".")[0] if name else None
    return Trajectory(
        id=id,
        task=Task(id=plain_task_id(name or id), goal=goal, platform="web", site=site),
        agent=_text(fields(arguments.get("agent_args")).get("agent_name")),
        steps=steps,
        final=final if final != Observation() else None,
        answer=answer,
        metadata={key: value for key, value in extra.items() if isinstance(value, str | int)},
        error=summary.failure,
    )


def _date(folder: Path, root: Path) -> str | None:
    names = (
        [folder.resolve().name]
        if folder == root
        else [*reversed(folder.relative_to(root).parts), root.resolve().name]
    )
    return next((date for name in names if (date := date_in(name))), None)


def _observation(observed: dict[str, Any], folder: Path, number: int) -> Observation:
    names = (f"screenshot_step_{number}{suffix}" for suffix in (".png", ".jpg"))
    screenshot = next((image_in(folder, name) for name in names if (folder / name).is_file()), None)
    text = next((text for key in _TEXTS if (text := _text(observed.get(key)))), None)
    return Observation(screenshot, text, _text(observed.get("url")))


def _arguments(folder: Path) -> dict[str, Any]:
    path = folder / "exp_args.pkl"
    return fields(load_pickle(path)) if path.is_file() else {}


def _goal(folder: Path) -> str:
    """Returns the goal's texts; an image in it becomes [image]."""
    path = folder / "goal_object.pkl.gz"
    if not path.is_file():
        return ""
    parts = load_pickle(path)
    texts = [
        _text(fields(part).get("text")) or "[image]"
        for part in (parts if isinstance(parts, list | tuple) else ())
    ]
    return "\n".join(texts).strip()


def _text(value: object) -> str | None:
    return valid_unicode(value) if isinstance(value, str) and value else None
