"""Actions on phone screens as the agents of arXiv 2404.06474 log them, read into records. Points are (x, y) fractions."""

from __future__ import annotations

import re
from math import dist

from prill.types import Action, Point

# Between touch and lift, as a fraction of the screen: further apart is a swipe (the rule of arXiv 2404.06474's code).
SWIPE_DISTANCE = 0.05
# The simulator of arXiv 2404.06474 counts points on an iPhone 14.
_IPHONE = (390, 844)
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_DUAL_POINT = re.compile("DualPoint.*?" + r"[^\d-]+".join([_NUMBER] * 4), re.DOTALL)
_TYPE_NAME = re.compile(r"Action Type:\s*(\w+)")
_TYPED = re.compile(r"Typed Text:\s*(.*)", re.DOTALL)
_PAIR = re.compile(rf"{_NUMBER}\D+?{_NUMBER}")
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)
_KINDS = {
    "Idle": "wait",
    "Type": "type",
    "GoBack": "back",
    "GoHome": "home",
    "Enter": "press",
    "TaskComplete": "stop",
    "TaskImpossible": "stop",
}


def dual_point(touch: Point, lift: Point, *, swipe_beyond: float = SWIPE_DISTANCE, text: str = "") -> Action:
    """A finger put down and lifted: a click, or a swipe when the two are further apart than `swipe_beyond`.

    A place outside the screen is left out of the record; the text keeps it.
    """
    text = text or (
        f"Action Type: DualPoint, Touch Point: ({touch[0]:.4f}, {touch[1]:.4f}), Lift Point: ({lift[0]:.4f}, {lift[1]:.4f})"
    )
    # A rounding step below the limit: .50 to .55 is a distance of .05 on paper and a little more in binary.
    swipes = dist(touch, lift) > swipe_beyond + 1e-9
    return Action("swipe" if swipes else "click", text, point=on_screen(touch), end_point=on_screen(lift) if swipes else None)


def parse_android(text: str) -> Action:
    """The action of "Action Type: DualPoint, Touch Point: (0.5000, 0.2000), …"; kind `other` for an unknown type."""
    if found := _DUAL_POINT.search(text):
        x1, y1, x2, y2 = map(float, found.groups())
        return dual_point((x1, y1), (x2, y2), text=text)
    name = _TYPE_NAME.search(text)
    kind = _KINDS.get(name[1] if name else text.strip(), "other")
    typed = _TYPED.search(text) if kind == "type" else None
    if typed:
        quoted = _QUOTED.fullmatch(typed[1].strip())
        return Action(kind, text, value=quoted[2] if quoted else typed[1].strip())
    return Action(kind, text, value="Enter" if kind == "press" else None)


def parse_ios(text: str) -> Action:
    """The action behind a simulator command; points are read as iPhone 14 points (390 by 844) where there are any.

    The exact commands are not documented: words are looked for, in the order in which the original looks for them.
    """
    words = text.lower()
    if "swipe" in words or "scroll" in words:
        direction = next((way for way in ("up", "right", "left", "down") if way in words), None)
        return Action("swipe", text, value=direction)
    if words.lstrip().startswith("type") or "press type" in words:
        quoted = _QUOTED.search(text)
        return Action("type", text, value=quoted[2] if quoted else text.strip()[4:].strip(" :") or None)
    if "tap" in words:
        pair = _PAIR.search(text)
        return Action(
            "click", text, point=on_screen((float(pair[1]) / _IPHONE[0], float(pair[2]) / _IPHONE[1])) if pair else None
        )
    if "home" in words:
        return Action("home", text)
    if "complete" in words or words.strip() in ("end", "stop", "done"):
        return Action("stop", text)
    return Action("other", text)


def on_screen(point: Point) -> Point | None:
    """The point, or None where it lies outside the screen."""
    return point if all(0.0 <= c <= 1.0 for c in point) else None
