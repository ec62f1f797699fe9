"""Recorded episodes played again: on the element as it is called now, with thoughts and answer."""

from __future__ import annotations

import pytest

from prill.episodes.loop import run_episode
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
