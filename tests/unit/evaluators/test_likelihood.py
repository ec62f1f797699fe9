"""The likelihood judge: its score by hand, what the model is shown and what not, and what cannot be
judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import pytest

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import EndpointError
from prill.evaluators.evidence import without_copies
from prill.evaluators.judge import PageJudge
from prill.models.client import OpenAIModel
from prill.models.replies import GivenReply
from prill.protocols import Form, Message, Reply, Token
from prill.types import Action, Observation, Step, Task, Trajectory, Usage
from tests.support.messages import text

GOAL = "Enter 9:51 PM as the time"
PROBABILITIES = {"Enter": 0.9, " 9": 0.5, ":51": 0.8, " PM": 0.01, " as the time": 0.2}


class Measuring:
    """A model that gives the reply's tokens their probabilities, and keeps what it was asked."""

    name = "measuring"

    def __init__(self, probabilities: dict[str, float]) -> None:
        self.probabilities = probabilities
        self.asked: list[tuple[str, Form | None]] = []

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        assert isinstance(form, GivenReply)
        self.asked.append((text(messages) + form.instructions(as_json=False), form))
        tokens = tuple(Token(word, log(p)) for word, p in self.probabilities.items())
        return Reply(form.text, Usage(1), {}, tokens or None)


def run(caption: str | None = "tt='09:51'", **changed: Any) -> Trajectory:
    step = Step(Observation(caption="a field"), Action("type", "type '9.51A'"), "the time is in")
    task = Task(goal=GOAL, platform="web")
    made: dict[str, Any] = {"id": "r", "task": task, "steps": (step,), "answer": f"Done: {GOAL}"}
    return Trajectory(**{**made, "final": Observation(caption=caption), **changed})


def judge(model: Any, **spec: Any) -> PageJudge:
    return prill.judge("likelihood", model=model, captioner=GivenCaption(), **spec)


async def test_the_score_is_the_geometric_mean_of_the_three_least_likely_tokens() -> None:
    verdict = await judge(Measuring(PROBABILITIES))(run())
    assert verdict.score == pytest.approx((0.01 * 0.2 * 0.5) ** (1 / 3), abs=1e-6)
    assert verdict.success is True and verdict.rewards == (1.0,)
    assert "least likely in the request: 'PM' (probability 0.01)" in verdict.reason
    assert f"in {GOAL!r}" in verdict.reason


async def test_the_model_sees_what_was_done_but_neither_the_goal_nor_what_the_agent_says() -> None:
    model = Measuring(PROBABILITIES)
    await judge(model)(run())
    ((shown, form),) = model.asked
    assert "type '9.51A'" in shown and "tt='09:51'" in shown
    assert GOAL not in shown and "the time is in" not in shown and "Done" not in shown
    assert form == GivenReply(GOAL)


@pytest.mark.parametrize(
    ("trajectory", "tokens", "unscored"),
    [
        (run(caption=None), PROBABILITIES, "no_evidence"),
        (run(task=Task(goal=" ", platform="web")), PROBABILITIES, "no_evidence"),
        (run(), {}, "parse"),
    ],
    ids=["no readable state", "no goal", "no log-probabilities"],
)
async def test_what_cannot_be_measured_is_unscored(
    trajectory: Trajectory, tokens: dict[str, float], unscored: str
) -> None:
    verdict = await judge(Measuring(tokens))(trajectory)
    assert verdict.unscored == unscored and verdict.score is None


async def test_a_model_that_cannot_measure_a_text_is_named_before_any_call() -> None:
    model = OpenAIModel("gpt-4o", base_url="http://localhost:9/v1")
    with pytest.raises(EndpointError, match="gpt-4o does not return .* embedded or local:embedded"):
        await judge(model)(run())


BOXES = "Select t8q7, YBN9xN, b5v, 1rrha, p7jpmq and click Submit."


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"1: type {BOXES!r} into search", "1: type '(repeats the request).' into search"),
        (f"{BOXES} {BOXES} Done", "(repeats the request). Done"),
        ("select T8Q7\nYBN9xN: b5v 1rrha - p7jpmq!", "(repeats the request)!"),
        ("check t8q7\ncheck YBN9xN\nclick Submit", "check t8q7\ncheck YBN9xN\nclick Submit"),
        ("t8q7 YBN9xN b5v 1rrha p7jpmq", "t8q7 YBN9xN b5v 1rrha p7jpmq"),  # five of nine words
        ("", ""),
    ],
)
def test_passages_that_repeat_the_request_are_removed(text: str, left: str) -> None:
    assert without_copies(text, BOXES) == left


async def test_an_agent_that_types_the_request_does_not_show_it_to_the_model() -> None:
    model = Measuring(PROBABILITIES)
    goal = "Find the cheapest red bicycle with at least three gears"
    page = f"search box {goal!r}"
    typed = Step(Observation(caption=page), Action("type", f"type {goal!r}"))
    await judge(model)(
        run(caption=page, steps=(typed,), task=Task(goal=goal, platform="web"), answer=None)
    )
    ((shown, _),) = model.asked
    assert "cheapest" not in shown and shown.count("(repeats the request)") == 2
