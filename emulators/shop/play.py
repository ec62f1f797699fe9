"""A policy that plays a list of action texts with elements named: `click [link 'Cart']`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from prill.actions.webarena import describe, parse_action
from prill.errors import UsageError
from prill.types import Action, Observation, Step, Task

_NUMBER = re.compile(r"\[(\w+)\] ")
_SCROLLS = 12


class ShopPlay:
    """Plays WebArena's action texts. Scrolls to elements outside the view, and appends `stop` if
    the list does not end with it.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        self._at = self._scrolls = 0

    def reset(self, task: Task) -> None:
        """Restarts the list."""
        self._at = self._scrolls = 0

    async def act(self, observation: Observation) -> Step:
        """Returns the next action; its element is looked up in the text of the state."""
        action = parse_action(self.lines[self._at] if self._at < len(self.lines) else "stop []")
        if action.target is not None:
            line = format_line(action.target, observation.text or "")
            if line is None:
                return Step(observation, self._scroll(action))
            action = replace(action, target=line)
            action = replace(action, text=describe(action, observation.text))
        self._at, self._scrolls = self._at + 1, 0
        return Step(observation, action)

    def _scroll(self, action: Action) -> Action:
        self._scrolls += 1
        if self._scrolls > _SCROLLS:
            raise UsageError(
                f"line {self._at + 1} of the script: the page does not show {action.target}"
            )
        return Action("scroll", "scroll [down]", value="down")


def format_line(element: str, text: str) -> str | None:
    """Returns the first line of the tree, without tabs, that contains the element `role 'name'`;
    None if there is none.
    """
    for line in text.splitlines():
        plain = line.strip()
        if (number := _NUMBER.match(plain)) and (plain[number.end() :] + " ").startswith(
            element + " "
        ):
            return plain
    return None
