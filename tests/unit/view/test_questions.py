"""People answer a judge's questions: read as a judge's answers are, kept with the label, hidden
from others until all are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import UNSET

from prill.errors import InputError, UsageError
from prill.evaluators.agreement.answers import measure_answers
from prill.evaluators.questions import Question
from prill.io.store import encode, read_labels
from prill.types import Answer, EvaluatorInfo, Findings, LabelRecord, StepLabel, Verdict
from prill.ui.view.questions import AnswerField, shown_question
from prill.ui.view.run import ViewConfig, view
from prill.ui.view.session import LabelDecision, LabelSession
from tests.support.labelling import asked, labelling
from tests.unit.view.test_labels import label, write_trajectories

WALL = Question("Was a login wall met?", "yes/no")
PAGES = Question("How many pages were opened?", "number")
WHERE = Question("Where did it end?", ("cart", "checkout"))


class Size(Enum):
    """An enumeration."""

    SMALL = "small"
    LARGE = "large"


@dataclass
class Order:
    """A dataclass with a field of each kind."""

    item: str
    paid: bool
    place: Literal["shop", "web"]
    price: float | None
    day: date
    sizes: list[Size]
    size: Size = Size.SMALL
    count: int = 1


ORDER = Question("What was ordered?", Order)
ALL = (WALL, PAGES, WHERE, ORDER)


@contextmanager
def session(folder: Path, *questions: Question) -> Iterator[LabelSession]:
    runs, labels = write_trajectories(folder), folder / "l.jsonl"
    with labelling(runs, labels, questions=questions) as page:
        assert page.session is not None
        yield page.session


def saved(folder: Path) -> LabelRecord:
    (record,) = read_labels(folder / "l.jsonl")
    return replace(record, record=UNSET)


def test_each_type_of_answer_has_its_control() -> None:
    assert shown_question(WALL).fields == (AnswerField(choices=((True, "Yes"), (False, "No"))),)
    assert shown_question(PAGES).fields == (AnswerField(control="number"),)
    assert shown_question(WHERE).fields[0].choices == (("cart", "cart"), ("checkout", "checkout"))
    fields = {field.name: field for field in shown_question(ORDER).fields}
    assert {name: field.control for name, field in fields.items()} == {
        "item": "text",
        "paid": "choice",
        "place": "choice",
        "price": "number",
        "day": "text",
        "sizes": "json",
        "size": "choice",
        "count": "number",
    }
    assert fields["size"].choices == (("small", "small"), ("large", "large"))
    optional = {name for name, field in fields.items() if not field.required}
    assert optional == {"price", "size", "count"}
    assert [name for name, field in fields.items() if field.nullable] == ["price"]


async def test_answers_are_read_as_those_of_a_judge(tmp_path: Path) -> None:
    given = {"item": "tea", "paid": True, "place": "web", "price": None, "day": "2026-05-01"}
    answers: dict[str, Any] = {
        WALL.text: None,
        PAGES.text: "1,200",
        WHERE.text: "cart",
        ORDER.text: {**given, "sizes": ["small"], "count": "3"},
    }
    with session(tmp_path, *ALL) as made:
        change = await made.put(0, LabelDecision(choice="success", answers=answers))
        assert change.mine is not None and change.mine.answers[PAGES.text] == 1200
        assert made.done == 1
    stored = saved(tmp_path).answers
    assert stored == {
        WALL.text: None,
        PAGES.text: 1200,
        WHERE.text: "cart",
        ORDER.text: {**given, "sizes": ["small"], "size": "small", "count": 3},
    }
    verdict = Verdict(
        id="a",
        success=True,
        evaluator=EvaluatorInfo("ask", "1", params={"questions": [PAGES.params()]}),
        findings=Findings(answers=(Answer(question=PAGES.text, value=1200, step=0, reason=""),)),
    )
    (one,) = measure_answers([verdict], [saved(tmp_path)]).questions
    assert one.compared == 1, "prill agree takes the page's answers"


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({WALL.text: "perhaps"}, "login wall.*perhaps"),
        ({PAGES.text: "many"}, "How many pages.*many.*not a number"),
        ({PAGES.text: True}, "not a number"),
        ({WHERE.text: "home"}, "not one of the choices"),
        ({ORDER.text: {"item": "tea"}}, "missing required field"),
        ({ORDER.text: "tea"}, "What was ordered"),
        ({"Who?": True}, "'Who\\?' is not among the questions"),
    ],
)
async def test_an_answer_of_another_type_changes_nothing(
    tmp_path: Path, answers: dict[str, Any], says: str
) -> None:
    with session(tmp_path, *ALL) as made:
        with pytest.raises(InputError, match=says):
            await made.put(0, LabelDecision(choice="success", answers=answers))
        assert made.done == 0
    assert (tmp_path / "l.jsonl").read_bytes() == b""


async def test_answers_to_other_questions_are_kept(tmp_path: Path) -> None:
    """A page without questions, or with others, loses nothing that is in the file."""
    before = label("a", True, answers={WALL.text: True, PAGES.text: 2})
    (tmp_path / "l.jsonl").write_bytes(encode(before))
    with session(tmp_path) as made:
        step = (StepLabel(0, "away"),)
        await made.put(0, LabelDecision(choice="failure", steps=step))
    assert saved(tmp_path) == label("a", False, steps=step, answers=before.answers)
    with session(tmp_path, PAGES) as made:
        assert made.decision(0).mine == LabelDecision(
            choice="failure", steps=step, answers={PAGES.text: 2}
        )
        await made.put(0, LabelDecision(choice="failure", answers={}))
        assert made.done == 0, "the answer was taken back"
    assert saved(tmp_path).answers == {WALL.text: True}


async def test_a_label_from_before_the_questions_is_not_done(tmp_path: Path) -> None:
    old = label("a", True), label("b", True, answers={WALL.text: "perhaps"})
    (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, old)))
    with session(tmp_path, WALL) as made:
        assert (made.done, made.unanswered("a"), made.unanswered("b")) == (0, 1, 1)
        assert made.unanswered("c") == 0 and not made.is_decided("c")
        await made.put(0, LabelDecision(choice="success", answers={WALL.text: None}))
        assert made.done == 1, "cannot tell is an answer"


async def test_others_are_hidden_until_every_question_is_answered(tmp_path: Path) -> None:
    verdict = Verdict(
        id="a",
        success=True,
        evaluator=EvaluatorInfo("ask", "1"),
        findings=Findings(answers=(Answer(question=WALL.text, value=True, step=0, reason="SAW"),)),
    )
    anna = label("a", True, "anna", answers={PAGES.text: 7654321})
    with labelling(
        write_trajectories(tmp_path),
        tmp_path / "l.jsonl",
        verdicts=[verdict],
        earlier=[anna],
        questions=(WALL, PAGES),
    ) as site:
        async with asked(site) as client:
            for some in ({}, {WALL.text: False}):
                await client.post("api/labels/0", {"choice": "success", "answers": some})
                _, shown = await client.get("api/runs/0")
                assert b"SAW" not in shown and b"7654321" not in shown
            every: dict[str, Any] = {WALL.text: False, PAGES.text: 3}
            await client.post("api/labels/0", {"choice": "success", "answers": every})
            _, shown = await client.get("api/runs/0")
            assert b"SAW" in shown and b"7654321" in shown


def test_questions_need_trajectories_and_an_annotator(tmp_path: Path) -> None:
    why = {"name": "ask", "question": "Why?"}
    with pytest.raises(UsageError, match="judge: only for annotators"):
        ViewConfig(trajectories=["t.jsonl"], judge=why)
    runs, output = write_trajectories(tmp_path), tmp_path / "l.jsonl"
    with pytest.raises(UsageError, match="judge 'vlm' asks no questions"):
        view(ViewConfig(trajectories=[runs], output=output, annotator="me", judge="vlm"))
    assert not output.exists()
