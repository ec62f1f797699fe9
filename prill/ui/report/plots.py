"""The report's plots and the reliability diagram of `prill calibrate`, as SVG.

Every mark has a text or a shape in addition to its colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from prill.evaluators.fitted.calibration import Bin, reliability
from prill.evaluators.metrics import OperatingPoint, precision_recall, wilson
from prill.types import Verdict
from prill.ui.report.lines import fitted
from prill.ui.svg import el, picture

if TYPE_CHECKING:
    from prill.evaluators.fitted.curve import CurvePoint

# scores, each with whether the trajectory truly succeeded
Scored = tuple[Sequence[float], Sequence[bool]]
_SIDE, _LEFT, _TOP = 180, 38, 12  # the square of 0…1, and its position
_WIDTH, _HEIGHT = _LEFT + _SIDE + 14, _TOP + _SIDE + 38
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
# The diagram in a separate file: its square, its left and top margins, and the padding around
# marks.
_EDGE, _MARGIN, _ABOVE, _AIR = 330, 84, 54, 14
_SIZE, _HIGH = _MARGIN + _EDGE + 20, _ABOVE + _EDGE + 84
_BEFORE, _AFTER = "var(--no)", "var(--yes)"
_TITLE_LETTER = 8.0  # pixels
_MIDDLE: Mapping[str, str] = {"text_anchor": "middle"}


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule by which scores count as success, as text and as a test.

    A score above an accepted one is accepted too.
    """

    words: str
    accepts: Callable[[float], bool]


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
    marks = [el("line", x1=_x(0), y1=_y(0), x2=_x(1), y2=_y(1), class_="guide")]
    for b in bins:
        low, high = wilson(b.success_rate, b.count)
        words = (
            f"{b.count} scores around {b.mean_score:.2f}: {b.success_rate:.0%} success, "
            f"interval {low:.0%} to {high:.0%}"
        )
        x = _x(b.mean_score)
        marks.append(el("line", x1=x, y1=_y(low), x2=x, y2=_y(high), class_="whisker"))
        radius = 2.5 + 5.5 * (b.count / most) ** 0.5
        marks.append(
            el("circle", el("title", words), cx=x, cy=_y(b.success_rate), r=radius, class_="point")
        )
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
    rule: Rule | None = None,
) -> Figure:
    """Draws precision over recall as the threshold falls.

    `own` is (recall, precision) of the verdicts themselves.

    The curves of `others` are in the background. A ring marks the threshold of `rule`, if given.
    """
    _, truths = scored
    marks = []
    if truths:
        base = _y(sum(truths) / len(truths))
        marks.append(el("line", x1=_x(0), y1=base, x2=_x(1), y2=base, class_="guide"))
    marks += [_line(other, "faint") for other in others]
    marks.append(_line(scored, "curve"))
    notes = ["Precision–recall" if truths else "Precision–recall: this judge gave no scores"]
    if truths:
        notes.append("dashed: every trajectory a success")
    if own is not None:
        x, y = _x(own[0]), _y(own[1])
        words = f"the verdicts: precision {own[1]:.3f}, recall {own[0]:.3f}"
        marks.append(
            el("path", el("title", words), d=f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z", class_="own")
        )
        notes.append(f"◆ {words}")
    if rule is not None:
        accepted = (point for point in reversed(_points(scored)) if rule.accepts(point.threshold))
        point = next(accepted, None)
        if point is None:
            notes.append(f"no score reaches {rule.words}")
        else:
            words = f"{rule.words}: precision {point.precision:.3f}, recall {point.recall:.3f}"
            marks.append(
                el(
                    "circle",
                    el("title", words),
                    cx=_x(point.recall),
                    cy=_y(point.precision),
                    r=7,
                    class_="chosen",
                )
            )
            notes.append(f"○ {words}")
    if others:
        notes.append("thin lines: the other judges")
    return _figure("; ".join(notes), "recall", "precision", marks)


def spending_plot(judges: Sequence[tuple[str, Sequence[Verdict]]]) -> Markup:
    """Draws each judge's seconds and cost per trajectory.

    The seconds are the median with the 10th to 90th percentile; the cost is the mean.
    """
    line, left, width = 34, 190, 250
    longest = max((max(_spread(verdicts)) for _, verdicts in judges), default=0.0) or 1.0
    costs = [_mean_cost(verdicts) for _, verdicts in judges]
    dearest = max((cost for cost in costs if cost is not None), default=0.0) or 1.0
    marks = [
        el(
            "text",
            "seconds per trajectory: median, and 10th to 90th percentile",
            x=left,
            y=14,
            class_="tick",
        ),
        el("text", "mean cost per trajectory", x=left + width + 110, y=14, class_="tick"),
    ]
    for i, ((name, verdicts), cost) in enumerate(zip(judges, costs, strict=True)):
        y = 40 + i * line
        low, middle, high = (width * value / longest for value in _spread(verdicts))
        short_name = name if len(name) <= 28 else f"{name[:27]}…"
        marks.append(
            el(
                "text",
                el("title", name),
                short_name,
                x=left - 12,
                y=y + 4,
                class_="label",
                text_anchor="end",
            )
        )
        marks.append(el("line", x1=left, y1=y, x2=left + width, y2=y, class_="axis"))
        marks.append(el("line", x1=left + low, y1=y, x2=left + high, y2=y, class_="range"))
        marks.append(el("circle", cx=left + middle, cy=y, r=5, class_="point"))
        words = f"{_spread(verdicts)[1]:.3g} s" if verdicts else "no verdicts"
        marks.append(el("text", words, x=left + width + 12, y=y + 4, class_="label"))
        x = left + width + 110
        if cost is not None:
            length = 160 * cost / dearest
            marks.append(
                el("rect", x=x, y=y - 6, width=max(1.0, length), height=12, class_="money")
            )
            marks.append(
                el(
                    "text",
                    f"${cost:.4g}" if cost else "$0",
                    x=x + length + 8,
                    y=y + 4,
                    class_="label",
                )
            )
        else:
            marks.append(el("text", "unknown", x=x, y=y + 4, class_="label"))
    height = 40 + line * len(judges)
    return el(
        "svg",
        *marks,
        viewBox=f"0 0 790 {height}",
        class_="spending",
        role="img",
        aria_label="Cost and latency",
    )


def _spread(verdicts: Sequence[Verdict]) -> tuple[float, float, float]:
    seconds = sorted(verdict.seconds for verdict in verdicts)
    if not seconds:
        return 0.0, 0.0, 0.0
    last = len(seconds) - 1
    return seconds[round(0.1 * last)], seconds[round(0.5 * last)], seconds[round(0.9 * last)]


def _mean_cost(verdicts: Sequence[Verdict]) -> float | None:
    """Returns the mean cost; None if the price of any verdict is unknown, or there are none."""
    costs = [verdict.usage.usd for verdict in verdicts]
    prices = [cost for cost in costs if cost is not None]
    return sum(prices) / len(prices) if prices and len(prices) == len(costs) else None


def _points(scored: Scored) -> Sequence[OperatingPoint]:
    return precision_recall(*scored) if scored[0] else ()


def _line(scored: Scored, kind: str) -> Markup:
    points = _points(scored)
    if not points:
        return Markup("")
    path = "M" + "L".join(f"{_x(point.recall):.1f} {_y(point.precision):.1f}" for point in points)
    return el("path", d=path, class_=kind)


def _figure(caption: str, x: str, y: str, marks: Sequence[Markup]) -> Figure:
    axes = []
    for tick in _TICKS:
        axes.append(el("line", x1=_x(tick), y1=_y(0), x2=_x(tick), y2=_y(1), class_="grid"))
        axes.append(el("line", x1=_x(0), y1=_y(tick), x2=_x(1), y2=_y(tick), class_="grid"))
        axes.append(
            el("text", f"{tick:g}", x=_x(tick), y=_y(0) + 14, text_anchor="middle", class_="tick")
        )
        axes.append(
            el("text", f"{tick:g}", x=_x(0) - 6, y=_y(tick) + 3.5, text_anchor="end", class_="tick")
        )
    middle = _TOP + _SIDE / 2
    axes.append(el("text", x, x=_x(0.5), y=_y(0) + 31, text_anchor="middle", class_="tick"))
    axes.append(
        el(
            "text",
            y,
            x=9,
            y=middle,
            text_anchor="middle",
            transform=f"rotate(-90 9 {middle:g})",
            class_="tick",
        )
    )
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    plot = el(
        "svg",
        *axes,
        *marks,
        viewBox=box,
        class_="plot",
        role="img",
        aria_label=caption.split(";")[0],
    )
    return Figure(plot, caption)


def _x(value: float) -> float:
    return _LEFT + _SIDE * value


def _y(value: float) -> float:
    return _TOP + _SIDE * (1 - value)


# The reliability diagram as a self-contained SVG file


def reliability_svg(title: str, before: Sequence[Bin], after: Sequence[Bin]) -> str:
    """Draws mean score against success rate with its interval, one point per tenth.

    Points are larger with more runs; circles are before calibration, squares after. Below are the
    numbers of runs of each tenth.

    On the dashed line, scores are probabilities.
    """
    most = max((b.count for b in (*before, *after)), default=1)
    marks: list[Markup] = []
    for b in before:
        x, y = _across(b.mean_score), _down(b.success_rate)
        circle = el("circle", el("title", _bin_text("before", b)), cx=x, cy=y, r=_radius(b, most))
        marks += [
            _interval(b, _BEFORE),
            el("g", circle, fill="var(--panel)", fill_opacity=0.6, stroke=_BEFORE, stroke_width=2),
        ]
    for b in after:
        x, y, half = _across(b.mean_score), _down(b.success_rate), _radius(b, most)
        square = el(
            "rect",
            el("title", _bin_text("after", b)),
            x=x - half,
            y=y - half,
            width=2 * half,
            height=2 * half,
        )
        marks += [_interval(b, _AFTER), el("g", square, fill=_AFTER, fill_opacity=0.6)]
    guide = el(
        "line",
        x1=_across(0),
        y1=_down(0),
        x2=_across(1),
        y2=_down(1),
        stroke="var(--soft)",
        stroke_dasharray="4 4",
    )
    edge, middle, left = _ABOVE + _EDGE, _ABOVE + _EDGE / 2, _MARGIN - 8
    labels = [
        _title(title),
        el(
            "circle",
            cx=_MARGIN + 6,
            cy=38,
            r=5,
            fill="var(--panel)",
            stroke=_BEFORE,
            stroke_width=2,
        ),
        el("text", "before", x=_MARGIN + 18, y=42),
        el("rect", x=_MARGIN + 76, y=33, width=10, height=10, fill=_AFTER, fill_opacity=0.6),
        el("text", "after, on held-out runs; lines: 95 % intervals", x=_MARGIN + 92, y=42),
        el("text", "score", x=_across(0.5), y=edge + 34, **_MIDDLE),
        el(
            "text",
            "success rate",
            x=16,
            y=middle,
            transform=f"rotate(-90 16 {middle:g})",
            **_MIDDLE,
        ),
        el("text", "runs before", x=left, y=edge + 56, text_anchor="end", font_size=10),
        el("text", "runs after", x=left, y=edge + 72, text_anchor="end", font_size=10),
    ]
    for y, bins in ((edge + 56, before), (edge + 72, after)):
        labels += [
            el(
                "text",
                _count(b.count),
                x=_across((b.low + b.high) / 2),
                y=y,
                font_size=10,
                **_MIDDLE,
            )
            for b in bins
        ]
    drawn = *_grid(), guide, *marks, *labels
    return picture(title, (_SIZE, _HIGH), *drawn, width=_SIZE, height=_HIGH, font_size=11)


def _grid() -> list[Markup]:
    far = _MARGIN + _EDGE
    parts = [
        el(
            "rect",
            x=_MARGIN,
            y=_ABOVE,
            width=_EDGE,
            height=_EDGE,
            fill="var(--panel)",
            stroke="var(--line)",
        )
    ]
    for tick in _TICKS:
        x, y = _across(tick), _down(tick)
        parts.append(el("line", x1=x, y1=_ABOVE, x2=x, y2=_ABOVE + _EDGE, stroke="var(--line)"))
        parts.append(el("line", x1=_MARGIN, y1=y, x2=far, y2=y, stroke="var(--line)"))
        parts.append(el("text", f"{tick:g}", x=x, y=_ABOVE + _EDGE + 16, **_MIDDLE))
        parts.append(el("text", f"{tick:g}", x=_MARGIN - 8, y=y + 4, text_anchor="end"))
    return parts


def _interval(bin_: Bin, colour: str) -> Markup:
    low, high = wilson(bin_.success_rate, bin_.count)
    x = _across(bin_.mean_score)
    return el(
        "line",
        x1=x,
        y1=_down(low),
        x2=x,
        y2=_down(high),
        stroke=colour,
        stroke_width=1.2,
        class_="interval",
    )


def _across(share: float) -> float:
    return _MARGIN + _AIR + share * (_EDGE - 2 * _AIR)


def _down(share: float) -> float:
    return _ABOVE + _AIR + (1 - share) * (_EDGE - 2 * _AIR)


def _radius(bin_: Bin, most: int) -> float:
    return 3 + 7 * float((bin_.count / most) ** 0.5)


def _count(runs: int) -> str:
    """Formats a count in at most four characters, the width of a tenth of the image."""
    return (
        str(runs)
        if runs < 10_000
        else f"{runs / 1000:.0f}k"
        if runs < 1_000_000
        else f"{runs / 1e6:.0f}M"
    )


def _bin_text(when: str, bin_: Bin) -> str:
    low, high = wilson(bin_.success_rate, bin_.count)
    share = f"{bin_.success_rate:.0%} success, interval {low:.0%} to {high:.0%}"
    return f"{when}: {bin_.count} runs, mean score {bin_.mean_score:.2f}, {share}"


def learning_svg(title: str, points: Sequence[CurvePoint]) -> str:
    """Draws AUC (circles) and kappa (squares) against the number of labels.

    Each has a band from the lowest to the highest of the divisions.
    """
    most = max((point.labels for point in points), default=1.0)
    marks: list[Markup] = []
    for name, color in (("auc", _AFTER), ("kappa", _BEFORE)):
        shown = [(p.labels / most, band) for p in points if (band := getattr(p, name))]
        if not shown:
            continue
        edge = [(x, b.high) for x, b in shown] + [(x, b.low) for x, b in reversed(shown)]
        marks.append(el("polygon", points=_corners(edge), fill=color, fill_opacity=0.2))
        line = _corners([(x, b.mean) for x, b in shown])
        marks.append(el("polyline", points=line, fill="none", stroke=color, stroke_width=2))
        for x, b in shown:
            words = f"{x * most:.0f} labels: {name} {b.mean:.3f} ({b.low:.3f} to {b.high:.3f})"
            left, top = _across(x), _down(max(0.0, b.mean))
            marks.append(
                el("circle", el("title", words), cx=left, cy=top, r=4, fill=color)
                if name == "auc"
                else el(
                    "rect", el("title", words), x=left - 4, y=top - 4, width=8, height=8, fill=color
                )
            )
    edge_y, middle = _ABOVE + _EDGE, _ABOVE + _EDGE / 2
    labels = [
        _title(title),
        el("circle", cx=_MARGIN + 6, cy=38, r=4, fill=_AFTER),
        el("text", "AUC", x=_MARGIN + 16, y=42),
        el("rect", x=_MARGIN + 60, y=34, width=8, height=8, fill=_BEFORE),
        el("text", "kappa, on held-out tasks; bands: lowest to highest", x=_MARGIN + 74, y=42),
        el("text", f"labels, of {most:.0f}", x=_across(0.5), y=edge_y + 34, **_MIDDLE),
        el("text", "figure", x=16, y=middle, transform=f"rotate(-90 16 {middle:g})", **_MIDDLE),
    ]
    drawn = *_grid(), *marks, *labels
    return picture(title, (_SIZE, _HIGH), *drawn, width=_SIZE, height=_HIGH, font_size=11)


def _title(title: str) -> Markup:
    words = fitted(title, _SIZE - 20, _TITLE_LETTER)
    return el("text", el("title", title), words, x=_SIZE / 2, y=20, font_size=13, **_MIDDLE)


def _corners(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_across(x):.1f},{_down(max(0.0, y)):.1f}" for x, y in places)
