"""Texts of agents and models that make a careless search take minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from prill.actions.phone import parse_android
from prill.actions.webarena import UnreadableActionError, parse_action, read_action
from prill.errors import UnparsableError
from prill.models.replies import ReplyFormat

parse_reply = ReplyFormat("thoughts", "status", ("success", "failure")).parse
# seconds; each takes a few hundredths, and minutes when time grows with the square of the length
BOUND = 5.0


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_action, "type [1]" + "\n" * 100_000 + "["),
        (parse_action, "click [1] where [" * 20_000),
        (read_action, "type [1] [" + "] " * 100_000),
        (parse_android, "DualPoint" * 40_000),
        (parse_android, "DualPoint 1" + "1" * 300_000),
        (parse_reply, "```json" + "\n" * 50_000),
        (parse_reply, "```json\n" + "\n" * 50_000 + "x```"),
        (parse_reply, "." + " " * 300_000 + "status: x"),
        (parse_reply, '{"a":' * 50_000),
    ],
)
def test_hostile_text_is_read_in_time(read: Callable[[str], object], text: str) -> None:
    start = time.perf_counter()
    with suppress(UnparsableError, UnreadableActionError):
        read(text)
    assert time.perf_counter() - start < BOUND
