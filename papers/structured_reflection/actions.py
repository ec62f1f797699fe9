"""Parses the action lines of plans: `click id=5`, `enter "text" to id=7`, `press ARROWDOWN x 3`,
`hold CTRL`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from prill.actions.keys import key_names
from prill.actions.webarena import UnreadableActionError
from prill.models.replies import excerpt
from prill.papers.replies import (
    ELEMENT_NAMES,
    ToolCall,
    UnreadableReplyError,
    asserted_text,
    fenced_blocks,
    plain_line,
    python_call,
    ticked_spans,
    tool_calls,
    visible_text,
    without_fences,
)
from prill.papers.structured_reflection.screen import Leaf
from prill.types import Action

Kind = Literal["click", "type", "press", "hold", "release", "scroll"]
_KINDS: dict[str, Kind] = {
    "click": "click", "tap": "click", "move": "click", "type": "type", "enter": "type",
    "press": "press", "hold": "hold", "release": "release", "scroll": "scroll", "flip": "scroll",
}  # fmt: skip
_END = "[eod]"
# The end of a plan begins or ends a line; small models also write sentences about it.
_ENDING = re.compile(r"^\W*\[eod\]|\[eod\](?=\W*$)", re.IGNORECASE | re.MULTILINE)
_ID = re.compile(r"\bid\s*=\s*\"?(\d+)")
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r'"([^"]*)"')
_INTO = re.compile(r"\s+(?:to|into|in)\s+id\s*=\s*\d+\W*$")
_TIMES = re.compile(r"\s+x\s+(\d+)$", re.IGNORECASE)
_ARROW = re.compile(r"^(UP|DOWN|LEFT|RIGHT)ARROW$")
_LABELS = (
    "answer|actions?|plan|antwort|aktion(?:en)?|respuesta|acci[oó]n(?:es)?|réponse|答案|动作|操作"
)
_LABEL = re.compile(
    rf"^(?:(?:next |final )?(?:{_LABELS})\s*\d*|\d+(?:st|nd|rd|th) action)\s*[:：]\s*",
    re.IGNORECASE,
)
_OTHER_PLAN = re.compile(
    r"\balternative(?:ly)?\b|\b(?:option|plan|variant) (?:2|b)\b|\banother (?:plan|option|way)\b|^[^\w\n]*or[^\w\n]*$",  # noqa: E501
    re.IGNORECASE | re.MULTILINE,
)
_NO_MORE = (
    r"(?:there (?:is|are) )?no (?:(?:further|more|other|additional) )?(?:actions?|steps?)"
    r"(?: (?!ha(?:s|ve) been).*)?"
)
_ALL_DONE = r"the (?:task|goal) (?:is|has been) (?:already )?(?:complete|completed|done|finished|reached|achieved).*"  # noqa: E501
_NOTHING = re.compile(
    rf"\W*(?:eod|none|n/?a|done|finished|nothing(?: (?:is )?left)?(?: to (?:do|be done))?|{_NO_MORE}|{_ALL_DONE})\W*",  # noqa: E501
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"(?:sure|okay|ok|certainly|of course|here|notes?|explanation|reasoning|plan|actions?|thought)\b",  # noqa: E501
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"\[([^\[\]]+)\]")
_TARGET = re.compile(r'^<[^>]*data-wob_ref="(\d+)"')
_MAX_TIMES = 100
_MAX_UNQUOTED = 4  # unquoted words to type: more are a sentence


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """A parsed action line. `ref` is None without an element; `text` is typed text or keys."""

    kind: Kind
    ref: str | None = None
    text: str = ""
    times: int = 1


def planned_lines(reply: str) -> list[str]:
    """Returns the action lines of a reply, in order. Empty if the reply says that nothing is left
    to do.

    JSON and Python calls become lines. Scroll lines are dropped, because scrolling changes no shown
    element. A short line that is not an action stays, because a plan is carried out as written.
    Raises UnreadableReplyError.
    """
    text = visible_text(reply)
    found = _ENDING.search(text)
    plan, end = (text[: found.start()], True) if found else (text, False)
    if _OTHER_PLAN.search(plan):
        raise UnreadableReplyError("the reply has several plans: give one")
    for lines in _readings(plan):
        if any(map(detect_kind, lines)):
            return [line for line in lines if detect_kind(line) != "scroll" and not _is_prose(line)]
    left = [line for line in map(plain_line, without_fences(plan).splitlines()) if line]
    if not left or any(map(_NOTHING.fullmatch, left)) or (end and all(map(_is_prose, left))):
        return []
    if not any(map(_is_prose, left)):
        return left
    raise UnreadableReplyError(
        f'the reply has no action line, such as click id=5, and no {_END} for "nothing is left to '
        'do"'
    )


def _readings(plan: str) -> Iterator[list[str]]:
    """Yields the possible plans of a reply: JSON calls, fenced blocks, and all lines."""
    calls = tool_calls(plan)
    if calls:
        yield [_called(call) for call in calls]
    fenced = [line for block in fenced_blocks(plan) for line in block.splitlines()]
    for lines in (fenced, without_fences(plan).splitlines()):
        plain = (one for line in lines for one in _without_brackets(plain_line(line)))
        yield [_as_line(one) for one in plain if one]
    yield [_as_line(span) for span in ticked_spans(asserted_text(plan))]


def _without_brackets(line: str) -> list[str]:
    """Returns the actions of a line such as `[click id=6] [click id=7]`, or the line."""
    found = _BRACKETED.findall(line)
    alone = found and not _BRACKETED.sub("", line).strip(" ,;")
    return found if alone and all(map(detect_kind, found)) else [line]


def _as_line(line: str) -> str:
    """Converts a line with a call, or with a label before the action, to the agent's syntax."""
    line = _LABEL.sub("", line)
    call = python_call(line)
    return _called(call) if call and _KINDS.get(call.name) else line


