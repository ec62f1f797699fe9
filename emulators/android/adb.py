"""The adb backend for Android: no server on the host and nothing installed on the phone.

Commands go through the adb server's socket, which takes milliseconds; starting the adb program
takes tens of milliseconds. The program is used only to start the server, and for the emulator's
console with its token.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shlex
import shutil
import struct
from collections.abc import AsyncIterator
from pathlib import Path

from prill.emulators.android.phone import PhoneLostError, Start, whole_png
from prill.emulators.processes import Printed, run_program
from prill.emulators.screenshots import Size
from prill.errors import EnvironmentFailedError, UsageError

PORT = 5037
# Kinds of packets of the shell protocol, version 2 (Android 7 and newer).
_OUT, _ERR, _EXIT = 1, 2, 3
# An input method that takes text as a broadcast (github.com/senzhk/ADBKeyBoard): `input text` knows
# only ASCII.
KEYBOARD = "com.android.adbkeyboard/.AdbIME"
_DUMP = "/data/local/tmp/prill-ui.xml"
# How long `uiautomator dump` itself waits for a stable screen before it gives up.
_IDLE = 10.0
# Characters per call: the phone types a few hundred a second, and each call has a time limit.
_CHUNK = 200
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")
# Servers that this process started, and their users; the last user stops a server.
_users: dict[int, int] = {}
_started: set[int] = set()


def sdk_program(folder: str, name: str) -> str | None:
    """Finds a program of the Android SDK in $ANDROID_HOME or $ANDROID_SDK_ROOT, or on the PATH."""
    for root in filter(None, map(os.environ.get, ("ANDROID_HOME", "ANDROID_SDK_ROOT"))):
        if path := shutil.which(name, path=str(Path(root) / folder)):
            return path
    return shutil.which(name)


def default_port() -> int:
    """Returns the server's port as adb does: $ANDROID_ADB_SERVER_PORT, or 5037."""
    port = os.environ.get("ANDROID_ADB_SERVER_PORT", "")
    return int(port) if port.isdecimal() else PORT


class AdbServer:
    """A client of the adb server on this machine. `timeout` in seconds limits each request; calls
    can override it.

    Call the other methods between `attach` and `detach`. Raises PhoneLostError if the server or the
    device does not answer.
    """

    def __init__(self, port: int | None = None, *, timeout: float = 10.0) -> None:
        self.port = port or default_port()
        self.timeout = timeout
        self._attached = False

    async def attach(self) -> None:
        """Starts the server if it does not run."""
        if not self._attached:
            self._attached = True
            _users[self.port] = _users.get(self.port, 0) + 1
        try:
            await self.ask("host:version")
        except PhoneLostError as lost:
            if lost.sent:
                raise
            printed = await self.program("start-server", timeout=max(30.0, self.timeout))
            if printed.status != 0:
                raise EnvironmentFailedError(
                    f"the adb server does not start: {printed.last_line}"
                ) from None
            _started.add(self.port)

    async def detach(self) -> None:
        """Stops the server if this process started it and was its last user; safe to call twice."""
        if not self._attached:
            return
        self._attached = False
        _users[self.port] -= 1
        if _users[self.port] == 0 and self.port in _started:
            _started.discard(self.port)
            with contextlib.suppress(PhoneLostError):
                await self.ask("host:kill", answer=False)

    async def devices(self) -> dict[str, str]:
        """Lists serial numbers with their states: device, offline, unauthorized and others."""
        lines = (await self.ask("host:devices")).splitlines()
        return {
            serial: state for serial, _, state in (line.partition("\t") for line in lines) if serial
        }

    async def find(self, device: str | None) -> str:
        """Waits until the device (None: the only one) accepts commands, and returns its serial
        number.

        Raises EnvironmentFailedError after the time limit, UsageError if `device` is None and there
        are several.
        """
        try:
            async with asyncio.timeout(self.timeout):
                while (serial := _ready(await self.devices(), device)) is None:
                    await asyncio.sleep(0.1)
                return serial
        except TimeoutError:
            raise EnvironmentFailedError(_missing(await self.devices(), device)) from None

    async def ask(self, request: str, *, answer: bool = True) -> str:
        """Returns the server's answer to a host request."""
        async with self._connection(self.timeout, request) as (reader, writer):
            await _request(reader, writer, request)
            if not answer:
                # A server that is shutting down has ended once it closes the connection. Before
                # that, a new server would not start.
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
        except PhoneLostError as lost:
            raise PhoneLostError(f"{serial}: {lost}", sent=sent and lost.sent) from None

    async def program(self, *arguments: str, timeout: float | None = None) -> Printed:
        """Runs the adb program with these arguments. Raises UsageError if it is not installed."""
        adb = sdk_program("platform-tools", "adb")
        if adb is None:
            raise UsageError(
                "adb is not installed; run: apt-get install adb, or set ANDROID_HOME to an "
                "Android SDK"
            )
        command = [adb, "-P", str(self.port), *arguments]
        bound = timeout or self.timeout
        try:
            return await run_program(command, bound)
        except TimeoutError:
            raise PhoneLostError(
                f"adb {' '.join(arguments)} did not finish within {bound:g} s", sent=True
            ) from None

    @contextlib.asynccontextmanager
    async def _connection(
        self, bound: float, what: str
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        what = what if len(what) <= 60 else f"{what[:60]}…"
        writer = None
        try:
            async with asyncio.timeout(bound):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                yield reader, writer
        except TimeoutError:
            raise PhoneLostError(
                f"no response to `{what}` within {bound:g} s", sent=writer is not None
            ) from None
        except (OSError, EOFError) as error:
            if writer is None:
                raise PhoneLostError(
                    f"no adb server responds on port {self.port}", sent=False
                ) from None
            reason = "" if isinstance(error, EOFError) else f" ({error.strerror or error})"
            raise PhoneLostError(
                f"the connection to adb broke during `{what}`{reason}", sent=True
            ) from None
        except (ValueError, struct.error):
            raise PhoneLostError(
                f"the server on port {self.port} is not an adb server", sent=True
            ) from None
        finally:
            if writer is not None:
                # Aborted instead of closed, since a phone that hangs would delay closing.
                writer.transport.abort()


async def _request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: str
) -> None:
    data = request.encode()
    writer.write(b"%04x%s" % (len(data), data))
    await writer.drain()
    status = await reader.readexactly(4)
    if status == b"OKAY":
        return
    if status != b"FAIL":
        raise ValueError(status)
    length = int(await reader.readexactly(4), 16)
    raise PhoneLostError((await reader.readexactly(length)).decode("utf-8", "replace"), sent=False)


