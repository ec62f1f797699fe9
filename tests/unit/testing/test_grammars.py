"""The mock endpoint answers in the grammar that a prompt's last line asks for."""

from __future__ import annotations

import pytest

from prill.evaluators.readers import READERS, VerdictReader
from prill.models.replies import ReplyFormat
from prill.protocols import Reply
from prill.testing.endpoint.replies import grammar_reply
from prill.types import Usage

LAST = {
    "tags": "Answer the four questions in the tags <reasoning>, <success> and <loop>.",
    "words": "Your verdict, SUCCESS or NOT SUCCESS:",
    "reward": "Grade the run with the lines Thought and Reward.",
}


@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("word", ["success", "failure", "unsuccessful"])
def test_official_and_own_readers_read_the_same_verdict(name: str, word: str) -> None:
    reader = READERS[name]
    assert isinstance(reader, VerdictReader)
    text = grammar_reply(f"[page x] {LAST['words']}\n\n{LAST[name]}\n", word)
    assert text is not None
    assert reader.official(text) is (word == "success")
    assert reader.verdict(Reply(text, Usage(calls=1), {"text": text}), {}).success is (
        word == "success"
    )


def test_words_of_a_page_are_no_request() -> None:
    assert grammar_reply(f"{LAST['tags']}\nIs it done?", "success") is None


def test_other_words_than_a_status_are_offered_ones() -> None:
    steps = ReplyFormat("thoughts", "response", ("towards", "away"))
    asked = f"Judge.\n\n{steps.instructions(as_json=False)}"
    assert steps.parse(grammar_reply(asked, "success") or "")["response"] == "towards"
    status = ReplyFormat("thoughts", "status", ("success", "failure"))
    asked = f"Judge.\n\n{status.instructions(as_json=False)}"
    # a fault of the endpoint: a word that was not offered
    assert grammar_reply(asked, "unsuccessful") is None
