"""Phone actions in the log format of arXiv 2404.06474. Points are (x, y) fractions."""

from __future__ import annotations

import re
from math import dist

from prill.types import Action, Platform, Point

# If touch and lift are further apart than this fraction of the screen, the gesture is a swipe. Two
# papers use different thresholds. The code of arXiv 2404.06474 classifies and shows recorded
# actions with this one.
SWIPE_DISTANCE = 0.05
# Android in the Wild's action matching code (arXiv 2307.10088) executes and compares actions with
# this threshold.
TAP_DISTANCE = 0.04
# Start and end points of a swipe that is given only by its direction. Two papers use different
# paths. The Android agent of arXiv 2404.06474's code executes these.
SWIPES: dict[str, tuple[Point, Point]] = {
    "up": ((0.5, 0.5), (0.5, 0.2)),
    "down": ((0.5, 0.2), (0.5, 0.5)),
    "left": ((0.8, 0.5), (0.2, 0.5)),
    "right": ((0.2, 0.5), (0.8, 0.5)),
}
# The longer paths to which Auto-UI (arXiv 2309.11436) normalises swipes.
AUTO_UI_SWIPES: dict[str, tuple[Point, Point]] = {
    "up": ((0.5, 0.8), (0.5, 0.2)),
    "down": ((0.5, 0.2), (0.5, 0.8)),
    "left": ((0.8, 0.5), (0.2, 0.5)),
    "right": ((0.2, 0.5), (0.8, 0.5)),
}
# The simulator of arXiv 2404.06474 is an iPhone 14 (an iPhone 13 has the same size): width and
# height in points, the unit of its action coordinates.
IPHONE_POINTS = (390, 844)
# How prompts refer to the devices.
DEVICE_NAMES: dict[Platform, str] = {"android": "an Android phone", "ios": "an iPhone"}
_MAX_CHARS = 10_000  # maximum length of an action that is searched for gestures
# The number of digits is bounded: agents may write any text, and an unbounded pattern can take
# minutes on it.
_NUMBER = r"(-?(?:\d{1,20}(?:\.\d{1,20})?|\.\d{1,20}))"
_DUAL_POINT = re.compile("DualPoint.{0,60}?" + r"[^\d-]{1,60}?".join([_NUMBER] * 4), re.DOTALL)
_TYPE_NAME = re.compile(r"Action Type:\s*(\w+)")
_TYPED = re.compile(r"Typed Text:\s*(.*)", re.DOTALL)
_PAIR = re.compile(rf"{_NUMBER}\D{{1,60}}?{_NUMBER}")
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


def dual_points(text: str) -> tuple[Point, Point] | None:
    """Returns the touch and lift points of a DualPoint in the text, or None."""
    if (gesture := _DUAL_POINT.search(text[:_MAX_CHARS])) is None:
        return None
    x1, y1, x2, y2 = map(float, gesture.groups())
    return (x1, y1), (x2, y2)


def is_swipe(touch: Point, lift: Point, beyond: float = SWIPE_DISTANCE) -> bool:
    """Returns True if the two points are further apart than `beyond`."""
    # The tolerance absorbs rounding errors: in binary, the distance from .50 to .55 is slightly
    # more than .05.
    return dist(touch, lift) > beyond + 1e-9


def dual_point(
    touch: Point, lift: Point, *, swipe_beyond: float = SWIPE_DISTANCE, text: str = ""
) -> Action:
    """Returns the action of a touch: a swipe if the points are further apart than `swipe_beyond`,
    else a click.

    Points outside the screen are left out of the action but stay in its text.
    """
    text = text or (
        f"Action Type: DualPoint, Touch Point: ({touch[0]:.4f}, {touch[1]:.4f}), Lift Point: "
        f"({lift[0]:.4f}, {lift[1]:.4f})"
    )
    swipes = is_swipe(touch, lift, swipe_beyond)
    return Action(
        "swipe" if swipes else "click",
        text,
        point=on_screen(touch),
        end_point=on_screen(lift) if swipes else None,
    )


def parse_android(text: str, *, swipe_beyond: float = SWIPE_DISTANCE) -> Action:
    """Parses "Action Type: DualPoint, Touch Point: (0.5000, 0.2000), …"; unknown types become kind
    `other`.

    Pass TAP_DISTANCE for an action that will be executed.
    """
    if points := dual_points(text):
        return dual_point(*points, swipe_beyond=swipe_beyond, text=text)
    name = _TYPE_NAME.search(text)
    kind = _KINDS.get(name[1] if name else text.strip(), "other")
    typed = _TYPED.search(text) if kind == "type" else None
    if typed:
        quoted = _QUOTED.fullmatch(typed[1].strip())
        return Action(kind, text, value=quoted[2] if quoted else typed[1].strip())
    return Action(kind, text, value="Enter" if kind == "press" else None)


