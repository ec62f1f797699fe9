"""A page's HTML as a tree of elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


@dataclass(eq=False)
class Element:
    """One element. `place` is its number in the page's order, the page itself being 0."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None
    place: int
    children: list[Element | str] = field(default_factory=list)

    @property
    def elements(self) -> list[Element]:
        """The elements right inside."""
        return [child for child in self.children if isinstance(child, Element)]

    @property
    def own_texts(self) -> list[str]:
        """The texts right inside, as they stand between the elements."""
        return [child for child in self.children if isinstance(child, str)]

    @property
    def text(self) -> str:
        """All text inside."""
        found, waiting = list[str](), list[Element | str]([self])
        while waiting:  # no recursion: a page may nest thousands of elements
            one = waiting.pop()
            if isinstance(one, str):
                found.append(one)
            else:
                waiting.extend(reversed(one.children))
        return "".join(found)

    def walk(self) -> Iterator[Element]:
        """This element and all inside, in the page's order."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.elements))


def read_html(text: str) -> Element:
    """The page as a tree below an element without a tag. No HTML is too broken to be read."""
    # Environments write what stands in <body>; agents write XPaths from the top.
    whole = "<html" in text[:500].lower() or "<body" in text[:500].lower()
    reader = _Reader()
    reader.feed(text if whole else f"<html><body>{text}")
    reader.close()
    return reader.root


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._here = Element("", {}, None, 0)
        self._count = 0

    def parse_html_declaration(self, i: int) -> int:
        """A `<!` that the library gives up on is a comment, as in a browser."""
        try:
            return super().parse_html_declaration(i)
        except AssertionError:
            return self.parse_bogus_comment(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._count += 1
        element = Element(tag, {name: value or "" for name, value in attrs}, self._here, self._count)
        self._here.children.append(element)
        if tag not in _VOID:
            self._here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        above: Element | None = self._here
        while above is not None and above.tag != tag:
            above = above.parent
        if above is not None and above.parent is not None:
            self._here = above.parent

    def handle_data(self, data: str) -> None:
        children = self._here.children
        if children and isinstance(children[-1], str):
            children[-1] += data
        else:
            children.append(data)
