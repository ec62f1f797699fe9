"""Shared functions of the tool-call grammars: JSON in replies, argument checks, actions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from prill.actions.keys import key_names
from prill.policies.screen.frames import UnreadableReplyError
from prill.types import Action, Point

MAX_CHARS = 20_000  # of a reply that are read
MAX_CALLS = 20  # in one reply
# Action kinds by Qwen's and Anthropic's names of what a mouse does.
MOUSE = {
    "left_click": "click", "right_click": "right_click", "middle_click": "middle_click",
    "double_click": "double_click", "triple_click": "triple_click", "mouse_move": "hover",
}  # fmt: skip
_THINKING = re.compile(r".*</think>", re.DOTALL)


def after_thinking(reply: str) -> str:
    """Returns the reply without the thinking of a reasoning model."""
    return _THINKING.sub("", reply[:MAX_CHARS]).strip()


def json_values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yields every outermost JSON object or array in a text, with its start and end.

    Incomplete or invalid JSON is skipped.
    """
    decoder, at = json.JSONDecoder(), 0
    while (
        begin := min((i for i in (text.find("{", at), text.find("[", at)) if i >= 0), default=-1)
    ) >= 0:
        try:
            value, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            at = begin + 1
            continue
        yield begin, end, value
        at = end


def text_before(text: str, begin: int) -> str:
    """Returns the prose before a call, without the opening of a code fence."""
    return re.sub(r"```\w*\s*\Z", "", text[:begin]).strip()


def get_text(arguments: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    """Returns a text argument of a call. Raises UnreadableReplyError if it is missing, not a text,
    or (unless `empty`) empty.
    """
    value = arguments.get(name)
    if not isinstance(value, str) or not (value or empty):
        raise UnreadableReplyError(f"{name} must be a string; got {str(value)[:60]}")
    return value


def get_number(arguments: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Returns a number argument of a call. Raises UnreadableReplyError if it is missing without a
    default, or not a number.
    """
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadableReplyError(f"{name} must be a number; got {str(value)[:60]}")
    return float(value)


def list_keys(value: Any) -> str:
    """Converts keys pressed together, given as a list or text, to the key names of browsers. Raises
    UnreadableReplyError if there are none.
    """
    parts = [value] if isinstance(value, str) else value
    if (
        not isinstance(parts, list)
        or not parts
        or not all(isinstance(part, str) and part.strip() for part in parts)
    ):
        raise UnreadableReplyError(f"expected the names of keys; got {str(value)[:60]}")
    return "+".join(key_names(part) for part in parts)


def scroll(text: str, direction: str, point: Point | None) -> Action:
    """Returns a scroll action: up, down, left or right. Raises UnreadableReplyError for another
    direction.
    """
    if direction not in ("up", "down", "left", "right"):
        raise UnreadableReplyError(
            f"the direction of a scroll must be up, down, left or right; got {direction[:60]!r}"
        )
    return Action("scroll", text, point=point, value=direction)


def single_quoted(text: str) -> str:
    """Returns a text in single quotes, escaped as models write it in calls."""
    escaped = (
        text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    )
    return f"'{escaped}'"
