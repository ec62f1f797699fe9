"""The action strings of Online-Mind2Web results: `<button> Search -> CLICK`, and agents' own sentences."""

from __future__ import annotations

import re
from collections.abc import Callable

from prill.datasets.tool_calls import fraction, kind_of
from prill.types import Action

_Size = tuple[float, float] | None
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_PLACE = rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)"
_VERB = re.compile(r"([A-Z][A-Z_ ]*)(?::(.*))?", re.DOTALL)
_MOST_ARROWS = 20
_SENTENCE = re.compile(r"(?P<verb>[A-Za-z_]+(?: click)?)\b(?P<rest>.*)", re.DOTALL)
_AT = re.compile(rf"(?:(?:at|on)\s*)?{_PLACE}")
_DRAG = re.compile(rf"from\s*{_PLACE}\s*to\s*{_PLACE}")
_SCROLLED = re.compile(rf"delta_x={_NUMBER},\s*delta_y={_NUMBER}")
_CHOSEN = re.compile(r"Select option\(s\)\s*\[(.*)\]", re.DOTALL)


def parse_action(text: str, size: _Size) -> Action:
    """The action, with `text` as it was written; kind `other` where its verb is not known.

    `size` is that of the screen in the unit of the coordinates; without it places stay in the text.
    """
    text = text.strip()
    if (action := _on_element(text)) is not None:
        return action
    if found := _SENTENCE.fullmatch(text):
        kind, rest = kind_of(found["verb"].replace(" ", "_")), found["rest"].strip()
        return _READERS.get(kind, _other)(kind, text, rest, size)
    return Action("other", text)


def _on_element(text: str) -> Action | None:
    """The action of `element -> ACTION: value`. Of several arrows the last that a verb follows counts."""
    end = len(text)
    for _ in range(_MOST_ARROWS):
        end = text.rfind("->", 0, end)
        if end < 0:
            return None
        found = _VERB.fullmatch(text[end + 2 :].strip())
        if found and (kind := kind_of(found[1].strip().replace(" ", "_"))) != "other":
            return Action(kind, text, target=text[:end].strip() or None, value=(found[2] or "").strip() or None)
    return None


def _other(kind: str, text: str, rest: str, size: _Size) -> Action:
    place = _AT.fullmatch(rest)
    return Action(kind, text, point=fraction(float(place[1]), float(place[2]), size) if place else None)


def _goto(kind: str, text: str, rest: str, size: _Size) -> Action:
    where = rest.removeprefix("to ").strip()
    if where in ("back", "forward"):
        return Action(where, text)
    return Action(kind, text, value=where or None)


def _said(kind: str, text: str, rest: str, size: _Size) -> Action:
    value = rest.removeprefix(":").strip()
    quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return Action(kind, text, value=(value[1:-1] if quoted else value) or None)


def _select(kind: str, text: str, rest: str, size: _Size) -> Action:
    target, _, option = rest.rpartition("->")
    chosen = _CHOSEN.fullmatch(option.strip())
    return Action(kind, text, target=target.strip(), value=chosen[1]) if chosen else Action(kind, text)


def _scroll(kind: str, text: str, rest: str, size: _Size) -> Action:
    moved = _SCROLLED.search(rest)
    if moved is None:
        return Action(kind, text, value=rest or None)
    x, y = float(moved[1]), float(moved[2])
    names = ("right" if x > 0 else "left") if abs(x) > abs(y) else ("down" if y > 0 else "up")
    return Action(kind, text, value=names if x or y else None)


def _drag(kind: str, text: str, rest: str, size: _Size) -> Action:
    if places := _DRAG.fullmatch(rest):
        start, end = (fraction(float(places[i]), float(places[i + 1]), size) for i in (1, 3))
        return Action(kind, text, point=start, end_point=end)
    return Action(kind, text)


_READERS: dict[str, Callable[[str, str, str, _Size], Action]] = {
    "goto": _goto,
    "type": _said,
    "press": _said,
    "select": _select,
    "scroll": _scroll,
    "drag": _drag,
    "answer": _said,
    "stop": _said,
}
