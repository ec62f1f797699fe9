"""The adb server, spoken to over its socket: a command takes milliseconds, where starting the adb program takes tens of them.

Only what the socket cannot do goes through the program: starting the server, and the emulator's console with its token.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from prill.emulators.phones import PhoneLost
from prill.errors import EnvironmentFailure, UsageError

PORT = 5037
# Kinds of packets of the shell protocol, version 2 (Android 7 and newer).
_OUT, _ERR, _EXIT = 1, 2, 3
# Servers that this process started, and who uses which: the last to leave ends a server that was not there before.
_users: dict[int, int] = {}
_started: set[int] = set()


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed, and its exit status."""

    out: bytes
    err: bytes
    status: int

    @property
    def text(self) -> str:
        """Standard output."""
        return self.out.decode("utf-8", "replace")

    @property
    def last_line(self) -> str:
        """The last thing said, for messages: of the errors if there are any."""
        lines = (self.err.strip() or self.out.strip()).decode("utf-8", "replace").splitlines()
        return lines[-1].strip()[:300] if lines else f"exit status {self.status}"


def sdk_program(folder: str, name: str) -> str | None:
    """The path of a program of the Android SDK: in $ANDROID_HOME or $ANDROID_SDK_ROOT, else on the PATH."""
    for root in filter(None, map(os.environ.get, ("ANDROID_HOME", "ANDROID_SDK_ROOT"))):
        if found := shutil.which(name, path=str(Path(root) / folder)):
            return found
    return shutil.which(name)


def default_port() -> int:
    """The server's port as adb itself finds it: $ANDROID_ADB_SERVER_PORT, else 5037."""
    given = os.environ.get("ANDROID_ADB_SERVER_PORT", "")
    return int(given) if given.isdecimal() else PORT


