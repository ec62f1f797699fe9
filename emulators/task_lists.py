"""The task lists of arXiv 2404.06474, as released in Berkeley-NLP/Agent-Eval-Refine (BSD-3-Clause).

120 Android tasks, sampled from the test part of Android in the Wild (40 each of general,
web_shopping and google_apps); 80 iOS tasks to train on and 52 to evaluate on. Two goals stand in
both iOS lists and are marked `in_both`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from prill.errors import UsageError
from prill.io.store import read_lines
from prill.types import Task

NAMES = ("android", "ios_train", "ios_eval")
_FOLDER = Path(__file__).resolve().parent / "tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTask:
    """A row of a list. `in_both`: the same goal is in the training and in the evaluation list."""

    id: str
    goal: str
    platform: Literal["android", "ios"]
    site: str | None
    split: Literal["train", "eval", "test"]
    in_both: bool = False


def task_list(name: str) -> tuple[Task, ...]:
    """Returns the tasks of a list: `android`, `ios_train` or `ios_eval`. Raises UsageError for
    another name.
    """
    return tuple(
        Task(id=row.id, goal=row.goal, platform=row.platform, site=row.site)
        for row in listed_tasks(name)
    )


def listed_tasks(name: str) -> Iterator[ListedTask]:
    """Yields the rows of a list."""
    if name not in NAMES:
        raise UsageError(f"unknown task list {name!r}; expected one of {', '.join(NAMES)}")
    decoder = msgspec.json.Decoder(ListedTask)
    return (decoder.decode(line.data) for line in read_lines(_FOLDER / f"{name}.jsonl"))