def _called(call: ToolCall) -> str:
    """Converts a tool call to an action line."""
    if re.search(r"\W", call.name):
        return _as_line(plain_line(call.name))
    name = call.name.removesuffix("_element").removesuffix("_key")
    kind, ref = _KINDS.get(name), call.get(*ELEMENT_NAMES)
    text = call.get("text", "value", "content", "string", "input", "key", "keys", "characters")
    times = call.get("times", "count", "n", "repeat", "presses")
    words = [str(value) for key, value in call.arguments if not key and value is not None]
    if ref is None and len(words) == {"click": 1, "type": 2}.get(kind or ""):
        # The arguments may have either order; the number is the element.
        ref = words.pop(0 if words[0].isdecimal() and not words[-1].isdecimal() else -1)
    element = None if ref is None else f"id={_number(ref)}"
    if kind == "click":
        return f"click {element or ''}".strip()
    words += [""] * (2 - len(words))
    first = words[0] if text is None else text
    if kind == "type":
        return f'enter "{first}"' + (f" to {element}" if element else "")
    times = times or words[1] or 1
    return f"{name} {first}" + (f" x {times}" if str(times) != "1" else "")


def _number(ref: object) -> str:
    found = _NUMBER.search(str(ref))
    return found[0] if found else str(ref)


def _is_prose(line: str) -> bool:
    """Returns whether a line is a sentence or a heading rather than an attempted action."""
    if detect_kind(line) is not None:
        return False
    if _ID.search(line):
        return len(line.split()) > 5
    return (
        len(line.split()) > 4
        or line[-1:] in ":.!?：。！？"
        or _GREETING.match(line) is not None
        or not line.isascii()
    )


def whole_lines(cut: str) -> str:
    """Returns a truncated reply without its incomplete last line, unless that is the only line."""
    lines, ended, _ = cut.partition(_END)
    return lines if ended else lines.rpartition("\n")[0] or lines


def detect_kind(line: str) -> Kind | None:
    """Returns the type of action by a line's first word. None for any other line."""
    parts = line.split(maxsplit=1)
    return _KINDS.get(parts[0].lower().strip(":,")) if parts else None


