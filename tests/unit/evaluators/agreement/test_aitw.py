"""Action matching on the recorded example of the data set, with its numbers, and the scores of
small episodes.
"""

from __future__ import annotations

import pytest

from prill.evaluators.agreement.aitw import Box, Prediction, boxes, enlarged, gesture, match, scores
from prill.types import Action

# y .7191, x .4154, on a button. Its box is the one whose enlargement is y .7045, x .2511, height
# .0289, width .4978.
GOLD = Action("click", point=(0.4154, 0.7191))
HEIGHT, WIDTH = 0.0289 / 2.4, 0.4978 / 2.4
BUTTON = Box(0.2511 + 0.7 * WIDTH, 0.7045 + 0.7 * HEIGHT, WIDTH, HEIGHT)


def tap(y: float, x: float) -> Action:
    return Action("click", point=(x, y))


def swipe(y: float, x: float, to_y: float, to_x: float) -> Action:
    return Action("swipe", point=(x, y), end_point=(to_x, to_y))


UP, LEFT, DOWN = swipe(0.8, 0.5, 0.2, 0.5), swipe(0.5, 0.8, 0.5, 0.2), swipe(0.2, 0.5, 0.7, 0.6)


@pytest.mark.parametrize(
    ("y", "x", "matches"),
    [
        (0.715, 0.70, True),  # distance .285, in the enlarged box
        (0.715, 0.76, False),
        (0.75, 0.52, True),  # distance .109
        (0.62, 0.50, True),  # .130
        (0.60, 0.50, False),  # .146
        (0.80, 0.55, False),
    ],
)
def test_taps_match_by_distance_or_box(y: float, x: float, matches: bool) -> None:
    others = (Box(0.0, 0.0, 0.1, 0.02), Box(0.9, 0.95, 0.1, 0.05))
    assert match(GOLD, tap(y, x), (*others, BUTTON)) is matches
    assert match(tap(y, x), GOLD, (BUTTON, *others)) is matches


def test_box_grows_and_is_cut_at_screen() -> None:
    assert enlarged(Box(0.4, 0.4, 0.1, 0.2)) == pytest.approx((0.33, 0.26, 0.24, 0.48))
    assert enlarged(Box(0.0, 0.01, 0.5, 0.1)) == pytest.approx((0.0, 0.0, 1.0, 0.24))


def test_boxes_turned_from_y_x_height_width() -> None:
    assert (
        boxes([0.1, 0.2, 0.3, 0.4])
        == boxes([[0.1, 0.2, 0.3, 0.4]])
        == (Box(x=0.2, y=0.1, width=0.4, height=0.3),)
    )
    assert boxes([]) == ()
    with pytest.raises(ValueError, match="5 numbers"):
        boxes([0.1] * 5)


def test_swipes_match_along_the_same_axis() -> None:
    assert not match(UP, LEFT)
    assert match(UP, DOWN)
    assert not match(GOLD, UP)


@pytest.mark.parametrize(
    ("lift", "kind"),
    [(0.045, "swipe"), (0.041, "swipe"), (0.04, "tap"), (0.03, "tap"), (0.0, "tap")],
)
def test_distance_tells_swipe_from_tap(lift: float, kind: str) -> None:
    assert gesture(swipe(0.5, 0.5, 0.5, 0.5 + lift)) == kind


def test_other_actions_match_by_type() -> None:
    assert match(Action("type", value="tea"), Action("type", value="coffee"))
    assert not match(GOLD, Action("stop"))
    assert match(Action("stop"), Action("answer", value="42"))
    assert not match(Action("stop"), Action("stop", "Action Type: TaskImpossible"))
    assert match(Action("press", value="Enter"), Action("press", value="enter"))
    assert not match(Action("press", value="Enter"), Action("back"))


def test_scores_of_two_episodes_by_hand() -> None:
    typed = Action("type", value="Green Tea")
    episodes = [
        [
            Prediction(GOLD, tap(0.715, 0.70), (BUTTON,)),  # right
            Prediction(UP, LEFT),  # same type, wrong axis
            Prediction(typed, Action("type", value="tea")),  # right, and the text is part of it
            Prediction(typed, Action("type", value="coffee")),  # right, but other text
        ],
        [Prediction(Action("stop"), Action("stop"))],
        [Prediction(GOLD, None), Prediction(GOLD, Action("stop"))],
    ]
    result = scores(episodes)
    assert (result.episodes, result.steps) == (3, 7)
    assert result.action == pytest.approx(4 / 7)
    assert result.type == pytest.approx(5 / 7)
    assert (result.text, result.tap, result.swipe) == (0.5, pytest.approx(1 / 3), 0.0)
    assert result.partial == pytest.approx((3 / 4 + 1 + 0) / 3)
    assert result.complete == pytest.approx(1 / 3)
