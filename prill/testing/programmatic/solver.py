"""What to do on a MiniWoB++ page, by program: goal and elements in, every move that this screen allows out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Node:
    """An element of the page, as a prompt shows it. `text` is what it says or holds, `attributes` what else is told of it."""

    ref: int
    tag: str
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """One action. `ref` is None where a key goes to what has the focus; `text` is what is typed, or the key."""

    kind: Literal["click", "type", "press"]
    ref: int | None = None
    text: str = ""


Screen = Sequence[Node]
Solve = Callable[[re.Match[str], Screen, Sequence[Move]], list[Move]]


def plan(goal: str, screen: Screen, done: Sequence[Move] = ()) -> list[Move]:
    """Every move in order that can be made on this screen towards the goal; `done` are the moves of this episode so far.

    Empty when nothing is left to do. Raises LookupError where no program knows the goal, or the page lacks what it looks for.
    """
    for pattern, solve in _PROGRAMS.items():
        if match := re.search(pattern, goal, re.DOTALL):
            return solve(match, screen, done)
    raise LookupError(f"no program for the goal {goal!r}")


def _click_named(match: re.Match[str], screen: Screen, done: Sequence[Move]) -> list[Move]:
    """Clicks the element that says what the goal names."""
    if done:
        return []
    return [Move("click", next((node.ref for node in screen if node.text == match["name"]), None) or _missing(match["name"]))]


def _missing(name: str) -> int:
    raise LookupError(f"nothing here says {name!r}")


_PROGRAMS: dict[str, Solve] = {
    r'^Click on the "(?P<name>.+?)" (?:button|link)\.?$': _click_named,
}
