"""Replies as chat models write them: each is read as what it means or refused, and what is refused
is counted.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from prill.actions.webarena import UnreadableActionError
from prill.papers.mind2web.mindact.forms import Picked, Wording
from prill.papers.mind2web.pages.tree import CandidateChoice
from prill.papers.replies import ReplyCounts, UnreadableReplyError, ask_readable, tool_calls
from prill.papers.step.grammar import read_call, read_environment_action, read_reply
from prill.papers.structured_reflection.actions import planned_lines
from prill.papers.synapse.agent import _read as read_block
from prill.papers.synapse.recorded import parse_action
from prill.protocols import Message

CHOICES = [
    CandidateChoice("70", "<button id=0 search> Search </button>"),
    CandidateChoice("71", "<a id=1> Weddings </a>"),
    CandidateChoice("72", "<select id=2 rank> Rank </select>"),
    CandidateChoice("73", "<input id=3 text where to />"),
]
POLICIES = ("find_order", "search_reviews", "list_products")
VERBS = ("click", "type", "hover", "press", "scroll", "note", "stop", "go_back")


def table(name: str) -> list[Any]:
    rows = tomllib.loads(
        (Path(__file__).with_name("replies") / f"{name}.toml").read_text(encoding="utf-8")
    )["reply"]
    return [pytest.param(row, id=f"{number}-{row['style']}") for number, row in enumerate(rows)]


def read_step(text: str) -> str:
    """As the policy on top is read: an action of the environment, or a call of another policy."""
    written = read_reply(text)[1]
    if written is None:
        raise UnreadableActionError("no action")
    call = read_call(written)
    if call.verb not in POLICIES:
        if call.verb not in VERBS:
            raise UnreadableActionError("no such verb")
        read_environment_action(call, enter=True)
    return str(call)


def check(row: dict[str, Any], read: Any, reads: Any) -> None:
    if row.get("refused"):
        with pytest.raises(UnreadableActionError):
            read(row["text"])
    else:
        assert read(row["text"]) == reads


@pytest.mark.parametrize("row", table("step"))
def test_step_reads_chat_replies(row: dict[str, Any]) -> None:
    check(row, read_step, row.get("reads"))


@pytest.mark.parametrize("row", table("structured_reflection"))
def test_plans_are_read(row: dict[str, Any]) -> None:
    check(row, planned_lines, row.get("reads"))


@pytest.mark.parametrize("row", table("synapse"))
def test_blocks_and_actions_are_read(row: dict[str, Any]) -> None:
    if row["kind"] == "block":
        check(row, read_block, row.get("reads"))
    else:
        check(row, lambda text: parse_action(text).text, row.get("reads"))


@pytest.mark.parametrize("row", table("mindact"))
def test_choices_are_read(row: dict[str, Any]) -> None:
    wording = Wording(row["form"], True)
    reads = row.get("reads")
    check(row, lambda text: wording.read(text, CHOICES), Picked(*reads) if reads else None)


LONG = (
    "{" * 50_000,
    "[" * 50_000,
    '{"a":' * 5000,
    "<think>" * 5000,
    "```\n" * 10_000,
    "> " * 20_000,
    "Answer: " * 9000,
)


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_no_reply_takes_long(text: str) -> None:
    assert tool_calls(text) == []
    for read in (
        read_step,
        planned_lines,
        read_block,
        parse_action,
        lambda said: Wording("choice", True).read(said, CHOICES),
    ):
        try:
            read(text)
        except UnreadableActionError:
            continue


async def test_unreadable_replies_are_counted_and_repaired() -> None:
    said = iter(["no", "one", "no", "never", "no", "no", "no"])
    asked: list[Any] = []

    async def ask(messages: Any) -> str:
        asked.append(messages)
        return next(said)

    def read(reply: str) -> str:
        if reply in ("no", "never"):
            raise UnreadableReplyError("it says no")
        return reply

    counts, messages = ReplyCounts(), (Message("user", ("q",)),)
    assert await ask_readable(ask, messages, read, counts, repair=True) == ("one", "one")
    assert [message.role for message in asked[1]] == [
        "user",
        "assistant",
        "user",
    ] and "it says no" in asked[1][-1].parts[0]
    with pytest.raises(UnreadableReplyError):
        await ask_readable(ask, messages, read, counts, repair=True)
    for _ in range(2):
        with pytest.raises(UnreadableReplyError):
            await ask_readable(ask, messages, read, counts, repair=False)
    assert counts.report() == {
        "replies": {
            "calls": 6,
            "unreadable": 5,
            "repaired": 1,
            "first": ["'no'", "'no'", "'never'"],
        }
    }
    assert ReplyCounts().report() == {}
