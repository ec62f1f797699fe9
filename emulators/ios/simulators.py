"""Lists, starts, clones and deletes iOS simulators with idb_companion, with timeouts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prill.emulators.processes import run_program
from prill.emulators.requirements import Tool, find_package
from prill.errors import EnvironmentFailedError, UsageError, install_command
from prill.temporary import abandoned, taken_over

# The prefix of the environment's folders, which contain the device set of the copies.
PREFIX = "prill-ios-"
COPIES = "copies"
_logger = logging.getLogger("prill.ios")
_GET_XCODE = "install Xcode from the App Store, then: sudo xcode-select -s /Applications/Xcode.app"
# From this version on, both of the following settings are off in a new simulator, and apps do not
# expose their elements (https://github.com/getsentry/XcodeBuildMCP/issues/290). For taps see
# https://github.com/facebook/idb/issues/964.
_CHANGED = 26
_AX_KEYS = ("AccessibilityEnabled", "ApplicationAccessibilityEnabled")
GET_COMPANION = (
    "on a Mac run: brew install facebook/fb/idb-companion, or set PRILL_IDB_COMPANION "
    "to the executable"
)


@dataclass(frozen=True, slots=True)
class Simulator:
    """One simulator; `state` is Shutdown, Booting, Booted or another word of CoreSimulator's."""

    udid: str
    name: str
    state: str
    os_version: str


def companion_path() -> str:
    """Finds the executable: the environment variable PRILL_IDB_COMPANION, or `idb_companion` on the
    PATH. Raises UsageError.
    """
    variable = os.environ.get("PRILL_IDB_COMPANION")
    if variable and not os.access(variable, os.X_OK):
        raise UsageError(f"PRILL_IDB_COMPANION={variable} is not an executable file")
    path = variable or shutil.which("idb_companion")
    if not path:
        raise UsageError(f"no idb_companion found; {GET_COMPANION}")
    return path


class Simulators:
    """The simulators of a device set; None is the user's own, which Xcode shows. `timeout` limits
    each command, in seconds.

    Every method raises EnvironmentFailedError if the companion refuses, fails or does not end.
    """

    def __init__(
        self, companion: str, device_set: Path | None = None, *, timeout: float = 180.0
    ) -> None:
        self.command = (companion, *(("--device-set-path", str(device_set)) if device_set else ()))
        self._timeout = timeout

    async def all(self) -> list[Simulator]:
        """Lists every simulator of the set, without real devices."""
        printed = await run((*self.command, "--list", "1", "--only", "simulator"), self._timeout)
        return [
            simulator
            for line in printed.splitlines()
            if line.strip() and (simulator := _read(line)) is not None
        ]

    async def boot(self, udid: str) -> None:
        """Starts a simulator, which may become responsive only later."""
        await run((*self.command, "--boot", udid, "--verify-booted", "1"), self._timeout)

    async def shutdown(self, udid: str) -> None:
        """Shuts a simulator down."""
        await run((*self.command, "--shutdown", udid), self._timeout)

    async def erase(self, udid: str) -> None:
        """Restores the factory state of a simulator, which has to be off."""
        await run((*self.command, "--erase", udid), self._timeout)

    async def clone(self, udid: str, into: Path) -> str:
        """Copies a simulator, which has to be off, into another device set; returns the UDID."""
        await asyncio.to_thread(into.mkdir, parents=True, exist_ok=True)
        printed = await run(
            (*self.command, "--clone", udid, "--clone-destination-set", str(into)), self._timeout
        )
        copy = _read(printed.splitlines()[-1]) if printed.strip() else None
        if copy is None:
            raise EnvironmentFailedError(
                f"idb_companion did not report the clone of {udid}: {printed[:200]!r}"
            )
        return copy.udid

    async def delete_all(self) -> None:
        """Shuts down and deletes every simulator of the set."""
        await run((*self.command, "--delete", "all"), self._timeout)


async def clear_up(companion: str, *, timeout: float) -> None:
    """Ends the companions and deletes the copies of killed runs.

    A copy that cannot be deleted within `timeout` seconds is logged; the next run tries again.
    """
    for folder in abandoned(PREFIX):
        with taken_over(folder) as dead:
            if not dead:
                continue
            try:
                await _end_companions(folder, timeout)
                if (folder / COPIES).exists():
                    await Simulators(companion, folder / COPIES, timeout=timeout).delete_all()
            except EnvironmentFailedError as failure:
                _logger.warning("what a killed run left in %s stays there: %s", folder, failure)
            else:
                shutil.rmtree(folder, ignore_errors=True)


async def _end_companions(folder: Path, timeout: float) -> None:
    """Kills the companions that use the folder, since they do not end with their parent process."""
    told_so = re.compile(rf"\s*(\d+) .*--\S+ {re.escape(str(folder))}/")
    for line in (await run(("ps", "-A", "-ww", "-o", "pid=,args="), timeout)).splitlines():
        if match := told_so.match(line):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(match[1]), signal.SIGKILL)


