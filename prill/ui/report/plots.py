"""The report's plots and the reliability diagram of `prill calibrate`, as SVG.

Every mark has a text or a shape in addition to its colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from prill.evaluators.fitted.calibration import Bin, reliability
from prill.evaluators.metrics import OperatingPoint, precision_recall, wilson
from prill.ui.report.lines import fitted
from prill.ui.svg import Attribute, el, label, picture, segment

# scores, each with whether the trajectory truly succeeded
Scored = tuple[Sequence[float], Sequence[bool]]
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BEFORE, _AFTER = "var(--no)", "var(--yes)"
_TITLE_LETTER = 8.0  # pixels


@dataclass(frozen=True, slots=True)
class _Square:
    """Axes from 0 to 1 in a square of pixels, whose grid ends `air` outside it."""

    left: float
    top: float
    side: float
    air: float
    grid: Mapping[str, str]
    tick: Mapping[str, str]

    def x(self, value: float) -> float:
        return self.left + self.side * value

    def y(self, value: float) -> float:
        return self.top + self.side * (1 - value)

    def axes(self, across: str, up: str) -> list[Markup]:
        """Draws the grid, its ticks, and the names of both axes."""
        left, right = self.x(0) - self.air, self.x(1) + self.air
        top, bottom = self.y(1) - self.air, self.y(0) + self.air
        middle, edge = self.y(0.5), left - 29
        marks = [
            label(across, self.x(0.5), bottom + 32, "middle", **self.tick),
            label(up, edge, middle, "middle", transform=f"rotate(-90 {edge:g} {middle:g})",
                  **self.tick),
        ]  # fmt: skip
        for tick in _TICKS:
            x, y = self.x(tick), self.y(tick)
            marks += [
                segment(x, top, x, bottom, **self.grid),
                segment(left, y, right, y, **self.grid),
                label(f"{tick:g}", x, bottom + 14, "middle", **self.tick),
                label(f"{tick:g}", left - 6, y + 3.5, "end", **self.tick),
            ]
        return marks

    def guide(self, **attributes: str) -> Markup:
        """Draws the diagonal, where both values are equal."""
        return segment(self.x(0), self.y(0), self.x(1), self.y(1), **attributes)

    def interval(self, one: Bin, **attributes: Attribute) -> Markup:
        """Draws the interval of a bin's success rate."""
        x, (low, high) = self.x(one.mean_score), wilson(one.success_rate, one.count)
        return segment(x, self.y(low), x, self.y(high), **attributes)


