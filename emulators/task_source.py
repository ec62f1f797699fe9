"""Task selection: names, numbers, ranges, task files, the paper's lists, and goals."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.config.registry import OptionError, nearest
from prill.emulators.settings import EnvironmentConfig, Setting
from prill.errors import UsageError
from prill.io.lines import UNREADABLE, decode_as
from prill.io.store import read_lines
from prill.models.replies import excerpt
from prill.types import Platform, Task

# The limit of episodes per run and of seeds per option, so that a mistyped range does not fill the
# memory.
MAX_EPISODES = 1_000_000
_MAX_DIGITS = 18  # of a seed: it stays below 2**63, which generators of random numbers take

Names = int | str | Sequence[int | str] | None


def numbers(text: str, option: str) -> list[int]:
    """Parses numbers such as `0-4,7`. Raises UsageError that names the option."""
    listed: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise UsageError(
                f"{option} {text!r}: expected numbers and ranges such as 0-4,7",
                parameters=(option,),
            )
        if max(map(len, filter(None, match.groups()))) > _MAX_DIGITS:
            raise UsageError(
                f"{option} {excerpt(text)!r}: a number may have at most {_MAX_DIGITS} digits",
                parameters=(option,),
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(
                f"{option} {text!r}: the range {part.strip()} is descending", parameters=(option,)
            )
        if len(listed) + last - first >= MAX_EPISODES:
            raise UsageError(
                f"{option} {text!r}: {part.strip()} has too many numbers; use at most "
                f"{MAX_EPISODES:,}",
                parameters=(option,),
            )
        listed += range(first, last + 1)
    return listed


def fingerprint(settings: object) -> str:
    """Returns a hash of the settings, eight characters long."""
    text = msgspec.json.encode(settings, order="deterministic").decode()
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def join_names(names: Names) -> str | None:
    """Joins names or numbers into one text with commas."""
    return (
        ",".join(map(str, names))
        if isinstance(names, list | tuple)
        else None
        if names is None
        else str(names)
    )


def task_names(
    spec: Names, names: Sequence[str], *, ranges: bool = False, what: str = "tasks"
) -> list[str]:
    """Parses names of the option `what` such as `a,b` or `all`, with `ranges` also `0-9`. Raises
    UsageError.
    """
    text = join_names(spec)
    if not text:
        raise UsageError(f"{what} is missing; give names, or all", parameters=(what,))
    if text == "all":
        return list(names)
    wanted = (
        [str(n) for n in numbers(text, what)]
        if ranges
        else [word.strip() for word in text.split(",")]
    )
    if unknown := [name for name in wanted if name not in names]:
        raise UsageError(
            f"{what}: unknown {what.removesuffix('s')} {', '.join(unknown)}; expected one of "
            f"{len(names)}, for example {', '.join(names[:5])}",
            parameters=(what,),
        )
    return wanted


@dataclass(frozen=True)
class TaskLine:
    """A line of a task file: `{"id": "…", "goal": "…", "start_url": "…"}`; the goal is required, an
    id is made of the rest. `files` is a folder with files to upload, next to the task file.
    """

    goal: str
    id: str = ""
    site: str | None = None
    start_url: str | None = None
    files: str | None = None


_KEYS = tuple(field.name for field in fields(TaskLine))


@dataclass(frozen=True, kw_only=True)
class GoalsConfig(EnvironmentConfig):
    """Tasks given as goals: a file, one of the paper's lists, or texts."""

    tasks: Annotated[
        str | Path | Sequence[Task | TaskLine | Mapping[str, Any] | str] | None,
        Meta(
            description=f"Tasks: a JSON Lines file ({{id, goal, start_url, files}}), or a built-in "
            f"list: {', '.join(NAMES)}."
        ),
    ] = None
    goal: Annotated[
        str | Sequence[str] | None,
        Meta(description="Goals of one or several tasks, instead of tasks."),
    ] = None
    start_url: Annotated[
        str | None,
        Meta(
            description="Start of tasks that name none: a URL (several tabs: ' |AND| ' between "
            "them), or on a phone app:com.example."
        ),
    ] = None

    def __post_init__(self) -> None:
        if isinstance(self.tasks, list | tuple):
            object.__setattr__(self, "tasks", tuple(_line(task) for task in self.tasks))
        elif self.tasks is not None and not isinstance(self.tasks, str | Path):
            raise OptionError(
                f"tasks: expected a file, the name of a list, or tasks, got {self.tasks!r}", "tasks"
            )
        super().__post_init__()

    def _lines(self) -> Sequence[TaskLine]:
        return (
            [line for line in self.tasks or () if isinstance(line, TaskLine)]
            if isinstance(self.tasks, tuple)
            else []
        )

    def table(self) -> dict[str, Any]:
        """The configuration as a TOML table."""
        table = super().table()
        if isinstance(self.tasks, tuple):
            table["tasks"] = [
                {key: value for key, value in asdict(line).items() if value not in ("", None)}
                for line in self._lines()
            ]
        return table

    def read_tasks(self, platform: Platform) -> dict[str, Task]:
        """Reads the tasks of a platform by id, in order. Raises UsageError if there are none, or
        two have the same id; the message names the line.
        """
        if bool(self.goal) == bool(self.tasks):
            raise UsageError("give either tasks or goal", parameters=("tasks", "goal"))
        if self.goal:
            goals = [self.goal] if isinstance(self.goal, str) else self.goal
            tasks = [Task(id=f"goal-{fingerprint(goal)}", goal=goal) for goal in goals]
        elif isinstance(self.tasks, tuple):
            tasks = [_task(line) for line in self._lines()]
        elif self.tasks in NAMES:
            tasks = list(task_list(str(self.tasks)))
        else:
            tasks = _task_file(str(self.tasks))
        named = [
            replace(
                task,
                id=task.id or f"task-{fingerprint([task.goal, task.site, task.start_url])}",
                platform=platform,
                start_url=task.start_url or self.start_url,
            )
            for task in tasks
        ]
        by_id = {task.id: task for task in named}
        if len(by_id) < len(named):
            place = self.tasks if isinstance(self.tasks, str) else "tasks"
            raise UsageError(f"{place}: duplicate task id")
        return by_id

    def goal_setting(
        self,
        environments: Sequence[Any],
        platform: Platform,
        fingerprint: Mapping[str, Any],
        **more: Any,
    ) -> Setting[Any]:
        """Returns the setting of the tasks in these environments; seeds do not change the tasks.

        `more` are further fields of the setting.
        """
        tasks = self.read_tasks(platform)

        async def task(environment: Any, name: str, seed: int) -> Task:
            return tasks[name]

        return Setting(
            environments,
            list(tasks),
            task,
            fingerprint=fingerprint,
            contents=task_contents(tasks),
            **more,
        )


