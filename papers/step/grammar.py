"""Parses a policy's answers: `REASON:` and `ACTION:`, and actions such as `click [7]`, `find_order
[305]`, `CLICK 44`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from prill.actions.webarena import UnreadableActionError, read_action
from prill.models.replies import excerpt
from prill.papers.replies import (
    ELEMENT_NAMES,
    ToolCall,
    asserted_text,
    one_answer,
    plain_line,
    python_call,
    ticked_spans,
    tool_calls,
    visible_text,
    without_fences,
)
from prill.types import Action

_WORDS = "ACTION|Action|action|Acción|ACCIÓN|Acci[oó]n|Aktion|AKTION|Azione|Ação|Действие|动作|操作|行动|アクション|행동|액션"  # noqa: E501
_MARK = rf"(?:(?:next|Next|NEXT|final|Final|FINAL|my|My|chosen|Chosen)\s+)?(?:{_WORDS})"
_ACTION = re.compile(
    rf"^[ \t>*_#`•-]*(?:\d+[.)][ \t]*)?{_MARK}(?:[*_`]*[ \t]*[:：][*_`]*|[*_`]*[ \t]*$)|^[ \t]*<action>",  # noqa: E501
    re.MULTILINE,
)
_INLINE = re.compile(r"\**\bACTION\b\**\s*:\**")
_IN_PROSE = re.compile(
    r"\b(?:action|step|answer|move)\b(?: (?:is|would be|should be|will be|to take is))?\s*:?\s+",
    re.IGNORECASE,
)
_WHY = "REASON(?:ING)?|Reason(?:ing)?|THOUGHT|Thought|Grund|Razón|Raison|理由|原因"
_REASON = re.compile(
    rf"^[ \t>*_#`-]*(?:{_WHY})[*_`]*\s*[:：][*_`]*|\**\bREASON\b\**\s*:\**", re.MULTILINE
)
# The strict form of an action, which prose does not have: brackets or, in the older syntax,
# capitals.
_STRICT = re.compile(
    r"[a-zA-Z]\w*[ \t]*\[.*\]\W*|(?:go_back|go_forward|new_tab|close_tab|stop|DONE)\W*|[A-Z_]{3,}[ \t]+\S.*",  # noqa: E501
    re.DOTALL,
)
_TICKS = re.compile(r"\s*(?:```[a-z]*\s*\n)?[\s`\"']*")
_MAX_IN_PROSE = 50
_VERB = re.compile(r"([A-Za-z]\w*)\s*(.*)", re.DOTALL)
_QUOTED_END = re.compile(r"\"([^\"]*)\"\s*\Z")
_PLAIN_QUOTED = re.compile(r"\"([^\"\[\]]*)\"|'([^'\[\]]*)'")
# The older syntax has no brackets, and `DONE` for the end.
_OLD_VERBS = {"done": "stop"}


@dataclass(frozen=True)
class PolicyCall:
    """An action: its verb and its arguments. Printed in the bracket form."""

    verb: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.verb, *(f"[{argument}]" for argument in self.arguments)))


def read_reply(reply: str) -> tuple[str | None, str | None]:
    """Returns the reason and the action as written. None for a missing part.

    The action follows `ACTION:` at the start of a line, or else anywhere, up to the end of the line
    or of its brackets. Without `ACTION:`, it is a tool call, or the only action on its own line or
    in back-ticks. Raises UnreadableReplyError for two different actions.
    """
    text = visible_text(reply)
    marked, before = _marked(text, _ACTION)
    if not marked and not before:
        marked, before = _marked(text, _INLINE)
    written = one_answer(marked)
    if written is None:
        calls = list(map(_called, tool_calls(text)))
        written = one_answer(calls) or one_answer(_in_prose(text))
        before = "" if calls else text.partition(written)[0] if written else before
    found = _REASON.search(before)
    thought = before[found.end() :] if found else before if written else ""
    return thought.strip("` \n\r\t") or None, written


def _marked(text: str, mark: re.Pattern[str]) -> tuple[list[str], str]:
    """Returns the actions after the marks, and the text before them."""
    found: list[tuple[str, int]] = []
    end = 0
    for one in mark.finditer(text):
        if one.start() >= end:
            # Models put actions in back-ticks or quotes. A language name may follow the back-ticks.
            ticks = _TICKS.match(text, one.end())
            start = ticks.end() if ticks else one.end()
            end = start + _line_end(text[start:])
            found.append((_bare(text[start:end]), one.start()))
    strict = [one for one in found if _STRICT.fullmatch(one[0])]
    # A model that repeats the instructions (`ACTION: the action`) has not acted yet.
    marked = strict or found[-1:]
    return [written for written, _ in marked if written], text[: marked[0][1]] if marked else ""


def _bare(written: str) -> str:
    """Returns an action without marks around it, and a call in the bracket form."""
    written = re.sub(r"</action>.*", "", written, flags=re.DOTALL).strip()
    if written.startswith("{") and (calls := tool_calls(written)):
        return _called(calls[0])
    written = re.sub(r"^(?:[*_`]+|[-•][ \t]+)+|[*_`]+$", "", written).strip()
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        written = written[1:-1].strip()
    # the opening quote was skipped
    elif written[-1:] in ('"', "'") and written.count(written[-1]) == 1:
        written = written[:-1].strip()
    call = python_call(written)
    return _called(call) if call else written


def _called(call: ToolCall) -> str:
    """Converts a tool call to an action: the element first, then the other arguments."""
    if re.search(r"\W", call.name):
        return call.name
    given = sorted(call.arguments, key=lambda one: one[0] not in ELEMENT_NAMES)
    return str(PolicyCall(call.name, tuple(ToolCall(call.name, tuple(given)).values())))


def _in_prose(text: str) -> list[str]:
    """Returns the actions on their own line, in back-ticks, or after `the next action is`."""
    asserted = asserted_text(text)
    spans = [*map(plain_line, without_fences(text).splitlines()), *ticked_spans(asserted)]
    for start in islice(_IN_PROSE.finditer(asserted), _MAX_IN_PROSE):
        rest = asserted[start.end() :]
        spans.append(rest[: _line_end(rest)])
    found = [_bare(span.rstrip(".")) for span in spans]
    return [span for span in found if _STRICT.fullmatch(span) and _only_brackets(span)]


def _only_brackets(span: str) -> bool:
    """Returns whether all text after the first bracket is in brackets, unlike in a sentence."""
    depth, outside = 0, ""
    for character in span[span.find("[") :] if "[" in span else "":
        depth += (character == "[") - (character == "]")
        outside += character if depth <= 0 else ""
    return not re.search(r"\w", outside)


def read_call(text: str) -> PolicyCall:
    """Parses an action in either syntax: `type [11] [New York]`, `TYPE 11 "New York"`."""
    match = _VERB.fullmatch(text.strip())
    if match is None:
        raise UnreadableActionError(
            f"{excerpt(text)} is not an action: an action begins with a verb, as in click [7]"
        )
    written, rest = match[1], match[2].strip()
    verb = _OLD_VERBS.get(written.lower(), written.lower())
    if rest.startswith("["):
        given = _bracketed(rest)
        # quotes around typed text: models copy those of the objective
        if verb == "type" and len(given) == 2 and (inner := _PLAIN_QUOTED.fullmatch(given[1])):
            given[1] = inner[1] if inner[1] is not None else inner[2]
        return PolicyCall(verb, tuple(given))
    if not rest:
        return PolicyCall(verb)
    if quoted := _QUOTED_END.search(rest):
        before = rest[: quoted.start()].strip()
        return PolicyCall(verb, (before, quoted[1]) if before else (quoted[1],))
    return PolicyCall(verb, (rest,))


def read_environment_action(call: PolicyCall, *, enter: bool) -> Action:
    """Converts a call to a browser action. `enter`: `type` presses Enter by default."""
    if call.verb == "note":
        return Action("note", str(call), value=" ".join(call.arguments))
    if call.verb == "stop":
        # A stop without brackets has an empty answer.
        return Action("stop", str(call), value=call.arguments[0] if call.arguments else "")
    if call.verb == "type" and len(call.arguments) == 2 and not enter:
        call = PolicyCall("type", (*call.arguments, "0"))
    return read_action(str(call))


def _bracketed(text: str) -> list[str]:
    """Returns the contents of top-level brackets. An unclosed one extends to the last bracket."""
    found: list[str] = []
    while text.startswith("["):
        end = _closing(text)
        if end is None:
            return [*found, text[1:].removesuffix("]")]
        # An extra bracket, as in `type [5] [well :] done]`, is part of the text, except after a
        # number.
        while not text[1:end].isdecimal():
            rest = text[end + 1 :].lstrip()
            if rest.startswith("[") or rest.count("]") <= rest.count("["):
                break
            end = text.index("]", end + 1)
        found.append(text[1:end])
        text = text[end + 1 :].lstrip()
    return found


def _closing(text: str) -> int | None:
    """Returns the index of the bracket that closes the first one."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth == 0:
            return at
    return None


def _line_end(text: str) -> int:
    """Returns the end of the first line, or of the line that closes its brackets."""
    depth = 0
    for at, character in enumerate(text):
        if character == "\n" and depth <= 0:
            return at
        depth += (character == "[") - (character == "]")
    # An unclosed bracket ends with the line.
    return len(text) if depth <= 0 else len(text.partition("\n")[0])
