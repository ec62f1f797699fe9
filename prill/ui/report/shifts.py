"""The plot of `prill redteam`: added false positives by attack and strength."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from prill.evaluators.attacks.families import FAMILIES
from prill.evaluators.meta.redteam import AttackEffect, RedTeam, worst_by_family
from prill.ui.svg import el, label, picture, segment

_COLUMNS = 6
_WIDTH, _HEIGHT = 190, 150  # of a family's panel
_LEFT, _TOP, _ACROSS, _DOWN = 34, 26, 146, 86  # of its axes
_MARGIN, _HEAD = 10, 56
_ROOM = 5.0  # percentage points above the highest change and below the lowest
_LINE, _WORST = "var(--yes)", "var(--no)"


def shift_svg(result: RedTeam) -> str:
    """Draws a panel for each family, the worst first.

    It shows the change of the false-positive rate in points, with 95 % intervals, by strength.

    Families that did not apply have no panel. All panels have the same scale. The SVG is
    self-contained.
    """
    families: dict[str, list[AttackEffect]] = {
        one.family: [] for one in worst_by_family(result) if one.false_positives
    }
    for one in result.effects:
        if one.family in families:
            families[one.family].append(one)
    low, high = _range(result.effects)
    panels = []
    for place, (family, effects) in enumerate(families.items()):
        row, column = divmod(place, _COLUMNS)
        x, y = _MARGIN + column * _WIDTH, _HEAD + row * _HEIGHT
        panels.append(
            el(
                "g",
                *_panel(family, effects, low, high, result.worst),
                transform=f"translate({x} {y})",
            )
        )
    rows = -(-len(families) // _COLUMNS)
    width, height = (
        2 * _MARGIN + min(_COLUMNS, len(families)) * _WIDTH,
        _HEAD + rows * _HEIGHT + _MARGIN,
    )
    title = f"{result.evaluator.name} {result.evaluator.version} under attack"
    words = (
        "points of false positives added, with 95 % intervals, by strength; the worst family first"
    )
    heads = label(title, _MARGIN, 22, font_size=14), label(words, _MARGIN, 40)
    return picture(
        title, (width, height), *heads, *panels, width=width, height=height, font_size=10
    )


def _range(effects: Sequence[AttackEffect]) -> tuple[float, float]:
    """Returns the range of the panels in points, around all changes.

    Intervals beyond it are clipped.
    """
    changes = [100 * one.false_positives.change for one in effects if one.false_positives]
    return min([-_ROOM, *(change - _ROOM for change in changes)]), max(
        [_ROOM, *(change + _ROOM for change in changes)]
    )


def _panel(
    family: str, effects: Sequence[AttackEffect], low: float, high: float, worst: str | None
) -> list[Markup]:
    color = _WORST if any(one.attack == worst for one in effects) else _LINE

    def down(points: float) -> float:
        return _TOP + _DOWN * (high - min(high, max(low, points))) / (high - low)

    zero = down(0)
    unit = FAMILIES[family].unit if family in FAMILIES else ""
    middle, right, bottom = _LEFT + _ACROSS / 2, _LEFT + _ACROSS, _TOP + _DOWN
    marks = [
        label(family, _LEFT, _TOP - 8, font_weight="bold", fill=color),
        label(unit, middle, bottom + 25, "middle", fill="var(--soft)"),
        el("rect", x=_LEFT, y=_TOP, width=_ACROSS, height=_DOWN, fill="none", stroke="var(--line)"),
        segment(_LEFT, zero, right, zero, stroke="var(--soft)", stroke_dasharray="3 3"),
        *(label(f"{points:+.0f}", _LEFT - 4, down(points) + 3, "end") for points in (low, high)),
        label("0", _LEFT - 4, zero + 3, "end"),
    ]
    step = _ACROSS / (len(effects) + 1)
    points = []
    for place, one in enumerate(effects, 1):
        x = _LEFT + place * step
        if len(effects) > 1:
            words = f"{one.strength / 1000:g}k" if one.strength >= 1000 else f"{one.strength:g}"
            marks.append(label(words, x, bottom + 13, "middle"))
        if (shift := one.false_positives) is not None:
            change, low_end, high_end = (
                100 * value for value in (shift.change, shift.low, shift.high)
            )
            y = down(change)
            points.append(f"{x:.1f},{y:.1f}")
            words = (
                f"{one.attack}: {change:+.1f} ({low_end:+.1f} to {high_end:+.1f}) of "
                f"{shift.n} failures"
            )
            bar = x, down(low_end), x, down(high_end)
            marks += [
                segment(*bar, stroke=color, stroke_opacity=0.4, stroke_width=3),
                el("circle", el("title", words), cx=x, cy=y, r=3.5, fill=color),
            ]
    return [*marks, el("polyline", points=" ".join(points), fill="none", stroke=color)]
