"""The lines in which actions are planned: `click id=5`, `enter "text" to id=7`,
`press ARROWDOWN x 3`, `hold CTRL`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from prill.actions.keys import key_names
from prill.actions.webarena import UnreadableActionError
from prill.models.replies import excerpt
from prill.papers.structured_reflection.screen import Leaf
from prill.types import Action

Kind = Literal["click", "type", "press", "hold", "release", "scroll"]
_KINDS: dict[str, Kind] = {
    "click": "click",
    "tap": "click",
    "move": "click",
    "type": "type",
    "enter": "type",
    "press": "press",
    "hold": "hold",
    "release": "release",
    "scroll": "scroll",
    "flip": "scroll",
}
_END = "[eod]"
_NUMBERED = re.compile(r"^\s*(?:[-*•]|\d+[.):])\s+")
_ID = re.compile(r"\bid\s*=\s*\"?(\d+)")
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r'"([^"]*)"')
_INTO = re.compile(r"\s+(?:to|into|in)\s+id\s*=\s*\d+\W*$")
_TIMES = re.compile(r"\s+x\s+(\d+)$", re.IGNORECASE)
_ARROW = re.compile(r"^(UP|DOWN|LEFT|RIGHT)ARROW$")
_TARGET = re.compile(r'^<[^>]*data-wob_ref="(\d+)"')
_MAX_TIMES = 100


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """One line, read. `ref` is None where it names no element; `text` is what is typed, or the
    keys.
    """

    kind: Kind
    ref: str | None = None
    text: str = ""
    times: int = 1


def planned_lines(reply: str) -> list[str]:
    """The action lines of a reply: without numbering, fences, blank lines and lines that scroll,
    which would renumber nothing that is shown and change what is not.
    """
    said = reply.rpartition("</think>")[2].partition(_END)[0]
    lines = [
        _NUMBERED.sub("", line).strip().strip("`").strip()
        for line in said.splitlines()
        if not line.startswith("```")
    ]
    return [line for line in lines if line and detect_kind(line) != "scroll"]


def whole_lines(cut: str) -> str:
    """What was said in a reply that was cut: all but the line in which it was, where that is not
    the only one.
    """
    said, ended, _ = cut.partition(_END)
    return said if ended else said.rpartition("\n")[0] or said


def detect_kind(line: str) -> Kind | None:
    """What a line asks for, by its first word; None for anything else."""
    words = line.split(maxsplit=1)
    return _KINDS.get(words[0].lower().strip(":,")) if words else None


def read_order(line: str) -> PlannedOrder:
    """The line, read. Raises UnreadableActionError."""
    kind = detect_kind(line)
    rest = line.strip().partition(" ")[2].strip()
    if kind == "click":
        found = _ID.search(rest) or _NUMBER.search(rest)
        return PlannedOrder("click", None if found is None else found[found.lastindex or 0])
    if kind == "type":
        quote = _QUOTED.search(rest)
        after = rest if quote is None else rest[quote.end() :]
        ref = _ID.search(after)
        return PlannedOrder(
            "type",
            None if ref is None else ref[1],
            _INTO.sub("", rest).strip("'") if quote is None else quote[1],
        )
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
        raise UnreadableActionError(f"{excerpt(rest)} is no key that can be held")
    count = min(_MAX_TIMES, max(1, int(times[1]))) if times else 1
    if len(keys) == 1:
        return PlannedOrder(kind, None, name, count)
    # What is no key is typed as it is.
    return PlannedOrder(kind, None, keys, count) if known else PlannedOrder("type", None, name)


def parse_action(order: PlannedOrder, leaf: Leaf | None = None) -> Action:
    """The action for the environment; `leaf` is the element's line, for the record's words."""
    target = words = None
    if order.ref is not None:
        tag, said = (leaf.tag, leaf.text) if leaf is not None else ("element", "")
        target, words = (
            f'<{tag} data-wob_ref="{order.ref}">{said}</{tag}>',
            f" ({tag} {excerpt(said)})" if said else f" ({tag})",
        )
    value = order.text if order.kind != "click" else None
    if order.kind == "press" and order.times > 1:
        value = f"{order.text} x {order.times}"
    bare = Action(order.kind, target=target, value=value)
    return Action(order.kind, format_line(bare) + (words or ""), target=target, value=value)


def format_line(action: Action) -> str:
    """The line that is read as a recorded action."""
    ref = get_ref(action)
    if action.kind == "click" and ref is not None:
        return f"click id={ref}"
    if action.kind == "type":
        return f'enter "{action.value or ""}"' + (f" to id={ref}" if ref is not None else "")
    if action.kind in ("press", "hold", "release"):
        return f"{action.kind} {action.value}"
    return action.text


def get_ref(action: Action) -> str | None:
    """The number of the element that a recorded action is on."""
    found = _TARGET.match(action.target or "")
    return found[1] if found else None


def number_in(line: str) -> str | None:
    """The number of the element that a line is about; None where it names none."""
    try:
        return read_order(line).ref
    except UnreadableActionError:
        return None


def renumbered(line: str, number: str) -> str:
    """The line about the element with another number."""
    return (
        line
        if number_in(line) == number
        else format_line(parse_action(replace(read_order(line), ref=number)))
    )


def clicked(line: str) -> str | None:
    """Reads which element a line clicks.

    Args:
        line: One action in the policy's language.

    Returns:
        The element's number; None where the line is not a click.
    """
    return number_in(line) if detect_kind(line) == "click" else None
