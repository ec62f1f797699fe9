"""The plot of `prill protocols`: success rates with their intervals on one axis."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from prill.evaluators.meta.figure import Figure
from prill.ui.svg import el, picture

_LEFT, _ACROSS, _RIGHT, _HEAD, _ROW = 150, 400, 120, 58, 30
_LINE, _OTHER = "var(--yes)", "var(--no)"
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def rates_svg(title: str, rows: Sequence[tuple[str, Figure, Figure]]) -> str:
    """Draws a row for each protocol: the success rate with its 95 % interval, and the official one.

    The SVG is self-contained.

    Args:
        title: The title of the plot.
        rows: Name, success rate and official success rate, in [0, 1].
    """
    bottom = _HEAD + _ROW * len(rows)
    marks = [
        el("text", title, x=10, y=20, font_size=14),
        el("circle", cx=16, cy=38, r=4.5, fill=_LINE),
        el("text", "scored runs, with 95 % interval", x=26, y=42),
        el("circle", cx=236, cy=38, r=4.5, fill="none", stroke=_OTHER, stroke_width=2),
        el("text", "official label, by the authors' rule", x=246, y=42),
    ]
    for tick in _TICKS:
        x = _across(tick)
        marks += [
            el("line", x1=x, x2=x, y1=_HEAD, y2=bottom, stroke="var(--line)"),
            el("text", f"{tick:g}", x=x, y=bottom + 16, text_anchor="middle"),
        ]
    for place, (name, rate, official) in enumerate(rows):
        marks += _row(name, rate, official, _HEAD + _ROW * (place + 0.5))
    width, height = _LEFT + _ACROSS + _RIGHT, bottom + 28
    return picture(title, (width, height), *marks, font_size=12, width=width, height=height)


def _row(name: str, rate: Figure, official: Figure, y: float) -> list[Markup]:
    marks = [el("text", name, x=_LEFT - 10, y=y + 4, text_anchor="end")]
    # No mark reaches the column of the rates.
    column = {"x": _LEFT + _ACROSS + 12, "y": y + 4}
    if rate.undefined:
        marks.append(el("text", "nothing scored", **column, fill="var(--soft)"))
    else:
        if rate.low is not None and rate.high is not None:
            ends = {"x1": _across(rate.low), "x2": _across(rate.high)}
            marks.append(
                el("line", **ends, y1=y, y2=y, stroke=_LINE, stroke_width=4, stroke_opacity=0.4)
            )
        marks.append(
            el("circle", el("title", str(rate)), cx=_across(rate.value), cy=y, r=4.5, fill=_LINE)
        )
        marks.append(el("text", f"{rate.value:.3f}", **column))
    if not official.undefined:
        words = el("title", str(official))
        marks.append(
            el("circle", words, cx=_across(official.value), cy=y, r=6.5, fill="none",
               stroke=_OTHER, stroke_width=2)
        )  # fmt: skip
    return marks


def _across(share: float) -> float:
    return _LEFT + _ACROSS * share
