"""Reads the screen of an iOS simulator and maps text to hardware-keyboard events.

It converts accessibility JSON in points to elements, checks the size of screenshots, and converts
key names to key codes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from prill.emulators.screenshots import Size, decoded_size
from prill.emulators.widgets import Widget
from prill.errors import EnvironmentFailedError

# Containers without content of their own; only their children are read.
_PLAIN = ("Group", "GenericElement", "Other", "Unknown", "ScrollArea", "Cell")
# The tolerance between two aspect ratios of a screen, since some sizes are rounded.
_SHAPE = 0.02
# Key codes of the keyboard page of the USB HID usage tables, as idb expects.
KEYS = {
    "enter": 40, "return": 40, "escape": 41, "backspace": 42, "tab": 43, "space": 44, "home": 74,
    "pageup": 75, "delete": 76, "end": 77, "pagedown": 78, "arrowright": 79, "arrowleft": 80,
    "arrowdown": 81, "arrowup": 82,
}  # fmt: skip
# Names of modifiers in the action space, and idb's.
MODIFIERS = {
    "control": "control", "ctrl": "control", "shift": "shift", "alt": "option", "option": "option",
    "meta": "command", "command": "command", "cmd": "command",
}  # fmt: skip
ENTER = KEYS["enter"]
_COMBINATION = re.compile(r"(?:(.*)\+)?(\+|[^+]+)")


def read_elements(accessibility: str, points: tuple[float, float]) -> list[Widget]:
    """Parses the visible elements of `accessibility_info`, nested or flat; `points` is the size of
    the screen.

    Raises EnvironmentFailedError for invalid JSON.
    """
    try:
        tree = json.loads(accessibility)
        return list(_walk(tree if isinstance(tree, list) else [tree], points, 0))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EnvironmentFailedError(
            f"the simulator's accessibility tree cannot be read: {error!r}"
        ) from error


def _walk(
    nodes: Sequence[dict[str, Any]], points: tuple[float, float], depth: int
) -> Iterator[Widget]:
    for node in nodes:
        element = _element(node, points, depth)
        if element is not None:
            yield element
        yield from _walk(node.get("children") or [], points, depth + (element is not None))


def _element(node: dict[str, Any], points: tuple[float, float], depth: int) -> Widget | None:
    frame, (width, height) = node["frame"], points
    left, top = frame["x"] / width, frame["y"] / height
    right, bottom = left + frame["width"] / width, top + frame["height"] / height
    role = str(node.get("type") or str(node.get("role") or "Unknown").removeprefix("AX"))
    name, value = str(node.get("AXLabel") or node.get("title") or ""), node.get("AXValue")
    visible = right > max(left, 0) and bottom > max(top, 0) and left < 1 and top < 1
    if not visible or (role in _PLAIN and not name and not value):
        return None
    states = [] if value is None or str(value) == name else [("value", repr(str(value)))]
    if node.get("enabled") is False:
        states.append(("enabled", "false"))
    return Widget(role, name, (left, top, right, bottom), depth, tuple(states))


def is_home_screen(elements: Sequence[Widget]) -> bool:
    """Whether the application is SpringBoard, whose label is a blank or its name."""
    top = elements[0] if elements else None
    return top is not None and top.role == "Application" and top.name.strip() in ("", "SpringBoard")


def check_size(picture: bytes, pixels: Size) -> None:
    """Raises EnvironmentFailedError unless this is a complete image with the aspect ratio of the
    screen.

    Taps would miss their targets with another aspect ratio.
    """
    size = decoded_size(picture)
    shape, wanted = size[0] / size[1], pixels[0] / pixels[1]
    if abs(shape - wanted) > _SHAPE * wanted:
        raise EnvironmentFailedError(
            f"the screenshot has {size[0]}x{size[1]} pixels, but the screen {pixels[0]}x{pixels[1]}"
        )


def combination(keys: str) -> tuple[int, list[str]] | None:
    """Parses a key such as Enter or Control+a into its key code and idb's names of the modifiers;
    None for an unknown key.
    """
    # The last plus of "Control++" is a key; that of "Control+" is not.
    match = _COMBINATION.fullmatch(keys)
    if match is None:
        return None
    before, key = match[1].split("+") if match[1] else [], match[2]
    if any(name.lower() not in MODIFIERS for name in before):
        return None
    modifiers = [MODIFIERS[name.lower()] for name in before]
    if key.lower() in KEYS:
        return KEYS[key.lower()], modifiers
    from idb.common.hid import KEY_MAP, MODIFIER_KEYCODES

    if key not in KEY_MAP:
        return None
    pressed = [event.action.keycode for event in KEY_MAP[key] if event.direction.name == "DOWN"]
    if MODIFIER_KEYCODES["shift"] in pressed and "shift" not in modifiers:
        modifiers.append("shift")
    return pressed[-1], modifiers


def can_type(text: str) -> bool:
    """Whether idb's US keyboard has every character."""
    from idb.common.hid import KEY_MAP

    return all(character in KEY_MAP for character in text)
