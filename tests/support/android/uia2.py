"""A fake of the HTTP server that UiAutomator2 runs on a phone, as used by Appium's driver.

An element's id is its name and position, so that a moved or removed element is stale, as on a real
phone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import Callable

from tests.support.android import draw
from tests.support.android.phone import UIA2, Phone
from tests.support.android.screen import Widget, flat
from tests.support.android.touch import CTRL, press
from tests.support.android.wire import HangupError, Request, first_of, http, read_request, until

Status = tuple[int, object]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the W3C key of an element reference
# the W3C keys Return, Enter, Backspace, Delete
KEYS = {"\ue007": 66, "\ue006": 66, "\ue003": 67, "\ue017": 112}
_SELECTOR = re.compile(
    r"\.(text|resourceId|description|className|focused)\((?:\"([^\"]*)\"|true)\)"
)
_STRATEGIES = {"id": "resourceId", "accessibility id": "description", "class name": "className"}
DEVICE_PORT = 6790
# The requests at the start of a session. A crash waits for the first request after them.
SESSION_START = (
    "/status", "/session", "/appium/device/info", "/appium/device/system_bars",
    "/appium/device/pixel_ratio", "/window",
)  # fmt: skip


async def serve(phone: Phone, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves one connection. It closes when the instrumentation ends or the phone is gone."""
    request = await read_request(reader)
    if request.path.endswith("/status"):
        # Appium starts the instrumentation and sends a request at once. It would retry only a
        # second later.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(until(lambda: UIA2 in phone.running), 1)
    server = Server(phone)
    await first_of(http(server.respond, reader, writer, request), until(server.over))


class Server:
    """Handles the requests of one connection."""

    def __init__(self, phone: Phone) -> None:
        self.phone = phone
        self._number = phone.sessions

    def over(self) -> bool:
        """Whether the instrumentation of this connection has ended."""
        phone = self.phone
        return (
            UIA2 not in phone.running or phone.sessions != self._number or phone.state != "device"
        )

    async def respond(self, request: Request) -> Status:
        """Returns the status and the body of the answer. Raises HangupError if a fault ends the
        instrumentation.
        """
        phone, path = self.phone, re.sub(r"^/session/[^/]+", "", request.path)
        await phone.through(("freeze",))
        if self.over():
            self._end(crashed=phone.crashed)
            raise HangupError
        if (
            phone.fault in ("crash", "crash-always")
            and request.method != "DELETE"
            and not path.startswith(SESSION_START)
        ):
            phone.fault = "none" if phone.fault == "crash" else "crash-always"
            self._end(crashed=True)
            raise HangupError
        if path == "/screenshot":
            await phone.through(("hang",))
            return value(base64.b64encode(phone.screenshot()).decode())
        if request.method == "DELETE" and path in ("", "/"):
            asyncio.get_running_loop().call_later(0.05, self._end)  # after the answer is sent
            return value(None)
        facts = self._fact(path)
        try:
            return facts if facts is not None else self._acted(request, path)
        except (KeyError, TypeError, ValueError) as mistake:
            return error("invalid argument", f"{request.method} {path}: {mistake!r}", 400)

    def _end(self, *, crashed: bool = False) -> None:
        """Ends the instrumentation of this connection, not a later one."""
        if self.phone.sessions == self._number:
            self.phone.crashed = crashed
            self.phone.running.discard(UIA2)

    def _fact(self, path: str) -> Status | None:
        """Answers a request that changes nothing."""
        width, height = self.phone.screen.size
        facts: dict[str, Callable[[], object]] = {
            "/status": lambda: {"ready": True, "message": "ok"},
            "/sessions": list,
            "/session": lambda: {"sessionId": "fake", "capabilities": {}},
            "/source": lambda: draw.source(self.phone.screen),
            "/window/rect": lambda: {"x": 0, "y": 0, "width": width, "height": height},
            "/window/current/size": lambda: {"width": width, "height": height},
            "/orientation": lambda: "PORTRAIT",
            "/appium/settings": dict,
            "/appium/device/system_bars": lambda: {"statusBar": height // 24},
            "/appium/device/pixel_ratio": lambda: 2.0,
            "/appium/device/battery_info": lambda: {"level": 1.0, "status": 5},
            "/appium/device/info": lambda: {
                "apiVersion": str(self.phone.api_level),
                "platformVersion": "13",
                "manufacturer": "Prill",
                "model": "Fake Phone",
                "realDisplaySize": f"{width}x{height}",
                "displayDensity": 320,
            },
        }
        return value(facts[path]()) if path in facts else None

    def _acted(self, request: Request, path: str) -> Status:
        phone, screen, body = self.phone, self.phone.screen, request.body
        if path.startswith("/element"):
            return answer(phone, request, path)
        if path == "/appium/device/get_clipboard":
            return value(base64.b64encode(screen.clipboard.encode()).decode())
        if path == "/actions":
            self._gestures(body["actions"] if request.method == "POST" else [])
        elif path in ("/appium/device/press_keycode", "/appium/device/long_press_keycode"):
            control = int(str(body.get("metastate") or 0)) & CTRL
            press(phone, int(str(body["keycode"])), control=bool(control))
        elif path == "/back":
            screen.go_back()
        elif path == "/keys":
            write(phone, get_text(body))
        elif path == "/appium/device/set_clipboard":
            screen.clipboard = base64.b64decode(str(body["content"])).decode()
        elif path == "/appium/gestures/click":
            screen.tap(*_numbers(body["offset"], "x", "y"))
        elif path == "/appium/gestures/swipe":
            screen.swipe(*_ends(body))
        else:
            return error("unknown command", path)
        phone.changed()
        return value(None)

    def _gestures(self, sources: object) -> None:
        for source in sources if isinstance(sources, list) else []:
            moves = [
                (float(one["x"]), float(one["y"]))
                for one in source["actions"]
                if one["type"] == "pointerMove"
            ]
            if source.get("type") == "pointer" and moves:
                self.phone.screen.swipe(*moves[0], *moves[-1])
            elif source.get("type") == "key":
                write(
                    self.phone,
                    "".join(one["value"] for one in source["actions"] if one["type"] == "keyDown"),
                )


def _ends(body: dict[str, object]) -> tuple[float, float, float, float]:
    """Returns the start and end of a swipe given as a direction in an area."""
    left, top, width, height = _numbers(body["area"], "left", "top", "width", "height")
    x, y, share = left + width / 2, top + height / 2, float(str(body.get("percent") or 1)) / 2
    across, down = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}[
        str(body["direction"])
    ]
    dx, dy = across * width * share, down * height * share
    return x - dx, y - dy, x + dx, y + dy


