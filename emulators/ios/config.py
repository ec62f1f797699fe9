"""Configuration of the iOS environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.config.registry import list_options
from prill.emulators.ios.environment import IosSpec
from prill.emulators.phones import join_devices, one_a_worker
from prill.emulators.registry import make_environment
from prill.emulators.settings import Playing, Setting, task_setting
from prill.emulators.task_source import GoalsConfig, task_contents
from prill.types import Platform


@dataclass(frozen=True, kw_only=True)
class IosConfig(GoalsConfig, IosSpec):
    """iOS simulators: `IosConfig(simulator="iPhone 14", tasks="ios_eval")`."""

    name: ClassVar[str] = "ios"
    platform: ClassVar[Platform] = "ios"
    usual_steps: ClassVar[int] = 10  # the limit of the paper's code
    _told: ClassVar[frozenset[str]] = frozenset(
        {"tasks", "goal", "start_url", "simulator", "companion", "simctl", "restore", "swipe_up"}
    )

    start_url: Annotated[
        str | None,
        Meta(description="Start of tasks that name none: app:com.apple.Preferences, or a URL."),
    ] = None
    simulator: Annotated[
        str | Sequence[str] | None,
        Meta(
            description="Name or UDID of simulators, one per worker (default: the only running "
            "simulator)."
        ),
    ] = None  # type: ignore[assignment]

    def check(self) -> None:
        """Converts the device names to one text."""
        object.__setattr__(self, "simulator", join_devices(self.simulator))

    def setting(self, run: Playing) -> Setting[Any]:
        """Makes a phone for each worker."""
        named = join_devices(self.simulator)
        if self.restore == "clone" and "," not in (named or ""):
            # every worker has copies of its own of the one simulator
            simulators = [named] * run.copies
        else:
            simulators = one_a_worker(run.workers, named, "simulator")
        options = {
            name: getattr(self, name) for name in list_options(IosSpec) if name != "simulator"
        }
        environments = [
            make_environment("ios", images=run.images, simulator=simulator, **options)
            for simulator in simulators
        ]
        # A clone depends on the prepared simulator; erased simulators are interchangeable.
        clone = named if self.restore == "clone" else None
        told = {
            "simulator": clone,
            "restore": self.restore,
            "swipe_up": self.swipe_up,
            **self.more(),
        }
        leftovers = (
            "the simulator keeps what an earlier attempt changed"
            if self.restore == "none"
            else None
        )
        tasks = self.read_tasks("ios")
        return task_setting(
            environments, tasks, task_contents(tasks), told, patience=3, leftovers=leftovers
        )
