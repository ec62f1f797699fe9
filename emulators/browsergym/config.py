"""Configuration of BrowserGym tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.emulators.registry import make_environment
from prill.emulators.settings import EnvironmentConfig, Playing, Setting, TimeoutOption
from prill.emulators.task_source import Names, join_names
from prill.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class BrowserGymConfig(EnvironmentConfig):
    """BrowserGym's tasks: `BrowserGymConfig(tasks=["miniwob.click-test"])`. They need BrowserGym in
    the same environment as prill.
    """

    name: ClassVar[str] = "browsergym"
    _identifying: ClassVar[frozenset[str]] = frozenset({"tasks", "slow_mo", "pause"})

    tasks: Annotated[
        Names,
        Meta(
            description="Registered tasks without `browsergym/`, for example "
            "miniwob.click-test,webarena.7."
        ),
    ] = None
    slow_mo: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Milliseconds before each of Playwright's actions (default: set by "
            "the task)."
        ),
    ] = None
    pause: Annotated[float, Meta(ge=0, description="Seconds before each observation.")] = 0.5
    timeout: TimeoutOption = 180.0

    def check(self) -> None:
        """Converts the task names to one text."""
        object.__setattr__(self, "tasks", join_names(self.tasks))

    def setting(self, run: Playing) -> Setting[Any]:
        """Creates an environment for each worker."""
        from prill.emulators.browsergym.environment import BrowserGym

        if not self.tasks:
            raise UsageError(
                "tasks is missing; name some, for example miniwob.click-test", parameters=("tasks",)
            )
        options: dict[str, Any] = {"slow_mo": self.slow_mo, "pause": self.pause}
        environments: list[Any] = [
            make_environment("browsergym", images=run.images, **options, timeout=self.timeout)
            for _ in range(run.copies)
        ]
        names = [name.strip().removeprefix("browsergym/") for name in str(self.tasks).split(",")]
        lasting = [name for name in names if not name.startswith("miniwob.")]
        leftovers = (
            f"the sites of {lasting[0]} and others keep what an earlier attempt changed there"
            if lasting
            else None
        )
        options |= self.more()
        return Setting(
            environments, names, BrowserGym.task, BrowserGym.grade, options, leftovers=leftovers
        )
