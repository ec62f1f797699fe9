"""Fits a calibration to a judge's verdicts and labels, and says how well it does on runs that it was not fitted to.

The threshold is put where a precision holds with confidence, or where the expected cost is least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, lgamma, log

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import FORMAT, Bin, Calibration, Method, fit_map, quality, reliability
from prill.evaluators.labels import grouped_folds
from prill.evaluators.meta.agreement import Pairing, clusters_of

CONFIDENCE = 0.95
FOLDS = 5
_LEAST_EACH = 10  # successes, and failures
_HALF = 0.5
_DIGITS = 6
# More thresholds than these are thinned out evenly: neighbours differ by a handful of runs.
_CANDIDATES = 200
_HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What the threshold is for: a precision, or costs of a false positive and of a false negative; neither means 0.5."""

    precision: float | None = None
    costs: tuple[float, float] | None = None


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


@dataclass(frozen=True, kw_only=True)
class CalibrationResult:
    """A calibration, and what there is to show of it; bins hold runs that the map was not fitted to.

    `chosen`: the threshold on all labelled runs. `tried`: choosing and trying it on different runs, its `threshold` being
    that of `chosen`. `values` is the number of different scores the judge gave. `cost` and `constant_cost` are the mean costs
    of a run with the threshold and with the cheaper constant answer; None without costs. `missed`: tried, the precision was
    below what was asked for.
    """

    calibration: Calibration
    before: tuple[Bin, ...]
    after: tuple[Bin, ...]
    chosen: Operating
    tried: Operating
    values: int
    cost: float | None
    constant_cost: float | None
    missed: bool


def calibrate(
    pairing: Pairing, method: Method, goal: Goal, tasks: Mapping[str, str] | None = None, seed: int = 0
) -> CalibrationResult:
    """The calibration for one judge's verdicts. `tasks` maps ids to tasks, which are never split between parts.

    Raises UsageError for too few labels, for `tasks` of others, and when no threshold reaches the precision.
    """
    scored = [pair for pair in pairing.pairs if pair.verdict.success is not None]
    scores, truths = [pair.score for pair in scored], [pair.truth for pair in scored]
    successes = sum(truths)
    if tasks is not None and not any(pair.verdict.id in tasks for pair in scored):
        raise UsageError("the trajectories are others than those judged: no id is in both")
    if min(successes, len(truths) - successes) < _LEAST_EACH:
        raise UsageError(
            f"too few labelled verdicts to calibrate: {successes} successes and {len(truths) - successes} failures have "
            f"a score; at least {_LEAST_EACH} of each are needed"
        )
    fold_of = grouped_folds(clusters_of(scored, tasks or {}), truths, FOLDS, seed)
    after, tried_called, tried_right = [0.0] * len(scores), 0, 0
    for fold in range(FOLDS):
        outside = [i for i, f in enumerate(fold_of) if f != fold]
        inside = [i for i, f in enumerate(fold_of) if f == fold]
        fit_scores, fit_truths = [scores[i] for i in outside], [truths[i] for i in outside]
        if len(set(fit_truths)) < 2:
            raise UsageError("successes or failures are confined to too few tasks; label runs of more tasks")
        curve = fit_map(method, fit_scores, fit_truths)
        threshold = _threshold([round(curve(score), _DIGITS) for score in fit_scores], fit_truths, goal)
        for i in inside:
            after[i] = round(curve(scores[i]), _DIGITS)
            if threshold is not None and after[i] >= threshold:
                tried_called += 1
                tried_right += truths[i]
    curve = fit_map(method, scores, truths)
    fitted = [round(curve(score), _DIGITS) for score in scores]
    threshold = _threshold(fitted, truths, goal)
    if threshold is None:
        raise UsageError(_unreachable(fitted, truths, goal))
    calibration = Calibration(
        format=FORMAT,
        evaluator=pairing.evaluator,
        map=curve,
        threshold=threshold,
        rule=_rule(goal),
        source=pairing.source,
        labelled=len(scores),
        successes=successes,
        unscored=len(pairing.pairs) - len(scored),
        folds=FOLDS,
        grouped_by="task" if tasks is not None else "trajectory",
        before=quality(scores, truths),
        after=quality(after, truths),
    )
    return CalibrationResult(
        calibration=calibration,
        before=tuple(reliability(scores, truths)),
        after=tuple(reliability(after, truths)),
        chosen=operating(fitted, truths, threshold),
        tried=Operating(
            threshold=threshold,
            called=tried_called,
            right=tried_right,
            precision=tried_right / tried_called if tried_called else None,
            bound=precision_bound(tried_right, tried_called),
            recall=tried_right / successes,
        ),
        values=len(set(scores)),
        cost=None if goal.costs is None else mean_cost(after, truths, threshold, *goal.costs),
        missed=goal.precision is not None and tried_right < goal.precision * tried_called,
        constant_cost=None if goal.costs is None else min(mean_cost(after, truths, t, *goal.costs) for t in (0.0, 2.0)),
    )


def _threshold(scores: list[float], truths: list[bool], goal: Goal) -> float | None:
    if goal.precision is not None:
        return threshold_for_precision(scores, truths, goal.precision)
    if goal.costs is not None:
        return round(threshold_for_costs(*goal.costs), _DIGITS)
    return _HALF


def _rule(goal: Goal) -> str:
    if goal.precision is not None:
        return f"precision of at least {goal.precision:g} with 95 % confidence"
    if goal.costs is not None:
        return f"least cost, {goal.costs[0]:g} for a false positive and {goal.costs[1]:g} for a false negative"
    return "as likely a success as not"


def _unreachable(scores: list[float], truths: list[bool], goal: Goal) -> str:
    best = max((operating(scores, truths, threshold) for threshold in set(scores)), key=lambda point: point.bound)
    return (
        f"no threshold has a precision of at least {goal.precision:g} with 95 % confidence; the most that is sure is "
        f"{best.bound:.3f}, at a calibrated score of {best.threshold:g} ({best.right} of {best.called} right); "
        "label more runs, or ask for less"
    )


# Thresholds


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
    lowest, candidates = None, []
    right = 0
    for called, (score, truth) in enumerate(order, 1):
        right += truth
        if called == len(order) or order[called][0] < score:
            candidates.append((score, right, called))
    step = max(1, len(candidates) // _CANDIDATES)
    for score, right, called in candidates[::-step][::-1]:
        if right >= target * called and _tail(right, called, target) <= 1 - CONFIDENCE:
            lowest = score
    return lowest


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
