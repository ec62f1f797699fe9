"""The per-step judge: spec test T13, and that a failed call is never a label."""

from collections.abc import Sequence
from math import log
from typing import Any

import pytest

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import CallTimeoutError, TransportError, UsageError
from prill.evaluators.judgement import kept_steps
from prill.models.prompts import NONCE
from prill.protocols import Message, Reply, Token
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory, Usage
from tests.support.messages import text

WORDS = ("towards-the-goal", "not-sure", "away-from-the-goal", "goal-reached")


def attempt(
    count: int = 4, *, final: bool = True, goal: str = "Set an alarm", **task: Any
) -> Trajectory:
    steps = tuple(
        Step(Observation(caption=f"screen {i}"), Action("click", f"deed {i}"), "I am surely done")
        for i in range(count)
    )
    last = Observation(caption=f"screen {count}") if final else None
    return Trajectory(
        id="a", task=Task(goal=goal, **task), steps=steps, final=last, answer="All done"
    )


def place(messages: Sequence[Message]) -> int:
    """Which action a call is about."""
    shown = text(messages)
    return next(i for i in range(20) if f"\ndeed {i}\n" in shown)


def saying(*words: str) -> ScriptedModel:
    """A model with a response for every action, in whatever order they are asked about."""

    def play(messages: Sequence[Message]) -> str:
        return f"Thoughts: about {place(messages)}\nResponse: {words[place(messages)]}"

    return ScriptedModel(play)


async def test_labels_become_rewards() -> None:
    verdict = await prill.judge(
        "steps", model=saying(*WORDS), captioner=GivenCaption(), towards=0.25, away=-1.0
    )(attempt())
    assert verdict.steps is not None
    assert [step.label for step in verdict.steps] == ["towards", "not_sure", "away", "reached"]
    assert verdict.rewards == (0.25, -1.0, -1.0, 1.0)
    assert [(step.index, step.reason) for step in verdict.steps] == [
        (i, f"about {i}") for i in range(4)
    ]
    assert (verdict.success, verdict.score, verdict.unscored) == (True, 1.0, None)
    lost = await prill.judge("steps", model=saying(*WORDS[:3]), captioner=GivenCaption())(
        attempt(3)
    )
    assert (lost.success, lost.score) == (False, 0.0)


@pytest.mark.parametrize(
    ("towards", "away", "bound"),
    [(1.0, -0.5, "< 1"), (-0.1, -0.5, ">= 0"), (0.5, 0.0, "< -0"), (0.5, 0.1, "< -0")],
)
def test_rewards_against_paper_refused(towards: float, away: float, bound: str) -> None:
    with pytest.raises(UsageError, match=bound):
        prill.judge(
            "steps", model=ScriptedModel([]), captioner=GivenCaption(), towards=towards, away=away
        )


async def test_call_sees_action_and_two_states() -> None:
    model = saying(*WORDS)
    await prill.judge("steps", model=model, captioner=GivenCaption())(attempt())
    for messages in model.seen:
        i, shown = place(messages), text(messages)
        assert "Set an alarm" in shown
        assert [f"screen {k}" in shown for k in range(5)] == [k in (i, i + 1) for k in range(5)]
        assert (
            shown.index(f"screen {i}") < shown.index(f"deed {i}") < shown.index(f"screen {i + 1}")
        )
        assert "surely" not in shown
        assert "All done" not in shown


async def test_paper_preset_is_one_message() -> None:
    model = saying(*WORDS)
    verdict = await prill.judge("aer-steps", model=model, captioner=GivenCaption())(attempt())
    assert verdict.success is not None
    assert all([message.role for message in messages] == ["user"] for messages in model.seen)
    ends = {
        place(messages): text(messages).rstrip().endswith("\nTerminated") for messages in model.seen
    }
    assert ends == {0: False, 1: False, 2: False, 3: True}
    assert not any("screen 4" in text(messages) for messages in model.seen)
    assert not any(
        NONCE in text(messages) or "[before" in text(messages) for messages in model.seen
    ), "nothing is quoted"


async def test_reply_without_label_is_flagged() -> None:
    verdict = await prill.judge(
        "steps",
        model=saying("towards-the-goal", "nearly there"),
        captioner=GivenCaption(),
        away=-0.75,
    )(attempt(2))
    assert verdict.steps is not None
    assert [(step.label, step.flagged) for step in verdict.steps] == [
        ("towards", False),
        ("not_sure", True),
    ]
    assert verdict.rewards == (0.5, -0.75)
    assert "nearly there" in verdict.steps[1].reason
    assert "1 without a label" in verdict.reason


