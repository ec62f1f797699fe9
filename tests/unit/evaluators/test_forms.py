"""How judges of outcomes are answered: thoughts and a verdict, a stated probability, or one
word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import UNSET

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import UnparsableError, UsageError
from prill.evaluators.criteria import ASSESSMENT, RELEVANCE, RUBRIC
from prill.evaluators.readers import STATED_STATUS, STATUS, WORD
from prill.models.client import OpenAIModel
from prill.protocols import Form, Reply, Token
from prill.testing import ScriptedModel
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.replies import MockEndpoint
from prill.testing.endpoint.server import serving
from prill.types import Action, Observation, Step, Task, Trajectory, Usage


def run(number: int) -> Trajectory:
    state = Observation(caption=f"page {number} truth={'success' if number % 3 else 'failure'}")
    steps = (Step(state, Action("click", "click [1]")),)
    return Trajectory(
        id=str(number), task=Task(goal=f"do {number}", platform="web"), steps=steps, final=state
    )


async def scores(
    faults: Faults, count: int = 12, **options: Any
) -> tuple[list[float], MockEndpoint]:
    """The scores of some runs, all of which are judged right, and the endpoint that was asked."""
    async with serving(faults) as (endpoint, url):
        judge = prill.judge(
            "modular", model=OpenAIModel("m", base_url=url), captioner=GivenCaption(), **options
        )
        verdicts = [await judge(run(i)) for i in range(count)]
    assert [verdict.success for verdict in verdicts] == [bool(i % 3) for i in range(count)]
    return [verdict.score for verdict in verdicts if verdict.score is not None], endpoint


@pytest.mark.parametrize(
    "settings", [{}, {"no_json_schema": True}, {"no_json_schema": True, "no_json_object": True}]
)
async def test_one_word_has_a_probability(settings: dict[str, bool]) -> None:
    found, endpoint = await scores(Faults(**settings), form="verdict")
    assert all(0.5 < score < 1 if i % 3 else 0 < score < 0.5 for i, score in enumerate(found))
    assert endpoint.requests == 12 + len(settings)
    assert endpoint.completion_tokens <= 12 * 6


@pytest.mark.parametrize(
    "settings", [{}, {"no_json_schema": True}, {"no_json_schema": True, "no_json_object": True}]
)
async def test_stated_number_is_the_score(settings: dict[str, bool]) -> None:
    found, _ = await scores(Faults(no_logprobs=True, **settings), probability="stated")
    assert all(0.7 < score < 1 if i % 3 else 0 < score < 0.3 for i, score in enumerate(found))
    assert len(set(found)) > 4


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('{"thoughts": "x", "status": "success", "probability": 85}', "85"),
        ('{"thoughts": "x", "status": "success", "probability": "85 %"}', "85"),
        ('{"thoughts": "x", "status": "success", "probability": 85.0}', "85"),
        ("Thoughts: x\nStatus: failure\nProbability: 7%", "7"),
        ("Thoughts: Probability: 3\nStatus: success\n**Probability:** 100.", "100"),
        ('{"thoughts": "x", "status": "success", "probability": 0.85}', None),
        ('{"thoughts": "x", "status": "success", "probability": 101}', None),
        ('{"thoughts": "x", "status": "success", "probability": true}', None),
        ('{"thoughts": "x", "status": "success"}', None),
        ("Thoughts: x\nStatus: success", None),
        ("Probability: 85\nThoughts: x\nStatus: success", None),
    ],
)
def test_only_whole_percents_are_read(text: str, number: str | None) -> None:
    if number is None:
        with pytest.raises(UnparsableError, match="integer from 0 to 100"):
            STATED_STATUS.parse(text)
    else:
        assert STATED_STATUS.parse(text)["probability"] == number


@pytest.mark.parametrize(
    ("status", "number", "agrees"),
    [
        ("failure", 100, False),
        ("failure", 51, False),
        ("failure", 50, True),
        ("success", 49, False),
        ("success", 50, True),
        ("insufficient-evidence", 90, True),
    ],
)
def test_a_number_that_contradicts_its_verdict_is_unreadable(
    status: str, number: int, agrees: bool
) -> None:
    for text in (
        f'{{"thoughts": "x", "status": "{status}", "probability": {number}}}',
        f"Thoughts: x\nStatus: {status}\nProbability: {number}",
    ):
        if agrees:
            assert STATED_STATUS.parse(text)["probability"] == str(number)
        else:
            with pytest.raises(UnparsableError, match=f"{number} contradicts status {status}"):
                STATED_STATUS.parse(text)


async def test_probability_of_insufficient_evidence_is_kept() -> None:
    token = Token("ins", -0.1, (("ins", -0.1), ("success", -3.0), ("failure", -3.0 - math.log(3))))
    reply = "Thoughts: x\nStatus: insufficient-evidence"
    tokens = (Token("Thoughts: x\nStatus: ", 0.0), token, Token("ufficient-evidence", 0.0))
    stated = f"{reply}\nProbability: 30"
    for options, line, expected in (
        ({}, Reply(reply, Usage(), STATUS.parse(reply), tokens), 0.75),
        ({"probability": "stated"}, stated, 0.3),
        ({}, reply, UNSET),
    ):
        verdict = await prill.judge(
            {
                **options,
                "name": "modular",
                "model": ScriptedModel([line]),
                "captioner": GivenCaption(),
            }
        )(run(1))
        assert verdict.unscored == "no_evidence"
        found = UNSET if verdict.findings is None else verdict.findings.probability
        assert found == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("success", "success"),
        (" Failure.\n", "failure"),
        ("**Insufficient evidence**", "insufficient-evidence"),
        ("Status: success", "success"),
        ('{"status": "failure"}', "failure"),
        ("success. The order was placed and", "success"),
        ("unsuccessful", None),
        ("successful", None),
        ("not success", None),
        ("The agent had success", None),
        ("success, failure or insufficient-evidence", None),
        ("", None),
    ],
)
def test_one_word_is_read_strictly(text: str, word: str | None) -> None:
    if word is None:
        with pytest.raises(UnparsableError):
            WORD.parse(text)
    else:
        assert WORD.parse(text) == {"status": word}


async def test_insufficient_word_is_no_verdict() -> None:
    model = ScriptedModel(
        [Reply("insufficient-evidence", Usage(), {"status": "insufficient-evidence"})]
    )
    verdict = await prill.judge("modular", model=model, captioner=GivenCaption(), form="verdict")(
        run(1)
    )
    assert (verdict.unscored, verdict.reason) == (
        "no_evidence",
        "the judge says that the evidence is insufficient",
    )


@pytest.mark.parametrize(
    "options", [{"form": "verdict", "probability": "stated"}, {"form": "short"}]
)
def test_forms_that_exclude_each_other(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"probability|form"):
        prill.judge("vlm", model=ScriptedModel([]), **options)


def parts(schema: object) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema."""
    if isinstance(schema, dict):
        yield schema
    for part in (
        schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    ):
        yield from parts(part)


@pytest.mark.parametrize("form", [RUBRIC, RELEVANCE, ASSESSMENT])
def test_lists_in_replies_have_an_end(form: Form) -> None:
    """A small model lists points until it is cut, and one that may say nothing says nothing."""
    lists = [part for part in parts(form.json_schema()) if part.get("type") == "array"]
    assert lists and all(1 <= part["maxItems"] <= 100 for part in lists)
    assert all(
        part["items"].get("maxLength", 0) for part in lists if part["items"].get("type") == "string"
    )


@pytest.mark.parametrize("form", [RUBRIC, ASSESSMENT])
def test_lists_that_decide_are_never_empty(form: Form) -> None:
    assert form.json_schema()["properties"]["criteria"]["minItems"] == 1
