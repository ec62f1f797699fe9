"""When an episode that goes nowhere is ended, and when it is left alone."""

from __future__ import annotations

import pytest

from prill.actions.early_stop import EarlyStop, same_action
from prill.episodes.loop import run_episode
from prill.testing.scripted import ReplayEnvironment
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.policies.replay import ReplayPolicy

NOWHERE = Observation(text="")
CART = Action("click", target="[12] link 'Cart'")


def steps(*actions: Action) -> list[Step]:
    return [Step(NOWHERE, action) for action in actions]


def typed(value: str, field: str = "[5] textbox 'Search'") -> Action:
    return Action("type", target=field, value=value)


def test_three_unreadable_actions_end_it() -> None:
    unreadable = [Action("other", text) for text in ("a", "b", "c")]
    assert EarlyStop()(steps(*unreadable)) == "3 actions in a row could not be parsed"
    assert EarlyStop()(steps(*unreadable[:2])) is None
    assert EarlyStop()(steps(*unreadable[:2], CART, unreadable[2])) is None


def test_three_equal_clicks_end_it() -> None:
    assert EarlyStop()(steps(CART, CART, CART)) == "the same action 3 times in a row"
    assert EarlyStop()(steps(CART, CART)) is None
    assert EarlyStop()(steps(CART, CART, Action("back"), CART)) is None


def test_typing_thrice_in_a_field_ends_it() -> None:
    loop = steps(typed("a"), CART, typed("b"), Action("scroll", value="down"), typed("c"))
    assert EarlyStop()(loop) == "typed into the same field 3 times"
    assert EarlyStop()(loop[:-1]) is None
    assert EarlyStop(compare_text=True)(loop) is None
    assert EarlyStop()([*loop[:-1], *steps(typed("c", "[6] textbox 'City'"))]) is None


@pytest.mark.parametrize(
    "gesture",
    [
        Action("swipe", value="up"),
        Action("wait"),
        Action("click", point=(0.9, 0.5)),
        Action("scroll", point=(0.5, 0.5)),
    ],
)
def test_gestures_that_change_may_repeat(gesture: Action) -> None:
    assert EarlyStop()([Step(Observation(text=f"row {i}"), gesture) for i in range(9)]) is None
    assert (
        EarlyStop()([Step(Observation(screenshot=f"{i}.png"), gesture) for i in range(9)]) is None
    )
    still = [
        Step(Observation(screenshot=f"clock{i}.png", text="the last row"), gesture)
        for i in range(3)
    ]
    assert EarlyStop()(still) == "the same action 3 times in a row"
    by_number = [Step(Observation(text=f"row {i}"), CART) for i in range(3)]
    assert EarlyStop()(by_number) is not None, "as in WebArena"


def test_nothing_done_yet_is_no_loop() -> None:
    assert EarlyStop()([]) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        # The state that an element's line tells of changes with every action; the element does not.
        (
            Action("click", target="[3] button 'Menu' expanded: False"),
            Action("click", target="[3] button 'Menu' focused: True"),
            True,
        ),
        (
            typed("a", "[5] textbox 'Search' focused: False"),
            typed("a", "[5] textbox 'Search' focused: True"),
            True,
        ),
        # On phones a field is often named by what it holds.
        (typed("a", "[5] textbox 'City'"), typed("b", "[5] textbox 'a'"), True),
        (typed("a", "[5]"), typed("a", "5"), True),
        # ... and numbers are places: the third entry of one list is not that of another.
        (
            Action("click", target="[3] item 'Network'"),
            Action("click", target="[3] item 'Wi-Fi'"),
            False,
        ),
        (
            Action("click", target="[3] item 'Same'"),
            Action("click", target="[4] item 'Same'"),
            False,
        ),
        (Action("click", target="textbox #1"), Action("click", target="textbox #2"), False),
        (Action("click", point=(0.5, 0.5)), Action("click", point=(0.5, 0.5)), True),
        (Action("click", point=(0.5, 0.5)), Action("click", point=(0.5, 0.6)), False),
        (Action("swipe", value="up"), Action("swipe", value="down"), False),
        # Agents that see pictures do not say into which field they type.
        (Action("type", value="Ann"), Action("type", value="Ghent"), False),
        (Action("type", value="Ann"), Action("type", value="Ann"), True),
        (
            Action("type", value="Ann", point=(0.5, 0.5)),
            Action("type", value="Ghent", point=(0.5, 0.5)),
            True,
        ),
        (Action("scroll", value="up"), Action("scroll", "scroll [up]", value="up"), True),
        (Action("scroll", value="up"), Action("scroll", value="down"), False),
        (Action("press", value="Enter"), Action("press", value="Tab"), False),
        (Action("goto", value="http://a"), Action("goto", value="http://a"), True),
        (Action("focus_tab", value="0"), Action("focus_tab", value="1"), False),
        (Action("stop", value="x"), Action("stop", value="y"), False),
        (Action("back", "go_back"), Action("back", "back"), True),
        (Action("new_tab"), Action("close_tab"), False),
    ],
)
def test_actions_compare_by_target(one: Action, other: Action, same: bool) -> None:
    assert same_action(one, other) is same


async def play(actions: list[Action], **settings: object) -> Trajectory:
    task = Task(goal="g")
    record = Trajectory(
        id="r", task=task, steps=tuple(steps(*[Action("wait")] * 60)), final=NOWHERE
    )
    return await run_episode(
        ReplayPolicy(actions),
        ReplayEnvironment(record),
        task,
        id="e",
        early_stop=EarlyStop(**settings),
    )  # type: ignore[arg-type]


async def test_reason_is_recorded_no_answer() -> None:
    trajectory = await play([CART] * 5)
    assert (len(trajectory.steps), trajectory.answer, trajectory.error) == (3, None, None)
    assert trajectory.metadata == {
        "date": trajectory.metadata["date"],
        "ended_by": "early_stop",
        "stopped": "the same action 3 times in a row",
    }


async def test_thirty_steps_are_the_end() -> None:
    trajectory = await play([Action("click", point=(i / 100, 0.5)) for i in range(60)])
    assert (len(trajectory.steps), trajectory.metadata) == (
        30,
        {"date": trajectory.metadata["date"], "ended_by": "max_steps"},
    )


async def test_agents_own_end_is_no_loop() -> None:
    trajectory = await play([CART, CART, Action("stop", value="done")], repeats=2)
    assert trajectory.metadata["ended_by"] == "early_stop"
    trajectory = await play([CART, Action("stop", value="done")], repeats=2)
    assert (trajectory.metadata["ended_by"], trajectory.answer) == ("agent", "done")
