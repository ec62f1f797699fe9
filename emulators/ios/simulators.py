"""Lists, starts, clones and deletes iOS simulators with idb_companion, with timeouts."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import logging
import os
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prill.emulators.requirements import Tool
from prill.errors import EnvironmentFailedError, UsageError, install_command
from prill.temporary.folders import abandoned, taken_over

# Folders of the environment begin so; the copies of simulators are in a device set inside.
PREFIX = "prill-ios-"
COPIES = "copies"
_logger = logging.getLogger("prill.ios")
_GET_XCODE = "install Xcode from the App Store, then: sudo xcode-select -s /Applications/Xcode.app"
# From this version on a new simulator has both of the following off, and apps tell nothing of their
# elements (https://github.com/getsentry/XcodeBuildMCP/issues/290); taps:
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
    """The executable: the environment variable PRILL_IDB_COMPANION, else `idb_companion` on the
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
    """Those of one device set; None is the user's own, which Xcode shows. `timeout` bounds each
    command, in seconds.

    Every method raises EnvironmentFailedError when the companion refuses, fails or does not end.
    """

    def __init__(
        self, companion: str, device_set: Path | None = None, *, timeout: float = 180.0
    ) -> None:
        self.command = (companion, *(("--device-set-path", str(device_set)) if device_set else ()))
        self._timeout = timeout

    async def all(self) -> list[Simulator]:
        """Every simulator of the set; real devices are left out."""
        printed = await run((*self.command, "--list", "1", "--only", "simulator"), self._timeout)
        return [
            simulator
            for line in printed.splitlines()
            if line.strip() and (simulator := _read(line)) is not None
        ]

    async def boot(self, udid: str) -> None:
        """Starts it; it may take longer until it answers."""
        await run((*self.command, "--boot", udid, "--verify-booted", "1"), self._timeout)

    async def shutdown(self, udid: str) -> None:
        """Turns it off."""
        await run((*self.command, "--shutdown", udid), self._timeout)

    async def erase(self, udid: str) -> None:
        """Puts it back to how it left the factory; it has to be off."""
        await run((*self.command, "--erase", udid), self._timeout)

    async def clone(self, udid: str, into: Path) -> str:
        """The UDID of a copy in another device set; the original has to be off."""
        await asyncio.to_thread(into.mkdir, parents=True, exist_ok=True)
        printed = await run(
            (*self.command, "--clone", udid, "--clone-destination-set", str(into)), self._timeout
        )
        copy = _read(printed.splitlines()[-1]) if printed.strip() else None
        if copy is None:
            raise EnvironmentFailedError(
                f"idb_companion did not tell which simulator is the copy of {udid}: "
                f"{printed[:200]!r}"
            )
        return copy.udid

    async def delete_all(self) -> None:
        """Turns off and deletes every simulator of the set."""
        await run((*self.command, "--delete", "all"), self._timeout)


async def clear_up(companion: str, *, timeout: float) -> None:
    """Ends companions and deletes copies that runs left behind when they were killed.

    What cannot be deleted within `timeout` seconds is logged, and stays for the next time.
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
    """Kills those that were told to work in the folder: they know of no parent that could have
    died.
    """
    told_so = re.compile(rf"\s*(\d+) .*--\S+ {re.escape(str(folder))}/")
    for line in (await run(("ps", "-A", "-ww", "-o", "pid=,args="), timeout)).splitlines():
        if match := told_so.match(line):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(match[1]), signal.SIGKILL)


async def run(command: Sequence[str], within: float, stdin: bytes = b"") -> str:
    """What the command prints. Raises EnvironmentFailedError when it fails or takes longer than
    `within` seconds.
    """
    name = " ".join((Path(command[0]).name, *command[1:]))
    try:
        # A session of its own, so that all it starts can be ended with it, and Ctrl-C leaves the
        # order of things to us.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentFailedError(f"{command[0]} does not start: {error.strerror}") from error
    try:
        async with asyncio.timeout(within):
            printed, complaint = await process.communicate(stdin)
    except TimeoutError:
        raise EnvironmentFailedError(f"{name}: not done after {within:g} s") from None
    finally:
        await kill(process)
    if process.returncode != 0:
        why = complaint.decode(errors="replace").strip().splitlines()[-1:] or [
            f"exit status {process.returncode}"
        ]
        raise EnvironmentFailedError(f"{name}: {why[0][:300]}")
    return printed.decode(errors="replace")


async def kill(process: asyncio.subprocess.Process) -> None:
    """Kills the process and its children, and waits until they are gone."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def ios_tools() -> tuple[Tool, ...]:
    """Checks what iOS needs on this machine, within 30 seconds."""
    try:
        client = f"fb-idb {importlib.metadata.version('fb-idb')}"
    except importlib.metadata.PackageNotFoundError:
        client = None
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
        Tool("idb client", client, install_command("ios")),
        Tool("idb_companion", companion and f"{companion}{await _built(companion)}", GET_COMPANION),
        Tool("Xcode", await _xcode(), _GET_XCODE),
        Tool("simctl", simctl, _GET_XCODE),
        Tool("simulators", names or None, "xcrun simctl create 'iPhone 14' 'iPhone 14'"),
        *await _pitfalls(
            [one for one in simulators if _major(one) >= _CHANGED], has_simctl=simctl is not None
        ),
    )


async def _pitfalls(simulators: Sequence[Simulator], *, has_simctl: bool) -> tuple[Tool, ...]:
    """What these simulators of iOS 26 or newer break; nothing where there are none."""
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
        "points (facebook/idb#964); "
        "before a run, tap something by idb ui tap X Y in points and look, or use a runtime "
        "before iOS 26"
    )
    return accessibility, Tool("taps in points", None, taps, lacking=f"not certain on {names}")


def _major(simulator: Simulator) -> int:
    found = re.search(r"\d+", simulator.os_version)
    return int(found[0]) if found else 0


async def _accessibility(simulator: Simulator) -> bool | None:
    """Whether apps tell what is on their screens; None where the simulator does not say."""
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


async def _built(companion: str) -> str:
    """When the companion was built, which is all that it says of its version; the empty text where
    it says nothing.
    """
    try:
        said = (await run((companion, "--version"), 10.0)).strip()
    except EnvironmentFailedError:
        return ""
    try:
        date = json.loads(said.splitlines()[-1])["build_date"]
    except (ValueError, LookupError, TypeError):
        return f" ({said.splitlines()[0][:60]})" if said else ""
    return f" (built {str(date)[:60]})"


async def _xcode() -> str | None:
    """Its version, such as `Xcode 16.4, Build version 16F6`."""
    if shutil.which("xcodebuild") is None:
        return None
    try:
        return (
            ", ".join((await run(("xcodebuild", "-version"), 10.0)).split("\n")[:2])[:100].strip(
                ", "
            )
            or None
        )
    except EnvironmentFailedError:  # the command line tools alone have an xcodebuild that refuses
        return None


def simctl_command(simctl: str | None) -> tuple[str, ...]:
    """The command line of Xcode's simctl; an executable's path replaces it."""
    return (simctl,) if simctl else ("xcrun", "simctl")


async def _simctl() -> str | None:
    if shutil.which("xcrun") is None:
        return None
    try:
        return (await run(("xcrun", "--find", "simctl"), 10.0)).strip() or None
    except EnvironmentFailedError:
        return None


def _read(line: str) -> Simulator | None:
    """The simulator of a line that the companion prints; None for anything else, as there are
    warnings in between.
    """
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
