"""The charts of results, by what each result names as its `chart`."""

from __future__ import annotations

from collections.abc import Sequence

from prill.evaluators.agreement.differences import CompareResult, Requirement, differences
from prill.evaluators.agreement.figure import Figure
from prill.evaluators.agreement.rate import MAX_ROWS, RateResult
from prill.evaluators.fitted.fitting import CalibrateResult, FitResult
from prill.ui.report.lines import PlotLine, PlotPoint, figure_chart, line_chart
from prill.ui.report.plots import reliability_svg
from prill.ui.svg import el, label, picture, segment

_LEFT, _ACROSS, _RIGHT, _HEAD, _ROW = 190, 400, 30, 44, 34
_LINE, _MARGIN = "var(--yes)", "var(--no)"
_ROOM = 0.05  # fraction of the axis, left and right of all marks


def fit_chart(result: FitResult) -> str:
    """Draws the learning curve; empty if it was not requested."""
    if not result.curve:
        return ""
    bands = {
        name: [(one.labels, band) for one in result.curve if (band := getattr(one, key))]
        for name, key in (("AUC", "auc"), ("kappa", "kappa"))
    }
    lines = [
        PlotLine(
            name,
            [PlotPoint(x, band.mean, band.low, band.high, f"{x:.0f} labels") for x, band in points],
        )
        for name, points in bands.items()
    ]
    title = f"{result.model.kind}: figures by number of labels, on held-out tasks"
    return line_chart(
        title, "labels", lines, whole=True, close=True, percent=False, spread="splits from"
    )


def calibration_chart(result: CalibrateResult) -> str:
    """Draws the reliability diagram, before and after."""
    title = f"{result.calibration.evaluator.name}, {result.calibration.map.method}"
    return reliability_svg(title, result.figures.before, result.figures.after)


def rate_chart(result: RateResult) -> str:
    """Draws the rates with their intervals, by slice."""
    parts = [result.all, *(part for parts in result.parts.values() for part in parts[:MAX_ROWS])]
    names = [f"{part.by}: {part.value}" if part.by else "all" for part in parts]
    series = {
        "corrected, PPI++": [part.ppi for part in parts],
        "labels alone": [part.labels_alone for part in parts],
    }
    return figure_chart("Success rate, corrected by labels", names, series)


def compare_chart(result: CompareResult) -> str:
    """Draws the differences with their intervals on one axis, and the required margin."""
    require = result.config.require
    margin = Requirement.parse(require).margin if require else None
    return difference_svg("Success of B less that of A", list(differences(result)), margin)


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
    marks = [label(title, 10, 22, font_size=14)]
    values = [0.0, margin or 0.0]
    for _, figure, bounds in rows:
        values += [figure.value, *(figure.ends or ()), *(bounds or ())]
    low, high = max(-1.0, min(values) - _ROOM), min(1.0, max(values) + _ROOM)

    def across(value: float) -> float:
        return _LEFT + _ACROSS * (value - low) / (high - low)

    bottom = _HEAD + _ROW * len(rows)
    for value, color, dash in ((0.0, "var(--soft)", None), (margin, _MARGIN, "4 3")):
        if value is None:
            continue
        x = across(value)
        words = f"{value:+g}" if value else "0"
        marks += [
            segment(x, _HEAD, x, bottom, stroke=color, stroke_dasharray=dash),
            label(words, x, bottom + (28 if dash else 14), "middle", fill=color),
        ]
    for place, (name, figure, bounds) in enumerate(rows):
        x, y = across(figure.value), _HEAD + _ROW * (place + 0.5)
        marks.append(label(name, _LEFT - 10, y + 4, "end"))
        for ends, width in ((bounds, 1), (figure.ends, 4)):
            if ends is not None:
                bar = across(ends[0]), y, across(ends[1]), y
                marks.append(segment(*bar, stroke=_LINE, stroke_width=width, stroke_opacity=0.5))
        marks += [
            el("circle", el("title", str(figure)), cx=x, cy=y, r=4.5, fill=_LINE),
            label(f"{figure.value:+.3f}", x, y - 8, "middle", font_size=10),
        ]
    width, height = _LEFT + _ACROSS + _RIGHT, bottom + 40
    return picture(title, (width, height), *marks, font_size=12, width=width, height=height)
