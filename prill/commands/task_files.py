"""The tasks that `prill rollout` is given: a file, one of the paper's lists, or a single goal."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from prill.commands.cases import fingerprint
from prill.datasets.task_lists import NAMES, task_list
from prill.errors import UsageError
from prill.store import read_lines
from prill.types import Platform, Task


@dataclass(frozen=True)
class GivenTask:
    """A line of a task file: `{"id": "…", "goal": "…", "start_url": "…"}`; the goal is required, an id is made of the rest."""

    goal: str
    id: str = ""
    site: str | None = None
    start_url: str | None = None


def add_task_options(group: argparse._ArgumentGroup, start: str) -> None:
    """`--goal` and `--start-url`, and what `--tasks` means; `start` says what can be started."""
    group.description = f"--tasks is a JSON Lines file ({{id, goal, start_url}}), or a list: {', '.join(NAMES)}"
    group.add_argument("--goal", metavar="TEXT", help="a single task, instead of --tasks")
    group.add_argument("--start-url", metavar="URL", help=f"where tasks begin that do not say so: {start}")


def given_tasks(args: argparse.Namespace, platform: Platform) -> dict[str, Task]:
    """The tasks by id, in order. Raises UsageError that names the place."""
    if bool(args.goal) == bool(args.tasks):
        raise UsageError("give either --tasks or --goal")
    if args.goal:
        tasks = [Task(id=f"goal-{fingerprint(args.goal)}", goal=args.goal)]
    elif args.tasks in NAMES:
        tasks = list(task_list(args.tasks))
    else:
        tasks = _read(args.tasks)
    named = [
        replace(
            task,
            id=task.id or f"task-{fingerprint([task.goal, task.site, task.start_url])}",
            platform=platform,
            start_url=task.start_url or args.start_url,
        )
        for task in tasks
    ]
    by_id = {task.id: task for task in named}
    if len(by_id) < len(named):
        raise UsageError(f"{args.tasks}: the same task id stands there twice")
    return by_id


def contents(tasks: Mapping[str, Task]) -> dict[str, object]:
    """What tells each task from another that has the same id in another file, or had it before an edit."""
    return {name: [task.goal, task.site, task.start_url] for name, task in tasks.items()}


def _read(path: str) -> list[Task]:
    if not Path(path).is_file():
        raise UsageError(f"--tasks {path!r}: no such file, and no list; the lists are {', '.join(NAMES)}")
    tasks: list[Task] = []
    for line in read_lines(path):
        try:
            given = msgspec.json.decode(line.data, type=GivenTask)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}:{line.number}: {error}") from None
        tasks.append(Task(id=given.id, goal=given.goal, site=given.site, start_url=given.start_url))
    return tasks
