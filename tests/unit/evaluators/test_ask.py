"""Questions of one's own: typed answers, however a model phrases them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import UnparsableError, UsageError
from prill.evaluators.questions import AnswersFormat, Question
from prill.evaluators.registry import judge_questions
from prill.io.store import encode, read_verdicts
from prill.models.prompts import NONCE
from prill.protocols import Reply, Token
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory, Usage, Verdict
from tests.support.messages import text

WALL = Question("Was a login wall met?", "yes/no")
PAGES = Question("How many pages were opened?", "number")
WHERE = Question("Where did it end?", ("cart", "check out", "none"))


@dataclass(frozen=True)
class Order:
    """What was ordered."""

    item: str
    price: float


RUN = Trajectory(
    id="1",
    task=Task(goal="Buy tea"),
    steps=(
        Step(Observation(text="a shop"), Action("click", "click [1]")),
        Step(Observation(text="Sign in to go on"), Action("click", "click [2]")),
    ),
    final=Observation(text="Order placed"),
    answer="Bought it without signing in",
)


def read(question: Question, reply: str) -> dict[str, Any]:
    (answer,) = json.loads(AnswersFormat((question,)).parse(reply)["answers"])
    assert isinstance(answer, dict)
    return answer


async def judged(reply: str, **options: Any) -> Verdict:
    judge = prill.judge("ask", captioner="text", model=ScriptedModel([reply]), **options)
    return await judge(RUN)


@pytest.mark.parametrize(
    ("reply", "value", "step"),
    [
        ('{"q1": {"reason": "a form", "step": 1, "answer": "yes"}}', True, 1),
        ('{"reason": "a form", "step": "1", "answer": "Yes"}', True, 1),
        ('```json\n{"q1": {"reason": "", "step": -1, "answer": false}}\n```', False, None),
        ('Here is my answer:\n{"q1": {"reason": "", "step": 2, "answer": "No."}}', False, 2),
        ('{"q1": {"reason": "", "answer": "Yes, at state 1"}}', True, None),
        ('{"q1": {"answer": "no"}}\nWait: {"q1": {"answer": "yes"}}', True, None),
        ("**Reason:** a form is shown\n**Step:** 1\n**Answer:** Yes", True, 1),
        ("Answer: no\nOn reflection\nStep: state 1\nAnswer: yes — a form", True, 1),
        ('{"q1": {"answer": "cannot-tell"}}', None, None),
        ('{"q1": {"answer": "Cannot tell."}}', None, None),
        ('{"q1": {"answer": "N/A"}}', None, None),
        ('{"q1": {"answer": null}}', None, None),
    ],
)
def test_yes_and_no_are_read_as_models_write_them(
    reply: str, value: bool | None, step: int | None
) -> None:
    answer = read(WALL, reply)
    assert (answer["value"], answer["step"]) == (value, step)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Yes",  # no form at all
        '{"q1": {"answer": "maybe"}}',
        '{"q1": {"answer": "No idea"}}',
        '{"q1": {"answer": "yes or no"}}',
        '{"q1": {"answer": "nope, yes"}}',
        '{"q1": {"answer": 1}}',
        '{"q2": {"answer": "yes"}}',
        '{"q1": "yes"}',
        '{"q1": {"answer": "yes"',
        '{"q1": {"reason": "the page says Answer: yes"',
        '{"q1": {"answer": "yes"}} but then {"q1": {"answer": "perhaps"}}',
    ],
)
def test_what_was_not_offered_is_no_answer(reply: str) -> None:
    with pytest.raises(UnparsableError):
        read(WALL, reply)


def test_a_dataclass_is_checked_field_by_field() -> None:
    question = Question("What was ordered?", Order)
    reply = '{"q1": {"answer": {"item": "tea", "price": "4.5"}, "step": 2}}'
    assert read(question, reply)["value"] == {"item": "tea", "price": 4.5}
    with pytest.raises(UnparsableError, match="price"):
        read(question, '{"q1": {"answer": {"item": "tea"}}}')


async def test_the_answer_comes_with_a_state_that_was_shown(tmp_path: Path) -> None:
    reply = '{"q1": {"reason": "a form", "step": 1, "answer": "yes"}}'
    verdict = await judged(reply, question=WALL.text)
    assert (verdict.success, verdict.score, verdict.unscored) == (True, 1.0, None)
    assert verdict.findings is not None
    (answer,) = verdict.findings.answers or ()
    assert (answer.question, answer.value, answer.step) == (WALL.text, True, 1)
    (tmp_path / "v.jsonl").write_bytes(encode(verdict) + b"\n")
    assert list(read_verdicts(tmp_path / "v.jsonl")) == [verdict]
    far = await judged(reply.replace('"step": 1', '"step": 7'), question=WALL.text)
    assert far.findings is not None
    assert [one.step for one in far.findings.answers or ()] == [None]


async def test_unreadable_and_untold_are_unscored_not_no() -> None:
    # an unreadable reply is asked about once more
    garbage = ScriptedModel(["What a nice page!"] * 4)
    parse = await prill.judge("ask", captioner="text", model=garbage, question=WALL.text)(RUN)
    untold = await judged('{"q1": {"answer": "cannot-tell"}}', question=WALL.text)
    assert (parse.unscored, untold.unscored) == ("parse", "no_evidence")


async def test_several_questions_go_into_one_call_and_the_first_yes_or_no_decides() -> None:
    model = ScriptedModel(
        ['{"q1": {"answer": 2, "step": 1}, "q2": {"answer": "no"}, "q3": {"answer": "cart"}}']
    )
    questions = [
        {"question": PAGES.text, "answer": "number"},
        {"question": WALL.text},
        {"question": WHERE.text, "answer": ["cart", "check out", "none"]},
    ]
    judge = prill.judge("ask", captioner="text", model=model, questions=questions)
    verdict = await judge(RUN)
    assert len(model.seen) == 1
    assert verdict.success is False
    assert verdict.findings is not None
    assert [answer.value for answer in verdict.findings.answers or ()] == [2, False, "cart"]


async def test_only_questions_are_asked_and_all_else_is_quoted() -> None:
    model = ScriptedModel(['{"answer": "yes"}'])
    judge = prill.judge("ask", captioner="text", model=model, question="Is it done?")
    await judge(RUN)
    shown = text(model.seen[0])
    assert shown.index("[state-1 ") < shown.index("[questions ")
    assert "q1. Is it done?" in shown
    assert NONCE not in shown or f"[answer {NONCE}]" in shown
    hidden = ScriptedModel(['{"answer": "yes"}'])
    options = {"question": "Is it done?", "show_answer": False}
    await prill.judge("ask", captioner="text", model=hidden, **options)(RUN)
    assert "without signing in" not in text(hidden.seen[0])


@pytest.mark.parametrize("described", ["keywords", "file"])
def test_the_questions_of_a_judge_are_known_without_its_model(
    tmp_path: Path, described: str
) -> None:
    """A page asks people what `prill score` asks a model, from the same description."""
    file = tmp_path / "ask.toml"
    file.write_text(
        'name = "ask"\ncaptioner = "text"\nmodel = "gpt-4o"\n'
        '[[questions]]\nquestion = "How?"\nanswer = ["a", "b"]\n[[questions]]\nquestion = "Why?"\n'
    )
    tables = [{"question": "How?", "answer": ["a", "b"]}, {"question": "Why?"}]
    given = str(file) if described == "file" else prill.JudgeConfig("ask", questions=tables)
    assert judge_questions(given) == (Question("How?", ("a", "b")), Question("Why?", "yes/no"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "give `question`"),
        ({"question": " "}, "expected a question as text"),
        ({"question": "A?", "answer": ["one"]}, "two or more"),
        ({"question": "A?", "answer": ["One", "one"]}, "different labels"),
        ({"question": "A?", "answer": 7}, "dataclass"),
        ({"question": "A?", "answer": "nowhere:Thing"}, "was not found"),
        ({"question": "A?", "questions": [{"question": "B?"}]}, "give `question`"),
        ({"questions": [{"question": "B?", "answr": "number"}]}, "unknown key"),
        ({"questions": [{"question": "B?"}] * 21}, "at most 20"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        prill.judge("ask", captioner="text", model=ScriptedModel([]), **options)


async def test_the_score_is_the_probability_of_yes_where_tokens_tell() -> None:
    said = '{"q1": {"reason": "", "step": 1, "answer": "'
    tokens = (
        Token(said, 0.0),
        Token("yes", -0.223, (("yes", -0.223), ("no", -1.609))),
        Token('"}}', 0.0),
    )
    fields = AnswersFormat((WALL,)).parse(f'{said}yes"}}}}')
    reply = Reply(f'{said}yes"}}}}', Usage(), fields, tokens)
    judge = prill.judge("ask", captioner="text", model=ScriptedModel([reply]), question=WALL.text)
    assert (await judge(RUN)).score == pytest.approx(0.8, abs=0.001)