def task_contents(tasks: Mapping[str, Task]) -> dict[str, object]:
    """Returns fingerprints that distinguish tasks with equal ids, for example after an edit."""
    return {
        name: [task.goal, task.site, task.start_url, *filter(None, [task.files])]
        for name, task in tasks.items()
    }


def _line(task: Any) -> TaskLine:
    """Converts a task to a line. Raises OptionError."""
    if isinstance(task, TaskLine):
        return task
    if isinstance(task, Task):
        return TaskLine(task.goal, task.id, task.site, task.start_url, task.files or None)
    if isinstance(task, Mapping) and (odd := next((key for key in task if key not in _KEYS), None)):
        raise OptionError(
            f"tasks: a task has no key {odd!r}{nearest(str(odd), _KEYS)}; its keys are "
            f"{', '.join(_KEYS)}",
            "tasks",
        )
    try:
        return msgspec.convert({"goal": task} if isinstance(task, str) else task, TaskLine)
    except msgspec.ValidationError as error:
        raise OptionError(f"tasks: {error}, got {task!r}", "tasks") from None


def _task(line: TaskLine) -> Task:
    return Task(
        id=line.id,
        goal=line.goal,
        site=line.site,
        start_url=line.start_url,
        files=line.files or msgspec.UNSET,
    )


def _task_file(path: str) -> list[Task]:
    if not Path(path).is_file():
        raise UsageError(
            f"tasks {path!r}: neither a file nor a task list; the lists are {', '.join(NAMES)}",
            parameters=("tasks",),
        )
    tasks: list[Task] = []
    for line in read_lines(path):
        try:
            row = decode_as(line.data, TaskLine)
        except UNREADABLE as error:
            raise UsageError(f"{path}:{line.number}: {error}") from None
        files = row.files and str(Path(path).parent / row.files)
        tasks.append(_task(replace(row, files=files)))
    return tasks


NAMES = ("android", "ios_train", "ios_eval")
_FOLDER = Path(__file__).resolve().parent / "tasks"


def task_list(name: str) -> tuple[Task, ...]:
    """Returns the tasks of `android`, `ios_train` or `ios_eval`. Raises UsageError for others."""
    if name not in NAMES:
        raise UsageError(f"unknown task list {name!r}; expected one of {', '.join(NAMES)}")
    decoder = msgspec.json.Decoder(Task)
    return tuple(decoder.decode(line.data) for line in read_lines(_FOLDER / f"{name}.jsonl"))
