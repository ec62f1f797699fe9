"""A program's view of a page: elements, moves, and functions that find elements."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class Node:
    """An element of the page, as a prompt shows it. `text` is its text or value, `attributes` its
    other attributes.
    """

    ref: int
    tag: str
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """One action. `ref` is None if a key goes to the focused element; `text` is the typed text or
    the key.

    Typing replaces the content of a field. A click on an option selects it, in addition to the
    selected ones if several can be selected.
    """

    kind: Literal["click", "type", "press", "hover"]
    ref: int | None = None
    text: str = ""


Screen = Sequence[Node]

_TYPED = ("text", "password", "date", "time", "number", "search", "email", "textarea")
_ENDINGS = ("submit", "search", "go!", "login", "ok", "done")


def detect_kind(node: Node) -> str:
    """Returns the type of an element: the type of an input, in any notation, and the tag of other
    elements.
    """
    tag, _, said = node.tag.lower().partition("_")
    if tag != "input":
        return node.tag.lower()
    kind = said or node.attributes.get("type", "text")
    return kind if kind in (*_TYPED, "checkbox", "radio", "button", "submit") else "text"


@dataclass(frozen=True)
class Page:
    """The page at one moment: the elements, the instruction above them, and the moves of this
    episode so far.
    """

    nodes: Screen
    instruction: Screen = ()
    done: Sequence[Move] = ()

    @staticmethod
    def of(goal: str, screen: Screen, done: Sequence[Move]) -> Page:
        """Returns the page with the instruction separated, because it repeats words of the goal and
        must not be clicked.
        """
        cut = _instruction_end(goal, screen)
        return Page(_placed(screen[cut:]), screen[:cut], done)

    def saying(self, text: str) -> list[Node]:
        """Returns the elements with exactly this text."""
        return [node for node in self.nodes if node.text.strip() == text]

    def one(self, *texts: str) -> Node:
        """Returns the first element with one of these texts, else the first with one of them as id
        or class. Raises LookupError.
        """
        for text in texts:
            if found := self.saying(text) or self.named(text):
                return found[0]
        raise LookupError(f"nothing here says {' or '.join(map(repr, texts))}")

    def named(self, name: str) -> list[Node]:
        """Returns the elements with this id or class."""
        return [
            node
            for node in self.nodes
            if node.attributes.get("id") == name
            or name in node.attributes.get("class", "").split()
            or node.text == name
        ]

    def matching(self, pattern: str) -> list[tuple[Node, re.Match[str]]]:
        """Returns the elements whose whole text matches, with the match."""
        found = ((node, re.fullmatch(pattern, node.text.strip())) for node in self.nodes)
        return [(node, match) for node, match in found if match]

    def of_kind(self, *kinds: str) -> list[Node]:
        """Returns the elements of these types (see detect_kind), in order."""
        return [node for node in self.nodes if detect_kind(node) in kinds]

    def fields(self) -> list[Node]:
        """Returns the text fields in order, without textareas."""
        return self.of_kind(*(kind for kind in _TYPED if kind != "textarea"))

    def field(self, place: int = 1) -> Node:
        """Returns one of the fields, counted from 1. Raises LookupError."""
        fields = self.fields()
        if len(fields) < place:
            raise LookupError(f"there is no text box number {place}")
        return fields[place - 1]

    def after(self, node: Node) -> list[Node]:
        """Returns the elements after this one."""
        return list(self.nodes[self.nodes.index(node) + 1 :])

    def choices(self) -> list[tuple[str, Node]]:
        """Returns checkboxes and radio buttons with their labels."""
        return [
            (self._beside(place), node)
            for place, node in enumerate(self.nodes)
            if detect_kind(node) in ("checkbox", "radio")
        ]

    def end(self) -> Node:
        """Returns the submit button or its equivalent: the last of its type."""
        found = [node for node in self.nodes if node.text.strip().lower() in _ENDINGS]
        if not found:
            raise LookupError("nothing here hands the form in")
        return found[-1]

    def left(self, moves: Iterable[Move]) -> list[Move]:
        """Returns the moves that are still to be made. A move that occurs twice has to be made
        twice.
        """
        made, left = Counter(self.done), []
        for move in moves:
            if made[move]:
                made[move] -= 1
            else:
                left.append(move)
        return left

    def clicked(self, node: Node) -> bool:
        """Returns whether the element has been clicked in this episode."""
        return click(node) in self.done

    def _beside(self, place: int) -> str:
        """Returns the text of the label around the box, or the separate text after the box."""
        before = self.nodes[place - 1] if place else None
        if before is not None and before.tag.lower() == "label" and before.text.strip():
            return before.text.strip()
        after = self.nodes[place + 1 : place + 2]
        return (
            after[0].text.strip()
            if after and after[0].tag.lower() in ("label", "t", "span")
            else ""
        )


def click(node: Node) -> Move:
    """Returns a click on the element."""
    return Move("click", node.ref)


def enter(node: Node, text: str) -> Move:
    """Returns a move that replaces the content of the field with the text."""
    return Move("type", node.ref, text)


def _placed(screen: Screen) -> Screen:
    """Gives texts without a position of their own (a negative ref) the position of the element
    before them.
    """
    placed: list[Node] = []
    for node in screen:
        placed.append(replace(node, ref=placed[-1].ref) if node.ref < 0 and placed else node)
    return placed


def _instruction_end(goal: str, screen: Screen) -> int:
    """Returns how many leading elements belong to the instruction. `area` is MiniWoB++'s name for
    everything below it.
    """
    for place, node in enumerate(screen):
        if node.attributes.get("id") == "area" or node.text == "area":
            return place + 1
    if screen and screen[0].text.strip() == goal.strip():
        return 1
    place = 0
    while place < len(screen) and _repeats(goal, screen[place]):
        place += 1
    return place


def _repeats(goal: str, node: Node) -> bool:
    emphasised = (
        node.tag.lower() in ("b", "t") or "bold" in node.attributes.get("class", "").split()
    )
    return emphasised and node.text.strip() in goal
