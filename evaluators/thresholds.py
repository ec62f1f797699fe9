"""Where to put the threshold of a judge: for a precision that holds with confidence, or for the least expected cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, lgamma, log

CONFIDENCE = 0.95
# More thresholds than these are thinned out evenly: neighbours differ by a handful of runs.
_CANDIDATES = 200
_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """What a threshold does on labelled runs. `bound`: precision is at least this, with 95 % confidence, one-sided.

    `precision` and `recall` are None when nothing was called, or nothing was, a success.
    """

    threshold: float
    called: int
    right: int
    precision: float | None
    bound: float
    recall: float | None


def operating(scores: Sequence[float], truths: Sequence[bool], threshold: float) -> Operating:
    """The threshold's figures on these runs; success is a score of `threshold` or more."""
    called = [truth for score, truth in zip(scores, truths, strict=True) if score >= threshold]
    right, successes = sum(called), sum(truths)
    return Operating(
        threshold=threshold,
        called=len(called),
        right=right,
        precision=right / len(called) if called else None,
        bound=precision_bound(right, len(called)),
        recall=right / successes if successes else None,
    )


def precision_bound(right: int, called: int) -> float:
    """The one-sided 95 % lower bound of a share, `right` of `called` (Clopper and Pearson 1934): exact for independent runs."""
    if right == 0:
        return 0.0
    low, high = 0.0, right / called
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(right, called, middle) <= 1 - CONFIDENCE else (low, middle)
    return low


def threshold_for_precision(scores: Sequence[float], truths: Sequence[bool], target: float) -> float | None:
    """The lowest score at or above which precision is at least `target` with 95 % confidence; None when there is none."""
    order = sorted(zip(scores, truths, strict=True), reverse=True)
    found, candidates = None, []
    right = 0
    for called, (score, truth) in enumerate(order, 1):
        right += truth
        if called == len(order) or order[called][0] < score:
            candidates.append((score, right, called))
    step = max(1, len(candidates) // _CANDIDATES)
    for score, right, called in candidates[::-step][::-1]:
        if right >= target * called and _tail(right, called, target) <= 1 - CONFIDENCE:
            found = score
    return found


def threshold_for_costs(false_positive: float, false_negative: float) -> float:
    """The probability from which calling a run a success costs less on average than calling it a failure (Elkan 2001)."""
    return false_positive / (false_positive + false_negative)


def mean_cost(
    scores: Sequence[float], truths: Sequence[bool], threshold: float, false_positive: float, false_negative: float
) -> float:
    """What the errors of a threshold cost for each run."""
    wrong = [(score >= threshold, truth) for score, truth in zip(scores, truths, strict=True)]
    return (wrong.count((True, False)) * false_positive + wrong.count((False, True)) * false_negative) / len(wrong)


def _tail(right: int, called: int, share: float) -> float:
    """The chance of `right` or more out of `called` when each is right with chance `share`."""
    if share <= 0 or share >= 1:
        return float(share >= 1)
    odds = [
        lgamma(called + 1) - lgamma(k + 1) - lgamma(called - k + 1) + k * log(share) + (called - k) * log(1 - share)
        for k in range(right, called + 1)
    ]
    top = max(odds, default=-inf)
    return min(1.0, exp(top) * sum(exp(value - top) for value in odds))
