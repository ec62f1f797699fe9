"""The plot of `prill compare`: differences with their intervals on one axis."""

from __future__ import annotations

from collections.abc import Sequence

from prill.evaluators.meta.figure import Figure
from prill.ui.svg import el, picture

_LEFT, _ACROSS, _RIGHT, _HEAD, _ROW = 190, 400, 30, 44, 34
_LINE, _MARGIN = "var(--yes)", "var(--no)"
_ROOM = 0.05  # fraction of the axis, left and right of all marks


def difference_svg(
    title: str,
    rows: Sequence[tuple[str, Figure, tuple[float, float] | None]],
    margin: float | None = None,
) -> str:
    """Draws a row for each difference, in [-1, 1].

    A row has the value, its 95 % interval and, thinner, the interval with bounds of unscored runs.
    The SVG is self-contained.

    Args:
        title: The title of the plot.
        rows: Name, figure, and the wider interval.
        margin: The required difference, drawn as a dashed line.
    """
    marks = [el("text", title, x=10, y=22, font_size=14)]
    values = [0.0, margin or 0.0]
    for _, figure, bounds in rows:
        values += [end for end in (figure.value, figure.low, figure.high) if end is not None]
        values += bounds or ()
    low, high = max(-1.0, min(values) - _ROOM), min(1.0, max(values) + _ROOM)

    def across(value: float) -> float:
        return _LEFT + _ACROSS * (value - low) / (high - low)

    bottom = _HEAD + _ROW * len(rows)
    for value, color, dash in ((0.0, "var(--soft)", None), (margin, _MARGIN, "4 3")):
        if value is None:
            continue
        x = across(value)
        marks += [
            el("line", x1=x, x2=x, y1=_HEAD, y2=bottom, stroke=color, stroke_dasharray=dash),
            el("text", f"{value:+g}" if value else "0", x=x, y=bottom + (28 if dash else 14),
               text_anchor="middle", fill=color),
        ]  # fmt: skip
    for place, (name, figure, bounds) in enumerate(rows):
        y = _HEAD + _ROW * (place + 0.5)
        marks.append(el("text", name, x=_LEFT - 10, y=y + 4, text_anchor="end"))
        ends = (bounds, 1), ((figure.low, figure.high), 4)
        for (first, last), width in ((both, width) for both, width in ends if both is not None):
            if first is not None and last is not None:
                marks.append(
                    el("line", x1=across(first), x2=across(last), y1=y, y2=y, stroke=_LINE,
                       stroke_width=width, stroke_opacity=0.5)
                )  # fmt: skip
        marks.append(
            el("circle", el("title", str(figure)), cx=across(figure.value), cy=y, r=4.5, fill=_LINE)
        )
        marks.append(
            el("text", f"{figure.value:+.3f}", x=across(figure.value), y=y - 8,
               text_anchor="middle", font_size=10)
        )  # fmt: skip
    width, height = _LEFT + _ACROSS + _RIGHT, bottom + 40
    return picture(title, (width, height), *marks, font_size=12, width=width, height=height)
