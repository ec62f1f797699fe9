"""Configuration of WebArena-Infinity (github.com/web-arena-x/webarena-infinity): a checkout of it,
and which of its tasks to play.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.config import PagesConfig
from prill.emulators.settings import Playing, Setting
from prill.emulators.task_source import Names, fingerprint, join_names, task_names
from prill.emulators.webarena_infinity.environment import OFFLINE, InfinitySpec, WebArenaInfinity
from prill.errors import UsageError
from prill.io.lines import UNREADABLE
from prill.types import LabelRecord, Task, Trajectory

_SELECTION = {"root", "apps", "difficulty", "set", "split", "task_seed", "verifier_timeout"}
_TEST_SHARE = 5  # one task of so many is for tests
Difficulty = Literal["easy", "medium", "hard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinityTask:
    """One task of an application's file. Tasks of the set `function` have no difficulty."""

    id: str
    instruction: str
    verify: str
    difficulty: Difficulty | None = None


@dataclass(frozen=True, kw_only=True)
class WebArenaInfinityConfig(PagesConfig, InfinitySpec):
    """Tasks of WebArena-Infinity, each application on a server of its own that is reset before each
    episode: `WebArenaInfinityConfig(root="webarena-infinity", apps="gmail", tasks="task_e*")`.
    """

    name: ClassVar[str] = "webarena-infinity"
    _identifying: ClassVar[frozenset[str]] = PagesConfig._identifying | _SELECTION

    apps: Annotated[Names, Meta(description="Applications, for example gmail, or all.")] = "all"
    tasks: Annotated[
        Names, Meta(description="Tasks by name or pattern, for example task_e1,task_m*, or all.")
    ] = "all"
    set: Annotated[
        Literal["real", "function"],
        Meta(description="Task set: realistic tasks, or one function of the page each."),
    ] = "real"
    difficulty: Annotated[
        Difficulty | None, Meta(description="Difficulty of the realistic tasks (default: any).")
    ] = None
    split: Annotated[
        Literal["train", "test"] | None,
        Meta(description="Part of the tasks: a fifth is for tests (default: all)."),
    ] = None
    task_seed: Annotated[int, Meta(description="Seed of the order and the split of tasks.")] = 0

    def check(self) -> None:
        """Joins lists of names."""
        super().check()
        object.__setattr__(self, "apps", join_names(self.apps))
        object.__setattr__(self, "tasks", join_names(self.tasks))

    def setting(self, run: Playing) -> Setting[Any]:
        """Creates a browser, and a window with a server for each worker."""
        if find_spec("requests") is None:
            raise UsageError("WebArena-Infinity's verifiers need requests: pip install requests")
        tasks = self._read()
        names = self._select(tasks)
        sites = {name: name.partition("/")[0] for name in names}
        verifiers = {
            name: Path(self.root, "apps", site, tasks[name].verify) for name, site in sites.items()
        }
        browser, spec = Chromium(arguments=OFFLINE), self.page_options(run, InfinitySpec)
        environments = [
            WebArenaInfinity(run.images, InfinitySpec(**spec), browser=browser)
            for _ in range(run.copies)
        ]

        async def task(environment: WebArenaInfinity, name: str, seed: int) -> Task:
            goal, site = tasks[name].instruction, sites[name]
            url = f"http://{site}.localhost/"
            return Task(id=name, goal=goal, platform="web", site=site, start_url=url)

        async def grade(environment: WebArenaInfinity, trajectory: Trajectory) -> LabelRecord:
            return await environment.grade(trajectory, verifiers[trajectory.task.id])

        return Setting(
            environments,
            names,
            task,
            grade,
            {**self.shown(), **self.more()},
            browser.close,
            {
                name: [tasks[name].instruction, fingerprint(file.read_text("utf-8"))]
                for name, file in verifiers.items()
            },
            sites=sites,
        )

    def _read(self) -> dict[str, InfinityTask]:
        """Reads the applications' tasks by `APP/TASK/SET`."""
        files = {
            file.parent.name: file
            for file in sorted(Path(self.root).glob(f"apps/*/{self.set}-tasks.json"))
        }
        if not files:
            raise UsageError(
                f"root {str(self.root)!r}: no apps/*/{self.set}-tasks.json; give the folder of "
                "git clone https://github.com/web-arena-x/webarena-infinity",
                parameters=("root",),
            )
        tasks: dict[str, InfinityTask] = {}
        for app in task_names(self.apps, list(files), what="apps"):
            try:
                listed = msgspec.json.decode(files[app].read_bytes(), type=list[InfinityTask])
            except UNREADABLE as error:
                raise UsageError(f"{files[app]}: {error}") from None
            tasks |= {f"{app}/{task.id}/{self.set}": task for task in listed}
        return tasks

    def _select(self, tasks: Mapping[str, InfinityTask]) -> list[str]:
        """Returns the tasks to play, in an order that mixes applications. The place and the split
        of a task depend on its id and the seed alone.
        """
        places: dict[str, int] = {}
        for pattern in str(self.tasks).split(","):
            found = [name for name in tasks if _matches(name, pattern.strip())]
            if not found:
                raise UsageError(
                    f"tasks: no task matches {pattern!r}; one is {next(iter(tasks), 'none')}",
                    parameters=("tasks",),
                )
            places |= {name: _place(name, self.task_seed) for name in found}
        wanted = [
            name
            for name in sorted(places, key=places.__getitem__)
            if self.difficulty in (None, tasks[name].difficulty)
            and (not self.split or (self.split == "test") == (places[name] % _TEST_SHARE == 0))
        ]
        if not wanted:
            raise UsageError(
                "no task is left by tasks, difficulty (function tasks have none) and split",
                parameters=("tasks", "difficulty", "split"),
            )
        return wanted


def _matches(name: str, pattern: str) -> bool:
    parts = (name, name.split("/")[1])
    return pattern == "all" or any(fnmatchcase(part, pattern) for part in parts)


def _place(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big")