async def run(command: Sequence[str], within: float, stdin: bytes = b"") -> str:
    """Runs a command and returns its output. Raises EnvironmentFailedError if it fails or takes
    more than `within` seconds.
    """
    name = " ".join((Path(command[0]).name, *command[1:]))
    try:
        printed = await run_program(command, within, stdin)
    except TimeoutError:
        raise EnvironmentFailedError(f"{name}: not finished after {within:g} s") from None
    except OSError as error:
        raise EnvironmentFailedError(f"{command[0]} does not start: {error.strerror}") from error
    if printed.status != 0:
        why = printed.err.decode(errors="replace").strip().splitlines()[-1:]
        raise EnvironmentFailedError(
            f"{name}: {(why or [f'exit status {printed.status}'])[0][:300]}"
        )
    return printed.text


async def ios_tools() -> tuple[Tool, ...]:
    """Checks what iOS needs on this machine, within 30 seconds."""
    try:
        companion = companion_path()
    except UsageError:
        companion = None
    simulators: list[Simulator] = []
    if companion is not None:
        try:
            simulators = await Simulators(companion, timeout=20.0).all()
        except EnvironmentFailedError as failure:
            companion = None if "does not start" in str(failure) else companion
    names = ", ".join(f"{simulator.name} ({simulator.os_version})" for simulator in simulators)
    simctl = await _simctl()
    return (
        Tool("idb client", find_package("fb-idb"), install_command("ios")),
        Tool("idb_companion", companion, GET_COMPANION),
        Tool("simctl", simctl, _GET_XCODE),
        Tool("simulators", names or None, "xcrun simctl create 'iPhone 14' 'iPhone 14'"),
        *await _pitfalls(
            [one for one in simulators if _major(one) >= _CHANGED], has_simctl=simctl is not None
        ),
    )


async def _pitfalls(simulators: Sequence[Simulator], *, has_simctl: bool) -> tuple[Tool, ...]:
    """Checks for known problems with simulators of iOS 26 or newer; empty if there are none."""
    if not simulators:
        return ()
    names = ", ".join(simulator.name for simulator in simulators)
    off, unknown = list[str](), list[str]()
    for simulator in simulators:
        state = await _accessibility(simulator) if has_simctl else None
        (unknown if state is None else off if not state else []).append(simulator.name)
    write = "; ".join(
        f"xcrun simctl spawn UDID defaults write com.apple.Accessibility {key} -bool true"
        for key in _AX_KEYS
    )
    how = f"without it agents see no elements: boot the simulator, then {write}; restart its apps"
    if off:
        accessibility = Tool("accessibility", None, how, lacking=f"off on {', '.join(off)}")
    elif unknown:
        accessibility = Tool(
            "accessibility",
            None,
            how,
            lacking=f"not known of {', '.join(unknown)} (only a booted one tells)",
        )
    else:
        accessibility = Tool("accessibility", f"on: {names}", how)
    taps = (
        "there some builds of idb_companion take a tap in half pixels of the screenshot, not in "
        "points (facebook/idb#964); before a run, tap something by idb ui tap X Y in points and "
        "look, or use a runtime before iOS 26"
    )
    return accessibility, Tool("taps in points", None, taps, lacking=f"not certain on {names}")


def _major(simulator: Simulator) -> int:
    found = re.search(r"\d+", simulator.os_version)
    return int(found[0]) if found else 0


async def _accessibility(simulator: Simulator) -> bool | None:
    """Whether apps expose their elements; None if the simulator does not say."""
    read = (
        *simctl_command(None),
        "spawn",
        simulator.udid,
        "defaults",
        "read",
        "com.apple.Accessibility",
    )
    try:
        return all([(await run((*read, key), 10.0)).strip() == "1" for key in _AX_KEYS])
    except EnvironmentFailedError:
        return None


def simctl_command(simctl: str | None) -> tuple[str, ...]:
    """Returns the command line of Xcode's simctl, or of the given executable."""
    return (simctl,) if simctl else ("xcrun", "simctl")


async def _simctl() -> str | None:
    if shutil.which("xcrun") is None:
        return None
    try:
        return (await run(("xcrun", "--find", "simctl"), 10.0)).strip() or None
    except EnvironmentFailedError:
        return None


def _read(line: str) -> Simulator | None:
    """Parses a simulator from a line of output; None for other lines, such as warnings."""
    try:
        fields = json.loads(line)
        if "sim" not in str(fields.get("type", "simulator")).lower():
            return None
        return Simulator(
            str(fields["udid"]),
            str(fields["name"]),
            str(fields.get("state")),
            str(fields.get("os_version") or ""),
        )
    except (ValueError, KeyError, AttributeError):
        return None
