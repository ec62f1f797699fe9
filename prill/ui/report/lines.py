"""Charts of shares as SVG files of their own, with intervals; no fonts, scripts or styles from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 260, 56, 44
_LETTER = 7.5  # how wide a letter of a title is, about
_SMALL_LETTER = 6.6  # and one of the rest
_MARK = 7  # half the width of a mark, with some air
# Colours that people with colour blindness tell apart, and a shape beside each.
_COLOURS = ("#1f5fa8", "#b3541e", "#1a7f37", "#6a3d9a", "#444444", "#a05a00")
_SHAPES = ("M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "M-5 -5h10v10h-10z", "M0 -6l6 11h-12z", "M0 -6l6 6l-6 6l-6 -6z")


@dataclass(frozen=True, slots=True)
class Point:
    """A share at a place, its interval, and what it is in words; `dots` are the single ones, (x, share), that it stands for."""

    x: float
    share: float
    low: float
    high: float
    words: str
    dots: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together, in order."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Level:
    """A share that holds at every place, with its interval: a dashed line in a band."""

    name: str
    share: float
    low: float
    high: float


def line_chart(
    title: str, across: str, lines: Sequence[Line], *, whole: bool = False, level: Level | None = None, close: bool = False
) -> str:
    """Shares from 0 to 1 over places: `whole` numbers from 0, or shares too. `close`: only the shares that there are, in tens.

    Points at whole numbers stand next to each other where they meet; where places are shares, they stand where they are.
    """
    last = max((point.x for line in lines for point in line.points), default=1.0) if whole else 1.0
    last = max(last, 1.0)
    along = _HorizontalAxis.for_lines(last, len(lines)) if whole else _HorizontalAxis(last)
    ticks = along.whole_ticks if whole else [0.0, 0.25, 0.5, 0.75, 1.0]
    up = _Upward.around(lines, level) if close else _Upward()
    height = _TOP + _HEIGHT + 50 + 18 * (len(lines) + (level is not None))
    parts = _head(title, _LEFT, _LEFT + _WIDTH + 30, height)
    for share in up.ticks:
        y = up(share)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for tick in ticks:
        x = along(tick)
        words = f"{tick:g}" if whole else f"{tick:.0%}"
        parts.append(f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{words}</text>')
    parts.append(f'<text x="{_LEFT + _WIDTH / 2}" y="{_TOP + _HEIGHT + 36}" text-anchor="middle">{escape(across)}</text>')
    if level is not None:
        parts += _band(level, up, len(lines))
    for i, line in enumerate(lines):
        parts += _drawn(line, i, along, up, along.step * (i - (len(lines) - 1) / 2))
    return "\n".join([*parts, "</svg>", ""])


def row_chart(title: str, names: Sequence[str], lines: Sequence[Line]) -> str:
    """Shares from 0 to 1 across, a row for each name; the `x` of a point is the number of its row, from 0.

    Marks of the first line are filled and have their intervals; those of the others, which it is compared with, are hollow.
    """
    rows = [
        [(i, line, point) for i, line in enumerate(lines) for point in line.points if point.x == at] for at in range(len(names))
    ]
    left, step = 20 + max((round(_LETTER * len(name)) for name in names), default=0), 20 + 10 * max(map(len, rows), default=1)
    bottom = _TOP + step * len(names)
    parts = _head(title, 12, left + _WIDTH + 30, bottom + 40 + 18 * len(lines))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + _WIDTH * share
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{share:.0%}</text>')
    for at, (name, marks) in enumerate(zip(names, rows, strict=True)):
        top = _TOP + step * at
        parts.append(f'<line x1="{left}" y1="{top}" x2="{left + _WIDTH}" y2="{top}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{top + step / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        for place, (i, line, point) in enumerate(marks):
            parts += _row_mark(i, line.name, point, left, top + 15 + 10 * place)
    for i, line in enumerate(lines):
        y = bottom + 40 + 18 * i
        parts.append(f'<path d="{_SHAPES[i % len(_SHAPES)]}" transform="translate(18 {y - 4})" {_row_look(i)}/>')
        shown = fitted(line.name, left + _WIDTH - 10, _SMALL_LETTER)
        parts.append(f'<text x="32" y="{y}"><title>{escape(line.name)}</title>{escape(shown)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _head(title: str, left: int, width: int, height: int) -> list[str]:
    """How a picture begins. A title that is too long for it is shown without its middle; the pointer tells it whole."""
    shown = fitted(title, width - left, _LETTER)
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="22" font-size="14">{escape(shown)}</text>',
    ]


def fitted(text: str, width: float, letter: float) -> str:
    """A text without its middle where it is wider than that, with letters so wide."""
    room = int(width / letter)
    return text if len(text) <= room else f"{text[: room // 2 - 1]}…{text[-room // 2 :]}"


def _row_mark(i: int, name: str, point: Point, left: int, y: int) -> list[str]:
    words, parts = f"{name}: {point.share:.1%} ({point.words})", []
    if not i:
        words += f", interval {point.low:.1%} to {point.high:.1%}"
        low, high = (left + _WIDTH * end for end in (point.low, point.high))
        parts.append(f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="{_COLOURS[0]}" stroke-width="2"/>')
    place = f'd="{_SHAPES[i % len(_SHAPES)]}" transform="translate({left + _WIDTH * point.share:.1f} {y})"'
    return [*parts, f"<path {place} {_row_look(i)}><title>{escape(words)}</title></path>"]


def _row_look(i: int) -> str:
    colour = _COLOURS[i % len(_COLOURS)]
    return f'fill="{"white" if i else colour}" stroke="{colour}" stroke-width="1.5"'


def _drawn(line: Line, i: int, along: _HorizontalAxis, up: _Upward, shift: float) -> list[str]:
    colour, shape = _COLOURS[i % len(_COLOURS)], _SHAPES[i % len(_SHAPES)]
    places = [(along(point.x) + shift, point) for point in line.points]
    path = "L".join(f"{x:.1f} {up(point.share):.1f}" for x, point in places)
    parts = [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'] if len(places) > 1 else []
    for x, point in places:
        parts.append(f'<line x1="{x:.1f}" y1="{up(point.low):.1f}" x2="{x:.1f}" y2="{up(point.high):.1f}" stroke="{colour}"/>')
        for at, share in point.dots:
            words = escape(f"{line.name}: {share:.1%}")
            place = f'cx="{along(at) + shift:.1f}" cy="{up(share):.1f}"'
            parts.append(f'<circle {place} r="2.5" fill="white" stroke="{colour}"><title>{words}</title></circle>')
        words = escape(f"{line.name}: {point.share:.1%} ({point.words}), interval {point.low:.1%} to {point.high:.1%}")
        place = f"translate({x:.1f} {up(point.share):.1f})"
        parts.append(f'<path d="{shape}" transform="{place}" fill="{colour}"><title>{words}</title></path>')
    y = _legend(i)
    parts.append(f'<path d="{shape}" transform="translate({_LEFT + 6} {y - 4})" fill="{colour}"/>')
    parts.append(f'<text x="{_LEFT + 20}" y="{y}"><title>{escape(line.name)}</title>{escape(_named(line.name))}</text>')
    return parts


def _named(name: str) -> str:
    return fitted(name, _WIDTH + 10, _SMALL_LETTER)


def _band(level: Level, up: _Upward, i: int) -> list[str]:
    words = escape(f"{level.name}: {level.share:.1%}, interval {level.low:.1%} to {level.high:.1%}")
    dashed = 'stroke="#555" stroke-dasharray="6 4"'
    y, row = up(level.share), _legend(i)
    return [
        f'<rect x="{_LEFT}" y="{up(level.high):.1f}" width="{_WIDTH}" height="{up(level.low) - up(level.high):.1f}" '
        f'fill="#000" fill-opacity="0.07"><title>{words}</title></rect>',
        f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _WIDTH}" y2="{y:.1f}" {dashed}/>',
        f'<line x1="{_LEFT - 2}" y1="{row - 4}" x2="{_LEFT + 14}" y2="{row - 4}" {dashed}/>',
        f'<text x="{_LEFT + 20}" y="{row}"><title>{escape(level.name)}</title>{escape(_named(level.name))}</text>',
    ]


@dataclass(frozen=True, slots=True)
class _HorizontalAxis:
    """Where a place stands between 0 and `last`, from the left. `step` lies between marks of one place; with `inset`, all of
    them have room between the axis and the edge."""

    last: float
    step: float = 0.0
    inset: float = 0.0

    @staticmethod
    def for_lines(last: float, lines: int) -> _HorizontalAxis:
        """For whole numbers: the marks of one place side by side, as far as its neighbours leave room."""
        step = min(2.0 * _MARK, 0.8 * _WIDTH / (last + 1) / max(lines, 1))
        return _HorizontalAxis(last, step, step * max(lines - 1, 0) / 2 + _MARK)

    @property
    def whole_ticks(self) -> Sequence[float]:
        """Whole numbers whose labels have room next to each other."""
        room = (_WIDTH - 2 * self.inset) / self.last
        wide = _SMALL_LETTER * (len(f"{self.last:g}") + 1)
        every = next(n for power in range(12) for n in (10**power, 2 * 10**power, 5 * 10**power) if n * room >= wide)
        return [float(i) for i in range(0, int(self.last) + 1, every)]

    def __call__(self, x: float) -> float:
        return _LEFT + self.inset + (_WIDTH - 2 * self.inset) * x / self.last


@dataclass(frozen=True, slots=True)
class _Upward:
    """Where a share stands between the least and the greatest that are shown, from the top of the picture down."""

    least: float = 0.0
    greatest: float = 1.0

    @staticmethod
    def around(lines: Sequence[Line], level: Level | None) -> _Upward:
        """From the tenth below all that is shown to the tenth above."""
        points = [point for line in lines for point in line.points]
        shown = [share for point in points for share in (point.low, point.high, *(dot for _, dot in point.dots))]
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
