"""Key names as agents write them (`ctrl+a`, `RETURN`, `arrow down`) in the form that browsers take (`Control+a`)."""

from __future__ import annotations

_NAMES = {
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "arrowup": "ArrowUp",
    "cmd": "Control",
    "command": "Control",
    "ctrl": "Control",
    "del": "Delete",
    "down": "ArrowDown",
    "esc": "Escape",
    "left": "ArrowLeft",
    # Agents that learnt on a Mac say Meta; WebArena takes it for Control elsewhere.
    "meta": "Control",
    "pagedown": "PageDown",
    "pageup": "PageUp",
    "return": "Enter",
    "right": "ArrowRight",
    "up": "ArrowUp",
} | {
    name.lower(): name
    for name in ("Alt", "Backspace", "Control", "Delete", "End", "Enter", "Escape", "Home", "Shift", "Space", "Tab")
}


def key_combination(text: str) -> str:
    """The combination; a name that is not known stays as it is. `Control++` is Control and the plus key."""
    parts = text.strip().split("+")
    if text.strip().endswith("+"):
        parts = [*parts[:-2], "+"]
    return "+".join(_NAMES.get(part.strip().lower().replace(" ", ""), part.strip()) for part in parts)
