"""Key names: what is recorded, and what a browser on Linux is asked to press."""

from __future__ import annotations

import pytest

from prill.actions.keys import key_combination, key_names


@pytest.mark.parametrize(
    ("written", "recorded", "pressed"),
    [
        ("ctrl+a", "Control+a", "Control+a"),
        ("cmd+A", "Meta+A", "Control+A"),
        ("Meta + c", "Meta+c", "Control+c"),
        ("RETURN", "Enter", "Enter"),
        ("arrow down", "ArrowDown", "ArrowDown"),
        ("Page Up", "PageUp", "PageUp"),
        ("ctrl++", "Control++", "Control++"),
        ("+", "+", "+"),
        ("Control+", "Control+", "Control+"),
        ("F5", "F5", "F5"),
    ],
)
def test_keys_recorded_and_pressed(written: str, recorded: str, pressed: str) -> None:
    assert (key_names(written), key_combination(written)) == (recorded, pressed)