async def test_no_label_at_all_is_no_verdict() -> None:
    assert (
        await prill.judge("steps", model=saying("?", "?"), captioner=GivenCaption())(attempt(2))
    ).unscored == "parse"
    paper = await prill.judge("aer-steps", model=saying("?", "?"), captioner=GivenCaption())(
        attempt(2)
    )
    assert (paper.success, paper.rewards) == (False, (-0.5, -0.5))


@pytest.mark.parametrize("failure", [TransportError("down"), CallTimeoutError("late")])
async def test_failed_call_leaves_unscored(failure: Exception) -> None:
    def play(messages: Sequence[Message]) -> str | Exception:
        return failure if place(messages) == 2 else "Thoughts: x\nResponse: goal-reached"

    verdict = await prill.judge("steps", model=ScriptedModel(play), captioner=GivenCaption())(
        attempt()
    )
    assert (verdict.success, verdict.rewards, verdict.steps) == (None, None, None)
    assert verdict.unscored == getattr(failure, "code", "")
    assert verdict.reason == str(failure)


async def test_a_state_that_was_not_recorded_is_named() -> None:
    whole = attempt(3)
    model = saying(*WORDS)
    gap = Trajectory(
        id="a",
        task=whole.task,
        steps=(whole.steps[0], Step(Observation(), Action("click", "deed 1"))),
    )
    assert (await prill.judge("steps", model=model, captioner=GivenCaption())(gap)).unscored is None
    assert all("not recorded" in text(messages) for messages in model.seen)


async def test_score_is_highest_probability() -> None:
    def play(messages: Sequence[Message]) -> Reply:
        likely = -0.1 if place(messages) == 1 else -3.0
        tokens = (
            Token("Thoughts: x\nResponse: ", 0.0),
            Token("not", -0.5, (("not", -0.5), ("goal", likely), ("towards", -9.0))),
            Token("-sure", 0.0),
        )
        return Reply("", Usage(calls=1), {"thoughts": "x", "response": "not-sure"}, tokens)

    verdict = await prill.judge("steps", model=ScriptedModel(play), captioner=GivenCaption())(
        attempt(3)
    )
    assert verdict.success is False
    assert verdict.score == pytest.approx(0.5985, abs=1e-3)  # e^-0.1 / (e^-0.5 + e^-0.1 + e^-9)


def test_estimate_counts_calls_of_actions() -> None:
    judge = prill.judge("steps", model=ScriptedModel([]), captioner=GivenCaption())
    assert judge.estimate(attempt(5)).calls == 5
    assert judge.estimate(attempt(0)) == Usage()


async def test_kept_steps_end_at_the_goal() -> None:
    words = (
        "towards-the-goal",
        "away-from-the-goal",
        "goal-reached",
        "towards-the-goal",
        "not-sure",
    )
    verdict = await prill.judge("steps", model=saying(*words), captioner=GivenCaption())(attempt(5))
    assert kept_steps(verdict, 0.5) == (0, 2)
    assert kept_steps(verdict, 0.5, stop_at_reached=False) == (0, 2, 3)
    assert kept_steps(verdict, 1.0) == (2,)


async def test_a_bare_label_is_read_with_its_probability() -> None:
    def play(messages: Sequence[Message]) -> Reply:
        reached = place(messages) == 1
        first, rest = ("goal", "-reached") if reached else ("towards", "-the-goal")
        shares = {"goal": 0.75 if reached else 0.25, "towards": 0.25 if reached else 0.75}
        top = tuple((word, log(share)) for word, share in shares.items())
        tokens = (Token(first, log(shares[first]), top), Token(rest, 0.0))
        return Reply(first + rest, Usage(), {"response": first + rest}, tokens)

    judge = prill.judge("steps", model=ScriptedModel(play), captioner=GivenCaption(), form="word")
    verdict = await judge(attempt(2))
    assert verdict.steps is not None
    assert [step.label for step in verdict.steps] == ["towards", "reached"]
    assert (verdict.success, verdict.score) == (True, 0.75)
    assert (
        judge.info.params["form"] == "word"
        and judge.info.prompt
        != prill.judge("steps", model=ScriptedModel([]), captioner=GivenCaption()).info.prompt
    )
