"""What scripts are made of. A script is a generator that yields moves, and is sent the page after each of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prill.agents.page_text import Element, Page, named
from prill.types import Action

T = TypeVar("T")


@dataclass(frozen=True)
class Move:
    """An action and how the agent tells of it afterwards. A commit is what the page takes as the attempt's end."""

    action: Action
    told: str
    commit: bool = False


Play = Generator[Move, Page, None]
Script = Callable[[str, Page, "Aim"], Play]


@dataclass(frozen=True)
class Aim:
    """Chooses what the goal asks for or, when it is to miss, the next other one; where there is no other, the right one."""

    misses: bool = False

    def element(self, elements: Sequence[Element], name: str) -> Element:
        """The element with this name. Raises LookupError when there is none."""
        right = named(tuple(elements), name)
        return self.other(right, elements, lambda element: element.name != name)

    def value(self, right: str, others: Sequence[str]) -> str:
        """The right value, or one of the others."""
        return self.other(right, others, lambda value: value != right)

    def other(self, right: T, choices: Sequence[T], differs: Callable[[T], bool]) -> T:
        """`right`, or the first choice after it that differs."""
        if not self.misses:
            return right
        start = choices.index(right) + 1 if right in choices else 0
        return next((choice for choice in (*choices[start:], *choices[:start]) if differs(choice)), right)


def click(element: Element, *, commit: bool = False) -> Move:
    """Clicks the element."""
    action = Action("click", f"click {element.target}", target=element.target)
    return Move(action, f"I clicked {element.target}.", commit)


def enter(element: Element, value: str) -> Move:
    """Replaces what a field holds."""
    action = Action("type", f"type {value!r} into {element.target}", target=element.target, value=value)
    return Move(action, f"I typed {value!r} into {element.target}.")


def choose(element: Element, value: str) -> Move:
    """Selects an entry of a list."""
    action = Action("select", f"select {value!r} in {element.target}", target=element.target, value=value)
    return Move(action, f"I selected {value!r} in {element.target}.")