class AdbServer:
    """An adb server on this machine. `timeout` in seconds bounds each request; calls can give their own.

    Used between `attach` and `detach`. Raises PhoneLost when the server or the device does not answer.
    """

    def __init__(self, port: int | None = None, *, timeout: float = 10.0) -> None:
        self.port = port or default_port()
        self.timeout = timeout
        self._attached = False

    async def attach(self) -> None:
        """Makes sure that the server runs, and starts it when it does not."""
        if not self._attached:
            self._attached = True
            _users[self.port] = _users.get(self.port, 0) + 1
        try:
            await self.ask("host:version")
        except PhoneLost as lost:
            if lost.sent:
                raise
            printed = await self.program("start-server", timeout=max(30.0, self.timeout))
            if printed.status != 0:
                raise EnvironmentFailure(f"the adb server does not start: {printed.last_line}") from None
            _started.add(self.port)

    async def detach(self) -> None:
        """Ends the server when this process started it and nobody in it uses it any more; safe to call twice."""
        if not self._attached:
            return
        self._attached = False
        _users[self.port] -= 1
        if _users[self.port] == 0 and self.port in _started:
            _started.discard(self.port)
            with contextlib.suppress(PhoneLost):
                await self.ask("host:kill", answer=False)

    async def devices(self) -> dict[str, str]:
        """Serial numbers with their states: device, offline, unauthorized …"""
        lines = (await self.ask("host:devices")).splitlines()
        return {serial: state for serial, _, state in (line.partition("\t") for line in lines) if serial}

    async def find(self, device: str | None) -> str:
        """The serial number of the device, or of the only one there is, once it lets itself be asked.

        Raises EnvironmentFailure when that takes longer than the bound, UsageError when None fits several.
        """
        try:
            async with asyncio.timeout(self.timeout):
                while (found := _ready(await self.devices(), device)) is None:
                    await asyncio.sleep(0.1)
                return found
        except TimeoutError:
            raise EnvironmentFailure(_missing(await self.devices(), device)) from None

    async def ask(self, request: str, *, answer: bool = True) -> str:
        """The server's own answer to a host request."""
        async with self._connection(self.timeout, request) as (reader, writer):
            await _request(reader, writer, request)
            if not answer:
                # A server that ends is gone when it lets go: one that is asked before would not be started anew.
                await reader.read()
                return ""
            length = int(await reader.readexactly(4), 16)
            return (await reader.readexactly(length)).decode("utf-8", "replace")

    async def shell(self, serial: str, command: str, *, timeout: float | None = None) -> Printed:
        """Runs a command line in the device's shell."""
        bound = timeout or self.timeout
        sent = False
        streams = {_OUT: bytearray(), _ERR: bytearray()}
        try:
            async with self._connection(bound, command) as (reader, writer):
                await _request(reader, writer, f"host:transport:{serial}")
                sent = True
                await _request(reader, writer, f"shell,v2,raw:{command}")
                while True:
                    kind, length = struct.unpack("<BI", await reader.readexactly(5))
                    data = await reader.readexactly(length)
                    if kind == _EXIT:
                        return Printed(bytes(streams[_OUT]), bytes(streams[_ERR]), data[0])
                    if kind in streams:
                        streams[kind] += data
        except PhoneLost as lost:
            raise PhoneLost(f"{serial}: {lost}", sent=sent and lost.sent) from None

    async def program(self, *arguments: str, timeout: float | None = None) -> Printed:
        """Runs the adb program with these arguments. Raises UsageError when it is not installed."""
        adb = sdk_program("platform-tools", "adb")
        if adb is None:
            raise UsageError("adb is not installed; run: apt-get install adb, or set ANDROID_HOME to an Android SDK")
        command = [adb, "-P", str(self.port), *arguments]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        bound = timeout or self.timeout
        try:
            async with asyncio.timeout(bound):
                out, err = await process.communicate()
        except TimeoutError:
            raise PhoneLost(f"adb {' '.join(arguments)} did not end within {bound:g} s", sent=True) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Printed(out, err, process.returncode or 0)

    @contextlib.asynccontextmanager
    async def _connection(self, bound: float, what: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        what = what if len(what) <= 60 else f"{what[:60]}…"
        writer = None
        try:
            async with asyncio.timeout(bound):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                yield reader, writer
        except TimeoutError:
            raise PhoneLost(f"`{what}` was not answered within {bound:g} s", sent=writer is not None) from None
        except (OSError, EOFError) as error:
            if writer is None:
                raise PhoneLost(f"no adb server answers on port {self.port}", sent=False) from None
            said = "" if isinstance(error, EOFError) else f" ({error.strerror or error})"
            raise PhoneLost(f"the connection to adb broke during `{what}`{said}", sent=True) from None
        except (ValueError, struct.error):
            raise PhoneLost(f"what answers on port {self.port} is no adb server", sent=True) from None
        finally:
            if writer is not None:
                # Not closed politely: a phone that hangs would have the last word.
                writer.transport.abort()


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: str) -> None:
    data = request.encode()
    writer.write(b"%04x%s" % (len(data), data))
    await writer.drain()
    status = await reader.readexactly(4)
    if status == b"OKAY":
        return
    if status != b"FAIL":
        raise ValueError(status)
    length = int(await reader.readexactly(4), 16)
    raise PhoneLost((await reader.readexactly(length)).decode("utf-8", "replace"), sent=False)


def _ready(devices: dict[str, str], wanted: str | None) -> str | None:
    ready = [serial for serial, state in devices.items() if state == "device" and wanted in (None, serial)]
    if len(ready) > 1:
        raise UsageError(f"several phones are connected, say which: {', '.join(sorted(ready))}")
    return ready[0] if ready else None


def _missing(devices: dict[str, str], wanted: str | None) -> str:
    if wanted in devices:
        advice = "; accept this computer on its screen" if devices[wanted] == "unauthorized" else ""
        return f"{wanted} is {devices[wanted]}{advice}"
    there = ", ".join(f"{serial} ({state})" for serial, state in sorted(devices.items())) or "none"
    return f"{wanted + ' is not connected' if wanted else 'no phone is ready'}; adb sees: {there}"
