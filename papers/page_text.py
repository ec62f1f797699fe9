"""What a policy reads of a page, where the environment can show it in several ways, and pages that
the environment shows as HTML with numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Literal

# A policy's attribute `page_text`: the commands set the environment's option `text` by it, unless
# they are told otherwise.
PageText = Literal["lines", "html"]
REF = "data-wob_ref"  # the attribute that has an element's number
_VOID = {"area", "br", "col", "hr", "img", "input", "wbr"}


def is_html(text: str) -> bool:
    """Whether a state's text is a page in HTML; lines never begin with a tag."""
    return text.lstrip().startswith("<")


@dataclass(eq=False)
class HtmlElement:
    """An element; `words` are all texts that stand in it directly. Without a parent: what is around
    the page.
    """

    tag: str
    attributes: dict[str, str]
    parent: HtmlElement | None = None
    children: list[HtmlElement] = field(default_factory=list)
    words: str = ""

    def ancestors(self) -> Iterator[HtmlElement]:
        """The element itself, and those around it."""
        element: HtmlElement | None = self
        while element is not None:
            yield element
            element = element.parent

    def is_in(self, id: str) -> bool:
        """Whether the element with this id is it, or around it."""
        return any(element.attributes.get("id") == id for element in self.ancestors())


@dataclass(eq=False)
class HtmlText:
    """A text that stands in an element directly."""

    parent: HtmlElement
    words: str


def read_html(html: str) -> list[HtmlElement | HtmlText]:
    """The elements and texts of a page in its order. The environment closes every tag, but for
    those that hold nothing.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.nodes


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[HtmlElement | HtmlText] = []
        self._open = [HtmlElement("", {})]  # around the page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        parent = self._open[-1]
        element = HtmlElement(tag, {name: value or "" for name, value in attrs}, parent)
        self.nodes.append(element)
        parent.children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if self._open[-1].tag == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        parent = self._open[-1]
        parent.words += data
        last = self.nodes[-1] if self.nodes else None
        if isinstance(last, HtmlText) and last.parent is parent:
            last.words += data
        else:
            self.nodes.append(HtmlText(parent, data))
