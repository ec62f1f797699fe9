"""CogAgent as a policy, with a scripted model in place of its weights."""

from __future__ import annotations

from prill.episodes.loop import run_episode
from prill.policies.cogagent import CogAgent
from prill.protocols import Image
from prill.testing.scripted import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory

SCREEN = Observation(screenshot="screen.png")
TASK = Task(id="t", goal="Open {{ goal }} mail", platform="android")


def world(states: int = 9) -> ReplayEnvironment:
    steps = tuple(Step(SCREEN, Action("wait")) for _ in range(states))
    return ReplayEnvironment(Trajectory(id="r", task=TASK, steps=steps, final=SCREEN))


async def test_18b_is_asked_with_grounding() -> None:
    model = ScriptedModel(
        ["Plan: open it.\nGrounded Operation: tap [[500,200]]", "Grounded Operation: task complete"]
    )
    trajectory = await run_episode(CogAgent(model, generation="18b"), world(), TASK, id="a")
    question = 'What steps do I need to take to "Open {{ goal }} mail"?(with grounding)'
    assert [call[0].parts for call in model.seen] == [(Image("screen.png"), question)] * 2, (
        "it sees no history"
    )
    first, last = trajectory.steps
    assert (first.action.kind, first.action.point, first.thought) == (
        "click",
        (0.5, 0.2),
        "Plan: open it.",
    )
    assert (last.action.text, last.thought, trajectory.metadata) == (
        "Action Type: TaskComplete",
        None,
        {"date": trajectory.metadata["date"], "ended_by": "agent"},
    )


async def test_9b_is_told_its_operations() -> None:
    lines = [
        (
            "Action: Tap the mail icon.\nGrounded Operation: CLICK(box=[[0,0,100,100]], "
            "element_info='Mail')"
        ),
        "Action: Scroll.\nGrounded Operation: SCROLL_DOWN(box=[[0,0,1000,1000]], step_count=5)",
        "Grounded Operation: END()",
    ]
    model = ScriptedModel(lines)
    trajectory = await run_episode(CogAgent(model), world(), TASK, id="a")
    asked = [str(call[0].parts[1]) for call in model.seen]
    ending = "\n(Platform: Mobile)\n(Answer in Action-Operation format.)\n"
    first = "\n0. CLICK(box=[[0,0,100,100]], element_info='Mail')\tTap the mail icon."
    second = "\n1. SCROLL_DOWN(box=[[0,0,1000,1000]], step_count=5)\tScroll."
    assert asked == [
        f"Task: Open {{{{ goal }}}} mail\nHistory steps: {done}{ending}"
        for done in ("", first, first + second)
    ]
    assert [step.action.kind for step in trajectory.steps] == ["click", "scroll", "stop"]
    assert trajectory.steps[0].thought == "Action: Tap the mail icon."


async def test_episode_begins_without_history() -> None:
    swipe, end = "Grounded Operation: swipe up", "Grounded Operation: task complete"
    ios = Task(id="t", goal="g", platform="ios")

    async def ways(seed: int) -> list[str | None]:
        policy = CogAgent(
            ScriptedModel(([swipe] * 9 + [end]) * 2),
            generation="18b",
            swipe_up="left-or-right",
            seed=seed,
        )
        first, second = [await run_episode(policy, world(20), ios, id="a") for _ in range(2)]
        assert first.steps == second.steps
        return [step.action.value for step in first.steps[:-1]]

    drawn = [await ways(seed) for seed in range(3)]
    assert drawn[0] != drawn[1] or drawn[1] != drawn[2]
    assert {way for draws in drawn for way in draws} == {"left", "right"}
