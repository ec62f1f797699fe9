"""Line charts with intervals as standalone SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from prill.evaluators.agreement.figure import Figure
from prill.io.tables import printable
from prill.ui.svg import el, label, picture, segment

_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 260, 56, 44
_LETTER = 7.5  # approximate width of a letter of a title
_SMALL_LETTER = 6.6  # approximate width of other letters
_MARK = 7  # half the width of a mark, with padding
# Colours that are distinguishable with colour blindness, each with a shape.
_COLOURS = ("yes", "no", "third", "accent", "soft", "warn")
_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
    "M-5 -5h10v10h-10z",
    "M0 -6l6 11h-12z",
    "M0 -6l6 6l-6 6l-6 -6z",
)


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """A fraction at an x position, its interval, and its description.

    `dots` are the individual values, (x, fraction), behind it.
    """

    x: float
    share: float
    low: float
    high: float
    words: str
    dots: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class PlotLine:
    """Points of one series, in order."""

    name: str
    points: Sequence[PlotPoint]


@dataclass(frozen=True, slots=True)
class Level:
    """A fraction that holds at every position, with its interval: a dashed line in a band."""

    name: str
    share: float
    low: float
    high: float


def line_chart(
    title: str,
    across: str,
    lines: Sequence[PlotLine],
    *,
    whole: bool = False,
    level: Level | None = None,
    close: bool = False,
    percent: bool = True,
    spread: str = "interval",
) -> str:
    """Draws fractions from 0 to 1 over x positions: `whole` numbers from 0, or fractions too.

    `close`: the axis covers only the range of the values, in tenths. `percent`: values are written
    as percentages. `spread` names what the vertical lines show.

    Points at whole numbers are drawn side by side where they overlap; points at fractions stay in
    place.
    """
    last = max((point.x for line in lines for point in line.points), default=1.0) if whole else 1.0
    last = max(last, 1.0)
    along = _HorizontalAxis.for_lines(last, len(lines)) if whole else _HorizontalAxis(last)
    ticks = along.whole_ticks if whole else [0.0, 0.25, 0.5, 0.75, 1.0]
    up = _Upward.around(lines, level) if close else _Upward()
    marks: list[Markup] = []
    for share in up.ticks:
        y = up(share)
        marks.append(segment(_LEFT, y, _LEFT + _WIDTH, y, stroke="var(--line)"))
        words = f"{share:.0%}" if percent else f"{share:.2f}"
        marks.append(label(words, _LEFT - 8, y + 4, "end"))
    for tick in ticks:
        words = f"{tick:g}" if whole else f"{tick:.0%}"
        marks.append(label(words, along(tick), _TOP + _HEIGHT + 18, "middle"))
    marks.append(label(across, _LEFT + _WIDTH / 2, _TOP + _HEIGHT + 36, "middle"))
    if level is not None:
        marks += _band(level, up, len(lines))
    for i, line in enumerate(lines):
        shift = along.step * (i - (len(lines) - 1) / 2)
        marks += _drawn(line, i, along, up, shift, ".1%" if percent else ".3f", spread)
    height = _TOP + _HEIGHT + 50 + 18 * (len(lines) + (level is not None))
    return _picture(title, _LEFT, _LEFT + _WIDTH + 30, height, marks)


def row_chart(title: str, names: Sequence[str], lines: Sequence[PlotLine]) -> str:
    """Draws fractions from 0 to 1 on the x axis, a row for each name.

    The `x` of a point is the number of its row, from 0.

    Marks of the first line are filled and have their intervals; those of the others, for
    comparison, are hollow.
    """
    rows = [
        [(i, line, point) for i, line in enumerate(lines) for point in line.points if point.x == at]
        for at in range(len(names))
    ]
    left, step = (
        20 + max((round(_LETTER * len(name)) for name in names), default=0),
        20 + 10 * max(map(len, rows), default=1),
    )
    bottom = _TOP + step * len(names)
    marks: list[Markup] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + _WIDTH * share
        marks.append(segment(x, _TOP, x, bottom, stroke="var(--line)"))
        marks.append(label(f"{share:.0%}", x, bottom + 18, "middle"))
    for at, (name, points) in enumerate(zip(names, rows, strict=True)):
        top = _TOP + step * at
        marks.append(segment(left, top, left + _WIDTH, top, stroke="var(--line)"))
        marks.append(label(name, left - 8, top + step / 2 + 4, "end"))
        for place, (i, line, point) in enumerate(points):
            marks += _row_mark(i, line.name, point, left, top + 15 + 10 * place)
    for i, line in enumerate(lines):
        y = bottom + 40 + 18 * i
        marks.append(el("path", d=_shape(i), transform=f"translate(18 {y - 4})", **_row_look(i)))
        words = fitted(line.name, left + _WIDTH - 10, _SMALL_LETTER)
        marks.append(label(words, 32, y, tip=line.name))
    return _picture(title, 12, left + _WIDTH + 30, bottom + 40 + 18 * len(lines), marks)


def figure_chart(title: str, names: Sequence[str], series: Mapping[str, Sequence[Figure]]) -> str:
    """Draws a row for each name, with the figures of each series; undefined ones have no mark."""
    lines = [
        PlotLine(
            label,
            [
                PlotPoint(
                    i, figure.value, *(figure.ends or (figure.value, figure.value)), str(figure)
                )
                for i, figure in enumerate(figures)
                if not figure.undefined
            ],
        )
        for label, figures in series.items()
    ]
    return row_chart(title, list(map(printable, names)), lines)


def _picture(title: str, left: int, width: int, height: int, marks: Sequence[Markup]) -> str:
    """Returns the whole image.

    A title that is too long is shown without its middle; its tooltip has the full text.
    """
    shown = label(fitted(title, width - left, _LETTER), left, 22, font_size=14)
    return picture(title, (width, height), shown, *marks, font_size=12)


def _colour(i: int) -> str:
    return f"var(--{_COLOURS[i % len(_COLOURS)]})"


def _shape(i: int) -> str:
    return _SHAPES[i % len(_SHAPES)]


def fitted(text: str, width: float, letter: float) -> str:
    """Removes the middle of a text that is too wide, given the width of a letter."""
    room = int(width / letter)
    return text if len(text) <= room else f"{text[: room // 2 - 1]}…{text[-room // 2 :]}"


def _row_mark(i: int, name: str, point: PlotPoint, left: int, y: int) -> list[Markup]:
    words, marks = f"{name}: {point.share:.1%} ({point.words})", []
    if not i:
        words += f", interval {point.low:.1%} to {point.high:.1%}"
        low, high = (left + _WIDTH * end for end in (point.low, point.high))
        marks.append(el("path", d=f"M{low:.1f} {y}H{high:.1f}", stroke=_colour(0), stroke_width=2))
    place = f"translate({left + _WIDTH * point.share:.1f} {y})"
    return [*marks, el("path", el("title", words), d=_shape(i), transform=place, **_row_look(i))]


def _row_look(i: int) -> dict[str, str]:
    return {
        "fill": "var(--panel)" if i else _colour(i),
        "stroke": _colour(i),
        "stroke_width": "1.5",
    }


def _drawn(
    line: PlotLine,
    i: int,
    along: _HorizontalAxis,
    up: _Upward,
    shift: float,
    number: str,
    spread: str,
) -> list[Markup]:
    colour, shape = _colour(i), _shape(i)
    places = [(along(point.x) + shift, point) for point in line.points]
    path = "M" + "L".join(f"{x:.1f} {up(point.share):.1f}" for x, point in places)
    marks = (
        [el("path", d=path, fill="none", stroke=colour, stroke_width=2)] if len(places) > 1 else []
    )
    for x, point in places:
        marks.append(segment(x, up(point.low), x, up(point.high), stroke=colour))
        for at, share in point.dots:
            words = f"{line.name}: {share:{number}}"
            place = {"cx": along(at) + shift, "cy": up(share)}
            marks.append(
                el("circle", el("title", words), r=2.5, fill="var(--panel)", stroke=colour, **place)
            )
        words = (
            f"{line.name}: {point.share:{number}} ({point.words}), {spread} "
            f"{point.low:{number}} to {point.high:{number}}"
        )
        where = f"translate({x:.1f} {up(point.share):.1f})"
        marks.append(el("path", el("title", words), d=shape, transform=where, fill=colour))
    y = _legend(i)
    marks.append(el("path", d=shape, transform=f"translate({_LEFT + 6} {y - 4})", fill=colour))
    return [*marks, _named(line.name, y)]


def _named(name: str, y: int) -> Markup:
    return label(fitted(name, _WIDTH + 10, _SMALL_LETTER), _LEFT + 20, y, tip=name)


def _band(level: Level, up: _Upward, i: int) -> list[Markup]:
    words = f"{level.name}: {level.share:.1%}, interval {level.low:.1%} to {level.high:.1%}"
    dashed = {"stroke": "var(--soft)", "stroke_dasharray": "6 4"}
    y, row, top = up(level.share), _legend(i), up(level.high)
    band = {"x": _LEFT, "y": top, "width": _WIDTH, "height": up(level.low) - top}
    return [
        el("rect", el("title", words), fill="var(--ink)", fill_opacity=0.07, **band),
        segment(_LEFT, y, _LEFT + _WIDTH, y, **dashed),
        segment(_LEFT - 2, row - 4, _LEFT + 14, row - 4, **dashed),
        _named(level.name, row),
    ]


@dataclass(frozen=True, slots=True)
class _HorizontalAxis:
    """Converts x values between 0 and `last` to pixels from the left.

    `step` is the distance between marks of one position; with `inset`, all marks have room between
    the axis and the edge.
    """

    last: float
    step: float = 0.0
    inset: float = 0.0

    @staticmethod
    def for_lines(last: float, lines: int) -> _HorizontalAxis:
        """Makes an axis of whole numbers with marks of one position side by side, as far as space
        allows.
        """
        step = min(2.0 * _MARK, 0.8 * _WIDTH / (last + 1) / max(lines, 1))
        return _HorizontalAxis(last, step, step * max(lines - 1, 0) / 2 + _MARK)

    @property
    def whole_ticks(self) -> Sequence[float]:
        """Returns the whole numbers whose labels fit next to each other."""
        room = (_WIDTH - 2 * self.inset) / self.last
        wide = _SMALL_LETTER * (len(f"{self.last:g}") + 1)
        every = next(
            n
            for power in range(12)
            for n in (10**power, 2 * 10**power, 5 * 10**power)
            if n * room >= wide
        )
        return [float(i) for i in range(0, int(self.last) + 1, every)]

    def __call__(self, x: float) -> float:
        return _LEFT + self.inset + (_WIDTH - 2 * self.inset) * x / self.last


@dataclass(frozen=True, slots=True)
class _Upward:
    """Converts fractions between the smallest and the largest shown to pixels from the top."""

    least: float = 0.0
    greatest: float = 1.0

    @staticmethod
    def around(lines: Sequence[PlotLine], level: Level | None) -> _Upward:
        """Makes an axis from the tenth below all shown values to the tenth above."""
        points = [point for line in lines for point in line.points]
        shown = [
            share
            for point in points
            for share in (point.low, point.high, *(dot for _, dot in point.dots))
        ]
        shown += [] if level is None else [level.low, level.high]
        if not shown:
            return _Upward()
        least = math.floor(10 * min(shown)) / 10
        return _Upward(least, max(math.ceil(10 * max(shown)) / 10, least + 0.1))

    @property
    def ticks(self) -> Sequence[float]:
        if (self.least, self.greatest) == (0.0, 1.0):
            return (0.0, 0.25, 0.5, 0.75, 1.0)
        tenths = round(10 * (self.greatest - self.least))
        return [self.least + i / 10 for i in range(tenths + 1)]

    def __call__(self, share: float) -> float:
        return _TOP + _HEIGHT * (self.greatest - share) / (self.greatest - self.least)


def _legend(i: int) -> int:
    return _TOP + _HEIGHT + 56 + 18 * i
