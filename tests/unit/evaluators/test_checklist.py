"""The checklist judge: progress from the tokens of one word, rewards as its differences, and
what is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import pytest

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import CallTimeoutError
from prill.evaluators.criteria import Rubric, RubricCriterion
from prill.evaluators.judge import PageJudge
from prill.protocols import Message, Reply, Token
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory, Usage
from tests.support.messages import text

ITEMS = ("The kettle is in the cart", "The order is placed")
GIVEN = {"t": Rubric(tuple(map(RubricCriterion, ITEMS)))}


def attempt(*captions: str | None) -> Trajectory:
    states = [Observation(caption=caption) for caption in captions]
    steps = tuple(
        Step(state, Action("click", f"deed {i}"), "surely done")
        for i, state in enumerate(states[:-1])
    )
    task = Task(id="t", goal="Order a kettle", platform="web")
    return Trajectory(id="a", task=task, steps=steps, final=states[-1], answer="Ordered!")


def word(value: str, **shares: float) -> Reply:
    top = tuple((name.replace("_", "-"), log(share)) for name, share in shares.items())
    chosen = log(shares[value.replace("-", "_")]) if shares else 0.0
    tokens = (Token(value, chosen, top),) if shares else None
    return Reply(value, Usage(), {"done": value}, tokens)


def saying(table: dict[tuple[str, str], Any]) -> ScriptedModel:
    """A model with an answer for each item in each state."""

    def play(messages: Sequence[Message]) -> Any:
        shown = text(messages)
        return next(
            answer
            for (state, item), answer in table.items()
            if f"\n{state}\n" in shown and f"\n{item}\n" in shown
        )

    return ScriptedModel(play)


def judge(model: ScriptedModel, **spec: Any) -> PageJudge:
    return prill.judge("checklist", model=model, captioner=GivenCaption(), rubrics=GIVEN, **spec)


CART, ORDER = ITEMS


async def test_rewards_are_what_a_step_adds_to_the_progress() -> None:
    model = saying(
        {
            ("shop", CART): word("no", yes=0.1, in_progress=0.2, no=0.7),
            ("shop", ORDER): word("no", yes=0.0001, in_progress=0.0001, no=0.9998),
            ("cart", CART): word("yes", yes=0.8, in_progress=0.2, no=0.0001),
            ("cart", ORDER): word("in-progress", yes=0.1, in_progress=0.6, no=0.3),
            ("thanks", CART): word("yes", yes=1.0),
            ("thanks", ORDER): word("yes", yes=1.0),
        }
    )
    verdict = await judge(model)(attempt("shop", "cart", "thanks"))
    assert verdict.rewards == pytest.approx(
        ((0.9 + 0.4) / 2 - (0.2 + 0) / 2, 1 - (0.9 + 0.4) / 2), abs=1e-3
    )
    assert verdict.steps is not None and verdict.findings is not None
    assert [step.label for step in verdict.steps] == ["towards", "reached"]
    assert (verdict.success, verdict.score, verdict.findings.process) == (True, 1.0, 1.0)
    assert sum(verdict.rewards or ()) == pytest.approx(1 - 0.1, abs=1e-3)


async def test_going_back_and_standing_still_are_told_apart() -> None:
    model = saying(
        {
            ("shop", CART): word("no"),
            ("cart", CART): word("yes"),
            **{(state, ORDER): word("no") for state in ("shop", "cart")},
        }
    )
    verdict = await judge(model)(attempt("shop", "cart", "cart", "shop"))
    assert verdict.steps is not None
    assert [step.label for step in verdict.steps] == ["towards", "not_sure", "away"]
    assert verdict.rewards == (0.5, 0.0, -0.5)
    assert verdict.success is False and verdict.reason.startswith("0 of 2 items done; open: ")


async def test_a_state_that_was_not_recorded_moves_nothing() -> None:
    model = saying({(s, item): word("yes") for s in ("shop", "end") for item in ITEMS})
    verdict = await judge(model)(attempt("shop", None, "end"))
    assert verdict.steps is not None and verdict.rewards == (0.0, 0.0)
    assert [step.flagged for step in verdict.steps] == [True, True]
    assert len(model.seen) == 4


async def test_without_a_last_state_there_is_no_verdict() -> None:
    verdict = await judge(saying({}))(attempt("shop", None))
    assert (verdict.unscored, verdict.success) == ("no_evidence", None)


async def test_a_failed_call_is_no_progress_of_zero() -> None:
    verdict = await judge(ScriptedModel([CallTimeoutError("late")] * 9))(attempt("shop", "end"))
    assert (verdict.unscored, verdict.rewards) == ("timeout", None)


async def test_only_actions_before_a_state_are_shown() -> None:
    states = ("shop", "cart", "end")
    model = saying({(s, item): word("no") for s in states for item in ITEMS})
    await judge(model)(attempt(*states))
    first, last = ([m for m in map(text, model.seen) if f"\n{s}\n" in m] for s in ("shop", "end"))
    assert not any("deed" in shown for shown in first)
    assert all("deed 0" in shown and "deed 1" in shown for shown in last)
