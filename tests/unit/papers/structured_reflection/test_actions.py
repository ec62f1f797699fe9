"""Lines of a plan: what is read from them, and what is left out."""

from __future__ import annotations

import pytest

from prill.papers.structured_reflection.actions import (
    PlannedOrder,
    format_line,
    parse_action,
    read_order,
)


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("click id=5", PlannedOrder("click", "5")),
        ("Tap 5", PlannedOrder("click", "5")),
        ("click the 2nd link id=7", PlannedOrder("click", "7")),
        ("click the button", PlannedOrder("click")),
        ('enter "a b" to id=7', PlannedOrder("type", "7", "a b")),
        ('enter "room id=3" to id=7', PlannedOrder("type", "7", "room id=3")),
        ('enter "x"', PlannedOrder("type", None, "x")),
        ("enter a b to id=7", PlannedOrder("type", "7", "a b")),
        ("type 'x' into id=7.", PlannedOrder("type", "7", "x")),
        ("type hello there", PlannedOrder("type", None, "hello there")),
        ("press ARROWDOWN x 3.", PlannedOrder("press", None, "ArrowDown", 3)),
        ("press down arrow", PlannedOrder("press", None, "ArrowDown")),
        ("press ENTER", PlannedOrder("press", None, "Enter")),
        ("press x", PlannedOrder("press", None, "x")),
        ("press hello", PlannedOrder("type", None, "hello")),
        ("hold ctrl", PlannedOrder("hold", None, "Control")),
        ("release SHIFT;", PlannedOrder("release", None, "Shift")),
    ],
)
def test_lines_are_read_by_their_verb(line: str, order: PlannedOrder) -> None:
    assert read_order(line) == order


@pytest.mark.parametrize(
    "line",
    ["click id=5", 'enter "a b" to id=7', "press ArrowDown x 3", "hold Control", 'enter "x"'],
)
def test_recorded_action_gives_its_line(line: str) -> None:
    assert format_line(parse_action(read_order(line))) == line
