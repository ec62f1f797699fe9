"""Actions as the calls that BrowserGym's agents write, such as `click('12')`. Numbers of elements are its `bid`s."""

from __future__ import annotations

import re

from prill.emulators.keys import key_combination
from prill.types import Action, Point

# The letters say which frame of the page the element is in.
_BID = re.compile(r"\s*(?:\[([A-Za-z]*\d+)\].*|([A-Za-z]*\d+)\s*)", re.DOTALL)
NOTHING = "noop(0)"
_WAIT_MS = 1000
_SCHEMES = ("http://", "https://")
_WITHOUT_ARGUMENTS = {"back": "go_back()", "forward": "go_forward()", "new_tab": "new_tab()", "close_tab": "tab_close()"}
_WAYS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def call_of(action: Action, width: int, height: int) -> str:
    """The call, or calls line by line; NOTHING for what has no counterpart there or names no element.

    `width` and `height` are those of the last screenshot in pixels.
    """
    bid = _bid(action.target)
    if action.target is not None and bid is None:
        return NOTHING
    if action.is_final:
        return f"send_msg_to_user({action.value or ''!r})"
    if action.kind in _WITHOUT_ARGUMENTS:
        return _WITHOUT_ARGUMENTS[action.kind]
    point = _pixels(action.point, width, height)
    value = action.value or ""
    match action.kind:
        case "click" | "hover":
            return _point_at(action.kind, bid, point)
        case "type":
            return _type(bid, point, value)
        case "press" if value:
            keys = key_combination(value)
            return f"keyboard_press({keys!r})" if bid is None else f"press({bid!r}, {keys!r})"
        case "select" if bid is not None:
            return f"select_option({bid!r}, {value!r})"
        case "scroll":
            across, down = _WAYS.get(value, _WAYS["down"])
            return _scroll(bid, point, across * width, down * height)
        case "swipe":
            return _drag(bid, _bid(action.value), point, _pixels(action.end_point, width, height))
        case "goto" if value.startswith(_SCHEMES):
            return f"goto({value!r})"
        case "focus_tab" if value.strip().isdecimal():
            return f"tab_focus({int(value)})"
        case "wait":
            return f"noop({_milliseconds(value)})"
    return NOTHING


def _bid(target: str | None) -> str | None:
    found = _BID.fullmatch(target or "")
    return None if found is None else found[1] or found[2]


def _pixels(point: Point | None, width: int, height: int) -> tuple[int, int] | None:
    return None if point is None else (round(point[0] * width), round(point[1] * height))


def _point_at(kind: str, bid: str | None, point: tuple[int, int] | None) -> str:
    if bid is not None:
        return f"{kind}({bid!r})"
    if point is None:
        return NOTHING
    return f"mouse_click{point}" if kind == "click" else f"mouse_move{point}"


def _type(bid: str | None, point: tuple[int, int] | None, value: str) -> str:
    """A new line at the end is the Enter key."""
    words, enter = value.removesuffix("\n"), value.endswith("\n")
    if bid is not None:
        return f"fill({bid!r}, {words!r})" + (f"\npress({bid!r}, 'Enter')" if enter else "")
    lines = [f"keyboard_type({words!r})"] if words else []
    lines += ["keyboard_press('Enter')"] if enter else []
    return "\n".join([f"mouse_click{point}", *lines] if point else lines) or NOTHING


def _scroll(bid: str | None, point: tuple[int, int] | None, across: int, down: int) -> str:
    """A screen further; the wheel turns where the pointer is."""
    if point is not None and bid is None:
        return f"scroll_at({point[0]}, {point[1]}, {across}, {down})"
    return (f"hover({bid!r})\n" if bid else "") + f"scroll({across}, {down})"


def _drag(bid: str | None, onto: str | None, point: tuple[int, int] | None, end: tuple[int, int] | None) -> str:
    if bid is not None and onto is not None:
        return f"drag_and_drop({bid!r}, {onto!r})"
    if bid is None and point is not None and end is not None:
        return f"mouse_drag_and_drop({point[0]}, {point[1]}, {end[0]}, {end[1]})"
    return NOTHING


def _milliseconds(value: str) -> int:
    try:
        return min(60_000, max(0, round(1000 * float(value)))) if value else _WAIT_MS
    except (ValueError, OverflowError):
        return _WAIT_MS
