"""Normalises key names (`ctrl+a`, `RETURN`, `arrow down`) to the browser's (`Control+a`).

Agents trained on macOS write `cmd` or `Meta` where other systems use Control. `key_names` keeps
Meta for the record: `Meta+a`. `key_combination` returns what a browser on Linux presses, where Meta
is not a shortcut key: `Control+a`, as in WebArena. On an iPhone, Meta is the command key
(emulators/ios/screen.py).
"""

from __future__ import annotations

_NAMES = {
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "arrowup": "ArrowUp",
    "cmd": "Meta",
    "command": "Meta",
    "ctrl": "Control",
    "del": "Delete",
    "down": "ArrowDown",
    "esc": "Escape",
    "left": "ArrowLeft",
    "pagedown": "PageDown",
    "pageup": "PageUp",
    "return": "Enter",
    "right": "ArrowRight",
    "up": "ArrowUp",
} | {
    name.lower(): name
    for name in (
        "Alt",
        "Backspace",
        "Control",
        "Delete",
        "End",
        "Enter",
        "Escape",
        "Home",
        "Meta",
        "Shift",
        "Space",
        "Tab",
    )
}


def key_names(text: str) -> str:
    """Returns a key or combination in the browser's key names; unknown names are kept.

    `Control++` is Control and plus.
    """
    return "+".join(_NAMES.get(part.lower().replace(" ", ""), part) for part in _parts(text))


def key_combination(text: str) -> str:
    """Returns the keys that a browser on Linux presses: `key_names`, with Control for Meta."""
    return "+".join("Control" if part == "Meta" else part for part in _parts(key_names(text)))


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.strip().split("+")]
    return [*parts[:-2], "+"] if text.strip() == "+" or text.strip().endswith("++") else parts
