"""UiAutomator2's answers about single elements: found by a locator, asked, clicked and written to.

An element's id is its name and place, so that an element which has moved or gone is stale, as on a real phone.
"""

from __future__ import annotations

import re

from prill.fakes.android.phone import Phone
from prill.fakes.android.touch import press
from prill.fakes.android.widgets import Widget, flat
from prill.fakes.android.wire import Request

Status = tuple[int, object]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the W3C key of an element reference
KEYS = {"\ue007": 66, "\ue006": 66, "\ue003": 67, "\ue017": 112}  # of W3C: Return, Enter, Backspace, Delete
_SELECTOR = re.compile(r"\.(text|resourceId|description|className|focused)\((?:\"([^\"]*)\"|true)\)")
_STRATEGIES = {"id": "resourceId", "accessibility id": "description", "class name": "className"}


def value(content: object) -> Status:
    """A good answer."""
    return 200, {"sessionId": "fake", "value": content}


def error(kind: str, message: str, status: int = 404) -> Status:
    """A bad answer: one of the W3C error codes."""
    return status, {"sessionId": "fake", "value": {"error": kind, "message": message, "stacktrace": ""}}


def answer(phone: Phone, request: Request, path: str) -> Status:
    """The answer to a request below /element or /elements."""
    parts = path.strip("/").split("/")
    every = flat(phone.screen.widgets())
    if parts == ["elements"]:
        return value([_reference(one) for one in _found(every, request.body)])
    if parts in (["element"], ["element", "active"]):
        found = _found(every, request.body) if parts == ["element"] else [one for one in every if one.focused]
        return value(_reference(found[0])) if found else error("no such element", "An element could not be located")
    widget = next((one for one in every if _id(one) == parts[1]), None)
    if widget is None:
        return error("stale element reference", "The element is not on the screen any more")
    return _asked(phone, widget, "/".join(parts[2:]), request.body)


def write(phone: Phone, text: str) -> None:
    """Types a text in which W3C key characters are keys."""
    for part in re.split(f"([{''.join(KEYS)}])", text):
        if part in KEYS:
            press(phone, KEYS[part])
        else:
            phone.screen.type(part)


def text_of(body: dict[str, object]) -> str:
    """The text that a request wants typed: a string, or a list of characters in older clients."""
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
    phone.screen.selected = bool(phone.screen.focus) and (what == "clear" or bool(body.get("replace")))
    if what == "clear":
        phone.screen.erase()
    elif what == "value":
        write(phone, text_of(body))
    phone.changed()
    return value(None)


def _found(every: list[Widget], body: dict[str, object]) -> list[Widget]:
    using, wanted = str(body.get("strategy") or body.get("using")), str(body.get("selector") or body.get("value"))
    pairs = [(_STRATEGIES[using], wanted)] if using in _STRATEGIES else _SELECTOR.findall(wanted)
    return [one for one in every if pairs and all(_fits(one, kind, text) for kind, text in pairs)]


def _fits(widget: Widget, kind: str, wanted: str) -> bool:
    if kind == "focused":
        return widget.focused
    if kind == "resourceId":
        return widget.name == wanted.rpartition("/")[2]
    facts = {"text": widget.text, "description": widget.description, "className": f"android.widget.{widget.kind}"}
    return facts[kind] == wanted


def _reference(widget: Widget) -> dict[str, str]:
    return {ELEMENT: _id(widget)}


def _id(widget: Widget) -> str:
    return "-".join((widget.name, *map(str, widget.box)))
