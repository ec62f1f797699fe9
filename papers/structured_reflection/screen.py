"""Formats the compact screen: a line for each leaf of an HTML page with element numbers (MiniWoB++,
`text="html"`).

    <button id=6 class="secondary-action" pos="left">Submit</button>

The format is that of arXiv 2310.08740 with four differences. Text between tags is a leaf `t` with
the number of its parent. Checkboxes and radio buttons are distinct from text fields. A checked or
selected element has the value `checked` or `selected`. The yellow instruction is omitted except for
its icons, because its text is the goal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from prill.errors import NoEvidenceError
from prill.models.prompts import clean
from prill.papers.page_text import REF, HtmlElement, HtmlText, read_html

WIDTH, HEIGHT = 160, 210
_BOX = "data-wob_box"
_PLACED = (REF, _BOX)
_QUERY = "query"  # the id of the instruction
_WITHOUT_CONTENT = {"br", "wbr"}
_NO_CLASS = "NO_CLASS"
_BOXES = ("checkbox", "radio")
_PLACES = (
    ("top left", "top", "top right"),
    ("left", "center", "right"),
    ("bottom left", "bottom", "bottom right"),
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One line of the screen. `shown` are the printed attributes, in order."""

    ref: str | None
    tag: str
    text: str
    shown: tuple[tuple[str, str], ...] = ()

    def line(self, *, hidden: bool = False) -> str:
        """Formats the line, without the number if that is hidden."""
        number = "" if self.ref is None or hidden else f" id={self.ref}"
        rest = "".join(f' {name}="{value}"' for name, value in self.shown)
        return f"<{self.tag}{number}{rest}>{self.text}</{self.tag}>"

    def lasting(self) -> str:
        """Returns the parts of the line that are stable between attempts."""
        lasting = tuple((name, value) for name, value in self.shown if name not in ("value", "pos"))
        return clean(Leaf(None, self.tag, self.text, lasting).line())


@dataclass(frozen=True, slots=True)
class ElementScreen:
    """The leaves of a page in document order, and the numbers of all its elements."""

    leaves: tuple[Leaf, ...]
    refs: frozenset[str]

    def text(self, hidden: Collection[str] = ()) -> str:
        """Returns the lines. The elements in `hidden` are shown without their numbers."""
        return "\n".join(leaf.line(hidden=leaf.ref in hidden) for leaf in self.leaves)

    def leaf(self, ref: str) -> Leaf | None:
        """Returns the first leaf with this number."""
        return next((leaf for leaf in self.leaves if leaf.ref == ref), None)

    def key(self, ref: str) -> str:
        """Returns what identifies an element in other attempts: role, name and index."""
        return next((key for key, number in self._numbers().items() if number == ref), ref)

    def number(self, key: str) -> str | None:
        """Returns the number of the element with this key on this screen."""
        return key if key.isdecimal() else self._numbers().get(key)

    def numbers(self, keys: Iterable[str]) -> frozenset[str]:
        """Returns the numbers of the elements with these keys on this screen."""
        return frozenset(number for key in keys if (number := self.number(key)) is not None)

    def _numbers(self) -> dict[str, str]:
        """Returns the numbers by key. The first line with a number counts."""
        found, alike = dict[str, str](), Counter[str]()
        first = {leaf.ref: leaf for leaf in reversed(self.leaves)}
        for leaf in self.leaves:
            if leaf.ref is not None and leaf is first[leaf.ref]:
                alike[lasting := leaf.lasting()] += 1
                found[f"{lasting} {alike[lasting]}"] = leaf.ref
        return found


@lru_cache(256)
def read_screen(text: str | None) -> ElementScreen:
    """Parses the screen in an observation's text. Raises NoEvidenceError without numbers."""
    if text is None or REF not in text:
        raise NoEvidenceError(
            "structured-reflection reads pages as HTML; for MiniWoB++ set text = 'html'"
        )
    nodes = read_html(text)
    refs = (node.attributes.get(REF) for node in nodes if isinstance(node, HtmlElement))
    return ElementScreen(tuple(_leaves(nodes)), frozenset(ref for ref in refs if ref is not None))


def cell(x: float, y: float) -> str:
    """Returns which of the nine screen regions holds a point, or is nearest."""
    column, row = (min(2, max(0, int(at // (size / 3)))) for at, size in ((x, WIDTH), (y, HEIGHT)))
    return _PLACES[row][column]


def _leaves(nodes: Iterable[HtmlElement | HtmlText]) -> Iterator[Leaf]:
    """Yields the lines: elements without child elements, and text between elements."""
    for node in nodes:
        if isinstance(node, HtmlElement):
            if not node.children and node.tag not in _WITHOUT_CONTENT:
                yield from _leaf(node.tag, node.attributes, node.words, node.is_in(_QUERY))
        elif node.parent.parent and node.parent.children and node.words.strip():
            box = {name: value for name, value in node.parent.attributes.items() if name in _PLACED}
            yield from _leaf("t", box, node.words, node.parent.is_in(_QUERY))


def _leaf(tag: str, attributes: Mapping[str, str], text: str, in_query: bool) -> Iterator[Leaf]:
    """Yields one line. Of the instruction it yields only icons."""
    if in_query and (text.strip() or not attributes.get("class")):
        return
    named = attributes.get("class", "").strip()
    shown = {
        "type": kind if (kind := attributes.get("type", "")) in _BOXES else "",
        "class": attributes.get("id", "") if named in ("", _NO_CLASS) else named,
        "placeholder": attributes.get("placeholder", ""),
        "value": _value(tag, attributes),
        "pos": _place(attributes.get(_BOX, "")),
    }
    shown_attributes = tuple(
        (name, " ".join(value.split())) for name, value in shown.items() if value.strip()
    )
    yield Leaf(attributes.get(REF), tag, " ".join(text.split()), shown_attributes)


def _value(tag: str, attributes: Mapping[str, str]) -> str:
    if tag == "option":
        return "selected" if "selected" in attributes else ""
    if attributes.get("type") in _BOXES:
        return "checked" if "checked" in attributes else ""
    return attributes.get("value", "")


def _place(box: str) -> str:
    """Returns the screen region of `left top width height`. Empty without a box."""
    try:
        left, top, width, height = map(float, box.split())
    except ValueError:
        return ""
    return cell(left + width / 2, top + height / 2)
