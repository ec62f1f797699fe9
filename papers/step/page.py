"""Formats pages for SteP. A MiniWoB++ page becomes a line `<TAG id=REF val=VALUE />` for each
element.
"""

from __future__ import annotations

import re
from calendar import month_name
from dataclasses import dataclass, replace

from prill.papers.page_text import REF, HtmlElement, HtmlText, is_html, read_html
from prill.policies.react import NumberedText, numbered

# Table rows and cells add no information to their contents.
_LEFT_OUT = {"tr", "td"}
# The instruction is already shown as the objective.
_INSTRUCTION = "query"
_PICKER = "ui-datepicker-div"
_MONTH = re.compile(r"\b(" + "|".join(month_name[1:]) + r")\b")
_DAY = re.compile(r"[1-9]|[12]\d|3[01]")
_YEAR = re.compile(r"\b(20[0-4]\d|2050)\b")
_LINE = "<{} id={} val={} />"


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page as the model sees it, and the same elements with numbers, which actions use."""

    text: str
    page: NumberedText


def show(text: str, max_rows: int) -> ShownPage:
    """Returns at most `max_rows` lines of a page, HTML in SteP's format."""
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
    """One element. Text between elements has a negative number."""

    tag: str
    ref: int
    value: str

    def __str__(self) -> str:
        return _LINE.format(self.tag, self.ref, self.value)


def html_lines(html: str) -> list[ScreenLine]:
    """Returns every element of the page with its text, value or id. Calendar days become dates."""
    lines: list[ScreenLine] = []
    pieces = 0
    for node in read_html(html):
        if isinstance(node, HtmlText):
            text = " ".join(node.words.split())
            if text and node.parent.children and not node.parent.is_in(_INSTRUCTION):
                pieces += 1
                lines.append(ScreenLine("t", -pieces, text))
        elif node.tag not in _LEFT_OUT and not node.is_in(_INSTRUCTION):
            kind = node.attributes.get("type") if node.tag == "input" else ""
            number = node.attributes.get(REF, "")
            ref = int(number) if number.isdecimal() else 0
            lines.append(ScreenLine(f"{node.tag}_{kind}" if kind else node.tag, ref, _value(node)))
    return _dated(lines) if f'id="{_PICKER}"' in html else lines


def _dated(lines: list[ScreenLine]) -> list[ScreenLine]:
    """Adds the calendar's month and year to days: `21` becomes `12/21/2016`."""
    text = "\n".join(line.value for line in lines)
    month, year = _MONTH.search(text), _YEAR.search(text)
    if month is None or year is None:
        return lines
    number = list(month_name).index(month[1])
    return [
        replace(line, value=f"{number:02}/{int(line.value):02}/{year[1]}")
        if line.tag == "a" and _DAY.fullmatch(line.value)
        else line
        for line in lines
    ]


def _value(element: HtmlElement) -> str:
    """Returns the element's text, else its value, else its id."""
    words = " ".join(element.words.split())
    if element.tag == "textarea":  # it may have to be copied with all its spaces
        words = one_line(element.words)
    text = "" if element.children else words
    return text or _held(element) or element.attributes.get("id", "")


def _held(element: HtmlElement) -> str:
    if element.attributes.get("type") in ("checkbox", "radio"):
        return "True" if "checked" in element.attributes else ""
    if element.tag == "select":
        chosen = (option for option in element.children if "selected" in option.attributes)
        return next(map(_value, chosen), "")
    return one_line(element.attributes.get("value", ""))


def one_line(text: str) -> str:
    """Returns the text with spaces instead of line breaks. Other spaces are unchanged."""
    return re.sub(r"\s*\n\s*", " ", text)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
