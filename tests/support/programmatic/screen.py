"""What a program sees of a page and what it can do there: elements, moves, and ways to find the
ones it needs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class Node:
    """An element of the page, as a prompt shows it. `text` is what it says or holds, `attributes`
    what else is told of it.
    """

    ref: int
    tag: str
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """One action. `ref` is None where a key goes to what has the focus; `text` is what is typed, or
    the key.

    Typing replaces what a field holds. A click on an option chooses it, beside what is chosen
    already where several can be.
    """

    kind: Literal["click", "type", "press", "hover"]
    ref: int | None = None
    text: str = ""


Screen = Sequence[Node]

_TYPED = ("text", "password", "date", "time", "number", "search", "email", "textarea")
_ENDINGS = ("submit", "search", "go!", "login", "ok", "done")


def detect_kind(node: Node) -> str:
    """What sort of element it is: the type of an input, however the agent writes it, and the tag of
    all others.
    """
    tag, _, said = node.tag.lower().partition("_")
    if tag != "input":
        return node.tag.lower()
    kind = said or node.attributes.get("type", "text")
    return kind if kind in (*_TYPED, "checkbox", "radio", "button", "submit") else "text"


@dataclass(frozen=True)
class Page:
    """The page at one moment: what can be acted on, the instruction above it, and the moves of this
    episode so far.
    """

    nodes: Screen
    instruction: Screen = ()
    done: Sequence[Move] = ()

    @staticmethod
    def of(goal: str, screen: Screen, done: Sequence[Move]) -> Page:
        """The page with the instruction taken apart, which repeats words of the goal and is not to
        be clicked.
        """
        cut = _instruction_end(goal, screen)
        return Page(_placed(screen[cut:]), screen[:cut], done)

    def saying(self, text: str) -> list[Node]:
        """The elements that say just this."""
        return [node for node in self.nodes if node.text.strip() == text]

    def one(self, *texts: str) -> Node:
        """The first element that says one of these; where none does, the first whose id or class is
        one. Raises LookupError.
        """
        for text in texts:
            if found := self.saying(text) or self.named(text):
                return found[0]
        raise LookupError(f"nothing here says {' or '.join(map(repr, texts))}")

    def named(self, name: str) -> list[Node]:
        """The elements whose id, or one of whose classes, is this."""
        return [
            node
            for node in self.nodes
            if node.attributes.get("id") == name
            or name in node.attributes.get("class", "").split()
            or node.text == name
        ]

    def matching(self, pattern: str) -> list[tuple[Node, re.Match[str]]]:
        """The elements whose whole text is of this form, with the match."""
        found = ((node, re.fullmatch(pattern, node.text.strip())) for node in self.nodes)
        return [(node, match) for node, match in found if match]

    def of_kind(self, *kinds: str) -> list[Node]:
        """The elements of these kinds (see kind_of), in order."""
        return [node for node in self.nodes if detect_kind(node) in kinds]

    def fields(self) -> list[Node]:
        """What can be typed into, in order, long texts (textarea) left out."""
        return self.of_kind(*(kind for kind in _TYPED if kind != "textarea"))

    def field(self, place: int = 1) -> Node:
        """One of the fields, counted from 1. Raises LookupError."""
        fields = self.fields()
        if len(fields) < place:
            raise LookupError(f"there is no text box number {place}")
        return fields[place - 1]

    def after(self, node: Node) -> list[Node]:
        """What follows the element."""
        return list(self.nodes[self.nodes.index(node) + 1 :])

    def choices(self) -> list[tuple[str, Node]]:
        """Boxes and radio buttons with the words that stand beside them."""
        return [
            (self._beside(place), node)
            for place, node in enumerate(self.nodes)
            if detect_kind(node) in ("checkbox", "radio")
        ]

    def end(self) -> Node:
        """The button, or what serves as one, that hands everything in: the last of its kind."""
        found = [node for node in self.nodes if node.text.strip().lower() in _ENDINGS]
        if not found:
            raise LookupError("nothing here hands the form in")
        return found[-1]

    def left(self, moves: Iterable[Move]) -> list[Move]:
        """The moves that have not been made yet; one that is needed twice has to be made twice."""
        made, left = Counter(self.done), []
        for move in moves:
            if made[move]:
                made[move] -= 1
            else:
                left.append(move)
        return left

    def clicked(self, node: Node) -> bool:
        """Whether the element has been clicked in this episode."""
        return click(node) in self.done

    def _beside(self, place: int) -> str:
        """The words of the label around the box or, where they are a piece of text of their own,
        what follows the box.
        """
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
    """A click on the element."""
    return Move("click", node.ref)


def enter(node: Node, text: str) -> Move:
    """Puts the text into the field, in place of what it holds."""
    return Move("type", node.ref, text)


def _placed(screen: Screen) -> Screen:
    """Pieces of text without a place of their own (a negative ref) get that of the element before
    them.
    """
    placed: list[Node] = []
    for node in screen:
        placed.append(replace(node, ref=placed[-1].ref) if node.ref < 0 and placed else node)
    return placed


def _instruction_end(goal: str, screen: Screen) -> int:
    """How many elements at the start are the instruction. `area` is what MiniWoB++ calls all that
    is below it.
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
