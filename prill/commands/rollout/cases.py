"""Which episodes a run is to record: plan files, task files, lists of the paper and single goals, read into cases and tasks."""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from prill.emulators.task_lists import NAMES, task_list
from prill.errors import UsageError
from prill.files.toml import read_toml
from prill.models.replies import excerpt
from prill.policies.scripted.policy import Behaviour
from prill.store import read_lines
from prill.types import Platform, Task

# Episodes of one run, and seeds of one option: a range with a digit too many is refused before it fills the memory.
MAX_EPISODES = 1_000_000
_MAX_DIGITS = 18  # of a seed: it stays below 2**63, which generators of random numbers take


@dataclass(frozen=True)
class Case:
    """One episode to record. `behaviour` is how the scripted policy is to act; None for any other policy."""

    task: str
    seed: int = 0
    attempt: int = 0
    behaviour: Behaviour | None = None

    def id(self, environment: str, settings: str) -> str:
        """Names the episode: the same case under the same settings has the same id, so that a run can be taken up.

        `settings` is a fingerprint of them, or empty. For the scripted policy the id does not tell how it was meant to go.
        """
        if self.behaviour is None:
            return f"{self.task}-s{self.seed}-a{self.attempt}-{settings}"
        more = f" {self.attempt} {settings}" if self.attempt or settings else ""
        return f"{environment}-" + _short(f"{self.task} {self.seed} {self.behaviour}{more}", 10)


@dataclass(frozen=True)
class PlanRow:
    """One line of a plan: which task, which seed, and how the scripted policy is to behave."""

    task: str
    seed: int
    behaviour: Behaviour = "solve"

    @property
    def case(self) -> Case:
        """The row as a case."""
        return Case(self.task, self.seed, behaviour=self.behaviour)


@dataclass(frozen=True)
class Plan:
    """What a plan file holds: `episodes = [{task = "click-button", seed = 3, behaviour = "solve"}, …]`."""

    episodes: tuple[PlanRow, ...]


def read_plan(path: Path) -> tuple[Case, ...]:
    """The rows of a plan file. Raises UsageError that names the place."""
    try:
        rows = msgspec.convert(read_toml(path), Plan).episodes
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None
    if len(set(rows)) < len(rows):
        raise UsageError(f"{path}: the same episode is listed twice: {next(row for row in rows if rows.count(row) > 1)}")
    return tuple(row.case for row in rows)


def cases(
    tasks: Sequence[str], seeds: Sequence[int], attempts: Sequence[int], behaviours: Sequence[Behaviour | None]
) -> tuple[Case, ...]:
    """Every combination once, task by task. Raises UsageError for more than a run can hold."""
    if (count := len(tasks) * len(seeds) * len(attempts) * len(behaviours)) > MAX_EPISODES:
        words = f"{len(tasks):,} tasks, {len(seeds):,} seeds and {len(attempts):,} attempts are {count:,} episodes"
        raise UsageError(f"{words}; a run has at most {MAX_EPISODES:,}", parameters=("tasks", "seeds", "attempts"))
    every = (Case(t, s, a, b) for t in tasks for s in seeds for a in attempts for b in behaviours)
    return tuple(dict.fromkeys(every))


def numbers(text: str, option: str) -> list[int]:
    """The numbers of `0-4,7`. Raises UsageError that names the option."""
    listed: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise UsageError(f"{option} {text!r}: expected numbers and ranges such as 0-4,7")
        if max(map(len, filter(None, match.groups()))) > _MAX_DIGITS:
            raise UsageError(f"{option} {excerpt(text)!r}: a number has at most {_MAX_DIGITS} digits")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"{option} {text!r}: {part.strip()} counts down")
        if len(listed) + last - first >= MAX_EPISODES:
            raise UsageError(f"{option} {text!r}: {part.strip()} has too many numbers; give at most {MAX_EPISODES:,}")
        listed += range(first, last + 1)
    return listed


def fingerprint(settings: object) -> str:
    """Eight characters that differ when the settings do."""
    return _short(msgspec.json.encode(settings, order="deterministic").decode(), 8)


def _short(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True)
class TaskLine:
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


def read_tasks(args: argparse.Namespace, platform: Platform) -> dict[str, Task]:
    """The tasks by id, in order. Raises UsageError that names the place."""
    if bool(args.goal) == bool(args.tasks):
        raise UsageError("give either --tasks or --goal")
    if args.goal:
        tasks = [Task(id=f"goal-{fingerprint(args.goal)}", goal=args.goal)]
    elif args.tasks in NAMES:
        tasks = list(task_list(args.tasks))
    else:
        tasks = _task_file(args.tasks)
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


def task_contents(tasks: Mapping[str, Task]) -> dict[str, object]:
    """What tells each task from another that has the same id in another file, or had it before an edit."""
    return {name: [task.goal, task.site, task.start_url] for name, task in tasks.items()}


def _task_file(path: str) -> list[Task]:
    if not Path(path).is_file():
        raise UsageError(f"--tasks {path!r}: no such file, and no list; the lists are {', '.join(NAMES)}")
    tasks: list[Task] = []
    for line in read_lines(path):
        try:
            row = msgspec.json.decode(line.data, type=TaskLine)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{path}:{line.number}: {error}") from None
        tasks.append(Task(id=row.id, goal=row.goal, site=row.site, start_url=row.start_url))
    return tasks
