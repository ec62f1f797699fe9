"""What to do on a MiniWoB++ page, by program: goal and elements in, every move that this screen
allows out.
"""

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

# The first whose pattern is found in the goal is asked, so what is more particular comes first.
_PROGRAMS: dict[str, Solve] = {
    **clicking.PROGRAMS,
    **dates.PROGRAMS,
    **revealing.PROGRAMS,
    **games.PROGRAMS,
    **shapes.PROGRAMS,
    **forms.PROGRAMS,
}


def plan(goal: str, screen: Screen, done: Sequence[Move] = ()) -> list[Move]:
    """Every move in order that can be made on this screen towards the goal; `done` are the moves of
    this episode so far.

    Empty when nothing is left to do. Raises LookupError where no program knows the goal, or the
    page lacks what it looks for.
    """
    page = Page.of(goal, screen, done)
    # People say what to do with a message in so many ways that the page tells it better than the
    # goal.
    if emails.shown(page):
        return emails.solve(goal, page)
    for pattern, solve in _PROGRAMS.items():
        if match := re.search(pattern, goal, re.DOTALL):
            return solve(match, page)
    raise LookupError(f"no program for the goal {goal!r}")
