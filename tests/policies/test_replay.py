"""Recorded episodes played again: on the element as it is called now, with thoughts and answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prill.episodes.loop import run_episode
from prill.errors import UsageError
from prill.policies.replay import HumanReplay, relocated
from prill.testing.scripted import ReplayEnvironment
from prill.types import Action, Observation, Step, Task, Trajectory

CART = "[12] link 'Cart' focused: True"
NOW = (
    "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop'\n\t[30] link 'Cart'\n\t[31] button "
    "'Cart'\n\t[12] link 'Home'"
)


def recorded(*steps: Step, task: str = "t", answer: str | None = None) -> Trajectory:
    return Trajectory(
        id=f"record-{task}", task=Task(id=task, goal=f"goal of {task}"), steps=steps, answer=answer
    )


@pytest.mark.parametrize(
    ("target", "point", "found", "kept_point"),
    [
        (CART, None, "[30] link 'Cart'", None),  # another number and state
        ("link 'Cart'", None, "[30] link 'Cart'", None),  # a log that does not tell numbers
        ("[30] link 'Cart'", None, "[30] link 'Cart'", None),
        (CART, (0.5, 0.5), "[30] link 'Cart'", None),
        ("[12] link 'Gone'", (0.5, 0.5), None, (0.5, 0.5)),  # the place is all that is left
        ("[12] link 'Gone'", None, "[12] link 'Gone'", None),
        # 31 is a button now, and must not be clicked
        ("[31] link 'Gone'", None, "link 'Gone'", None),
        ("[12]", None, "[12]", None),
        ("[9] textbox ''", None, "[9] textbox ''", None),  # a name that says nothing is no name
        (None, (0.1, 0.2), None, (0.1, 0.2)),
    ],
)
def test_element_is_found_by_role_and_name(
    target: str | None,
    point: tuple[float, float] | None,
    found: str | None,
    kept_point: tuple[float, float] | None,
) -> None:
    action = relocated(Action("click", target=target, point=point), NOW)
    assert (action.target, action.point) == (found, kept_point)


def test_place_of_named_element_left_out() -> None:
    gone = Action(
        "click", "click [12] where [12] is link 'Gone'", target="[12] link 'Gone'", point=(0.5, 0.5)
    )
    assert relocated(gone, NOW) == replace(gone, point=None)
    named = Action("click", "click link 'Cart'", target="link 'Cart'", point=(0.5, 0.5))
    assert relocated(named, "[30] link 'Cart'").point is None
    # Where the text tells of the place alone, that is what was clicked.
    bare = Action(
        "click", "CLICK(box=[[500,500,500,500]])", target="[30] link 'Cart'", point=(0.5, 0.5)
    )
    assert relocated(bare, NOW) == bare


def test_bid_with_letters_is_found_again() -> None:
    page = "[a3] button 'Save', clickable\n[a4] button 'Save', clickable\n[b1] link 'Home'"
    assert (
        relocated(Action("click", "click('a4')", target="[a4] button 'Save'"), page).target
        == "[a4] button 'Save', clickable"
    )
    assert (
        relocated(Action("click", "click('c9')", target="[c9] link 'Home'"), page).target
        == "[b1] link 'Home'"
    )


def test_same_number_wins_among_namesakes() -> None:
    page = "[4] button 'Buy'\n[7] button 'Buy' focused: True\n[9] button 'Buy'"
    assert (
        relocated(Action("click", target="[7] button 'Buy'"), page).target
        == "[7] button 'Buy' focused: True"
    )
    assert relocated(Action("click", target="[8] button 'Buy'"), page).target == "[4] button 'Buy'"


def test_action_text_follows_the_number() -> None:
    action = Action("click", "click [12] where [12] is link 'Cart'", target="[12] link 'Cart'")
    assert relocated(action, NOW).text == "click [30] where [30] is link 'Cart'"


def test_typed_digits_stay_as_they_are() -> None:
    action = Action(
        "type",
        "type [12] [[12]] where [12] is link 'Cart'",
        target="[12] link 'Cart'",
        value="[12]",
    )
    assert relocated(action, NOW).text == "type [30] [[12]] where [30] is link 'Cart'"


async def test_replay_keeps_thoughts_and_answer() -> None:
    steps = (
        Step(Observation(text=CART), Action("click", "click [12]", target=CART), "To the cart."),
        Step(
            Observation(text=""),
            Action("type", "type", target="[5] textbox 'Search'", value="tea\n"),
            None,
        ),
    )
    states = tuple(Step(Observation(text=NOW), Action("wait")) for _ in range(9))
    environment = ReplayEnvironment(
        Trajectory(id="r", task=Task(goal="g"), steps=states, final=Observation(text=NOW))
    )
    demonstrations = [recorded(task="other"), recorded(*steps, answer="$3")]
    trajectory = await run_episode(
        HumanReplay(demonstrations), environment, Task(id="t", goal="g"), id="again"
    )
    assert [step.action.target for step in trajectory.steps] == [
        "[30] link 'Cart'",
        "[5] textbox 'Search'",
        None,
    ]
    assert [step.thought for step in trajectory.steps] == ["To the cart.", None, None]
    assert [step.observation.text for step in trajectory.steps] == [NOW] * 3
    assert (trajectory.answer, trajectory.metadata) == (
        "$3",
        {"date": trajectory.metadata["date"], "ended_by": "agent"},
    )


async def test_recorded_end_is_played_once() -> None:
    policy = HumanReplay(
        [
            recorded(
                Step(Observation(), Action("answer", "stop [4]", value="4"), "Four."), answer="4"
            )
        ]
    )
    policy.reset(Task(id="t", goal="g"))
    step = await policy.act(Observation(text=NOW))
    assert (step.action, step.thought) == (Action("answer", "stop [4]", value="4"), "Four.")


async def test_record_by_task_id_or_goal() -> None:
    policy = HumanReplay([recorded(task="a", answer="A"), recorded(task="b", answer="B")])
    for task, answer in (
        (Task(id="b", goal="x"), "B"),
        (Task(id="", goal="goal of a"), "A"),
        (Task(id="a", goal=""), "A"),
    ):
        policy.reset(task)
        assert (await policy.act(Observation())).action.value == answer
    with pytest.raises(UsageError, match="no recorded trajectory for the task 'z'"):
        policy.reset(Task(id="z", goal="unheard of"))
