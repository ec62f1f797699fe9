"""Configuration of web pages: viewport, observation, and tasks that start at a URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from msgspec import Meta

from prill.config.registry import OptionError, list_options
from prill.config.values import config_options
from prill.emulators.browser.actions import Typing
from prill.emulators.browser.environment import VIEWPORT, PageSpec
from prill.emulators.registry import make_environment
from prill.emulators.settings import EnvironmentConfig, Playing, Setting
from prill.emulators.task_source import GoalsConfig
from prill.errors import UsageError

_VIEWPORT = "1280x720"
_RULES = ("typing", "failures", "webarena_text")
_PAGES = frozenset({"tasks", "viewport", "whole_page", "pause", "traces"})


@dataclass(frozen=True, kw_only=True)
class PagesConfig(EnvironmentConfig, PageSpec):
    """Settings for displaying pages and waiting for them."""

    viewport: Annotated[str | tuple[int, int] | None, VIEWPORT] = None  # type: ignore[assignment]
    traces: Annotated[
        bool, Meta(description="Save a Playwright trace of every episode in the folder traces.")
    ] = False  # type: ignore[assignment]
    typing: Annotated[
        Typing | None,
        Meta(
            description="Whether typing replaces what a field holds, or appends to it (default: "
            "replace; as in WebArena append in webarena, and for agents of papers)."
        ),
    ] = None  # type: ignore[assignment]
    failures: Annotated[
        bool | None,
        "tell in the text which actions were not carried out, and that a page is still loading; "
        "none: yes, except to agents of papers",
    ] = None  # type: ignore[assignment]
    webarena_text: Annotated[
        bool | None,
        "leave out of the text what WebArena's lacks: descriptions of icons, and marks of elements "
        "that can be clicked but have no role; none: in webarena, and for agents of papers",
    ] = None  # type: ignore[assignment]
    _identifying: ClassVar[frozenset[str]] = _PAGES

    def check(self) -> None:
        """Checks the window's size."""
        if (viewport := self.viewport) is None:
            return
        width, _, height = (
            viewport.partition("x")
            if isinstance(viewport, str)
            else (str(viewport[0]), "", str(viewport[1]))
        )
        if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
            raise OptionError(
                f"viewport: expected a size such as 1280x720, got {viewport!r}", "viewport"
            )
        object.__setattr__(self, "viewport", f"{int(width)}x{int(height)}")

    def shown(self) -> dict[str, Any]:
        """Returns the display settings as they appear in episode ids."""
        width, _, height = str(self.viewport or _VIEWPORT).partition("x")
        return {
            "viewport": (int(width), int(height)),
            "whole_page": self.whole_page,
            "pause": self.pause,
        }

    def types(self) -> Typing:
        """Returns what typing does with the content of a field, for an agent's prompt."""
        specs = (c for c in type(self).__mro__ if issubclass(c, PageSpec))
        spec = next(c for c in specs if not issubclass(c, EnvironmentConfig))
        return self.typing or cast("Typing", list_options(spec)["typing"].default)

    def page_options(self, run: Playing, spec: type[PageSpec]) -> dict[str, Any]:
        """Returns the options of the environment."""
        own = {
            name: getattr(self, name)
            for name in list_options(spec)
            if name in config_options(type(self))
        }
        usual = {name: list_options(spec)[name].default for name in _RULES}
        if run.published:
            usual = {"typing": "append", "failures": False, "webarena_text": True}
        own |= {name: value for name, value in usual.items() if own[name] is None}
        return {
            **own,
            **self.shown(),
            "traces": run.images.parent / "traces" if self.traces else None,
        }


@dataclass(frozen=True, kw_only=True)
class WebConfig(GoalsConfig, PagesConfig):
    """Any web page: `WebConfig(goal="Find the price", start_url="http://127.0.0.1")`."""

    name: ClassVar[str] = "web"
    _identifying: ClassVar[frozenset[str]] = _PAGES | {"goal", "start_url"}

    def setting(self, run: Playing) -> Setting[Any]:
        """Creates a browser, and a window for each worker."""
        from prill.emulators.browser.chromium import Chromium

        for task in self.read_tasks("web").values():
            if not task.start_url:
                raise UsageError(
                    f"task {task.id}: start_url is missing; add it to the task, or set one "
                    "for all tasks",
                    parameters=("start_url",),
                )
        browser, options = Chromium(), self.page_options(run, PageSpec)
        environments = [
            make_environment("web", images=run.images, browser=browser, **options)
            for _ in range(run.copies)
        ]
        leftovers = "the sites keep what an earlier attempt changed there"
        settings = {**self.shown(), **self.more()}
        return self.goal_setting(
            environments, "web", settings, close=browser.close, leftovers=leftovers
        )
