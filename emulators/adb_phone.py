"""An Android phone over adb alone: no server to install, and nothing on the phone but its own programs."""

from __future__ import annotations

import asyncio
import base64
import re
import shlex

from prill.emulators.adb import AdbServer, Printed
from prill.emulators.phones import PhoneLost, Size, Start, whole_png
from prill.errors import EnvironmentFailure, UsageError

# An input method that takes text as a broadcast (github.com/senzhk/ADBKeyBoard): `input text` knows only ASCII.
KEYBOARD = "com.android.adbkeyboard/.AdbIME"
_DUMP = "/data/local/tmp/prill-ui.xml"
# How long `uiautomator dump` itself waits for a screen to rest before it gives up.
_IDLE = 10.0
# Characters at a time: the phone types a few hundred a second, and each call has to end in time.
_CHUNK = 200
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")


class AdbPhone:
    """The phone behind an adb server, spoken to over the server's socket. The server is started when it does not run.

    `port` is the server's (None: as adb finds it). `timeout` bounds each command, `launch_timeout` the start of an app,
    in seconds. Characters outside ASCII need the app ADBKeyboard on the phone.
    """

    def __init__(self, port: int | None = None, *, timeout: float = 10.0, launch_timeout: float = 30.0) -> None:
        self._adb = AdbServer(port, timeout=timeout)
        self._timeout = timeout
        self._launch_timeout = launch_timeout
        self._serial: str | None = None

    async def open(self, device: str | None) -> str:
        """Waits, within the bound, until the device is there and lets itself be asked."""
        try:
            await self._adb.attach()
            self._serial = await self._adb.find(device)
        except PhoneLost as lost:
            raise EnvironmentFailure(str(lost)) from lost
        return self._serial

    async def close(self) -> None:
        """Lets go of the server; ends it if it was started for this."""
        self._serial = None
        await self._adb.detach()

    async def size(self) -> Size:
        """What `wm size` says: the override where there is one."""
        printed = await self._run("wm size")
        sizes = {kind: (int(width), int(height)) for kind, width, height in _SIZE.findall(printed.text)}
        found = sizes.get("Override") or sizes.get("Physical")
        if found is None:
            raise PhoneLost(f"the phone does not tell its size: {printed.last_line}", sent=True)
        return found

    async def screenshot(self) -> bytes:
        """What `screencap` gives."""
        return whole_png((await self._run("screencap -p")).out)

    async def tree(self) -> str | None:
        """What `uiautomator dump` gives; it takes a second or two on a real phone, and fails while the screen moves."""
        dumped = await self._shell(f"uiautomator dump {_DUMP}", timeout=self._timeout + _IDLE)
        if dumped.status != 0 or b"ERROR" in dumped.out + dumped.err:
            return None
        return (await self._run(f"cat {_DUMP} && rm -f {_DUMP}")).text

    async def tap(self, x: int, y: int) -> None:
        """One `input tap`."""
        await self._run(f"input tap {x} {y}")

    async def swipe(self, start: tuple[int, int], end: tuple[int, int], seconds: float) -> None:
        """One `input swipe`."""
        places = " ".join(map(str, (*start, *end)))
        await self._run(f"input swipe {places} {round(seconds * 1000)}", timeout=self._timeout + seconds)

    async def type(self, text: str) -> None:
        """`input text` for ASCII, else the ADB keyboard, which is put in place for the moment only."""
        if not text.isascii():
            return await self._type_by_keyboard(text)
        sent = False
        for part in _parts(text):
            try:
                await self._run(f"input text {shlex.quote(part)}")
            except PhoneLost as lost:
                raise PhoneLost(str(lost), sent=sent or lost.sent) from None
            sent = True

    async def key(self, code: int) -> None:
        """One `input keyevent`."""
        await self._run(f"input keyevent {code}")

    async def launch(self, start: Start) -> None:
        """`am start`, which waits until the app shows."""
        if start.url is not None:
            await self._start(f"-a android.intent.action.VIEW -d {shlex.quote(start.url)}", start.url)
        elif start.activity is not None:
            component = f"{start.package}/{start.activity}"
            await self._start(f"-S -n {shlex.quote(component)}", component)
        else:
            await self._run(f"am force-stop {start.package}")
            opened = await self._shell(f"monkey -p {start.package} -c android.intent.category.LAUNCHER 1")
            if opened.status != 0:
                raise EnvironmentFailure(f"{start.package} does not open: {opened.last_line}")

    async def shell(self, command: str) -> str:
        """Raises EnvironmentFailure when the command fails."""
        printed = await self._shell(command)
        if printed.status != 0:
            raise EnvironmentFailure(f"`{command}` failed on the phone: {printed.last_line}")
        return printed.text

    async def _start(self, arguments: str, what: str) -> None:
        printed = await self._shell(f"am start -W {arguments}", timeout=self._launch_timeout)
        # Old versions end with status 0 whatever happened.
        errors = [
            line for line in (printed.text + printed.err.decode("utf-8", "replace")).splitlines() if line.startswith("Error")
        ]
        if errors or printed.status != 0:
            raise EnvironmentFailure(f"{what} does not open: {errors[0].strip() if errors else printed.last_line}")

    async def _type_by_keyboard(self, text: str) -> None:
        if KEYBOARD not in (await self._run("ime list -a -s")).text.split():
            raise EnvironmentFailure(
                f"{text!r} cannot be typed: `input text` knows only ASCII, and the phone has no {KEYBOARD.split('/')[0]}; "
                "install ADBKeyboard.apk (github.com/senzhk/ADBKeyBoard) or use the Appium backend"
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
        """Waits until the keyboard that was chosen is the one that runs: before that it hears no broadcast."""
        end = asyncio.get_running_loop().time() + self._timeout
        while not _in_use((await self._run("dumpsys input_method")).text):
            if asyncio.get_running_loop().time() > end:
                raise PhoneLost(f"the keyboard {KEYBOARD} did not start within {self._timeout:g} s", sent=False)
            await asyncio.sleep(0.05)

    async def _run(self, command: str, *, timeout: float | None = None) -> Printed:
        printed = await self._shell(command, timeout=timeout)
        if printed.status != 0:
            program = command.split()[0]
            known = "Can't find service" in printed.last_line
            raise PhoneLost(f"`{program}` failed on the phone: {printed.last_line}", sent=not known)
        return printed

    async def _shell(self, command: str, *, timeout: float | None = None) -> Printed:
        if self._serial is None:
            raise UsageError("no session with the phone: call open first")
        return await self._adb.shell(self._serial, command, timeout=timeout)


def _in_use(dump: str) -> bool:
    """Whether the ADB keyboard runs; some versions tell only which one was chosen."""
    return f"{'mCurId' if 'mCurId=' in dump else 'mCurMethodId'}={KEYBOARD}" in dump


def _parts(text: str) -> list[str]:
    """Pieces for `input text`: it takes %s for a blank and has no escape, so a % stays behind when an s follows."""
    pieces = [""]
    for place, character in enumerate(text):
        if len(pieces[-1]) >= _CHUNK or (character == "s" and place and text[place - 1] == "%"):
            pieces.append("")
        pieces[-1] += "%s" if character == " " else character
    return [piece for piece in pieces if piece]