def finger_path(action: Action, point: Point | None = None) -> tuple[Point, Point] | None:
    """Returns the start and end points of a click, swipe or scroll; None for other actions.

    For an action on an element, `point` replaces the action's own point. Scrolling down is an
    upward swipe.
    """
    start = point or action.point
    if action.kind == "click" and start is not None:
        return start, action.end_point or start
    if action.kind in ("swipe", "drag") and start is not None and action.end_point is not None:
        return start, action.end_point
    if action.kind not in ("swipe", "scroll") or action.end_point is not None:
        return None
    way = (action.value or "").lower()
    if action.kind == "scroll":
        way = {"up": "down", "down": "up", "left": "right", "right": "left"}.get(way, "")
    if way not in SWIPES:
        return None
    touch, lift = SWIPES[way]
    if start is None:
        return touch, lift
    (x1, x2), (y1, y2) = (_inside(start[axis], lift[axis] - touch[axis]) for axis in (0, 1))
    return (x1, y1), (x2, y2)


def _inside(start: float, way: float) -> tuple[float, float]:
    """Returns the start and end of a movement along one axis, shifted to lie on the screen.

    The movement is shifted rather than clipped, because a clipped movement could become a tap.
    """
    end = min(1.0, max(0.0, start + way))
    return end - way, end


def parse_ios(text: str) -> Action:
    """Parses an operation logged by the iOS agent of arXiv 2404.06474.

    `tap [[x,y]]` is in thousandths of the screen, the unit of the agent's model. Two bare numbers
    are points of an iPhone 14 (390 by 844), the unit of its simulator's commands. Keywords are
    checked in the same order as in the original. An iPhone has no back button, so `press back`
    presses home, as in the original.
    """
    lowered = text.lower()
    if "swipe" in lowered or "scroll" in lowered:
        direction = next((way for way in ("up", "right", "left", "down") if way in lowered), None)
        return Action("swipe", text, value=direction)
    if lowered.lstrip().startswith("type") or "press type" in lowered:
        quoted = _QUOTED.search(text)
        return Action(
            "type", text, value=quoted[2] if quoted else text.strip()[4:].strip(" :") or None
        )
    if "tap" in lowered:
        return Action("click", text, point=_tapped(text))
    if "home" in lowered or "press back" in lowered:
        return Action("home", text)
    if "complete" in lowered or lowered.strip() in ("end", "stop", "done"):
        return Action("stop", text)
    return Action("other", text)


def _tapped(text: str) -> Point | None:
    if "[[" in text:
        try:
            return thousandths(text)
        except ValueError:
            return None
    width, height = IPHONE_POINTS
    pair = _PAIR.search(text)
    return on_screen((float(pair[1]) / width, float(pair[2]) / height)) if pair else None


def on_screen(point: Point) -> Point | None:
    """Returns the point, or None if it lies outside the screen."""
    return point if all(0.0 <= c <= 1.0 for c in point) else None


def typed_lines(text: str) -> list[str]:
    """Splits text into the lines to type between presses of Enter, without control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [
        "".join(character for character in line if character >= " " and character != "\x7f")
        for line in lines
    ]


_OPERATION = re.compile(r"grounded operation\s*:", re.IGNORECASE)
_BOX = re.compile(r"\[\[\s*(\d+)\s*,\s*(\d+)(?:\s*,\s*(\d+)\s*,\s*(\d+))?\s*\]\]")
# The question format that the 18B model was trained on. The code of arXiv 2404.06474 wraps every
# goal in it.
_QUESTION = re.compile(
    r'\s*What steps do I need to take to\s+"(.*)"\s*\?\s*\(with grounding\)\s*',
    re.DOTALL | re.IGNORECASE,
)


def split_reply(reply: str) -> tuple[str, str]:
    """Splits a reply at its last "Grounded Operation:" into the text before it and the operation.

    A reply without that marker is returned as both parts.
    """
    *before, operation = _OPERATION.split(reply)
    return ("Grounded Operation:".join(before) if before else reply).strip(), operation.strip()


def goal_from_question(text: str) -> str:
    """Returns the goal inside CogAgent's question, or the text itself if it is not such a question.

    The question is `What steps do I need to take to "GOAL"?(with grounding)`.
    """
    match = _QUESTION.fullmatch(text)
    return match[1] if match else text


def thousandths(text: str) -> Point:
    """Reads a point `[[x,y]]`, or the centre of a box `[[x1,y1,x2,y2]]`, in thousandths of the
    screen.

    Returns:
        (x, y) as fractions of the screen's width and height, from the top left corner.

    Raises:
        ValueError: The text contains no point or box, or it lies outside the screen.
    """
    box = _BOX.search(text)
    if box is None:
        raise ValueError(f"no [[x,y]] in {text[:120]!r}")
    numbers = [int(group) for group in box.groups() if group is not None]
    x, y = (
        numbers
        if len(numbers) == 2
        else ((numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2)
    )
    if max(x, y) > 1000:
        raise ValueError(f"{box[0]!r} is outside the screen")
    return x / 1000, y / 1000
