"""Parses pages that an environment shows as HTML with element numbers, and names the page formats
that a policy can read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Literal

# The attribute `page_text` of a policy. The commands set the environment's option `text` to it
# unless the user sets the option.
PageText = Literal["lines", "html"]
REF = "data-wob_ref"  # the attribute that holds an element's number
_VOID = {"area", "br", "col", "hr", "img", "input", "wbr"}


def is_html(text: str) -> bool:
    """Returns whether a state's text is an HTML page. The line format never begins with a tag."""
    return text.lstrip().startswith("<")


@dataclass(eq=False)
class HtmlElement:
    """An element. `words` are all texts directly inside it."""

    tag: str
    attributes: dict[str, str]
    parent: HtmlElement | None = None
    children: list[HtmlElement] = field(default_factory=list)
    words: str = ""

    def is_in(self, id: str) -> bool:
        """Returns whether the element or an ancestor has this id."""
        element: HtmlElement | None = self
        while element is not None and element.attributes.get("id") != id:
            element = element.parent
        return element is not None


@dataclass(eq=False)
class HtmlText:
    """A text directly inside an element."""

    parent: HtmlElement
    words: str


def read_html(html: str) -> list[HtmlElement | HtmlText]:
    """Returns the elements and texts of a page in document order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.nodes


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[HtmlElement | HtmlText] = []
        self._open = [HtmlElement("", {})]  # the root around the page

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
