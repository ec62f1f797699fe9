"""Replies that real small models wrote to judges and agents: read as a person reads them, or not.

`tests/support/recorded_replies.jsonl` has one reply a line: the reader and its options, the model
(`qwen`: Qwen2.5-Coder-1.5B in 4 bits; `smol`: SmolLM2-135M), the reply, and what a person reads in
it. `given_up`: the reader does not read it although a person would; `misread`: what it reads in it
although a person would not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from prill.actions.webarena import UnreadableActionError, read_action
from prill.errors import NoEvidenceError, UnparsableError
from prill.evaluators.questions import AnswersFormat, format_value, read_answers, read_questions
from prill.evaluators.readers import (
    ITEM,
    READERS,
    STATED_STATUS,
    STATUS,
    STEP,
    WORD,
    VerdictReader,
    read_grade,
    read_key_points,
)
from prill.models.replies import ChatMessage
from prill.papers.replies import UnreadableReplyError
from prill.papers.step.grammar import read_call, read_reply
from prill.papers.step.library import STOP, load_library
from prill.papers.structured_reflection.actions import planned_lines
from prill.papers.structured_reflection.agent import read_answer
from prill.policies.react import split_reply
from prill.protocols import Reply
from prill.types import Usage
from tests.support.paths import SUPPORT

UNSCORED = "unscored"
RECORDS = (
    *("rubric", "scores", "relevance", "notes", "conditions", "side_effects"),
    *("criteria", "assessment", "ratings"),
)
LIBRARY = load_library("miniwob")
VERBS = {STOP, *LIBRARY.surroundings.verbs, *LIBRARY.templates}
JUDGES = {"verdict", "status", "paper_status", "words", "tags", "reward", "judgement", "outcome"}
NOT_YET = {"scores", "relevance", "notes", "conditions"}
ROWS = [
    json.loads(line)
    for line in (SUPPORT / "recorded_replies.jsonl").read_text(encoding="utf-8").splitlines()
]
How = Mapping[str, Any]


def verdict(name: str, text: str, how: How) -> str:
    reader = READERS[name]
    assert isinstance(reader, VerdictReader)
    form = reader.form
    if name == "verdict":
        form = STATED_STATUS if "probability" in how else WORD if "form" in how else STATUS
    reading = reader.verdict(Reply(text, Usage(), form.parse(text)), how)
    return "success" if reading.success else "failure"


def record(name: str, text: str, how: How) -> str:
    form: Any = READERS[name].form
    return json.dumps(json.loads(form.parse(text)["record"]), sort_keys=True)


def answers(name: str, text: str, how: How) -> str:
    questions = read_questions(how["question"], how["answer"], ())
    form = AnswersFormat(questions)
    [answer] = read_answers(questions, form.parse(text)["answers"], {0})
    return format_value(answer.value)


def react(name: str, text: str, how: How) -> str:
    written = split_reply(text)[1]
    return UNSCORED if written is None else read_action(written).text


def action(name: str, text: str, how: How) -> str:
    written = read_reply(text)[1]
    call = None if written is None else read_call(written)
    return str(call) if call and call.verb in VERBS else UNSCORED


def reflection(name: str, text: str, how: How) -> str:
    index, line = read_answer(text, how["steps"])
    return f"{index + 1}: {line}"


def plain(text: str) -> str:
    return re.sub(r"^[\s\"'*`]+|[\s\"'*`]+$", "", text) or UNSCORED


BY_NAME: dict[str, Callable[[str, str, How], str]] = {
    **dict.fromkeys(RECORDS, record),
    "answers": answers,
    "reflection": reflection,
    "label": lambda name, text, how: STEP.parse(text)[STEP.verdict],
    "progress": lambda name, text, how: ITEM.parse(text)[ITEM.verdict],
    "key_points": lambda name, text, how: plain(read_key_points(text)),
    "grade": lambda name, text, how: str(read_grade(text).score or UNSCORED),
    "react": react,
    "step": action,
    "plan": lambda name, text, how: "\n".join(planned_lines(text)) or "[eod]",
}


def read(row: Mapping[str, Any]) -> str:
    """What prill reads in a reply, without what its model thought first."""
    text = ChatMessage(row["reply"]).answer or ""
    try:
        return BY_NAME.get(row["reader"], verdict)(row["reader"], text, row["how"])
    except (UnparsableError, NoEvidenceError, UnreadableActionError, UnreadableReplyError):
        return UNSCORED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['reader']}-{row['model']}")
def test_a_reply_is_read_as_a_person_reads_it(row: dict[str, Any]) -> None:
    if "misread" in row:
        pytest.xfail(f"a person reads {row['person']!r}, prill {row['misread'][:60]!r}")
    assert read(row) == (UNSCORED if row.get("given_up") else row["person"])


def test_replies_of_judges_and_agents_are_among_them() -> None:
    assert {row["reader"] for row in ROWS} >= {*BY_NAME, *JUDGES} - NOT_YET
    assert len(ROWS) >= 300
    assert sum(row["model"] == "qwen" for row in ROWS) >= 150
    assert sum(row["person"] != UNSCORED for row in ROWS) >= 150
    given_up = sum(bool(row.get("given_up")) for row in ROWS)
    assert given_up <= len(ROWS) // 20, "what a person would accept is hardly ever refused"
    assert sum("misread" in row for row in ROWS) <= len(ROWS) // 100
