"""Plans moves on a MiniWoB++ page by program, from the goal and the elements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.support.programmatic.screen import Move, Node, Page, Screen
from tests.support.programmatic.tasks import (
    clicking,
    dates,
    emails,
    forms,
    games,
    revealing,
    shapes,
)

__all__ = ["Move", "Node", "Screen", "plan"]

Solve = Callable[[re.Match[str], Page], list[Move]]

# The first program whose pattern matches the goal is used, so specific patterns come first.
_PROGRAMS: dict[str, Solve] = {
    **clicking.PROGRAMS,
    **dates.PROGRAMS,
    **revealing.PROGRAMS,
    **games.PROGRAMS,
    **shapes.PROGRAMS,
    **forms.PROGRAMS,
}


def plan(goal: str, screen: Screen, done: Sequence[Move] = ()) -> list[Move]:
    """Returns all moves towards the goal that this screen allows, in order. `done` are the moves of
    this episode so far.

    Empty if nothing is left to do. Raises LookupError if no program knows the goal, or the page
    lacks an element.
    """
    page = Page.of(goal, screen, done)
    # The goals of email tasks vary so much that the page identifies them better.
    if emails.shown(page):
        return emails.solve(goal, page)
    for pattern, solve in _PROGRAMS.items():
        if match := re.search(pattern, goal, re.DOTALL):
            return solve(match, page)
    raise LookupError(f"no program for the goal {goal!r}")
