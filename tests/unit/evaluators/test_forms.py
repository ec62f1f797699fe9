"""How judges of outcomes are answered: thoughts and a verdict, a stated probability, or one
word.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import pytest

from prill.captioner.recorded import GivenCaption
from prill.errors import UnparsableError, UsageError
from prill.evaluators.judgement import ModelJudge
from prill.evaluators.outcome import (
    STATED_STATUS,
    WORD,
    CaptionJudge,
    ModularSpec,
    VLMJudge,
    VLMSpec,
)
from prill.evaluators.rubric import ASSESSMENT, RUBRIC, RubricJudge
from prill.evaluators.webjudge import KEY_POINTS, WebJudge
from prill.models.client import OpenAIModel
from prill.models.replies import word_probability
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
        judge = CaptionJudge(
            OpenAIModel("m", base_url=url), GivenCaption(), spec=ModularSpec(**options)
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


async def test_one_word_without_logprobs_is_hard() -> None:
    found, _ = await scores(Faults(no_logprobs=True), form="verdict")
    assert set(found) == {0.0, 1.0}


async def test_thinking_model_says_one_word() -> None:
    found, endpoint = await scores(
        Faults(hidden_thought=300, thought_field="content"), form="verdict"
    )
    assert set(found) != {0.0, 1.0}
    assert endpoint.requests == 13, "the first reply is cut while it thinks"


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
        ("Thoughts: x\nStatus: success\nProbability: 7%", "7"),
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


def test_probability_of_a_word_is_of_its_token() -> None:
    thought = Token("<think>success, failure</think>\n", 0.0)
    first = Token("fail", log(0.6), (("fail", log(0.6)), ("success", log(0.2)), ("ins", log(0.2))))
    tokens = (thought, first, Token("ure", 0.0), Token(". No success: failure", 0.0))
    assert word_probability(tokens, ("success", "failure"), "success", "failure") == pytest.approx(
        0.25
    )
    assert word_probability(tokens[:1], ("success", "failure"), "success", "maybe") is None


async def test_insufficient_word_is_no_verdict() -> None:
    model = ScriptedModel(
        [Reply("insufficient-evidence", Usage(), {"status": "insufficient-evidence"})]
    )
    verdict = await CaptionJudge(model, GivenCaption(), spec=ModularSpec(form="verdict"))(run(1))
    assert (verdict.unscored, verdict.reason) == (
        "no_evidence",
        "the judge says that the evidence is insufficient",
    )


def test_form_is_part_of_the_identity() -> None:
    model = ScriptedModel([])
    infos = [
        VLMJudge(model).info,
        VLMJudge(model, spec=VLMSpec(form="verdict")).info,
        VLMJudge(model, spec=VLMSpec(probability="stated")).info,
    ]
    assert len({info.prompt for info in infos}) == 3
    assert [(info.params["form"], info.params["probability"]) for info in infos] == [
        ("thoughts", "token"),
        ("verdict", "token"),
        ("thoughts", "stated"),
    ]
    assert VLMJudge(model, spec=VLMSpec(form="verdict")).estimate(run(1)) == Usage()


@pytest.mark.parametrize(
    "options",
    [
        {"form": "verdict", "probability": "stated"},
        {"preset": "paper", "form": "verdict"},
        {"preset": "paper", "probability": "stated"},
        {"form": "short"},
    ],
)
def test_forms_that_exclude_each_other(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"probability|form"):
        VLMJudge(ScriptedModel([]), spec=VLMSpec(**options))


def parts(schema: object) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema."""
    if isinstance(schema, dict):
        yield schema
    for part in (
        schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    ):
        yield from parts(part)


@pytest.mark.parametrize("judge", [RubricJudge, WebJudge])
def test_lists_in_replies_have_an_end(judge: type[ModelJudge]) -> None:
    """A small model lists points until it is cut, and one that may say nothing says nothing."""
    lists = [
        part
        for form in judge.forms
        for part in parts(form.json_schema())
        if part.get("type") == "array"
    ]
    assert lists and all(1 <= part["maxItems"] <= 100 for part in lists)
    assert all(
        part["items"].get("maxLength", 0) for part in lists if part["items"].get("type") == "string"
    )


@pytest.mark.parametrize(
    ("form", "field"), [(RUBRIC, "criteria"), (ASSESSMENT, "criteria"), (KEY_POINTS, "key_points")]
)
def test_lists_that_decide_are_never_empty(form: Form, field: str) -> None:
    assert form.json_schema()["properties"][field]["minItems"] == 1
