"""Compares the values that a request asks for with those that an agent entered and clicked.

A value is a quotation, a number, a word with an @, or a name: a word that is capitalised inside a
sentence. What a page calls things differs from site to site; values are compared as they are, so
the comparison applies to tasks that no judge has seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prill.types import Trajectory

ENTERING = frozenset({"type", "select"})
_TOKEN = re.compile(r"[^\s\"'()\[\]]+")
_QUOTATION = re.compile(r"""(?<!\w)["'“]([^"”]*?)["'”](?!\w)""")
_WORD = re.compile(r"\w+")
_SENTENCE_ENDS = ("", ".", "!", "?", ":")
_MOST, _LONGEST = 3, 60  # values named in a sentence, and characters of one


def value_spans(goal: str) -> list[tuple[int, int]]:
    """Returns the places of the values in a request, in characters, in order and without
    overlaps.
    """
    spans = [match.span(1) for match in _QUOTATION.finditer(goal) if match[1].strip()]
    quoted = list(spans)
    for match in _TOKEN.finditer(goal):
        token, (start, end) = match.group(), match.span()
        if any(first < end and start < last for first, last in quoted):
            continue
        inside = goal[:start].rstrip(" \"'([")[-1:] not in _SENTENCE_ENDS
        if "@" in token or any(map(str.isdigit, token)) or (inside and token != token.lower()):
            spans.append((start, start + len(token.rstrip(".,;:!?"))))
    return sorted(spans)


def last_entries(trajectory: Trajectory) -> dict[str, str]:
    """Returns the last value that was entered into each field, in the order of these entries."""
    entries: dict[str, str] = {}
    for step in trajectory.steps:
        action = step.action
        if action.kind in ENTERING and action.value:
            field = action.target or str(action.point)
            entries.pop(field, None)
            entries[field] = action.value
    return entries


def clicked(target: str) -> str:
    """Returns an element's name; without a name, its description."""
    names = _QUOTATION.findall(target)
    return str(names[0]) if names else target


def describe_values(trajectory: Trajectory) -> str:
    """Describes in a sentence which values were asked for and not acted on, and which were entered
    although nobody asked for them; empty if the request names no value.
    """
    goal = trajectory.task.goal
    asked = list(dict.fromkeys(goal[start:end] for start, end in value_spans(goal)))
    if not asked:
        return ""
    entries = list(last_entries(trajectory).values())
    clicks = [
        clicked(step.action.target)
        for step in trajectory.steps
        if step.action.kind == "click" and step.action.target
    ]
    there = _words(" ".join([*entries, *clicks]))
    missing = [value for value in asked if not _words(value) <= there]
    wanted = _words(goal)
    others = [value for value in entries if not _words(value) <= wanted]
    if not others and clicks and not _words(clicks[-1]) <= wanted:
        others = clicks[-1:]
    parts = [f"asked for: {', '.join(_shown(missing or asked))}"]
    parts += ["not entered or clicked"] if missing else ["all entered or clicked"]
    parts += [f"instead: {', '.join(_shown(others))}"] if others else []
    return f"{parts[0]} ({'; '.join(parts[1:])})"


def _shown(values: list[str]) -> Iterator[str]:
    for value in values[:_MOST]:
        yield repr(value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…")
    if len(values) > _MOST:
        yield f"{len(values) - _MOST} more"


def _words(text: str) -> set[str]:
    return {match.group().casefold() for match in _WORD.finditer(text)}
