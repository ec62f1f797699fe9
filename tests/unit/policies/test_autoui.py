"""Auto-UI's text form: written, read back, and asked for with at most eight actions of history."""

from __future__ import annotations

import pytest

from prill.actions.phone import dual_point
from prill.policies.autoui import AutoUI, auto_ui_text, read_auto_ui
from prill.policies.cogagent import FIXED
from prill.protocols import Image
from prill.testing.scripted import ScriptedModel
from prill.types import Action, Observation, Task

TAP = (
    '"action_type": "DUAL_POINT", "touch_point": "[0.7191, 0.4154]", "lift_point": "[0.7191, '
    '0.4154]", "typed_text": ""'
)
SCREEN = Observation(screenshot="screen.png")


@pytest.mark.parametrize(
    "action",
    [
        dual_point((0.4154, 0.7191), (0.4154, 0.7191), swipe_beyond=0.04),
        dual_point((0.5, 0.5), (0.5, 0.459), swipe_beyond=0.04),
        dual_point((0.5, 0.8), (0.5, 0.2), swipe_beyond=0.04),
        dual_point((0.0, 1.0), (1.0, 0.0), swipe_beyond=0.04),
        Action("type", "Action Type: Type, Typed Text: 'a, b: \"c\", d'", value='a, b: "c", d'),
        Action("type", "Action Type: Type, Typed Text: ''", value=""),
        *FIXED.values(),
    ],
)
def test_written_action_reads_the_same(action: Action) -> None:
    assert (
        read_auto_ui(f"Action Plan: [DUAL_POINT]; Action Decision: {auto_ui_text(action)}")
        == action
    )


def test_points_are_y_before_x() -> None:
    assert auto_ui_text(Action("click", point=(0.41539, 0.71913))) == TAP
    assert auto_ui_text(Action("back")) == (
        '"action_type": "PRESS_BACK", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, '
        '-1.0]", "typed_text": ""'
    )
    assert '"touch_point": "[0.8000, 0.5000]", "lift_point": "[0.2000, 0.5000]"' in auto_ui_text(
        Action("swipe", value="up")
    )
    assert read_auto_ui(TAP).point == (0.4154, 0.7191)


def test_tap_lifts_within_0_04() -> None:
    def lifted(distance: float) -> str:
        return read_auto_ui(
            TAP.replace('"lift_point": "[0.7191', f'"lift_point": "[{0.7191 + distance:.4f}')
        ).kind

    assert (lifted(0.04), lifted(0.0401)) == ("click", "swipe")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        '"action_type": "DUAL_POINT", "touch_point": "[0.1, 0.2]"',
        TAP.replace("DUAL_POINT", "TRIPLE_POINT"),
        TAP.replace("0.7191", "1.7191"),
        TAP.replace("0.4154]", "]"),
        (
            '"action_type": "DUAL_POINT", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, '
            '-1.0]", "typed_text": ""'
        ),
    ],
)
def test_no_decision_is_kept_raw(text: str) -> None:
    assert read_auto_ui(text) == Action("other", text)


async def test_prompt_repeats_eight_actions() -> None:
    taps = [TAP.replace("0.4154", f"0.{i:04d}") for i in range(1000, 1010)]
    model = ScriptedModel(
        [f"Action Plan: [DUAL_POINT]; Action Decision: {tap}" for tap in (*taps, taps[0])]
    )
    policy = AutoUI(model)
    policy.reset(Task(goal="open a tab"))
    steps = [await policy.act(SCREEN) for _ in taps]
    asked = [call[0].parts for call in model.seen]
    assert asked[0] == (Image("screen.png"), "Previous Actions: Goal: open a tab</s>")
    assert asked[1][1] == f"Previous Actions: {taps[0]} Goal: open a tab</s>"
    assert asked[9][1] == f"Previous Actions: {' '.join(taps[1:9])} Goal: open a tab</s>"
    assert steps[0].thought == "Action Plan: [DUAL_POINT];"
    policy.reset(Task(goal="another"))
    await policy.act(SCREEN)
    assert model.seen[-1][0].parts[1] == "Previous Actions: Goal: another</s>"