def read_order(line: str) -> PlannedOrder:
    """Parses a line. Raises UnreadableActionError."""
    kind = detect_kind(line)
    rest = line.strip().partition(" ")[2].strip()
    if kind == "press" and (_ID.search(rest) or re.search(r"\bbutton\b", rest, re.IGNORECASE)):
        kind = "click"  # models write "press" for buttons, too
    if kind == "click":
        found = _ID.search(rest) or _NUMBER.search(rest)
        return PlannedOrder("click", None if found is None else found[found.lastindex or 0])
    if kind == "type":
        quote = _QUOTED.search(rest)
        ref = _ID.search(rest, 0 if quote is None else quote.end())
        if quote is None and ref is None and len(rest.split()) > _MAX_UNQUOTED:
            raise UnreadableActionError(
                f'{excerpt(line)} does not say in double quotes what to enter, as in enter "tea" '
                "to id=7"
            )
        text = _INTO.sub("", rest).strip("'") if quote is None else quote[1]
        return PlannedOrder("type", None if ref is None else ref[1], text)
    if kind in ("press", "hold", "release") and rest:
        return _keys(kind, rest.rstrip(",.; "))
    raise UnreadableActionError(
        f'{excerpt(line)} is no action; the actions are click, enter "…" to, press, hold and '
        "release"
    )


def _keys(kind: Kind, rest: str) -> PlannedOrder:
    times = _TIMES.search(rest)
    name = _TIMES.sub("", rest).strip("\"' ")
    squeezed = name.upper().replace(" ", "")
    keys = key_names(_ARROW.sub(r"ARROW\1", squeezed))
    known = all(
        len(part) == 1 or not part.isupper() or re.fullmatch(r"F\d{1,2}", part)
        for part in keys.split("+")
    )
    if kind != "press" and not known:
        raise UnreadableActionError(f"{excerpt(rest)} is not a key that can be held down")
    count = min(_MAX_TIMES, max(1, int(times[1]))) if times else 1
    if len(keys) == 1:
        return PlannedOrder(kind, None, name, count)
    # An unknown key is typed as text.
    return PlannedOrder(kind, None, keys, count) if known else PlannedOrder("type", None, name)


def parse_action(order: PlannedOrder, leaf: Leaf | None = None) -> Action:
    """Converts an order to an action of the environment. `leaf` gives the text for its element."""
    value = order.text if order.kind != "click" else None
    if order.kind == "press" and order.times > 1:
        value = f"{order.text} x {order.times}"
    if order.ref is None:
        bare = Action(order.kind, value=value)
        return replace(bare, text=format_line(bare))
    tag, text = (leaf.tag, leaf.text) if leaf is not None else ("element", "")
    target = f'<{tag} data-wob_ref="{order.ref}">{text}</{tag}>'
    bare = Action(order.kind, target=target, value=value)
    shown = f"{tag} {excerpt(text)}" if text else tag
    return replace(bare, text=f"{format_line(bare)} ({shown})")


def format_line(action: Action) -> str:
    """Formats a recorded action as a line."""
    ref = _TARGET.match(action.target or "")
    if action.kind == "click" and ref is not None:
        return f"click id={ref[1]}"
    if action.kind == "type":
        return f'enter "{action.value or ""}"' + (f" to id={ref[1]}" if ref is not None else "")
    if action.kind in ("press", "hold", "release"):
        return f"{action.kind} {action.value}"
    return action.text


def number_in(line: str) -> str | None:
    """Returns the element number in a line. None if it names no element."""
    try:
        return read_order(line).ref
    except UnreadableActionError:
        return None


def renumbered(line: str, number: str) -> str:
    """Returns the line with another element number."""
    order = read_order(line)
    return line if order.ref == number else format_line(parse_action(replace(order, ref=number)))


def clicked(line: str) -> str | None:
    """Reads the element that a line clicks.

    Args:
        line: One action in the policy's language.

    Returns:
        The element's number; None where the line is not a click.
    """
    return number_in(line) if detect_kind(line) == "click" else None
