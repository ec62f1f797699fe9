"""Shell commands for the screen (input, screencap, uiautomator and wm), and the result type of all
commands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.android import draw
from tests.support.android.phone import APPIUM_SETTINGS, UIA2, Phone


@dataclass(frozen=True, slots=True)
class Answer:
    """Standard output, standard error and exit code of a command."""

    out: bytes = b""
    err: bytes = b""
    code: int = 0


NOTHING = Answer()

LONG_PRESS_MS = 500.0  # Android's ViewConfiguration: a longer touch is a long press


def output(text: str) -> Answer:
    """Returns a successful result with this output."""
    return Answer(text.encode())


def failed(text: str, code: int = 255) -> Answer:
    """Returns a failed result with this standard error. 255 is the exit code of Android's service
    commands after an exception.
    """
    return Answer(b"", text.encode(), code)


# android.view.KeyEvent: names without KEYCODE_; digits and letters follow.
KEYS = {
    "HOME": 3, "BACK": 4, "DPAD_UP": 19, "DPAD_DOWN": 20, "POWER": 26, "TAB": 61, "SPACE": 62, "ENTER": 66, "DEL": 67,  # noqa: E501
    "MENU": 82, "ESCAPE": 111, "FORWARD_DEL": 112, "CTRL_LEFT": 113, "MOVE_HOME": 122, "MOVE_END": 123, "NUMPAD_ENTER": 160,  # noqa: E501
    "APP_SWITCH": 187, "WAKEUP": 224, "PASTE": 279,
}  # fmt: skip
KEYS |= {str(digit): 7 + digit for digit in range(10)}
KEYS |= {chr(ord("A") + number): 29 + number for number in range(26)}
LAST_KEY = 316
CTRL = 0x1000  # the bit of a key event's meta state
_UTF7 = re.compile("&([A-Za-z0-9+,]*)-")
NULL_ARRAY = """
Exception occurred while executing '{0}':
java.lang.NullPointerException: Attempt to get length of null array
\tat com.android.server.input.InputShellCommand.sendText(InputShellCommand.java:359)
\tat com.android.server.input.InputShellCommand.onCommand(InputShellCommand.java:238)
\tat android.os.BasicShellCommandHandler.exec(BasicShellCommandHandler.java:97)
"""
BAD_KEY = """
Exception occurred while executing 'keyevent':
java.lang.IllegalArgumentException: Unknown keycode: {0}
"""


def press(phone: Phone, code: int, *, control: bool = False) -> None:
    """Handles a key."""
    screen = phone.screen
    letter = chr(code + ord("a") - 29) if 29 <= code <= 54 else ""
    if control and letter == "a":
        screen.selected = bool(screen.focus)
    elif (control and letter == "v") or code == KEYS["PASTE"]:
        screen.type(screen.clipboard)
    elif control:
        pass
    elif letter:
        screen.type(letter)
    elif 7 <= code <= 16:
        screen.type(str(code - 7))
    elif code == KEYS["SPACE"]:
        screen.type(" ")
    elif code == KEYS["HOME"]:
        screen.go_home()
    elif code == KEYS["BACK"]:
        screen.go_back()
    elif code in (KEYS["ENTER"], KEYS["NUMPAD_ENTER"]):
        screen.enter()
    elif code == KEYS["DEL"]:
        screen.erase()
    phone.changed()


def input_(phone: Phone, words: list[str]) -> Answer:
    """Handles the `input` command."""
    while words and words[0] in ("touchscreen", "keyboard", "touchpad", "-d", "0"):
        words = words[1:]
    if not words:
        return failed("Error: Invalid arguments for command: \n")
    kind, *rest = words
    numbers = [float(word) for word in rest if re.fullmatch(r"-?\d+(\.\d+)?", word)]
    if kind == "text" and rest:
        return _text(phone, rest[0])
    if kind == "tap" and len(numbers) == 2:
        phone.screen.tap(*numbers)
    elif kind in ("swipe", "draganddrop") and len(numbers) in (4, 5):
        if numbers[:2] == numbers[2:4] and numbers[4:] >= [LONG_PRESS_MS]:
            phone.screen.hold(*numbers[:2])
        else:
            phone.screen.swipe(*numbers[:4])
    elif kind in ("keyevent", "keycombination") and rest:
        return _keys(phone, kind, [word for word in rest if not word.startswith("--")])
    elif kind != "motionevent":
        return failed(f"Error: Invalid arguments for command: {kind}\n")
    phone.changed()
    return NOTHING


def _text(phone: Phone, text: str) -> Answer:
    if not text.isascii():
        return failed(NULL_ARRAY.format("text"))
    text = text.replace("%s", " ")
    if phone.ime == f"{APPIUM_SETTINGS}/.UnicodeIME":
        text = _UTF7.sub(_decoded, text)
    phone.screen.type(text)
    phone.changed()
    return NOTHING


def _decoded(run: re.Match[str]) -> str:
    """Decodes one run of the UTF-7 of RFC 3501, which Appium's keyboard receives."""
    return f"+{run[1]}-".replace(",", "/").encode().decode("utf-7") if run[1] else "&"


def _keys(phone: Phone, kind: str, names: list[str]) -> Answer:
    codes = []
    for name in names:
        code = (
            int(name)
            if name.isdecimal() and len(name) < 5
            else KEYS.get(name.removeprefix("KEYCODE_"), 0)
        )
        if not 0 < code <= LAST_KEY:
            return failed(BAD_KEY.format(name))
        codes.append(code)
    together = kind == "keycombination"
    for code in codes:
        if not (together and code in (113, 114)):
            press(phone, code, control=together and bool({113, 114} & set(codes)))
    return NOTHING


async def screencap(phone: Phone, words: list[str]) -> Answer:
    """Handles the `screencap` command. It writes to a file if one is named."""
    await phone.through(("hang",))
    names = [word for word in words if not word.startswith("-")]
    if not names:
        return Answer(phone.screenshot())
    phone.files[names[0]] = phone.screenshot()
    return NOTHING


def uiautomator(phone: Phone, words: list[str]) -> Answer:
    """Handles the `uiautomator dump` command. It is killed while Appium's server holds the
    accessibility service.
    """
    if words[:1] != ["dump"]:
        return failed("Usage: uiautomator <subcommand> [options]\n", 1)
    if UIA2 in phone.running:
        return failed("Killed \n", 137)
    if phone.fault == "restless":
        return Answer(err=b"ERROR: could not get idle state.\n")
    names = [word for word in words[1:] if not word.startswith("--")]
    tree, name = draw.dump(phone.screen), names[0] if names else "/sdcard/window_dump.xml"
    message = f"UI hierchary dumped to: {name}\n"
    if name == "/dev/tty":
        return output(tree + message)
    phone.files[name] = tree.encode()
    return output(message)


def wm(phone: Phone, words: list[str]) -> Answer:
    """Handles the `wm` command."""
    width, height = phone.screen.size
    facts = {"size": f"Physical size: {width}x{height}\n", "density": "Physical density: 320\n"}
    return output(facts[words[0]]) if words and words[0] in facts else failed("Unknown command\n")