def _numbers(record: object, *names: str) -> tuple[float, ...]:
    if not isinstance(record, dict):
        raise TypeError("an object is missing")
    return tuple(float(record[name]) for name in names)


# Single elements


def value(content: object) -> Status:
    """Returns a successful response."""
    return 200, {"sessionId": "fake", "value": content}


def error(kind: str, message: str, status: int = 404) -> Status:
    """Returns an error response with a W3C error code."""
    return status, {
        "sessionId": "fake",
        "value": {"error": kind, "message": message, "stacktrace": ""},
    }


def answer(phone: Phone, request: Request, path: str) -> Status:
    """Answers a request below /element or /elements."""
    parts = path.strip("/").split("/")
    widgets = flat(phone.screen.widgets())
    if parts == ["elements"]:
        return value([_reference(one) for one in _found(widgets, request.body)])
    if parts in (["element"], ["element", "active"]):
        matches = (
            _found(widgets, request.body)
            if parts == ["element"]
            else [one for one in widgets if one.focused]
        )
        return (
            value(_reference(matches[0]))
            if matches
            else error("no such element", "An element could not be located")
        )
    widget = next((one for one in widgets if _id(one) == parts[1]), None)
    if widget is None:
        return error("stale element reference", "The element is not on the screen any more")
    return _asked(phone, widget, "/".join(parts[2:]), request.body)


def write(phone: Phone, text: str) -> None:
    """Types a text, in which W3C key characters are keys."""
    for part in re.split(f"([{''.join(KEYS)}])", text):
        if part in KEYS:
            press(phone, KEYS[part])
        else:
            phone.screen.type(part)


def get_text(body: dict[str, object]) -> str:
    """Returns the text to type: a string, or a list of characters from older clients."""
    text, characters = body.get("text"), body.get("value")
    if isinstance(text, str):
        return text
    return "".join(map(str, characters)) if isinstance(characters, list) else ""


def _asked(phone: Phone, widget: Widget, what: str, body: dict[str, object]) -> Status:
    left, top, right, bottom = widget.box
    facts: dict[str, object] = {
        "text": widget.text,
        "name": widget.description,
        "attribute/checked": str(bool(widget.checked)).lower(),
        "attribute/focused": str(widget.focused).lower(),
        "attribute/displayed": "true",
        "rect": {"x": left, "y": top, "width": right - left, "height": bottom - top},
    }
    if what in facts:
        return value(facts[what])
    if what not in ("click", "value", "clear"):
        return error("unknown command", what)
    if widget.act is not None:
        widget.act()
    phone.screen.selected = bool(phone.screen.focus) and (
        what == "clear" or bool(body.get("replace"))
    )
    if what == "clear":
        phone.screen.erase()
    elif what == "value":
        write(phone, get_text(body))
    phone.changed()
    return value(None)


def _found(widgets: list[Widget], body: dict[str, object]) -> list[Widget]:
    using, locator = (
        str(body.get("strategy") or body.get("using")),
        str(body.get("selector") or body.get("value")),
    )
    pairs = [(_STRATEGIES[using], locator)] if using in _STRATEGIES else _SELECTOR.findall(locator)
    return [one for one in widgets if pairs and all(_fits(one, kind, text) for kind, text in pairs)]


def _fits(widget: Widget, kind: str, locator: str) -> bool:
    if kind == "focused":
        return widget.focused
    if kind == "resourceId":
        return widget.name == locator.rpartition("/")[2]
    facts = {
        "text": widget.text,
        "description": widget.description,
        "className": f"android.widget.{widget.kind}",
    }
    return facts[kind] == locator


def _reference(widget: Widget) -> dict[str, str]:
    return {ELEMENT: _id(widget)}


def _id(widget: Widget) -> str:
    return "-".join((widget.name, *map(str, widget.box)))
