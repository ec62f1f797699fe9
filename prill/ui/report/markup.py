"""HTML and SVG made from Python, and the tables and numbers of the summary. Text is always escaped, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from prill.ui.report.entries import Outcome

Attribute = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(name: str, *children: str | None, **attributes: Attribute) -> Markup:
    """One element. A child that is no Markup is escaped; None is left out.

    `class_` is written class, other underscores become hyphens; an attribute that is None or False is left out.
    """
    words = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None and value is not False)
    inside = "".join(child if isinstance(child, Markup) else escape(child) for child in children if child is not None)
    return Markup(f"<{name}{words}>{inside}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    name = "viewBox" if key == "viewBox" else key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'


def joined(*parts: Markup | None) -> Markup:
    """Elements side by side."""
    return Markup("".join(part for part in parts if part is not None))


def table(heads: Sequence[str], lines: Sequence[Markup], kind: str) -> Markup:
    """A table that can be scrolled sideways where it is wider than the page."""
    top = el("tr", *(el("th", head, scope="col") if head else el("td") for head in heads))
    content = el("table", el("thead", top), el("tbody", *lines), class_=kind)
    return el("div", content, class_=f"scroll of-{kind}", tabindex=0)


def jump(
    count: int,
    judge: int,
    verdict: Outcome | None = None,
    *,
    truth: Outcome | None = None,
    among: str | None = None,
    against: str | None = None,
) -> Markup:
    """A count that sets the filters of the list to what it counts; their values are those of the page's own choices."""
    words = f"{count:,}"
    if not count:
        return el("span", words, class_="zero")
    selection = {"data_verdict": verdict, "data_truth": truth, "data_among": among, "data_against": against}
    return el("button", words, type="button", class_="jump", data_judge=judge, **selection)


def share(part: int, whole: int) -> str:
    """A share in per cent; a dash of nothing."""
    return f"{part / whole:.0%}" if whole else "–"


def dollars(value: float) -> str:
    """An amount in US dollars, small ones with two digits that count."""
    return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.2g}"


def seconds(value: float) -> str:
    """A time in seconds, short ones in milliseconds."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
