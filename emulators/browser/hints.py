"""What a page shows a person beyond its accessibility tree: descriptions of icons, or their
classes, and elements that can be clicked but have no role. Read from
`DOMSnapshot.captureSnapshot` with the style `cursor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STYLES = ("cursor",)
_TIPS = ("title", "aria-description", "data-original-title", "data-bs-original-title")
# Classes of icon fonts: Font Awesome, Bootstrap, and the generic form.
_ICON = re.compile(r"(?:fa|bi|icon|glyphicon|mdi|ti|ri)-[\w-]+")
_ROOTS = {"HTML", "BODY", "#document", "IFRAME", "FRAME"}
_NATIVE = {"A", "BUTTON", "INPUT", "SELECT", "TEXTAREA", "OPTION", "SUMMARY", "AREA"}
_TICKED = ("checkbox", "radio")
# A longer text, or more elements with roles inside, is a part of the page and not a control.
_MAX_TEXT, _MAX_INSIDE = 200, 6
_STATES = {
    "active", "checked", "collapsed", "disabled", "expanded", "off", "on", "open", "selected"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hint:
    """An element's description, and if it can be clicked without a role, its name and states."""

    tip: str = ""
    name: str | None = None
    states: tuple[tuple[str, str], ...] = ()


class _Document:
    """One document of a snapshot, by the index of its nodes."""

    def __init__(self, document: Mapping[str, Any], strings: Sequence[str]) -> None:
        self.nodes, layout = document["nodes"], document["layout"]
        self.strings = strings
        self.parents: Sequence[int] = self.nodes["parentIndex"]
        self.tags = [strings[name] for name in self.nodes["nodeName"]]
        self.bounds: dict[int, Sequence[float]] = dict(
            zip(layout["nodeIndex"], layout["bounds"], strict=True)
        )
        self.cursors = {
            node: strings[styles[0]] if styles and styles[0] >= 0 else ""
            for node, styles in zip(layout["nodeIndex"], layout["styles"], strict=True)
        }

    def attributes(self, node: int) -> dict[str, str]:
        raw = self.nodes["attributes"][node]
        return {
            self.strings[raw[i]]: self.strings[raw[i + 1]] if raw[i + 1] >= 0 else ""
            for i in range(0, len(raw), 2)
        }

    def inside(self, node: int) -> Iterator[int]:
        """Yields the nodes below a node, which follow it."""
        for other in range(node + 1, len(self.parents)):
            if self.parents[other] < node:
                return
            yield other

    def text(self, node: int) -> str:
        """Returns the visible text below a node, which is cut."""
        words: list[str] = []
        for other in self.inside(node):
            value = self.nodes["nodeValue"][other]
            if self.tags[other] == "#text" and other in self.bounds and value >= 0:
                words += self.strings[value].split()
                if sum(map(len, words)) > _MAX_TEXT:
                    break
        return " ".join(words)

    def above(self, node: int) -> Iterator[int]:
        while (node := self.parents[node]) >= 0:
            yield node


def read_hints(
    document: Mapping[str, Any], strings: Sequence[str]
) -> tuple[dict[int, Hint], dict[int, Sequence[float]]]:
    """Returns the hints of a document by backend node id, and the boxes of labels that stand for
    hidden checkboxes, radio buttons and file inputs, by the id of these.
    """
    page = _Document(document, strings)
    numbers: Sequence[int] = page.nodes["backendNodeId"]
    given = {
        node: page.attributes(node) for node, raw in enumerate(page.nodes["attributes"]) if raw
    }
    tips = {
        node: tip
        for node, attributes in given.items()
        if (tip := next((attributes[name] for name in _TIPS if attributes.get(name)), ""))
    }
    for node, word in _icons(page, given):
        tips.setdefault(node, word)
    labels, boxes = _labels(page, given)
    hints = {numbers[node]: Hint(tip) for node, tip in tips.items()}
    shown: dict[int, str] = {}
    for node in sorted(_clickable(page, given)):
        control = labels.get(node)
        if page.tags[node] == "LABEL" and (control is None or control in page.bounds):
            continue
        if any(page.tags[other] in _NATIVE or other in labels for other in page.above(node)):
            continue
        text, attributes = page.text(node), given.get(node, {})
        if len(text) > _MAX_TEXT:
            continue
        inside = [other for other in page.inside(node) if page.tags[other] in _NATIVE]
        if (
            len(inside) > _MAX_INSIDE
            or (inside and text == " ".join(filter(None, map(page.text, inside))))
            or any(shown.get(other) == text for other in page.above(node))
        ):
            continue
        shown[node] = text
        words = attributes.get("class", "").split()
        if text:
            words = [word for word in words if word.lower() in _STATES]
        states = [("class", " ".join(words)[:60])] if words else []
        if control is not None:
            ticked = control in page.nodes.get("inputChecked", {}).get("index", ())
            states.insert(0, ("checked", str(ticked).lower()))
        name = text or attributes.get("aria-label") or tips.get(node, "")
        hints[numbers[node]] = Hint(tips.get(node, ""), name, (("clickable", "True"), *states))
    return hints, {numbers[node]: box for node, box in boxes.items()}


def _icons(page: _Document, given: Mapping[int, Mapping[str, str]]) -> Iterator[tuple[int, str]]:
    """Yields the links and buttons around icons of a font, and the icon's class: `fa-search`."""
    for node, attributes in given.items():
        if page.tags[node] not in ("I", "SPAN"):
            continue
        classes = attributes.get("class", "").split()
        word = next((word for word in classes if _ICON.fullmatch(word)), None)
        if word is None or page.text(node):
            continue
        for owner in page.above(node):
            if page.tags[owner] in ("A", "BUTTON"):
                yield owner, word
                break


def _clickable(page: _Document, given: Mapping[int, Mapping[str, str]]) -> set[int]:
    """Returns the elements with a listener for clicks, a `tabindex` or the hand as cursor, without
    roots and those that have a role by their tag.
    """
    found = set(page.nodes.get("isClickable", {}).get("index", ()))
    found |= {node for node, cursor in page.cursors.items() if _is_hand(page, node, cursor)}
    found |= {
        node for node, attributes in given.items() if attributes.get("tabindex", "-").isdecimal()
    }
    return {
        node
        for node in found
        if node in page.bounds
        and not page.tags[node].startswith(("#", "::"))
        and page.tags[node] not in _ROOTS | _NATIVE
    }


def _is_hand(page: _Document, node: int, cursor: str) -> bool:
    # the style is inherited, so the outermost element has it
    return cursor == "pointer" and page.cursors.get(page.parents[node], "") != "pointer"


def _labels(
    page: _Document, given: Mapping[int, Mapping[str, str]]
) -> tuple[dict[int, int], dict[int, Sequence[float]]]:
    """Returns the control of each label, and the label's box for each hidden control."""
    ids = {attributes["id"]: node for node, attributes in given.items() if "id" in attributes}
    labels: dict[int, int] = {}
    boxes: dict[int, Sequence[float]] = {}
    for label, tag in enumerate(page.tags):
        if tag != "LABEL":
            continue
        named = given.get(label, {}).get("for")
        control = (
            ids.get(named)
            if named
            else next((node for node in page.inside(label) if page.tags[node] == "INPUT"), None)
        )
        kind = given.get(control, {}).get("type", "") if control is not None else ""
        if control is None or kind not in (*_TICKED, "file"):
            continue
        labels[label] = control
        box = page.bounds.get(control)
        if box is not None and label in page.bounds and min(box[2:]) <= 1:
            boxes[control] = page.bounds[label]
    return labels, boxes
