"""AirlineCRM as an environment (arXiv 2310.03720): an airline's customer service site in a browser,
whose scenarios are graded in this process.

The original was never released. Agents and records see the site at `airline.example`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Meta

from prill.config.registry import read_options
from prill.emulators.browser.actions import Typing
from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.config import PagesConfig
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.emulators.settings import Playing, Scripts, Setting, broken_label
from prill.emulators.task_source import Names, join_names, task_names
from prill.errors import UsageError
from prill.papers.replies import read_toml
from prill.papers.step.airline.desk.server import AirlineDesk
from prill.papers.step.airline.desk.world import SCENARIOS, scenario, solution
from prill.protocols import Policy
from prill.types import Action, LabelRecord, Observation, Task, Trajectory

PUBLIC = "http://airline.example"
# The original states the limit for the last two tasks only.
LIMITS = {
    "find-booking": 15,
    "cancel-flight": 15,
    "find-flight": 15,
    "update-passenger-details": 15,
    "book-flight": 25,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AirlineSpec(PageSpec):
    """Options of the airline environment."""

    webarena_text: bool = True
    limited: Annotated[
        bool, Meta(description="End an episode after 15 actions, or 25 for bookings.")
    ] = True


class Airline(BrowserEnvironment):
    """Plays the airline's tasks. A seed is a scenario, 0 to 19; a given browser stays open."""

    def __init__(
        self, images: Path, spec: AirlineSpec = AirlineSpec(), *, browser: Chromium | None = None
    ) -> None:
        super().__init__(images, spec, browser=browser)
        self._desk = AirlineDesk()
        self._limited = spec.limited
        self._left = 0

    @staticmethod
    def tasks() -> tuple[str, ...]:
        """The names of the five tasks."""
        return tuple(LIMITS)

    async def task(self, name: str, seed: int) -> Task:
        """Returns the task with the goal of that scenario. Raises UsageError."""
        if name not in LIMITS or not 0 <= seed < SCENARIOS:
            raise UsageError(
                f"unknown scenario {seed} of {name!r}; the tasks are {', '.join(LIMITS)}, "
                f"with seeds 0 to {SCENARIOS - 1}"
            )
        drawn = scenario(_original(name), seed)
        return Task(
            id=f"airline/{name}?seed={seed}",
            goal=_goal(name, drawn.details),
            platform="web",
            site="airline",
            start_url=f"{PUBLIC}/?{urlencode({'scenario': drawn.id})}",
        )

    async def reset(self, task: Task) -> Observation:
        """Resets the scenario that the task's address names, and returns its first page."""
        named = parse_qs(urlsplit(task.start_url or "").query).get("scenario")
        if not named:
            raise UsageError(
                f"task {task.id!r}: its start_url has no scenario: {PUBLIC}/?scenario=…"
            )
        name = task.id.removeprefix("airline/").partition("?")[0]
        self._left = LIMITS.get(name, max(LIMITS.values()))
        try:
            self._desk.reset(named[0])
        except LookupError as problem:
            raise UsageError(f"task {task.id!r}: {problem.args[0]}") from None
        if not self._desk.is_open:
            await asyncio.to_thread(self._desk.__enter__)
        return await super().reset(task)

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Returns the page after the action, and whether the task is done or the limit reached."""
        observation, done = await super().step(action)
        self._left -= 1
        used_up = self._limited and self._left <= 0
        return observation, done or used_up or self._desk.state.done

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Labels the episode, with the progress as note."""
        if trajectory.error is not None:
            return broken_label(trajectory)
        now = self._desk.state
        note = f"progress {now.progress:.2f}"
        return LabelRecord(id=trajectory.id, success=now.done, source="oracle", note=note)

    async def close(self) -> None:
        """Ends the episode and the site, and closes the browser unless it was given."""
        await super().close()
        await asyncio.to_thread(self._desk.close)

    def _real_url(self, url: str) -> str:
        return _moved(url, PUBLIC, self._desk.url)

    def _public_url(self, url: str) -> str:
        return _moved(url, self._desk.url, PUBLIC)


def _original(name: str) -> str:
    """Returns the task's name in the original service."""
    return f"TASK_{name.replace('-', '_').upper()}"


def _moved(url: str, start: str, other: str) -> str:
    rest = url[len(start) :]
    return other + rest if url.startswith(start) and (not rest or rest[0] in "/?#") else url


def _goal(name: str, details: Mapping[str, Any]) -> str:
    """Returns the caller's request as text."""
    texts = read_toml("prill.papers.step.airline", "goals.toml")
    values = {**details, **details.get("flight", {}), **details.get("payment-details", {})}
    if passenger := details.get("passenger"):
        given = (field for field in texts["fields"] if field in passenger)
        values["passenger"] = ", ".join(f"{texts['fields'][one]} {passenger[one]}" for one in given)
    return str(texts["goals"][name].format_map(values))


@dataclass(frozen=True, kw_only=True)
class AirlineConfig(PagesConfig, AirlineSpec):
    """An airline's service site with progress scores: `AirlineConfig(tasks="all")`."""

    name: ClassVar[str] = "airline"
    usual_steps: ClassVar[int] = 25

    typing: Annotated[Typing, "typing replaces what a field holds, or appends to it"] = "replace"
    tasks: Annotated[
        Names, Meta(description=f"all, or some of {', '.join(Airline.tasks())}; seeds 0 to 19.")
    ] = None

    def check(self) -> None:
        """Converts the window's size to text, and refuses an invalid size."""
        super().check()
        object.__setattr__(self, "tasks", join_names(self.tasks))

    def setting(self, run: Playing) -> Setting[Any]:
        """Starts a site and a browser window for each worker."""
        names = task_names(self.tasks, Airline.tasks())
        if max(run.seeds, default=0) >= SCENARIOS:  # report this before the run starts
            raise UsageError(
                f"seeds: each task has the scenarios 0 to {SCENARIOS - 1}", parameters=("seeds",)
            )
        options = self.page_options(run, AirlineSpec)
        spec = AirlineSpec(**read_options(AirlineSpec, options, "environment 'airline'"))
        browser = Chromium()
        environments = [Airline(run.images, spec, browser=browser) for _ in range(run.copies)]

        async def close() -> None:
            for environment in environments:
                await environment.close()
            await browser.close()

        settings = {**self.shown(), "elsewhere": False, **self.more()}
        return Setting(environments, names, Airline.task, Airline.grade, settings, close)

    def scripts(self) -> Scripts:
        """Returns solutions for the scenarios of the site."""
        from prill.emulators.shop.play import ShopPlay

        def play(task: str, seed: int, behaviour: str) -> Policy:
            return ShopPlay(solution(_original(task), seed))

        return Scripts(play, ("solve",), where="at the airline")
