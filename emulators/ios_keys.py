"""The hardware keyboard of an iOS simulator: which keys make a combination, and which text it can type."""

from __future__ import annotations

import re

# Numbers of the keys on the keyboard page of the USB HID usage tables, as idb wants them.
KEYS = {
    "enter": 40,
    "return": 40,
    "escape": 41,
    "backspace": 42,
    "tab": 43,
    "space": 44,
    "home": 74,
    "pageup": 75,
    "delete": 76,
    "end": 77,
    "pagedown": 78,
    "arrowright": 79,
    "arrowleft": 80,
    "arrowdown": 81,
    "arrowup": 82,
}
# Names of modifiers in the action space, and idb's.
MODIFIERS = {
    "control": "control",
    "ctrl": "control",
    "shift": "shift",
    "alt": "option",
    "option": "option",
    "meta": "command",
    "command": "command",
    "cmd": "command",
}
ENTER = KEYS["enter"]
_COMBINATION = re.compile(r"(?:(.*)\+)?(\+|[^+]+)")


def combination(keys: str) -> tuple[int, list[str]] | None:
    """The number of the key and idb's names of its modifiers, for text such as Enter or Control+a; None for no such key."""
    # The plus at the end of "Control++" is a key, that of "Control+" is none.
    found = _COMBINATION.fullmatch(keys)
    if found is None:
        return None
    before, key = found[1].split("+") if found[1] else [], found[2]
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
    """Whether the US keyboard, the only one idb has, holds every character."""
    from idb.common.hid import KEY_MAP

    return all(character in KEY_MAP for character in text)
