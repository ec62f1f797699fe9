"""The interface of Android backends (`appium.py`, `adb.py`) and their shared code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from prill.emulators.screenshots import Size
from prill.errors import EnvironmentFailedError, UsageError

# https://developer.android.com/reference/android/view/KeyEvent; the names on the left are those of
# the browser as well.
KEYCODES = {
    "enter": 66, "return": 66, "back": 4, "home": 3, "tab": 61, "space": 62, "backspace": 67,
    "del": 67, "delete": 112, "forward_del": 112, "escape": 111, "arrowup": 19, "dpad_up": 19,
    "arrowdown": 20, "dpad_down": 20, "arrowleft": 21, "dpad_left": 21, "arrowright": 22,
    "dpad_right": 22, "dpad_center": 23, "pageup": 92, "page_up": 92, "pagedown": 93,
    "page_down": 93, "move_home": 122, "end": 123, "move_end": 123, "app_switch": 187, "menu": 82,
    "search": 84, "volume_up": 24, "volume_down": 25, "paste": 279,
}  # fmt: skip
WAKE_UP = 224
_START = re.compile(
    r"app:(?P<package>[A-Za-z]\w*(?:\.\w+)+)(?:/(?P<activity>\.?[\w.$]+))?|(?P<url>https?://\S+)"
)
_PNG, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"


class PhoneLostError(EnvironmentFailedError):
    """The phone session ended or hangs; a new one may work.

    `sent` is True if the request may have been carried out.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a task: an app (`activity` None: the launcher's), or a web address."""

    package: str | None = None
    activity: str | None = None
    url: str | None = None


class Phone(Protocol):
    """A phone over one session. Pixels are those of the screenshot in the current orientation.

    Every call ends within a time limit of the backend.

    Raises:
        PhoneLostError: The session broke; a new one may work.
        EnvironmentFailedError: A new session would not help.
    """

    async def open(self, device: str | None) -> str | None:
        """Starts a session with a device.

        Args:
            device: The serial number. None: the only device.

        Returns:
            The serial number, if known.
        """
        ...

    async def close(self) -> None:
        """Ends the session; safe to call twice."""
        ...

    async def size(self) -> Size:
        """Returns the screen's width and height by the phone; rotation may swap them."""
        ...

    async def screenshot(self) -> bytes:
        """Returns the screen as a complete PNG file."""
        ...

    async def tree(self) -> str | None:
        """Returns the UI tree as UiAutomator's XML; None while it is unavailable."""
        ...

    async def tap(self, x: int, y: int) -> None:
        """Touches the screen for a moment.

        Args:
            x: Pixels of the screenshot, from the left.
            y: Pixels of the screenshot, from the top.
        """
        ...

    async def swipe(self, start: tuple[int, int], end: tuple[int, int], seconds: float) -> None:
        """Draws a finger across the screen.

        Args:
            start: The first point: x and y in pixels of the screenshot, from the top left.
            end: The last point, in the same pixels.
            seconds: The duration, in seconds.
        """
        ...

    async def type(self, text: str) -> None:
        """Types text into the focused field; without such a field nothing happens.

        Args:
            text: One line of any characters.
        """
        ...

    async def key(self, code: int) -> None:
        """Presses a key."""
        ...

    async def launch(self, start: Start) -> None:
        """Opens an app, stopping it first if it runs, or opens a web address."""
        ...

    async def shell(self, command: str) -> str:
        """Runs a command in the phone's shell."""
        ...


def parse_start(start_url: str) -> Start:
    """Parses `app:com.example`, `app:com.example/.Main` or a web address. Raises UsageError."""
    match = _START.fullmatch(start_url)
    if match is None:
        raise UsageError(
            f"start_url {start_url!r}: expected app:<package>, app:<package>/<activity> or "
            "http(s)://…"
        )
    return Start(match["package"], match["activity"], match["url"])


def whole_png(data: bytes) -> bytes:
    """Extracts the PNG file from a phone's output, without warnings printed before it. Raises
    PhoneLostError if the file is incomplete.
    """
    start = data.find(_PNG, 0, 4096)
    if start < 0 or not data.endswith(_PNG_END):
        beginning = data[:80].decode("utf-8", "replace").strip()
        raise PhoneLostError(
            f"the screenshot is incomplete: {len(data)} bytes that start with {beginning!r}",
            sent=True,
        )
    return data[start:]
