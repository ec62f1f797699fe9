"""A chart of shares as an SVG file of its own: lines of points with intervals; no fonts, scripts or styles from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 260, 56, 44
# Colours that people with colour blindness tell apart, and a shape beside each.
_COLOURS = ("#1f5fa8", "#b3541e", "#1a7f37", "#6a3d9a", "#444444", "#a05a00")
_SHAPES = ("M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "M-5 -5h10v10h-10z", "M0 -6l6 11h-12z", "M0 -6l6 6l-6 6l-6 -6z")


@dataclass(frozen=True, slots=True)
class Point:
    """A share at a place, its interval, and what it is in words."""

    x: float
    share: float
    low: float
    high: float
    words: str


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together, in order."""

    name: str
    points: Sequence[Point]


def line_chart(title: str, across: str, lines: Sequence[Line], *, whole: bool = False) -> str:
    """Shares from 0 to 1 over places: `whole` numbers from 0, or shares too."""
    last = max((point.x for line in lines for point in line.points), default=1.0) if whole else 1.0
    last = max(last, 1.0)
    ticks = [float(i) for i in range(int(last) + 1)] if whole else [0.0, 0.25, 0.5, 0.75, 1.0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 30} {_TOP + _HEIGHT + 50 + 18 * len(lines)}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _down(share)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for tick in ticks:
        x = _LEFT + _WIDTH * tick / last
        words = f"{tick:g}" if whole else f"{tick:.0%}"
        parts.append(f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{words}</text>')
    parts.append(f'<text x="{_LEFT + _WIDTH / 2}" y="{_TOP + _HEIGHT + 36}" text-anchor="middle">{escape(across)}</text>')
    for i, line in enumerate(lines):
        parts += _drawn(line, i, last, len(lines))
    return "\n".join([*parts, "</svg>", ""])


def _drawn(line: Line, i: int, last: float, count: int) -> list[str]:
    colour, shape = _COLOURS[i % len(_COLOURS)], _SHAPES[i % len(_SHAPES)]
    shift = 5.0 * (i - (count - 1) / 2)  # beside each other where they meet
    places = [(_LEFT + _WIDTH * point.x / last + shift, point) for point in line.points]
    path = "L".join(f"{x:.1f} {_down(point.share):.1f}" for x, point in places)
    parts = [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'] if len(places) > 1 else []
    for x, point in places:
        parts.append(
            f'<line x1="{x:.1f}" y1="{_down(point.low):.1f}" x2="{x:.1f}" y2="{_down(point.high):.1f}" stroke="{colour}"/>'
        )
        words = escape(f"{line.name}: {point.share:.1%} ({point.words}), interval {point.low:.1%} to {point.high:.1%}")
        place = f"translate({x:.1f} {_down(point.share):.1f})"
        parts.append(f'<path d="{shape}" transform="{place}" fill="{colour}"><title>{words}</title></path>')
    y = _TOP + _HEIGHT + 56 + 18 * i
    parts.append(f'<path d="{shape}" transform="translate({_LEFT + 6} {y - 4})" fill="{colour}"/>')
    parts.append(f'<text x="{_LEFT + 20}" y="{y}">{escape(line.name)}</text>')
    return parts


def _down(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)
