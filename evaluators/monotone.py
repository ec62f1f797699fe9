"""Rising maps from scores to probabilities, and how they are fitted to labels: isotonic regression and Platt's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from typing import Literal

Method = Literal["isotonic", "platt"]
# Scores of exactly 0 or 1 have no logit; a judge that sure is taken to be wrong once in a million.
_EDGE = 1e-6
_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationMap:
    """A rising function from scores to probabilities.

    `isotonic`: straight lines between the points (`scores`, `values`), constant outside. `platt`: the logistic function of
    `slope` times the score's logit plus `offset`.
    """

    method: Method
    scores: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    slope: float = 1.0
    offset: float = 0.0

    def __call__(self, score: float) -> float:
        """The probability of success."""
        if self.method == "platt":
            return sigmoid(self.slope * logit(score) + self.offset)
        after = bisect_right(self.scores, score)
        if after == 0:
            return self.values[0]
        if after == len(self.scores):
            return self.values[-1]
        low, high = self.scores[after - 1], self.scores[after]
        share = (score - low) / (high - low)
        return self.values[after - 1] + share * (self.values[after] - self.values[after - 1])


def sigmoid(value: float) -> float:
    """The logistic function, without overflow."""
    return 1 / (1 + exp(-value)) if value >= 0 else exp(value) / (1 + exp(value))


def logit(probability: float) -> float:
    """The log odds, of at least one in a million and at most a million."""
    kept = min(1 - _EDGE, max(_EDGE, probability))
    return log(kept / (1 - kept))


def fit_map(method: Method, scores: Sequence[float], truths: Sequence[bool]) -> CalibrationMap:
    """The map of that method for labelled scores."""
    if method == "isotonic":
        return fit_isotonic(scores, truths)
    slope, offset = fit_platt([logit(score) for score in scores], truths)
    return CalibrationMap(method="platt", slope=slope, offset=offset)


def fit_isotonic(scores: Sequence[float], truths: Sequence[bool]) -> CalibrationMap:
    """The rising map with the least squared error: pool adjacent violators (Ayer et al. 1955). Equal scores are one point."""
    blocks: list[list[float]] = []  # lowest score, highest score, successes, count
    for score, truth in sorted(zip(scores, truths, strict=True)):
        if blocks and blocks[-1][1] == score:
            blocks[-1][2] += truth
            blocks[-1][3] += 1
        else:
            _pool(blocks)
            blocks.append([score, score, float(truth), 1.0])
    _pool(blocks)
    points = [(edge, right / count) for low, high, right, count in blocks for edge in ((low, high) if low < high else (low,))]
    return CalibrationMap(
        method="isotonic", scores=tuple(score for score, _ in points), values=tuple(value for _, value in points)
    )


def _pool(blocks: list[list[float]]) -> None:
    """Joins the last block to those before it while it lies below them."""
    while len(blocks) > 1 and blocks[-2][2] * blocks[-1][3] >= blocks[-1][2] * blocks[-2][3]:
        _, high, right, count = blocks.pop()
        blocks[-1][1] = high
        blocks[-1][2] += right
        blocks[-1][3] += count


def fit_platt(logits: Sequence[float], truths: Sequence[bool]) -> tuple[float, float]:
    """Slope and offset of the logistic function that fits best (Platt 1999, with its smoothed targets; Newton's method).

    A slope below 0 would turn the scores upside down; then it is 0, and the offset gives the share of successes.
    """
    successes = sum(truths)
    failures = len(truths) - successes
    targets = [(successes + 1) / (successes + 2) if truth else 1 / (failures + 2) for truth in truths]
    base = log((successes + 1) / (failures + 1))
    slope, offset = 0.0, base
    loss = _loss(slope, offset, logits, targets)
    for _ in range(_ROUNDS):
        chances = [sigmoid(slope * x + offset) for x in logits]
        errors = [p - t for p, t in zip(chances, targets, strict=True)]
        spread = [p * (1 - p) for p in chances]
        g1, g0 = fsum(e * x for e, x in zip(errors, logits, strict=True)), fsum(errors)
        h11 = fsum(s * x * x for s, x in zip(spread, logits, strict=True)) + 1e-12
        h10, h00 = fsum(s * x for s, x in zip(spread, logits, strict=True)), fsum(spread) + 1e-12
        determinant = h11 * h00 - h10 * h10
        if determinant <= 0 or max(abs(g1), abs(g0)) < 1e-9:
            break
        down, across, size = (h00 * g1 - h10 * g0) / determinant, (h11 * g0 - h10 * g1) / determinant, 1.0
        while size > 1e-10 and (new := _loss(slope - size * down, offset - size * across, logits, targets)) > loss:
            size /= 2
        if size <= 1e-10:
            break
        slope, offset, loss = slope - size * down, offset - size * across, new
    return (slope, offset) if slope > 0 else (0.0, base)


def _loss(slope: float, offset: float, logits: Sequence[float], targets: Sequence[float]) -> float:
    """Cross-entropy; log(1 + e^v) is taken apart so that it does not overflow."""
    values = [slope * x + offset for x in logits]
    return fsum(max(v, 0.0) + log(1 + exp(-abs(v))) - t * v for v, t in zip(values, targets, strict=True))
