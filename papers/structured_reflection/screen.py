"""The compact screen: a line for each leaf of a page that was read as HTML with numbers (MiniWoB++,
`text="html"`).

    <button id=6 class="secondary-action" pos="left">Submit</button>

As in arXiv 2310.08740, but for four things: text that stands beside tags is a leaf `t` with the
number of what it stands in; boxes and radio buttons are told apart from fields; what is ticked or
chosen has the value `checked` or `selected`; and the yellow instruction is left out but for its
icons, for its words are the goal.
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
    """One line of the screen. `shown` are the attributes that are printed, in order."""

    ref: str | None
    tag: str
    text: str
    shown: tuple[tuple[str, str], ...] = ()

    def line(self, *, hidden: bool = False) -> str:
        """The line, without the number when that is hidden."""
        number = "" if self.ref is None or hidden else f" id={self.ref}"
        rest = "".join(f' {name}="{value}"' for name, value in self.shown)
        return f"<{self.tag}{number}{rest}>{self.text}</{self.tag}>"

    def lasting(self) -> str:
        """What of the line is the same in another attempt: not the number, what the field holds, or
        the part of the screen.
        """
        lasting = tuple((name, value) for name, value in self.shown if name not in ("value", "pos"))
        return clean(Leaf(None, self.tag, self.text, lasting).line())


@dataclass(frozen=True, slots=True)
class ElementScreen:
    """The leaves of a page in its order, and the numbers of all its elements."""

    leaves: tuple[Leaf, ...]
    refs: frozenset[str]

    def text(self, hidden: Collection[str] = ()) -> str:
        """The lines; elements with these numbers are shown without them."""
        return "\n".join(leaf.line(hidden=leaf.ref in hidden) for leaf in self.leaves)

    def leaf(self, ref: str) -> Leaf | None:
        """The first leaf with this number."""
        return next((leaf for leaf in self.leaves if leaf.ref == ref), None)

    def key(self, ref: str) -> str:
        """What an element is known by in other attempts, where numbers may be others: role, name,
        and which of those alike.

        An element that has no line is known by its number.
        """
        return next((key for key, number in self._numbers().items() if number == ref), ref)

    def number(self, key: str) -> str | None:
        """The number that the element with this key has on this screen; None where there is no such
        element.
        """
        return key if key.isdecimal() else self._numbers().get(key)

    def numbers(self, keys: Iterable[str]) -> frozenset[str]:
        """The numbers of those elements with these keys that are on this screen."""
        return frozenset(number for key in keys if (number := self.number(key)) is not None)

    def _numbers(self) -> dict[str, str]:
        """The numbers by key; of lines with one number, the first one counts."""
        found, alike = dict[str, str](), Counter[str]()
        first = {leaf.ref: leaf for leaf in reversed(self.leaves)}
        for leaf in self.leaves:
            if leaf.ref is not None and leaf is first[leaf.ref]:
                alike[lasting := leaf.lasting()] += 1
                found[f"{lasting} {alike[lasting]}"] = leaf.ref
        return found


@lru_cache(256)
def read_screen(text: str | None) -> ElementScreen:
    """The screen of an observation's text. Raises NoEvidenceError where its elements have no
    numbers.
    """
    if text is None or REF not in text:
        raise NoEvidenceError(
            "structured-reflection reads a page as HTML with numbers: MiniWoB++ gives it with "
            "text = 'html'"
        )
    nodes = read_html(text)
    refs = (node.attributes.get(REF) for node in nodes if isinstance(node, HtmlElement))
    return ElementScreen(tuple(_leaves(nodes)), frozenset(ref for ref in refs if ref is not None))


def cell(x: float, y: float, width: float = WIDTH, height: float = HEIGHT) -> str:
    """In which of the nine parts of the screen a point is; one beyond the border is in the
    nearest.
    """
    column, row = (min(2, max(0, int(at // (size / 3)))) for at, size in ((x, width), (y, height)))
    return _PLACES[row][column]


def _leaves(nodes: Iterable[HtmlElement | HtmlText]) -> Iterator[Leaf]:
    """The lines: elements without others in them, and what stands between elements."""
    for node in nodes:
        if isinstance(node, HtmlElement):
            if not node.children and node.tag not in _WITHOUT_CONTENT:
                yield from _leaf(node.tag, node.attributes, node.words, node.is_in(_QUERY))
        elif node.parent.parent and node.parent.children and node.words.strip():
            box = {name: value for name, value in node.parent.attributes.items() if name in _PLACED}
            yield from _leaf("t", box, node.words, node.parent.is_in(_QUERY))


def _leaf(tag: str, attributes: Mapping[str, str], words: str, in_query: bool) -> Iterator[Leaf]:
    """One line; none of the instruction but its icons."""
    if in_query and (words.strip() or not attributes.get("class")):
        return
    named = attributes.get("class", "").strip()
    shown = {
        "type": kind if (kind := attributes.get("type", "")) in _BOXES else "",
        "class": attributes.get("id", "") if named in ("", _NO_CLASS) else named,
        "placeholder": attributes.get("placeholder", ""),
        "value": _value(tag, attributes),
        "pos": _place(attributes.get(_BOX, "")),
    }
    kept = tuple((name, " ".join(value.split())) for name, value in shown.items() if value.strip())
    yield Leaf(attributes.get(REF), tag, " ".join(words.split()), kept)


def _value(tag: str, attributes: Mapping[str, str]) -> str:
    if tag == "option":
        return "selected" if "selected" in attributes else ""
    if attributes.get("type") in _BOXES:
        return "checked" if "checked" in attributes else ""
    return attributes.get("value", "")


def _place(box: str) -> str:
    """The part of the screen for `left top width height`; empty where there is no box."""
    try:
        left, top, width, height = map(float, box.split())
    except ValueError:
        return ""
    return cell(left + width / 2, top + height / 2)
