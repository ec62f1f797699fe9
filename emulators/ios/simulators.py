"""iOS simulators: listed, started, copied and deleted by the commands of Meta's idb_companion, each within a bound."""

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
from prill.errors import EnvironmentFailure, UsageError
from prill.temporary.folders import abandoned, taken_over

# Folders of the environment begin so; the copies of simulators are in a device set inside.
PREFIX = "prill-ios-"
COPIES = "copies"
_logger = logging.getLogger("prill.ios")
GET_COMPANION = "on a Mac run: brew install facebook/fb/idb-companion, or set PRILL_IDB_COMPANION to the executable"


@dataclass(frozen=True, slots=True)
class Simulator:
    """One simulator; `state` is Shutdown, Booting, Booted or another word of CoreSimulator's."""

    udid: str
    name: str
    state: str
    os_version: str


def companion_path() -> str:
    """The executable: the environment variable PRILL_IDB_COMPANION, else `idb_companion` on the PATH. Raises UsageError."""
    variable = os.environ.get("PRILL_IDB_COMPANION")
    if variable and not os.access(variable, os.X_OK):
        raise UsageError(f"PRILL_IDB_COMPANION={variable} is not an executable file")
    path = variable or shutil.which("idb_companion")
    if not path:
        raise UsageError(f"no idb_companion found; {GET_COMPANION}")
    return path


class Simulators:
    """Those of one device set; None is the user's own, which Xcode shows. `timeout` bounds each command, in seconds.

    Every method raises EnvironmentFailure when the companion refuses, fails or does not end.
    """

    def __init__(self, companion: str, device_set: Path | None = None, *, timeout: float = 180.0) -> None:
        self.command = (companion, *(("--device-set-path", str(device_set)) if device_set else ()))
        self._timeout = timeout

    async def all(self) -> list[Simulator]:
        """Every simulator of the set; real devices are left out."""
        printed = await run((*self.command, "--list", "1", "--only", "simulator"), self._timeout)
        return [simulator for line in printed.splitlines() if line.strip() and (simulator := _read(line)) is not None]

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
        into.mkdir(parents=True, exist_ok=True)
        printed = await run((*self.command, "--clone", udid, "--clone-destination-set", str(into)), self._timeout)
        copy = _read(printed.splitlines()[-1]) if printed.strip() else None
        if copy is None:
            raise EnvironmentFailure(f"idb_companion did not tell which simulator is the copy of {udid}: {printed[:200]!r}")
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
            except EnvironmentFailure as failure:
                _logger.warning("what a killed run left in %s stays there: %s", folder, failure)
            else:
                shutil.rmtree(folder, ignore_errors=True)


async def _end_companions(folder: Path, timeout: float) -> None:
    """Kills those that were told to work in the folder: they know of no parent that could have died."""
    told_so = re.compile(rf"\s*(\d+) .*--\S+ {re.escape(str(folder))}/")
    for line in (await run(("ps", "-A", "-ww", "-o", "pid=,args="), timeout)).splitlines():
        if match := told_so.match(line):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(match[1]), signal.SIGKILL)


async def run(command: Sequence[str], within: float, stdin: bytes = b"") -> str:
    """What the command prints. Raises EnvironmentFailure when it fails or takes longer than `within` seconds."""
    name = " ".join((Path(command[0]).name, *command[1:]))
    try:
        # A session of its own, so that all it starts can be ended with it, and Ctrl-C leaves the order of things to us.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentFailure(f"{command[0]} does not start: {error.strerror}") from error
    try:
        async with asyncio.timeout(within):
            printed, complaint = await process.communicate(stdin)
    except TimeoutError:
        raise EnvironmentFailure(f"{name}: not done after {within:g} s") from None
    finally:
        await kill(process)
    if process.returncode != 0:
        why = complaint.decode(errors="replace").strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise EnvironmentFailure(f"{name}: {why[0][:300]}")
    return printed.decode(errors="replace")


async def kill(process: asyncio.subprocess.Process) -> None:
    """Ends the process and all it started, if it still runs, and waits until the system has let go of it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def ios_tools() -> tuple[Tool, ...]:
    """What iOS needs and whether it is here, within half a minute."""
    try:
        client = f"fb-idb {importlib.metadata.version('fb-idb')}"
    except importlib.metadata.PackageNotFoundError:
        client = None
    try:
        companion = companion_path()
    except UsageError:
        companion = None
    names: list[str] = []
    if companion is not None:
        try:
            names = [simulator.name for simulator in await Simulators(companion, timeout=20.0).all()]
        except EnvironmentFailure as failure:
            companion = None if "does not start" in str(failure) else companion
    return (
        Tool("idb client", client, "pip install 'prill[ios]'"),
        Tool("idb_companion", companion, GET_COMPANION),
        Tool("simctl", await _simctl(), "install Xcode from the App Store, then: sudo xcode-select -s /Applications/Xcode.app"),
        Tool("simulators", ", ".join(names) or None, "xcrun simctl create 'iPhone 14' 'iPhone 14'"),
    )


def simctl_command(simctl: str | None) -> tuple[str, ...]:
    """How Xcode's simctl is called; the path of an executable takes its place."""
    return (simctl,) if simctl else ("xcrun", "simctl")


async def _simctl() -> str | None:
    if shutil.which("xcrun") is None:
        return None
    try:
        return (await run(("xcrun", "--find", "simctl"), 10.0)).strip() or None
    except EnvironmentFailure:
        return None


def _read(line: str) -> Simulator | None:
    """The simulator of a line that the companion prints; None for anything else, as there are warnings in between."""
    try:
        fields = json.loads(line)
        if "sim" not in str(fields.get("type", "simulator")).lower():
            return None
        return Simulator(
            str(fields["udid"]), str(fields["name"]), str(fields.get("state")), str(fields.get("os_version") or "")
        )
    except (ValueError, KeyError, AttributeError):
        return None
