"""A prepared simulator that is restored before every episode."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Literal

from prill.emulators.ios.companion import Companion, CompanionError
from prill.emulators.ios.simulators import (
    COPIES,
    PREFIX,
    Simulator,
    Simulators,
    clear_up,
    run,
    simctl_command,
)
from prill.errors import EnvironmentFailedError, UsageError
from prill.temporary import TempFolder

Restore = Literal["clone", "erase", "none"]
POLL = 0.1
_logger = logging.getLogger("prill.ios")


@dataclass(frozen=True, slots=True)
class PreparedScreen:
    """The screen's size in points, the unit of touches, and in pixels, the unit of screenshots."""

    points: tuple[int, int]
    pixels: tuple[int, int]


class PreparedSimulator:
    """A simulator and how to restore it. `wanted` is a name or UDID (None: the only one); see `Ios`
    for the rest.

    With "clone", copies are in a separate device set in a temporary folder. The user's list of
    simulators does not show them, and the next run deletes those of a killed run.
    """

    def __init__(
        self,
        companion: str,
        wanted: str | None,
        restore: Restore,
        *,
        boot_timeout: float,
        timeout: float,
    ) -> None:
        self._executable, self._wanted, self._restore = companion, wanted, restore
        self._boot_timeout, self._timeout = boot_timeout, timeout
        self._folder: TempFolder | None = None
        self._prepared: Simulator | None = None
        self._copied = False
        self._running: tuple[Simulators, str] | None = None
        self._companion: Companion | None = None
        self._closing = asyncio.Lock()

    async def fresh(self) -> tuple[Companion, PreparedScreen]:
        """Starts the simulator and waits until its screen shows elements. Raises
        EnvironmentFailedError, or UsageError for an unknown simulator.
        """
        await self.leave()
        if self._folder is None:
            await clear_up(self._executable, timeout=self._boot_timeout)
            self._folder = TempFolder(PREFIX)
        folder = self._folder
        if self._prepared is None or self._restore == "none":
            self._prepared = await self._find()
        devices, udid = (
            Simulators(self._executable, timeout=self._boot_timeout),
            self._prepared.udid,
        )
        if self._restore == "clone":
            self._copied = True
            udid = await devices.clone(udid, folder.path / COPIES)
            devices = self._copies(folder)
        elif self._restore == "erase":
            await devices.shutdown(udid)
            await devices.erase(udid)
        if self._restore != "none" or self._prepared.state == "Shutdown":
            self._running = (devices, udid)
            await devices.boot(udid)
        companion = self._companion = Companion(
            devices.command, udid, folder.path, timeout=self._timeout
        )
        await companion.start()
        return companion, await _ready(companion, self._boot_timeout)

    async def paste_board(self, text: str, simctl: str | None) -> None:
        """Copies the text to the pasteboard. Raises EnvironmentFailedError, also without simctl."""
        assert self._folder is not None and self._companion is not None
        where = ("--set", str(self._folder.path / COPIES)) if self._copied else ()
        command = (*simctl_command(simctl), *where, "pbcopy", self._companion.udid)
        try:
            await run(command, self._timeout, text.encode())
        except EnvironmentFailedError as failure:
            message = (
                f"idb types US keyboard characters only, and for {text[:40]!r} simctl is "
                f"needed: {failure}"
            )
            raise EnvironmentFailedError(message) from failure

    async def leave(self) -> None:
        """Ends the companion and deletes the copy. Raises EnvironmentFailedError if the deletion
        fails; the next call tries again.
        """
        companion, self._companion = self._companion, None
        if companion is not None:
            await companion.end()
        if self._copied and self._folder is not None:
            await self._copies(self._folder).delete_all()
            self._copied = False
            self._running = None

    async def close(self) -> None:
        """Ends processes, deletes files and shuts down what `fresh` started. Safe to call twice.

        A copy that cannot be deleted is logged, and deleted at the next start.
        """
        async with self._closing:
            folder, running = self._folder, self._running
            try:
                await self.leave()
                if running is not None and self._restore != "clone":
                    await running[0].shutdown(running[1])
            except EnvironmentFailedError as failure:
                _logger.warning("a simulator was left behind: %s", failure)
                if folder is not None:
                    folder.abandon()
            else:
                if folder is not None:
                    folder.close()
            self._folder, self._running, self._copied = None, None, False

    def _copies(self, folder: TempFolder) -> Simulators:
        return Simulators(self._executable, folder.path / COPIES, timeout=self._boot_timeout)

    async def _find(self) -> Simulator:
        """Returns the current state of the selected simulator; the selection is made once."""
        there = await Simulators(self._executable, timeout=self._timeout).all()
        if self._prepared is not None:
            for one in there:
                if one.udid == self._prepared.udid:
                    return one
            raise EnvironmentFailedError(
                f"the simulator {self._prepared.name} ({self._prepared.udid}) is gone"
            )
        fitting = [one for one in there if self._wanted in (None, one.udid, one.name)]
        listed = "; ".join(f"{one.name} ({one.os_version}, {one.udid})" for one in there) or "none"
        if len(fitting) != 1:
            what = "simulator" if self._wanted is None else f"simulator {self._wanted!r}"
            count = (
                "there is no"
                if not fitting
                else f"there is more than one {what}: give the UDID of one"
            )
            raise UsageError(f"{count}{'' if fitting else f' {what}'}; simulators: {listed}")
        if self._restore == "clone" and fitting[0].state != "Shutdown":
            raise UsageError(
                f"{fitting[0].name} is {fitting[0].state}, but only a simulator that is "
                f"shut down can be cloned; run: xcrun simctl shutdown {fitting[0].udid}, or "
                "choose another way to restore it"
            )
        return fitting[0]


async def _ready(companion: Companion, within: float) -> PreparedScreen:
    """Waits until the simulator reports that it is booted, and its screen shows elements."""
    from idb.common.types import AccessibilityInfoOptions

    last = "nothing"
    try:
        async with asyncio.timeout(within):
            while True:
                try:
                    description: Any = await companion.ask(
                        "description", lambda client: client.describe()
                    )
                    size, last = description.screen_dimensions, f"state {description.state}"
                    measured = size is not None and all(
                        (size.width, size.height, size.width_points, size.height_points)
                    )
                    if description.state == "Booted" and measured:
                        last = "a screen without elements"
                        tree = await companion.ask(
                            "accessibility",
                            lambda client: client.accessibility_info(
                                None, AccessibilityInfoOptions()
                            ),
                        )
                        if len(tree.json) > len("[]"):
                            return PreparedScreen(
                                (size.width_points, size.height_points), (size.width, size.height)
                            )
                    elif description.state == "Booted":
                        last = "no screen size"
                except CompanionError as failure:
                    if not failure.answered:
                        raise
                    last = str(failure)
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise EnvironmentFailedError(
            f"the simulator was not ready {within:g} s after its start; last status: {last}"
        ) from None
