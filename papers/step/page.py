"""The page as SteP shows it: for MiniWoB++ a line `<TAG id=REF val=VALUE />` for each element, made
from the page's HTML.
"""

from __future__ import annotations

import re
from calendar import month_name
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from prill.papers.page_text import is_html
from prill.policies.react import NumberedText, numbered

_REF = "data-wob_ref"
_VOID = {"area", "br", "col", "hr", "img", "input", "wbr"}
# Table rows and cells say nothing that what is inside them does not.
_LEFT_OUT = {"tr", "td"}
# The instruction is the objective.
_INSTRUCTION = "query"
_PICKER = "ui-datepicker-div"
_MONTH = re.compile(r"\b(" + "|".join(month_name[1:]) + r")\b")
_YEAR = re.compile(r"\b(20[0-4]\d|2050)\b")
_LINE = "<{} id={} val={} />"


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page as the model sees it, and the same elements with numbers in front, by which actions
    name them.
    """

    text: str
    page: NumberedText


def show(text: str, max_rows: int) -> ShownPage:
    """At most so many lines of a page: HTML as SteP writes it, all else as it is, with numbers
    where it has none.
    """
    if is_html(text):
        lines = html_lines(text)[:max_rows]
        named = "\n".join(
            f"[{line.ref}] {line.tag} {_quoted(line.value)}" for line in lines if line.ref >= 0
        )
        return ShownPage("\n".join(map(str, lines)), NumberedText(named, {}))
    page = numbered(text)
    return ShownPage("\n".join(page.text.splitlines()[:max_rows]), page)


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """One element; a piece of text beside elements has a number below zero."""

    tag: str
    ref: int
    value: str

    def __str__(self) -> str:
        return _LINE.format(self.tag, self.ref, self.value)


def html_lines(html: str) -> list[ScreenLine]:
    """Every element of the page in order, with its text, else what it holds, else its id; days of a
    calendar are dates.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines: list[ScreenLine] = []
    pieces = 0
    for element in reader.top.walk():
        if isinstance(element, str):
            pieces += 1
            lines.append(ScreenLine("t", -pieces, element))
        elif element.tag not in _LEFT_OUT:
            kind = (
                f"_{element.attributes['type']}"
                if element.tag == "input" and element.attributes.get("type")
                else ""
            )
            lines.append(ScreenLine(element.tag + kind, element.ref, element.value()))
    return _dated(lines) if f'id="{_PICKER}"' in html else lines


def _dated(lines: list[ScreenLine]) -> list[ScreenLine]:
    """Days with the month and year of the calendar that they stand in: `21` is `12/21/2016`."""
    words = "\n".join(line.value for line in lines)
    month, year = _MONTH.search(words), _YEAR.search(words)
    if month is None or year is None:
        return lines
    number = list(month_name).index(month[1])

    def dated(line: ScreenLine) -> ScreenLine:
        if line.tag != "a" or not re.fullmatch(r"[1-9]|[12]\d|3[01]", line.value):
            return line
        return ScreenLine(line.tag, line.ref, f"{number:02}/{int(line.value):02}/{year[1]}")

    return [dated(line) for line in lines]


@dataclass
class _Element:
    tag: str
    attributes: dict[str, str]
    inside: list[_Element | str] = field(default_factory=list)

    @property
    def ref(self) -> int:
        number = self.attributes.get(_REF, "")
        return int(number) if number.isdecimal() else 0

    def value(self) -> str:
        """What the element says, else what it holds, else its id."""
        return self._text() or self._held() or self.attributes.get("id", "")

    def walk(self) -> Iterator[_Element | str]:
        """What is inside, in order; the pieces of text of elements that hold others, too."""
        elements = [child for child in self.inside if isinstance(child, _Element)]
        for child in self.inside:
            if isinstance(child, _Element):
                if child.attributes.get("id") != _INSTRUCTION:
                    yield child
                    yield from child.walk()
            elif elements and (words := " ".join(child.split())):
                yield words

    def _text(self) -> str:
        words = [child for child in self.inside if isinstance(child, str)]
        if len(words) < len(self.inside):
            return ""
        # What a field holds may have to be copied with every blank.
        return (
            one_line("".join(words)) if self.tag == "textarea" else " ".join("".join(words).split())
        )

    def _held(self) -> str:
        if self.attributes.get("type") in ("checkbox", "radio"):
            return "True" if "checked" in self.attributes else ""
        if self.tag == "select":
            options = [child for child in self.inside if isinstance(child, _Element)]
            return next(
                (option.value() for option in options if "selected" in option.attributes), ""
            )
        return one_line(self.attributes.get("value", ""))


class _Reader(HTMLParser):
    """The tree of a page as the environment writes it: every tag is closed, but for those that hold
    nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.top = _Element("", {})
        self._open = [self.top]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = _Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].inside.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if len(self._open) > 1 and tag not in _VOID:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].inside.append(data)


def one_line(text: str) -> str:
    """The text with blanks for its ends of lines, and all its other blanks."""
    return re.sub(r"\s*\n\s*", " ", text)


def _quoted(words: str) -> str:
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"
