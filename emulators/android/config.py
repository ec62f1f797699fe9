"""Configuration of the Android environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.emulators.android.environment import AndroidSpec
from prill.emulators.phones import PhoneConfig
from prill.emulators.settings import Playing, Setting
from prill.errors import UsageError
from prill.types import Platform


@dataclass(frozen=True, kw_only=True)
class AndroidConfig(PhoneConfig, AndroidSpec):
    """Android devices and emulators: `AndroidConfig(avd="Pixel_4_API_33", tasks="android")`."""

    name: ClassVar[str] = "android"
    platform: ClassVar[Platform] = "android"
    usual_steps: ClassVar[int] = 20  # the paper's limit (arXiv 2404.06474, section 4.3)
    # The device and the connection do not change an episode's identity.
    _identifying: ClassVar[frozenset[str]] = frozenset(
        {
            "tasks",
            "goal",
            "start_url",
            "device",
            "avd",
            "snapshot",
            "backend",
            "window",
            "appium_url",
            "adb_port",
        }
    )

    start_url: Annotated[
        str | None,
        Meta(
            description="Start of tasks that name none: app:com.example, "
            "app:com.example/.Main or a URL."
        ),
    ] = None
    device: Annotated[
        str | Sequence[str] | None,
        Meta(
            description="Serial numbers of running devices, one per worker (default: the only "
            "running device)."
        ),
    ] = None  # type: ignore[assignment]

    def check(self) -> None:
        """Checks that at most one of a running and a virtual device is given."""
        super().check()
        if self.avd and self.device:
            raise UsageError("give either avd or device", parameters=("avd", "device"))

    def setting(self, run: Playing) -> Setting[Any]:
        """Makes a phone for each worker."""
        devices = [None] * run.copies if self.avd else self.one_a_worker(run.workers)
        options = {"avd": self.avd, "snapshot": self.snapshot, "backend": self.backend}
        leftovers = (
            None
            if self.avd
            else "the device keeps what an earlier attempt changed; with a virtual device it "
            "would not"
        )
        return self.phones(run, AndroidSpec, devices, options, leftovers)
