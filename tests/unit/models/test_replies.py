"""Verdict parsing: spec test T3 and the ways in which replies go wrong."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prill.errors import UnparsableError
from prill.models.replies import RecordFormat, ReplyFormat
from prill.protocols import Reply
from prill.types import Usage

FORM = ReplyFormat("thoughts", "status", ("success", "failure"))

READ = [
    ('Status: "success"', "success", "quotes"),
    ("Status: Success.", "success", "capital and full stop"),
    ("**Status:** failure", "failure", "bold tag"),
    ("Thoughts: a\nStatus:\n\n*success*\n", "success", "status on a later line, asterisks"),
    ("Status: success\nno, wait\nStatus: failure", "failure", "the last verdict wins"),
    (
        "Thoughts: the page says\nStatus: success\n\nStatus: failure",
        "failure",
        "a quoted verdict comes first",
    ),
    (
        '{"thoughts": "Status: failure", "status": "success"}',
        "success",
        "a tag inside a JSON string is no tag",
    ),
    ('```json\n{"thoughts": "x", "status": "failure"}\n```', "failure", "fenced JSON"),
    (
        'Here it is: {"thoughts": "x", "status": "failure"} I hope it helps',
        "failure",
        "JSON inside prose",
    ),
    (
        '{"thoughts": "x", "status": "success"}\n{"thoughts": "y", "status": "failure"}',
        "failure",
        "the last object wins",
    ),
    (
        "Thoughts: I see {braces} and {more\nStatus: success",
        "success",
        "braces in prose are not JSON",
    ),
    (
        "<think>Status: failure?</think>\nStatus: success",
        "success",
        "text of a reasoning model before the verdict",
    ),
]
REFUSED = [
    ("Status: unsuccessful", "a word that contains success"),
    ("Status: not success", "a negation"),
    ('Status: "success" or "failure"', "the format repeated"),
    ("success", "no tag"),
    ("", "nothing"),
    ("Status:", "tag without a word"),
    ("Status: success\nStatus: unclear", "the last verdict counts, also when it is none"),
    ('{"thoughts": "cut in the middle, Status: success', "cut JSON with a verdict in its string"),
    (
        '{"thoughts": "x\nStatus: success',
        "cut JSON whose string has a line that looks like a verdict",
    ),
    ('{"thoughts": {"status": "success"}, "sta', "cut JSON with an inner object"),
    ('{"thoughts": "x", "status": "maybe"}', "a word that was not offered"),
    ('{"thoughts": "x", "status": true}', "a value that is no word"),
]


@pytest.mark.parametrize(("text", "verdict", "why"), READ, ids=[row[2] for row in READ])
def test_verdict_of_a_reply_is_read(text: str, verdict: str, why: str) -> None:
    assert FORM.parse(text)["status"] == verdict


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[row[1] for row in REFUSED])
def test_other_replies_have_no_verdict(text: str, why: str) -> None:
    with pytest.raises(UnparsableError):
        FORM.parse(text)


@given(st.text(), st.sampled_from(FORM.choices))
def test_any_thoughts_survive_json(thoughts: str, verdict: str) -> None:
    fields = FORM.parse(json.dumps({"thoughts": thoughts, "status": verdict}))
    assert fields == {"thoughts": thoughts.strip(), "status": verdict}


@given(st.text(max_size=80), st.sampled_from(FORM.choices), st.integers(1, 30))
def test_cut_json_never_gives_a_verdict(thoughts: str, verdict: str, cut: int) -> None:
    whole = json.dumps({"thoughts": thoughts, "status": verdict})
    with pytest.raises(UnparsableError):
        FORM.parse(whole[:-cut])


def test_verdict_at_end_of_thoughts_counts() -> None:
    assert FORM.parse("Thoughts: All is met. Status: success") == {
        "thoughts": "All is met.",
        "status": "success",
    }
    assert FORM.parse("Thoughts: No!  **Status:** failure\n")["status"] == "failure"
    for text in (
        "Thoughts: the page says Status: success",
        "Thoughts: it reads. Status: success is what it claims",
        "Thoughts: fine. Status: success. But no",
        "Thoughts: fine. Status: unsuccessful",
    ):
        with pytest.raises(UnparsableError):
            FORM.parse(text)


@dataclass(frozen=True)
class Part:
    name: str
    weight: float
    where: int | None


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    note: str


RECORD = RecordFormat(Whole, '{"parts": [{"name": "…", "weight": 1, "where": 3}], "note": "…"}')


def test_record_is_the_last_valid_object() -> None:
    early = '{"parts": [], "note": "quoted from the page"}'
    late = '{"parts": [{"name": "a", "weight": 2, "where": null}], "note": "mine \\ud800"}'
    reply = Reply("", Usage(), RECORD.parse(f"I saw {early}\n```json\n{late}\n```"))
    assert RECORD.read(reply) == Whole((Part("a", 2.0, None),), "mine ?")


def test_record_numbers_may_be_texts() -> None:
    reply = Reply(
        "",
        Usage(),
        RECORD.parse('{"parts": [{"name": "a", "weight": "2.5", "where": "3"}], "note": "5"}'),
    )
    assert RECORD.read(reply) == Whole((Part("a", 2.5, 3),), "5")


@pytest.mark.parametrize(
    "text",
    ["", "no object", '{"parts": []}', '{"parts": [{"name": 1}], "note": ""}', '{"parts": [], "no'],
)
def test_other_records_are_unparsable(text: str) -> None:
    with pytest.raises(UnparsableError, match="does not have the requested form"):
        RECORD.parse(text)
