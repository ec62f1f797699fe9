"""What a policy answers, read: `REASON:` and `ACTION:`, and actions such as `click [7]`,
`find_order [305]`, `CLICK 44`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from prill.actions.webarena import UnreadableActionError, read_action
from prill.models.replies import excerpt
from prill.types import Action

__all__ = [
    "PolicyCall",
    "UnreadableActionError",
    "read_call",
    "read_environment_action",
    "read_reply",
]
_ACTION = re.compile(r"(?P<start>^[\s>*#`]*)?\**\bACTION\b\**\s*:\**", re.MULTILINE)
_REASON = re.compile(r"\**\bREASON\b\**\s*:\**")
_VERB = re.compile(r"([A-Za-z]\w*)\s*(.*)", re.DOTALL)
_QUOTED_END = re.compile(r"\"([^\"]*)\"\s*\Z")
_PLAIN_QUOTED = re.compile(r"\"([^\"\[\]]*)\"|'([^'\[\]]*)'")
# The older surface: no brackets, `DONE` for the end.
_OLD_VERBS = {"done": "stop"}


@dataclass(frozen=True)
class PolicyCall:
    """An action by its first word and what it is given. Printed, it has brackets."""

    verb: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.verb, *(f"[{argument}]" for argument in self.arguments)))


def read_reply(reply: str) -> tuple[str | None, str | None]:
    """The reason, and the action as it is written; None for what is not there.

    The last `ACTION:` counts, one at the start of a line before all others, and of it the first
    line, or as much more as closes its brackets; the same words inside of an action, as in a text
    that is typed, are part of that. What a model thinks to itself, up to `</think>`, is left out.
    """
    reply = reply.rpartition("</think>")[2]
    marks = list(_ACTION.finditer(reply))
    marks = [mark for mark in marks if mark["start"] is not None] or marks
    found: re.Match[str] | None = None
    start = end = 0
    for mark in marks:
        if mark.start() >= end:
            found, (start, end) = mark, _extent(reply, mark.end())
    before = reply[: found.start()] if found else reply
    reason = _REASON.search(before)
    thought = (before[reason.end() :] if reason else before if found else "").strip() or None
    return thought, (reply[start:end].strip().strip("`\"'").strip() or None) if found else None


def read_call(text: str) -> PolicyCall:
    """The action that is written in either surface: `type [11] [New York]`, `TYPE 11 "New York"`.

    A bracket is closed by its own: arguments may hold brackets. Raises UnreadableActionError for a
    text without a verb.
    """
    match = _VERB.fullmatch(text.strip())
    if match is None:
        raise UnreadableActionError(
            f"{excerpt(text)} is no action: an action begins with a verb, as in click [7]"
        )
    written, rest = match[1], match[2].strip()
    verb = _OLD_VERBS.get(written.lower(), written.lower())
    if rest.startswith("["):
        return PolicyCall(verb, _unquoted(verb, tuple(_bracketed(rest))))
    if not rest:
        return PolicyCall(verb)
    if quoted := _QUOTED_END.search(rest):
        before = rest[: quoted.start()].strip()
        return PolicyCall(verb, (before, quoted[1]) if before else (quoted[1],))
    return PolicyCall(verb, (rest,))


def read_environment_action(call: PolicyCall, *, enter: bool) -> Action:
    """The action for a browser: `target` is `[number]`. A note does nothing; `enter`: `type`
    presses Enter unless told not to.

    Raises UnreadableActionError for what lacks an element, or is not written as such an action is.
    """
    if call.verb == "note":
        return Action("note", str(call), value=" ".join(call.arguments))
    if call.verb == "stop":
        # A stop without brackets has the empty answer.
        return Action("stop", str(call), value=call.arguments[0] if call.arguments else "")
    if call.verb == "type" and len(call.arguments) == 2 and not enter:
        call = PolicyCall("type", (*call.arguments, "0"))
    return read_action(str(call))


def _bracketed(text: str) -> list[str]:
    """What stands in each pair of brackets at the top; one that is never closed holds the rest, up
    to the last bracket.
    """
    found: list[str] = []
    while text.startswith("["):
        end = _closing(text)
        if end is None:
            return [*found, text[1:].removesuffix("]")]
        # A bracket too many, as in `type [5] [well :] done]`, is a part of the text; after a number
        # nothing is.
        while (
            not text[1:end].isdecimal()
            and _open_left(rest := text[end + 1 :].lstrip())
            and not rest.startswith("[")
        ):
            end = text.index("]", end + 1)
        found.append(text[1:end])
        text = text[end + 1 :].lstrip()
    return found


def _open_left(text: str) -> bool:
    """Whether more brackets are closed than opened."""
    return text.count("]") > text.count("[")


def _closing(text: str) -> int | None:
    """Where the bracket at the beginning is closed."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth == 0:
            return at
    return None


def _unquoted(verb: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """`type [5] ["tea"]` types tea: models copy the quotes of the objective. With a third bracket
    it is left as it is.
    """
    if verb == "type" and len(arguments) == 2 and (inner := _PLAIN_QUOTED.fullmatch(arguments[1])):
        return arguments[0], inner[1] if inner[1] is not None else inner[2]
    return arguments


def _extent(reply: str, after: int) -> tuple[int, int]:
    """Where the action behind a mark begins and ends."""
    # Models put actions in back-ticks or quotes; a language name may follow the ticks.
    ticks = re.compile(r"\s*(?:```[a-z]*\s*\n)?[\s`\"']*").match(reply, after)
    start = ticks.end() if ticks else after
    return start, start + _line_end(reply[start:])


def _line_end(text: str) -> int:
    """Where the first line ends, or the line that closes the brackets which it opens."""
    depth = 0
    for at, character in enumerate(text):
        if character == "\n" and depth <= 0:
            return at
        depth += (character == "[") - (character == "]")
    # What is never closed is cut at the line all the same.
    return len(text) if depth <= 0 else len(text.partition("\n")[0])
