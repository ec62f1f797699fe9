"""Converts HTML pages of MiniWoB++ in Chromium to elements for a program, and its moves to
actions.
"""

from __future__ import annotations

from html.parser import HTMLParser

from prill.types import Action
from tests.support.programmatic.screen import Move, Node, Screen

_REF = "data-wob_ref"
_VOID = ("area", "br", "col", "hr", "img", "input", "wbr")


def nodes_of(html: str) -> list[Node]:
    """Returns the numbered elements (`data-wob_ref`) in order. The text of an element is its own
    text or value, without its descendants'.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return [
        _node(tag, attributes, texts)
        for tag, attributes, texts in reader.found
        if attributes.get(_REF, "").isdigit()
    ]


def parse_action(move: Move, screen: Screen) -> Action:
    """Returns the action for the move. Options are selected by name, because a click would deselect
    all others.
    """
    target = None if move.ref is None else str(move.ref)
    if move.kind == "click":
        chooser = None
        for node in screen:
            if node.tag == "select":
                chooser = node
            if node.ref == move.ref and node.tag == "option" and chooser is not None:
                return Action("select", target=str(chooser.ref), value=node.text)
    return Action(move.kind, target=target, value=move.text or None)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        texts: list[str] = []
        self.found.append((tag, {name: value or "" for name, value in attrs}, texts))
        if tag not in _VOID:
            self._open.append((tag, texts))

    def handle_endtag(self, tag: str) -> None:
        while self._open and tag in [name for name, _ in self._open]:
            if self._open.pop()[0] == tag:
                return

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1][1].append(data)


def _node(tag: str, attributes: dict[str, str], texts: list[str]) -> Node:
    others = {name: value for name, value in attributes.items() if name != _REF}
    text = "".join(texts)
    if tag == "input":
        # The value of a checkbox has no information.
        text = (
            "" if attributes.get("type") in ("checkbox", "radio") else attributes.get("value", "")
        )
    elif tag != "textarea":
        text = " ".join(text.split())
    return Node(int(attributes[_REF]), tag, text, others)
