"""The string form of phone actions, written and read, and where a finger goes."""

from __future__ import annotations

import pytest

from prill.actions.phone import SWIPES, TAP_DISTANCE, finger_path, parse_android, typed_lines
from prill.types import Action


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (
            Action("click", point=(0.5, 0.2)),
            "Action Type: DualPoint, Touch Point: (0.5000, 0.2000), Lift Point: (0.5000, 0.2000)",
        ),
        (
            Action("swipe", point=(0.5, 0.2), end_point=(0.5, 0.5)),
            "Action Type: DualPoint, Touch Point: (0.5000, 0.2000), Lift Point: (0.5000, 0.5000)",
        ),
        (
            Action("type", value='it\'s "x"\nabc'),
            "Action Type: Type, Typed Text: 'it's \"x\"\nabc'",
        ),
        (Action("back"), "Action Type: GoBack"),
        (Action("home"), "Action Type: GoHome"),
        (Action("press", value="Enter"), "Action Type: Enter"),
        (Action("wait"), "Action Type: Idle"),
        (Action("stop"), "Action Type: TaskComplete"),
    ],
)
def test_written_actions_are_read(action: Action, text: str) -> None:
    again = parse_android(text, swipe_beyond=TAP_DISTANCE)
    assert (again.kind, again.point, again.end_point, again.value) == (
        action.kind,
        action.point,
        action.end_point,
        action.value,
    )


def test_directions_are_the_papers_swipes() -> None:
    assert finger_path(Action("swipe", value="up")) == SWIPES["up"]
    assert finger_path(Action("scroll", value="down")) == SWIPES["up"]
    assert finger_path(Action("scroll", value="sideways")) is None


@pytest.mark.parametrize("way", ["up", "down", "left", "right"])
@pytest.mark.parametrize("start", [(0.0, 0.0), (1.0, 1.0), (0.5, 0.02), (0.98, 0.5)])
def test_swipe_from_edge_keeps_its_length(way: str, start: tuple[float, float]) -> None:
    finger = finger_path(Action("swipe", value=way, point=start))
    assert finger is not None
    (x1, y1), (x2, y2) = finger
    (a1, b1), (a2, b2) = SWIPES[way]
    assert (x2 - x1, y2 - y1) == pytest.approx((a2 - a1, b2 - b1))
    assert all(-1e-9 <= part <= 1 + 1e-9 for part in (x1, y1, x2, y2))


def test_typed_lines_have_no_control_chars() -> None:
    assert typed_lines("a\tb\r\nc\rd\x7f\n") == ["ab", "c", "d", ""]
    assert typed_lines("héllo 世界") == ["héllo 世界"]
