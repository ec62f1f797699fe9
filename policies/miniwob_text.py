"""Parses MiniWoB++ page text: `role "name" #place state`, one element a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

QUOTED = r'"(?:[^"\\]|\\.)*"'
LINE = re.compile(rf"(?P<indent> *)(?P<role>\w+)(?: (?P<name>{QUOTED}))?(?: #\d+)?(?P<state>.*)")


@dataclass(frozen=True)
class PageElement:
    """An element, described by one line.

    `target` is its name in actions; `inside` contains the elements indented below it.
    """

    target: str
    role: str
    name: str
    state: str
    depth: int
    inside: tuple[PageElement, ...] = ()

    def is_(self, state: str) -> bool:
        """Returns whether the element has a state, such as `checked`."""
        return state in self.state.split()


@dataclass(frozen=True)
class TextPage:
    """The elements of a page in reading order, nested ones included."""

    elements: tuple[PageElement, ...]

    @classmethod
    def read(cls, text: str) -> TextPage:
        """Parses the text of a page; lines in another format are ignored."""
        return cls(tuple(_read(text)))

    def all(self, *roles: str) -> list[PageElement]:
        """Returns every element with one of these roles."""
        return [element for element in self.elements if element.role in roles]

    def named(self, role: str, name: str) -> PageElement:
        """Returns the first element with this role and name. Raises LookupError."""
        return named(self.all(role), name)


def named(elements: list[PageElement] | tuple[PageElement, ...], name: str) -> PageElement:
    """Returns the first of these elements with this name. Raises LookupError."""
    for element in elements:
        if element.name == name:
            return element
    raise LookupError(f"no element is named {name!r}")


def _read(text: str) -> Iterator[PageElement]:
    lines = [match for line in text.splitlines() if (match := LINE.fullmatch(line))]
    depths = [len(match["indent"]) // 2 for match in lines]
    elements: list[PageElement] = []
    for at in reversed(range(len(lines))):
        match = lines[at]
        end = next((i for i in range(at + 1, len(lines)) if depths[i] <= depths[at]), len(lines))
        after = elements[len(elements) - (end - at - 1) :]
        elements.append(
            PageElement(
                target=match.string[match.end("indent") : match.start("state")],
                role=match["role"],
                name=json.loads(match["name"]) if match["name"] else "",
                state=match["state"].strip(),
                depth=depths[at],
                inside=tuple(reversed(after)),
            )
        )
    return reversed(elements)
