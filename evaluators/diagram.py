"""A reliability diagram as an SVG file of its own: no fonts, scripts or styles from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from prill.evaluators.calibration import Bin

_SIDE, _MARGIN = 300, 50
_SIZE = _SIDE + 2 * _MARGIN


def reliability_svg(title: str, before: Sequence[Bin], after: Sequence[Bin]) -> str:
    """Mean score against the share of successes, a point a bin, larger with more runs; circles before, squares after.

    On the dashed line scores are probabilities.
    """
    most = max((b.count for b in (*before, *after)), default=1)
    marks = []
    for b in before:
        marks.append(
            f'<circle cx="{_x(b.mean_score):.1f}" cy="{_y(b.success_rate):.1f}" r="{_radius(b, most):.1f}" '
            f'fill="none" stroke="#b3541e" stroke-width="2"><title>{_words("before", b)}</title></circle>'
        )
    for b in after:
        half = _radius(b, most)
        marks.append(
            f'<rect x="{_x(b.mean_score) - half:.1f}" y="{_y(b.success_rate) - half:.1f}" width="{2 * half:.1f}" '
            f'height="{2 * half:.1f}" fill="#1f5fa8" fill-opacity="0.6"><title>{_words("after", b)}</title></rect>'
        )
    ticks = [_tick(i / 4) for i in range(5)]
    middle, edge = _SIZE / 2, _MARGIN + _SIDE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" width="{_SIZE}" height="{_SIZE}" '
            'font-family="sans-serif" font-size="11" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{_SIZE}" height="{_SIZE}" fill="white"/>',
            f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#888"/>',
            f'<line x1="{_MARGIN}" y1="{edge}" x2="{edge}" y2="{_MARGIN}" stroke="#888" stroke-dasharray="4 4"/>',
            *ticks,
            *marks,
            f'<text x="{middle}" y="18" text-anchor="middle" font-size="13">{escape(title)}</text>',
            f'<text x="{middle}" y="36" text-anchor="middle">circles before, squares after (runs that were held out)</text>',
            f'<text x="{middle}" y="{_SIZE - 12}" text-anchor="middle">mean score</text>',
            f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">share of successes</text>',
            "</svg>",
            "",
        ]
    )


def _x(share: float) -> float:
    return _MARGIN + share * _SIDE


def _y(share: float) -> float:
    return _MARGIN + (1 - share) * _SIDE


def _radius(found: Bin, most: int) -> float:
    return 3 + 7 * float((found.count / most) ** 0.5)


def _words(when: str, found: Bin) -> str:
    return f"{when}: {found.count} runs, mean score {found.mean_score:.2f}, {found.success_rate:.0%} successes"


def _tick(share: float) -> str:
    return (
        f'<text x="{_x(share):.0f}" y="{_MARGIN + _SIDE + 16}" text-anchor="middle">{share:g}</text>'
        f'<text x="{_MARGIN - 6}" y="{_y(share) + 4:.0f}" text-anchor="end">{share:g}</text>'
    )
