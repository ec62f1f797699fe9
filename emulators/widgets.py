"""The widgets of a phone's screen as text for language agents.

Each line is `[id] role 'name' state: value`, nested by tabs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prill.types import Action, Point

_NUMBER = re.compile(r"\s*\[?(\d+)\]?(?:\s.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Widget:
    """One widget. `box` is (left, top, right, bottom) as fractions of the screen; `states` holds
    pairs, ("checked", "true").
    """

    role: str
    name: str
    box: tuple[float, float, float, float]
    depth: int = 0
    states: tuple[tuple[str, str], ...] = ()

    @property
    def centre(self) -> Point:
        """The middle of the widget, as fractions of the screen."""
        left, top, right, bottom = (min(1.0, max(0.0, side)) for side in self.box)
        return (left + right) / 2, (top + bottom) / 2


def describe(elements: Sequence[Widget]) -> str:
    """Formats widgets as text. Ids are positions from 1, and are valid for this screen only."""
    return "\n".join(_line(number, element) for number, element in enumerate(elements, 1))


def _line(number: int, element: Widget) -> str:
    states = (f"{name}: {value}" for name, value in element.states)
    return "\t" * element.depth + " ".join(
        [f"[{number}]", element.role, repr(element.name), *states]
    )


def action_point(action: Action, elements: Sequence[Widget]) -> Point | None:
    """Returns the action's point, or else the middle of the element that `target` names by its line
    (`[3] …`) or id.

    Returns None if there is no such element.
    """
    if action.point is not None or action.target is None:
        return action.point
    number = _NUMBER.fullmatch(action.target)
    if number is None or not 1 <= int(number[1]) <= len(elements):
        return None
    return elements[int(number[1]) - 1].centre


def located(action: Action, elements: Sequence[Widget]) -> Action:
    """Sets the action's point and its element's line as target; the action is unchanged if it names
    no known element.
    """
    number = None if action.target is None else _NUMBER.fullmatch(action.target)
    if number is None or not 1 <= int(number[1]) <= len(elements):
        return action
    line = _line(int(number[1]), elements[int(number[1]) - 1]).lstrip("\t")
    return replace(action, point=action_point(action, elements), target=line)
