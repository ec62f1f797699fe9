"""Pieces of text on a screen, and the order in which a person reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextBox:
    """A piece of text that was read. `box` is left, top, right, bottom in fractions of the screen, `confidence` in [0, 1]."""

    text: str
    box: tuple[float, float, float, float]
    confidence: float


def lines(boxes: Iterable[TextBox]) -> list[tuple[TextBox, ...]]:
    """The boxes in lines, top to bottom, each from left to right.

    A box joins the line whose first box it overlaps by more than half of the lower one's height.
    """
    found: list[list[TextBox]] = []
    for box in sorted(boxes, key=lambda b: (_middle(b), b.box[0])):
        if found and _overlap(found[-1][0], box) > 0.5:
            found[-1].append(box)
        else:
            found.append([box])
    return [tuple(sorted(line, key=lambda b: b.box[0])) for line in found]


def as_text(boxes: Iterable[TextBox]) -> str:
    """One line of text for each line on the screen; pieces that stand apart are divided by ` | `."""
    return "\n".join(" | ".join(box.text for box in line) for line in lines(boxes))


def _middle(box: TextBox) -> float:
    return (box.box[1] + box.box[3]) / 2


def _overlap(a: TextBox, b: TextBox) -> float:
    shared = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
    lower = min(a.box[3] - a.box[1], b.box[3] - b.box[1])
    return shared / lower if lower > 0 else 0.0