def _ready(devices: dict[str, str], wanted: str | None) -> str | None:
    ready = [
        serial
        for serial, state in devices.items()
        if state == "device" and wanted in (None, serial)
    ]
    if len(ready) > 1:
        raise UsageError(f"several phones are connected; choose one: {', '.join(sorted(ready))}")
    return ready[0] if ready else None


def _missing(devices: dict[str, str], wanted: str | None) -> str:
    if wanted in devices:
        advice = "; accept this computer on its screen" if devices[wanted] == "unauthorized" else ""
        return f"{wanted} is {devices[wanted]}{advice}"
    there = ", ".join(f"{serial} ({state})" for serial, state in sorted(devices.items())) or "none"
    return f"{wanted + ' is not connected' if wanted else 'no phone is ready'}; adb sees: {there}"


class AdbPhone:
    """A phone behind an adb server, which is started if it does not run.

    Characters outside ASCII need the app ADBKeyboard on the phone.

    Args:
        port: The server's port. None: adb's own default.
        timeout: The time limit of each command, in seconds.
        launch_timeout: The time limit for starting an app, in seconds.
    """

    def __init__(
        self, port: int | None = None, *, timeout: float = 10.0, launch_timeout: float = 30.0
    ) -> None:
        self._adb = AdbServer(port, timeout=timeout)
        self._timeout = timeout
        self._launch_timeout = launch_timeout
        self._serial: str | None = None

    async def open(self, device: str | None) -> str:
        """Waits within the time limit until the device accepts commands."""
        try:
            await self._adb.attach()
            self._serial = await self._adb.find(device)
        except PhoneLostError as lost:
            raise EnvironmentFailedError(str(lost)) from lost
        return self._serial

    async def close(self) -> None:
        """Detaches from the server, and stops it if this phone started it."""
        self._serial = None
        await self._adb.detach()

    async def size(self) -> Size:
        """Reads the screen size by `wm size`; an override takes precedence."""
        printed = await self._run("wm size")
        sizes = {
            kind: (int(width), int(height)) for kind, width, height in _SIZE.findall(printed.text)
        }
        size = sizes.get("Override") or sizes.get("Physical")
        if size is None:
            raise PhoneLostError(
                f"the phone does not report its screen size: {printed.last_line}", sent=True
            )
        return size

    async def screenshot(self) -> bytes:
        """Takes a screenshot by `screencap`."""
        return whole_png((await self._run("screencap -p")).out)

    async def tree(self) -> str | None:
        """Reads the UI tree by `uiautomator dump`, which takes one or two seconds on a real phone,
        and fails while the screen moves.
        """
        dumped = await self._shell(f"uiautomator dump {_DUMP}", timeout=self._timeout + _IDLE)
        if dumped.status != 0 or b"ERROR" in dumped.out + dumped.err:
            return None
        return (await self._run(f"cat {_DUMP} && rm -f {_DUMP}")).text

    async def tap(self, x: int, y: int) -> None:
        """Taps by `input tap`."""
        await self._run(f"input tap {x} {y}")

    async def swipe(self, start: tuple[int, int], end: tuple[int, int], seconds: float) -> None:
        """Swipes by `input swipe`."""
        coordinates = " ".join(map(str, (*start, *end)))
        await self._run(
            f"input swipe {coordinates} {round(seconds * 1000)}", timeout=self._timeout + seconds
        )

    async def type(self, text: str) -> None:
        """Types ASCII by `input text`, other text by the ADB keyboard, active only meanwhile."""
        if not text.isascii():
            return await self._type_by_keyboard(text)
        sent = False
        for part in _parts(text):
            try:
                await self._run(f"input text {shlex.quote(part)}")
            except PhoneLostError as lost:
                raise PhoneLostError(str(lost), sent=sent or lost.sent) from None
            sent = True

    async def key(self, code: int) -> None:
        """Presses a key by `input keyevent`."""
        await self._run(f"input keyevent {code}")

    async def launch(self, start: Start) -> None:
        """Opens an app by `am start`, and waits until it is displayed."""
        if start.url is not None:
            await self._start(
                f"-a android.intent.action.VIEW -d {shlex.quote(start.url)}", start.url
            )
        elif start.activity is not None:
            component = f"{start.package}/{start.activity}"
            await self._start(f"-S -n {shlex.quote(component)}", component)
        else:
            await self._run(f"am force-stop {start.package}")
            opened = await self._shell(
                f"monkey -p {start.package} -c android.intent.category.LAUNCHER 1"
            )
            if opened.status != 0:
                raise EnvironmentFailedError(
                    f"{start.package} cannot be opened: {opened.last_line}"
                )

    async def shell(self, command: str) -> str:
        """Runs a command in the phone's shell.

        Raises:
            EnvironmentFailedError: The command fails.
        """
        printed = await self._shell(command)
        if printed.status != 0:
            raise EnvironmentFailedError(f"`{command}` failed on the phone: {printed.last_line}")
        return printed.text

    async def _start(self, arguments: str, what: str) -> None:
        printed = await self._shell(f"am start -W {arguments}", timeout=self._launch_timeout)
        # Old Android versions exit with status 0 even on failure.
        errors = [
            line
            for line in (printed.text + printed.err.decode("utf-8", "replace")).splitlines()
            if line.startswith("Error")
        ]
        if errors or printed.status != 0:
            raise EnvironmentFailedError(
                f"{what} cannot be opened: {errors[0].strip() if errors else printed.last_line}"
            )

    async def _type_by_keyboard(self, text: str) -> None:
        if KEYBOARD not in (await self._run("ime list -a -s")).text.split():
            raise EnvironmentFailedError(
                f"{text!r} cannot be typed: `input text` only supports ASCII, and the phone "
                f"has no {KEYBOARD.split('/')[0]}; install ADBKeyboard.apk "
                "(github.com/senzhk/ADBKeyBoard) or use the Appium backend"
            )
        before = (await self._run("settings get secure default_input_method")).text.strip()
        coded = base64.b64encode(text.encode()).decode()
        await self._run(f"ime enable {KEYBOARD}")
        try:
            await self._run(f"ime set {KEYBOARD}")
            await self._keyboard_bound()
            await self._run(f"am broadcast -a ADB_INPUT_B64 --es msg {coded}")
        finally:
            if before not in ("", "null", KEYBOARD):
                await self._run(f"ime set {shlex.quote(before)}")

    async def _keyboard_bound(self) -> None:
        """Waits until the selected keyboard runs; before that it does not receive broadcasts."""
        end = asyncio.get_running_loop().time() + self._timeout
        while not _in_use((await self._run("dumpsys input_method")).text):
            if asyncio.get_running_loop().time() > end:
                raise PhoneLostError(
                    f"the keyboard {KEYBOARD} did not start within {self._timeout:g} s", sent=False
                )
            await asyncio.sleep(0.05)

    async def _run(self, command: str, *, timeout: float | None = None) -> Printed:
        printed = await self._shell(command, timeout=timeout)
        if printed.status != 0:
            program = command.split()[0]
            unsent = "Can't find service" in printed.last_line
            raise PhoneLostError(
                f"`{program}` failed on the phone: {printed.last_line}", sent=not unsent
            )
        return printed

    async def _shell(self, command: str, *, timeout: float | None = None) -> Printed:
        if self._serial is None:
            raise UsageError("no session with the phone; call open first")
        return await self._adb.shell(self._serial, command, timeout=timeout)


def _in_use(dump: str) -> bool:
    """Whether the ADB keyboard runs; some versions only report the selected one."""
    return f"{'mCurId' if 'mCurId=' in dump else 'mCurMethodId'}={KEYBOARD}" in dump


def _parts(text: str) -> list[str]:
    """Splits text for `input text`, which reads %s as a blank: a % before an s ends a piece."""
    pieces = [""]
    for index, character in enumerate(text):
        if len(pieces[-1]) >= _CHUNK or (character == "s" and index and text[index - 1] == "%"):
            pieces.append("")
        pieces[-1] += "%s" if character == " " else character
    return [piece for piece in pieces if piece]
