"""Configuration of the iOS environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.emulators.ios.environment import IosSpec
from prill.emulators.phones import PhoneConfig
from prill.emulators.settings import Playing, Setting
from prill.types import Platform


@dataclass(frozen=True, kw_only=True)
class IosConfig(PhoneConfig, IosSpec):
    """iOS simulators: `IosConfig(simulator="iPhone 14", tasks="ios_eval")`."""

    name: ClassVar[str] = "ios"
    platform: ClassVar[Platform] = "ios"
    _device: ClassVar[str] = "simulator"
    usual_steps: ClassVar[int] = 10  # the limit of the paper's code
    _identifying: ClassVar[frozenset[str]] = frozenset(
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

    def setting(self, run: Playing) -> Setting[Any]:
        """Makes a phone for each worker."""
        named: Any = self.simulator
        # With clones, every worker has copies of its own of the one simulator.
        shared = self.restore == "clone" and "," not in (named or "")
        devices = [named] * run.copies if shared else self.one_a_worker(run.workers)
        # A clone depends on the prepared simulator; erased simulators are interchangeable.
        clone = named if self.restore == "clone" else None
        options = {"simulator": clone, "restore": self.restore, "swipe_up": self.swipe_up}
        leftovers = "the simulator keeps what an earlier attempt changed"
        return self.phones(
            run, IosSpec, devices, options, leftovers if self.restore == "none" else None
        )
