"""Normalises key names (`ctrl+a`, `RETURN`, `arrow down`) to the browser's (`Control+a`).

Agents that learnt on a Mac write `cmd` or `Meta` where other keyboards have Control. The record
keeps what they wrote: `key_names` gives `Meta+a`. An environment presses what its machine has: in a
browser, where Meta is no shortcut's key on Linux, `key_combination` gives `Control+a`, as WebArena
does; on an iPhone, Meta is the command key (emulators/ios/screen.py).
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
    """The key or combination in the names of browsers; a name that is not known stays. `Control++`
    is Control and plus.
    """
    return "+".join(_NAMES.get(part.lower().replace(" ", ""), part) for part in _parts(text))


def key_combination(text: str) -> str:
    """The keys that a browser on Linux presses: `key_names`, with Control for Meta."""
    return "+".join("Control" if part == "Meta" else part for part in _parts(key_names(text)))


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.strip().split("+")]
    return [*parts[:-2], "+"] if text.strip() == "+" or text.strip().endswith("++") else parts
