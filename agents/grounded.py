"""CogAgent's grounded operations, read into actions: those of the 18B model (arXiv 2312.08914) and those of the 9B model.

The 18B translations are those of arXiv 2404.06474's code, rule by rule and in its order, also where that loses something: on
iOS, text that holds the word "tap" is not typed.
"""

from __future__ import annotations

import random
import re
from typing import Literal

from prill.actions.phone import dual_point
from prill.parse import excerpt
from prill.types import Action, Platform, Point

SwipeUp = Literal["left-or-right", "right"]
# An iPhone 13 or 14 in points; it only shows in the text of the action.
_IPHONE = (390, 844)
_OPERATION = re.compile(r"grounded operation\s*:", re.IGNORECASE)
_PLACE = re.compile(r"\[\[\s*(\d+)\s*,\s*(\d+)(?:\s*,\s*(\d+)\s*,\s*(\d+))?\s*\]\]")
_QUOTED = re.compile(r'"(.*?)"', re.DOTALL)
# From touch to lift, as (x, y): arXiv 2404.06474's Android agent. "up" is where the finger goes.
SWIPES: dict[str, tuple[Point, Point]] = {
    "up": ((0.5, 0.5), (0.5, 0.2)),
    "down": ((0.5, 0.2), (0.5, 0.5)),
    "left": ((0.8, 0.5), (0.2, 0.5)),
    "right": ((0.2, 0.5), (0.8, 0.5)),
}
# AitW draws the line between a tap and a swipe here: arXiv 2307.10088, as a fraction of the screen.
TAP_WITHIN = 0.04
# Android's buttons and endings by CogAgent's words, in the log form of arXiv 2404.06474.
FIXED = {
    "press home": Action("home", "Action Type: GoHome"),
    "press back": Action("back", "Action Type: GoBack"),
    "press enter": Action("press", "Action Type: Enter", value="Enter"),
    "task complete": Action("stop", "Action Type: TaskComplete"),
    "task impossible": Action("stop", "Action Type: TaskImpossible"),
}


def operation_of(reply: str) -> str:
    """What follows the last "Grounded Operation:" of a reply; the whole reply when it has none."""
    return _OPERATION.split(reply)[-1].strip()


def thousandths(text: str) -> Point:
    """The point of `[[x,y]]`, or the middle of the box `[[x1,y1,x2,y2]]`, in thousandths of the screen. Raises ValueError."""
    found = _PLACE.search(text)
    if found is None:
        raise ValueError(f"no [[x,y]] in {excerpt(text)}")
    numbers = [int(group) for group in found.groups() if group is not None]
    x, y = numbers if len(numbers) == 2 else ((numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2)
    if max(x, y) > 1000:
        raise ValueError(f"{excerpt(found[0])} is outside the screen")
    return x / 1000, y / 1000


def read_cogagent_18b(
    reply: str, platform: Platform, *, swipe_up: SwipeUp | None = None, draw: random.Random | None = None
) -> Action:
    """The action of a reply of CogAgent-18B, by the rules for iOS, or else for Android.

    What cannot be read ends the episode on iOS, and is a `wait` on Android, as in the original. `swipe_up` is what a swipe up
    means on iOS: "left-or-right" draws one of them (the paper's code), "right" is the paper's text, None leaves it.
    """
    operation = operation_of(reply)
    if platform != "ios":
        return _android(operation)
    try:
        return _ios(operation, swipe_up, draw or random.Random())
    except ValueError:
        return Action("stop", "task complete")


def _ios(operation: str, swipe_up: SwipeUp | None, draw: random.Random) -> Action:
    words = operation.lower()
    for way in ("up", "right", "left", "down"):
        if f"swipe {way}" in words:
            if way == "up" and swipe_up is not None:
                way = "right" if swipe_up == "right" else draw.choice(("left", "right"))
            return Action("swipe", f"swipe {way}", value=way)
    if "press home" in words or "press back" in words:  # an iPhone has no back button
        return Action("home", "press home")
    if "task complete" in words:
        return Action("stop", "task complete")
    if "tap" in words:
        x, y = thousandths(operation)
        return Action("click", f"tap {x * _IPHONE[0]:g} {y * _IPHONE[1]:g}", point=(x, y))
    if "type" in words and (typed := _QUOTED.search(operation)):
        return Action("type", f'type "{typed[1]}"', value=typed[1])
    raise ValueError("no such operation")


def _android(operation: str) -> Action:
    words = operation.lower().rstrip(" .")
    verb = (words.split() or [""])[0]
    if verb == "tap":
        try:
            point = thousandths(operation)
        except ValueError:
            return _idle()
        return dual_point(point, point, swipe_beyond=TAP_WITHIN)
    if verb == "type":
        quoted = _QUOTED.search(operation)
        typed = quoted[1] if quoted else operation[len("type") :].strip(" :'")
        return Action("type", f"Action Type: Type, Typed Text: '{typed}'", value=typed)
    for way, (touch, lift) in SWIPES.items():
        if words.startswith(f"swipe {way}"):
            return dual_point(touch, lift, swipe_beyond=TAP_WITHIN)
    for said, action in FIXED.items():
        if words.startswith(said):
            return action
    return _idle()


def _idle() -> Action:
    return Action("wait", "Action Type: Idle")
