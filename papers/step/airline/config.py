"""Configuration of AirlineCRM: a site served by this process, or one at a given address."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.config.registry import read_options
from prill.emulators.browser.config import PagesConfig
from prill.emulators.settings import Playing, Scripts, Setting
from prill.emulators.task_source import Names, join_names, task_names
from prill.errors import UsageError
from prill.papers.step.airline.environment import (
    SCENARIOS,
    Airline,
    AirlineSpec,
    Service,
    read_service,
)
from prill.protocols import Policy


@dataclass(frozen=True, kw_only=True)
class AirlineConfig(PagesConfig, AirlineSpec):
    """An airline's customer service site with progress scores: `AirlineConfig(tasks="all")`. Each
    task has seeds 0 to 19.
    """

    name: ClassVar[str] = "airline"
    usual_steps: ClassVar[int] = 25
    _told: ClassVar[frozenset[str]] = PagesConfig._told | {"elsewhere"}

    tasks: Annotated[
        Names, Meta(description=f"all, or some of {', '.join(Airline.tasks())}; seeds 0 to 19.")
    ] = None
    elsewhere: Annotated[
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
        if self.elsewhere and run.attempts > 1 and run.copies > 1:
            raise UsageError(
                "elsewhere: two workers would play one scenario at the same time; leave out "
                "workers or attempts",
                parameters=("elsewhere", "workers", "attempts"),
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

        told = {**self.shown(), "elsewhere": self.elsewhere, **self.more()}
        return Setting(environments, names, Airline.task, Airline.grade, told, close)

    def scripts(self) -> Scripts:
        """Returns solutions for the scenarios of a site in this process."""
        from prill.emulators.shop.play import ShopPlay
        from prill.papers.step.airline.desk import solution

        if self.elsewhere:
            raise UsageError(
                "the scripted policy only knows the scenarios of this process; leave out elsewhere",
                parameters=("elsewhere",),
            )

        def play(task: str, seed: int, behaviour: str) -> Policy:
            return ShopPlay(solution(f"TASK_{task.replace('-', '_').upper()}", seed))

        return Scripts(play, ("solve",), where="at the airline")

    def _service(self, desks: ExitStack) -> Service:
        if self.elsewhere:
            return read_service(os.environ)
        from prill.papers.step.airline.desk import AirlineDesk

        desk = desks.enter_context(AirlineDesk())
        return Service(desk.url, desk.token)
