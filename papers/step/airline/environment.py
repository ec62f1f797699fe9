"""AirlineCRM as an environment (arXiv 2310.03720): an airline's customer service site in a browser,
and the service that grades scenarios.

The original was never released. `prill.papers.step.airline.desk` is a site with the same four
addresses. $AIRLINE can name another site, and $AIRLINE_TOKEN the token for its service. Agents and
records see the site at `airline.example`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
from msgspec import Meta

from prill.config.registry import read_options
from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.config import PagesConfig
from prill.emulators.browser.environment import BrowserEnvironment, Hooks, PageSpec
from prill.emulators.settings import Playing, Scripts, Setting, broken_label
from prill.emulators.task_source import Names, join_names, task_names
from prill.errors import EnvironmentFailedError, UsageError
from prill.papers.replies import read_toml
from prill.protocols import Policy
from prill.types import Action, LabelRecord, Observation, Task, Trajectory

if TYPE_CHECKING:
    from playwright.async_api import Page

PUBLIC = "http://airline.example"
SCENARIOS = 20
# The original states the limit for the last two tasks only.
LIMITS = {
    "find-booking": 15,
    "cancel-flight": 15,
    "find-flight": 15,
    "update-passenger-details": 15,
    "book-flight": 25,
}
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """The address of the site, and the token of its service, which is never printed."""

    address: str
    token: str = field(default="", repr=False)

    async def ask(self, path: str, **query: str) -> Any:
        """Requests one of the service's addresses. Raises EnvironmentFailedError."""
        import aiohttp

        values = {**query, "token": self.token} if self.token else query
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT)) as session,
                session.get(f"{self.address}/{path}", params=values) as answer,
            ):
                if answer.status != 200:
                    raise EnvironmentFailedError(
                        f"the airline at {self.address} responds to {path} with status "
                        f"{answer.status}"
                    )
                return msgspec.json.decode(await answer.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EnvironmentFailedError(
                f"the airline at {self.address} does not respond to {path}: {type(error).__name__}"
            ) from None
        except msgspec.DecodeError:
            raise EnvironmentFailedError(
                f"the airline at {self.address} returned invalid JSON for {path}"
            ) from None


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The service's response to a request for a scenario."""

    id: str
    details: dict[str, Any]


class _Metric(msgspec.Struct, frozen=True):
    task_completion: float = 0.0
    complete: float = msgspec.field(default=0.0, name="%complete")


@dataclass(frozen=True, slots=True)
class _Evaluation:
    metrics: tuple[_Metric, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AirlineSpec(PageSpec):
    """Options of the airline environment."""

    limited: Annotated[
        bool, Meta(description="End an episode after 15 actions, or 25 for bookings.")
    ] = True


class Airline:
    """Plays the airline's tasks. A seed is a scenario, 0 to 19; a given browser stays open."""

    def __init__(
        self,
        images: Path,
        service: Service,
        spec: AirlineSpec = AirlineSpec(),
        *,
        browser: Chromium | None = None,
    ) -> None:
        self._service = service
        self._spec = spec
        self._browser = browser or Chromium()
        self._owns_browser = browser is None
        hooks = Hooks(real_url=self._real, public_url=self._public)
        self._environment = BrowserEnvironment(images, spec, browser=self._browser, hooks=hooks)
        self._scenario = ""
        self._left = 0

    @staticmethod
    def tasks() -> tuple[str, ...]:
        """The names of the five tasks."""
        return tuple(LIMITS)

    @property
    def page(self) -> Page:
        """The agent's current tab. Raises UsageError if no episode is open."""
        return self._environment.page

    async def task(self, name: str, seed: int) -> Task:
        """Returns the task with the goal of that scenario. Raises UsageError."""
        if name not in LIMITS or not 0 <= seed < SCENARIOS:
            raise UsageError(
                f"unknown scenario {seed} of {name!r}; the tasks are {', '.join(LIMITS)}, "
                f"with seeds 0 to {SCENARIOS - 1}"
            )
        answer = await self._service.ask(
            "get-random-scenario", task=f"TASK_{name.replace('-', '_').upper()}", seed=str(seed)
        )
        try:
            drawn = msgspec.convert(answer, _Drawn)
            goal = _goal(name, drawn.details)
        except (msgspec.ValidationError, LookupError) as problem:
            raise EnvironmentFailedError(
                f"the airline's scenario {seed} of {name} cannot be read: {problem}"
            ) from None
        start = f"{PUBLIC}/?{urlencode({'scenario': drawn.id})}"
        return Task(
            id=f"airline/{name}?seed={seed}",
            goal=goal,
            platform="web",
            site="airline",
            start_url=start,
        )

    async def reset(self, task: Task) -> Observation:
        """Resets the scenario that the task's address names, and returns its first page."""
        named = parse_qs(urlsplit(task.start_url or "").query).get("scenario")
        if not named:
            raise UsageError(
                f"task {task.id!r}: its start_url has no scenario: {PUBLIC}/?scenario=…"
            )
        self._scenario = named[0]
        name = task.id.removeprefix("airline/").partition("?")[0]
        self._left = LIMITS.get(name, max(LIMITS.values()))
        await self._service.ask("reset-scenario", scenario=self._scenario)
        return await self._environment.reset(task)

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Returns the page after the action, and whether the task is done or the limit reached."""
        observation, done = await self._environment.step(action)
        self._left -= 1
        used_up = self._spec.limited and self._left <= 0
        return observation, done or used_up or (await self._evaluate()).task_completion >= 1

    async def locate(self, action: Action) -> Action:
        """Returns the action with its element's line and its position in the window."""
        return await self._environment.locate(action)

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Labels the episode by `task_completion`, with the progress as note."""
        if trajectory.error is not None:
            return broken_label(trajectory)
        now = await self._evaluate()
        note = f"progress {now.complete:.2f}"
        return LabelRecord(
            id=trajectory.id, success=now.task_completion >= 1, source="oracle", note=note
        )

    async def close(self) -> None:
        """Ends the episode, and closes the browser unless it was given."""
        await self._environment.close()
        if self._owns_browser:
            await self._browser.close()

    async def _evaluate(self) -> _Metric:
        answer = await self._service.ask("evaluate", scenario=self._scenario)
        try:
            metrics = msgspec.convert(answer, _Evaluation).metrics
        except msgspec.ValidationError as problem:
            raise EnvironmentFailedError(
                f"the airline's evaluation cannot be read: {problem}"
            ) from None
        # A scenario without reported metrics has no progress.
        return metrics[-1] if metrics else _Metric()

    def _real(self, url: str) -> str:
        return _moved(url, PUBLIC, self._service.address)

    def _public(self, url: str) -> str:
        return _moved(url, self._service.address, PUBLIC)


def airline(
    images: Path, spec: AirlineSpec = AirlineSpec(), *, browser: Chromium | None = None
) -> Airline:
    """Makes the environment for the site at $AIRLINE. Raises UsageError if it is not set."""
    return Airline(images, read_service(os.environ), spec, browser=browser)


def read_service(environ: Mapping[str, str]) -> Service:
    """Reads the variables AIRLINE and AIRLINE_TOKEN. Raises UsageError."""
    address = environ.get("AIRLINE", "").strip().rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise UsageError(
            "AIRLINE is not set; export AIRLINE=URL; python -m "
            "prill.papers.step.airline.desk starts a service"
        )
    return Service(address, environ.get("AIRLINE_TOKEN", ""))


def _moved(url: str, start: str, other: str) -> str:
    rest = url[len(start) :]
    return other + rest if url.startswith(start) and (not rest or rest[0] in "/?#") else url


def _goal(name: str, details: Mapping[str, Any]) -> str:
    """Returns the caller's request as text. Raises LookupError for incomplete details."""
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
    _identifying: ClassVar[frozenset[str]] = PagesConfig._identifying | {"remote"}

    tasks: Annotated[
        Names, Meta(description=f"all, or some of {', '.join(Airline.tasks())}; seeds 0 to 19.")
    ] = None
    remote: Annotated[
        bool,
        Meta(description="Use the service at $AIRLINE instead of a local one ($AIRLINE_TOKEN)."),
    ] = False

    def check(self) -> None:
        """Converts the window's size to text, and refuses an invalid size."""
        super().check()
        object.__setattr__(self, "tasks", join_names(self.tasks))

    def setting(self, run: Playing) -> Setting[Any]:
        """Starts a site and a browser window for each worker."""
        from prill.emulators.browser.chromium import Chromium

        names = task_names(self.tasks, Airline.tasks())
        if max(run.seeds, default=0) >= SCENARIOS:  # report this before the run starts
            raise UsageError(
                f"seeds: each task has the scenarios 0 to {SCENARIOS - 1}", parameters=("seeds",)
            )
        if self.remote and run.attempts > 1 and run.copies > 1:
            raise UsageError(
                "remote: two workers would play one scenario at the same time; leave out "
                "workers or attempts",
                parameters=("remote", "workers", "attempts"),
            )
        options = self.page_options(run, AirlineSpec)
        spec = AirlineSpec(**read_options(AirlineSpec, options, "environment 'airline'"))
        browser = Chromium()
        with ExitStack() as stack:
            services = [self._service(stack) for _ in range(run.copies)]
            desks = stack.pop_all()  # the sites stay open until the setting is closed
        environments = [Airline(run.images, service, spec, browser=browser) for service in services]

        async def close() -> None:
            await browser.close()
            desks.close()

        settings = {**self.shown(), "elsewhere": self.remote, **self.more()}
        return Setting(environments, names, Airline.task, Airline.grade, settings, close)

    def scripts(self) -> Scripts:
        """Returns solutions for the scenarios of a site in this process."""
        from prill.emulators.shop.play import ShopPlay
        from prill.papers.step.airline.desk import solution

        if self.remote:
            raise UsageError(
                "the scripted policy only knows the scenarios of this process; leave out remote",
                parameters=("remote",),
            )

        def play(task: str, seed: int, behaviour: str) -> Policy:
            return ShopPlay(solution(f"TASK_{task.replace('-', '_').upper()}", seed))

        return Scripts(play, ("solve",), where="at the airline")

    def _service(self, desks: ExitStack) -> Service:
        if self.remote:
            return read_service(os.environ)
        from prill.papers.step.airline.desk import AirlineDesk

        desk = desks.enter_context(AirlineDesk())
        return Service(desk.url, desk.token)
