"""Tables of the summary, and counts in them that lead to their trajectories."""

from __future__ import annotations

from collections.abc import Sequence

from prill.evaluators.report.entries import Outcome
from prill.evaluators.report.markup import Markup, el


def table(heads: Sequence[str], lines: Sequence[Markup], kind: str) -> Markup:
    """A table that can be scrolled sideways where it is wider than the page."""
    top = el("tr", *(el("th", head, scope="col") if head else el("td") for head in heads))
    found = el("table", el("thead", top), el("tbody", *lines), class_=kind)
    return el("div", found, class_=f"scroll of-{kind}", tabindex=0)


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
    chosen = {"data_verdict": verdict, "data_truth": truth, "data_among": among, "data_against": against}
    return el("button", words, type="button", class_="jump", data_judge=judge, **chosen)


def share(part: int, whole: int) -> str:
    """A share in per cent; a dash of nothing."""
    return f"{part / whole:.0%}" if whole else "–"


def dollars(value: float) -> str:
    """An amount in US dollars, small ones with two digits that count."""
    return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.2g}"


def seconds(value: float) -> str:
    """A time in seconds, short ones in milliseconds."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