_PLOT = _Square(38, 12, 180, 0, {"class_": "grid"}, {"class_": "tick"})
_DIAGRAM = _Square(98, 68, 302, 14, {"stroke": "var(--line)"}, {})  # in a separate file
_SIZE, _HIGH = 434, 468


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot and its description."""

    svg: Markup
    caption: str


def reliability_plot(scored: Scored) -> Figure:
    """Draws the score against the success rate in tenths.

    The area of a dot is the number of trajectories.
    """
    bins = reliability(*scored)
    most = max((b.count for b in bins), default=1)
    marks = [_PLOT.guide(class_="guide")]
    for b in bins:
        marks += [
            _PLOT.interval(b, class_="whisker"),
            el(
                "circle",
                el("title", _bin_text(b)),
                cx=_PLOT.x(b.mean_score),
                cy=_PLOT.y(b.success_rate),
                r=2.5 + 5.5 * (b.count / most) ** 0.5,
                class_="point",
            ),
        ]
    caption = "Reliability diagram: on the dashed line, scores equal success rates"
    if not bins:
        caption = "Reliability diagram: this judge gave no scores"
    elif set(scored[0]) <= {0.0, 1.0}:
        caption = "Reliability diagram: this judge's scores are only 0 and 1"
    return _figure(caption, "score", "success rate", marks)


def curve_plot(
    scored: Scored,
    others: Sequence[Scored],
    own: tuple[float, float] | None,
    threshold: object = None,
) -> Figure:
    """Draws precision over recall as the threshold falls.

    `own` is (recall, precision) of the verdicts themselves.

    The curves of `others` are in the background. A ring marks the judge's `threshold`, a score, if
    it has one.
    """
    _, truths = scored
    marks = []
    if truths:
        base = _PLOT.y(sum(truths) / len(truths))
        marks.append(segment(_PLOT.x(0), base, _PLOT.x(1), base, class_="guide"))
    marks += [_line(other, "faint") for other in others]
    marks.append(_line(scored, "curve"))
    notes = ["Precision–recall" if truths else "Precision–recall: this judge gave no scores"]
    if truths:
        notes.append("dashed: every trajectory a success")
    if own is not None:
        x, y = _PLOT.x(own[0]), _PLOT.y(own[1])
        words = f"the verdicts: precision {own[1]:.3f}, recall {own[0]:.3f}"
        marks.append(
            el("path", el("title", words), d=f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z", class_="own")
        )
        notes.append(f"◆ {words}")
    if isinstance(threshold, float):
        accepted = (one for one in reversed(_points(scored)) if one.threshold >= threshold)
        point = next(accepted, None)
        if point is None:
            notes.append(f"no score reaches {threshold:.3g}")
        else:
            words = (
                f"score ≥ {threshold:.3g}: precision {point.precision:.3f}, "
                f"recall {point.recall:.3f}"
            )
            x, y = _PLOT.x(point.recall), _PLOT.y(point.precision)
            marks.append(el("circle", el("title", words), cx=x, cy=y, r=7, class_="chosen"))
            notes.append(f"○ {words}")
    if others:
        notes.append("thin lines: the other judges")
    return _figure("; ".join(notes), "recall", "precision", marks)


def _points(scored: Scored) -> Sequence[OperatingPoint]:
    return precision_recall(*scored) if scored[0] else ()


def _line(scored: Scored, kind: str) -> Markup:
    points = _points(scored)
    if not points:
        return Markup("")
    places = (f"{_PLOT.x(one.recall):.1f} {_PLOT.y(one.precision):.1f}" for one in points)
    return el("path", d="M" + "L".join(places), class_=kind)


def _figure(caption: str, x: str, y: str, marks: Sequence[Markup]) -> Figure:
    plot = el(
        "svg",
        *_PLOT.axes(x, y),
        *marks,
        viewBox="0 0 232 230",
        class_="plot",
        role="img",
        aria_label=caption.split(";")[0],
    )
    return Figure(plot, caption)


# The reliability diagram as a self-contained SVG file


def reliability_svg(title: str, before: Sequence[Bin], after: Sequence[Bin]) -> str:
    """Draws mean score against success rate with its interval, one point per tenth.

    Points are larger with more runs; circles are before calibration, squares after. Below are the
    numbers of runs of each tenth.

    On the dashed line, scores are probabilities.
    """
    most = max((b.count for b in (*before, *after)), default=1)
    marks = []
    for when, colour, bins in (("before", _BEFORE, before), ("after", _AFTER, after)):
        for b in bins:
            x, y = _DIAGRAM.x(b.mean_score), _DIAGRAM.y(b.success_rate)
            words = el("title", f"{when}: {_bin_text(b)}")
            marks += [
                _DIAGRAM.interval(b, stroke=colour, stroke_width=1.2, class_="interval"),
                _mark(when, x, y, 3 + 7 * (b.count / most) ** 0.5, words),
            ]
    bottom, left = _DIAGRAM.y(0), _DIAGRAM.x(0) - 22
    shown = fitted(title, _SIZE - 20, _TITLE_LETTER)
    labels = [
        label(shown, _SIZE / 2, 20, "middle", tip=title, font_size=13),
        _mark("before", 90, 38, 5),
        label("before", 102, 42),
        _mark("after", 165, 38, 5),
        label("after, on held-out runs; lines: 95 % intervals", 176, 42),
    ]
    for y, when, bins in ((bottom + 70, "before", before), (bottom + 86, "after", after)):
        labels.append(label(f"runs {when}", left, y, "end", font_size=10))
        labels += [
            label(_count(b.count), _DIAGRAM.x((b.low + b.high) / 2), y, "middle", font_size=10)
            for b in bins
        ]
    guide = _DIAGRAM.guide(stroke="var(--soft)", stroke_dasharray="4 4")
    drawn = *_DIAGRAM.axes("score", "success rate"), guide, *marks, *labels
    return picture(title, (_SIZE, _HIGH), *drawn, width=_SIZE, height=_HIGH, font_size=11)


def _mark(when: str, x: float, y: float, half: float, words: Markup | None = None) -> Markup:
    """Draws a circle before calibration, and a square after it."""
    if when == "before":
        look = {"fill": "var(--panel)", "stroke": _BEFORE, "stroke_width": "2"}
        return el("g", el("circle", words, cx=x, cy=y, r=half), fill_opacity=0.6, **look)
    square = el("rect", words, x=x - half, y=y - half, width=2 * half, height=2 * half)
    return el("g", square, fill=_AFTER, fill_opacity=0.6)


def _count(runs: int) -> str:
    """Formats a count in at most four characters, the width of a tenth of the image."""
    return (
        str(runs)
        if runs < 10_000
        else f"{runs / 1000:.0f}k"
        if runs < 1_000_000
        else f"{runs / 1e6:.0f}M"
    )


def _bin_text(one: Bin) -> str:
    low, high = wilson(one.success_rate, one.count)
    share = f"{one.success_rate:.0%} success, interval {low:.0%} to {high:.0%}"
    return f"{one.count} scores around {one.mean_score:.2f}: {share}"
