"""Fits a calibration to verdicts and labels, and measures it out of fold.

The threshold guarantees a precision with confidence, or minimises the expected cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import ceil, log, sqrt
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from prill.errors import UsageError
from prill.evaluators.agreement.agreement import Pairing
from prill.evaluators.fitted.calibration import (
    FORMAT,
    Bin,
    Calibration,
    CalibrationMap,
    Method,
    fit_map,
    quality,
    reliability,
)
from prill.evaluators.fitted.overlap import FittedRuns, Overlap, RunDigests, find_overlap
from prill.evaluators.labels import cluster, grouped_folds
from prill.io.joining import NOTHING_LEFT_OUT, JoinCounts

CONFIDENCE = 0.95
FOLDS = 5
_METHODS: tuple[Method, ...] = ("platt", "isotonic")
_MIN_EACH = 10  # successes, and failures
_HALF = 0.5
_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The criterion of a threshold: a precision, or costs of false positives and false negatives;
    neither means 0.5.
    """

    precision: float | None = None
    costs: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """The figures of a threshold on labelled runs.

    `bound` is a one-sided lower 95 % confidence bound of the precision. It is valid for a threshold
    that was fixed beforehand, and too high for one that was chosen on the same runs.

    `precision` is None if no run was called a success, and `recall` if no run was one.
    """

    threshold: float
    called: int
    right: int
    precision: float | None
    bound: float
    recall: float | None


@dataclass(frozen=True, kw_only=True)
class CalibrationResult:
    """A calibration and its figures; the bins contain held-out runs.

    `chosen` has the threshold and its figures on all labelled runs. `tried` has held-out figures:
    the threshold was chosen and evaluated on different runs; its `threshold` is that of `chosen`.
    `values` is the number of distinct scores, `clusters` the number of tasks (or of runs). `cost`
    and `constant_cost` are the mean costs of a run with the threshold and with the cheaper constant
    answer; None without costs. `missed` means that the held-out precision was below the target.
    `fitted` counts the runs that the judge itself was fitted on; its scores are overconfident
    there. `joined` counts the runs, verdicts and labels that were not used.
    """

    calibration: Calibration
    before: tuple[Bin, ...]
    after: tuple[Bin, ...]
    chosen: Operating
    tried: Operating
    values: int
    clusters: int
    cost: float | None
    constant_cost: float | None
    missed: bool
    fitted: Overlap | None = None
    joined: JoinCounts = NOTHING_LEFT_OUT


def calibrate(
    pairing: Pairing,
    method: Method | Literal["auto"] = "auto",
    goal: Goal | None = None,
    tasks: Mapping[str, str] | None = None,
    seed: int = 0,
    digests: Mapping[str, RunDigests] | None = None,
) -> CalibrationResult:
    """Fits the map from a judge's scores to probabilities, and a threshold on them.

    Args:
        pairing: Verdicts and labels, joined by `pair`.
        method: `"platt"`, `"isotonic"`, or `"auto"`: platt, unless isotonic has a clearly lower
            Brier score on trajectories that it was not fitted to.
        goal: The criterion of the threshold: a precision, or costs. None: the threshold is 0.5.
        tasks: The task of each trajectory id. A task is never split between folds. None: each
            trajectory is its own task.
        seed: The random seed for the folds.
        digests: The digests of the judged trajectories by id, for the file. None: the file records
            only their ids.

    Returns:
        The calibration, and its quality on held-out trajectories.

    Raises:
        UsageError: There are too few labels, `tasks` has none of the ids, or no threshold reaches
            the precision.
    """
    goal = goal or Goal()
    scored = [pair for pair in pairing.pairs if pair.verdict.success is not None]
    scores, truths = [pair.score for pair in scored], [pair.truth for pair in scored]
    successes = sum(truths)
    if tasks is not None and not any(pair.verdict.id in tasks for pair in scored):
        raise UsageError("the trajectories do not match the verdicts: they have no id in common")
    if min(successes, len(truths) - successes) < _MIN_EACH:
        raise UsageError(
            f"too few labelled verdicts to calibrate: {successes} successes and "
            f"{len(truths) - successes} failures have "
            f"a score; at least {_MIN_EACH} of each are needed"
        )
    clusters = [cluster(pair.verdict.id, tasks) for pair in scored]
    fold_of = grouped_folds(clusters, truths, FOLDS, seed)
    trials = {
        m: _held_out(m, scores, truths, fold_of, goal)
        for m in (_METHODS if method == "auto" else (method,))
    }
    best, method_rule = _better(trials, truths) if method == "auto" else (method, "asked for")
    trial = trials[best]
    curve = fit_map(best, scores, truths)
    fitted = [round(curve(score), _DIGITS) for score in scores]
    threshold = _threshold(curve, scores, truths, goal)
    if threshold is None:
        raise UsageError(_unreachable(fitted, truths, goal.precision or 0.0))
    calibration = Calibration(
        format=FORMAT,
        evaluator=pairing.evaluator,
        map=curve,
        threshold=threshold,
        rule=_rule(goal),
        method_rule=method_rule,
        source=pairing.source,
        truth=pairing.truth,
        labelled=len(scores),
        successes=successes,
        unscored=len(pairing.pairs) - len(scored),
        folds=FOLDS,
        grouped_by="task" if tasks is not None else "trajectory",
        before=quality(scores, truths),
        after=quality(trial.after, truths),
        fitted_to=_fitted_to([pair.verdict.id for pair in scored], digests or {}),
    )
    return CalibrationResult(
        calibration=calibration,
        before=tuple(reliability(scores, truths)),
        after=tuple(reliability(trial.after, truths)),
        chosen=operating(fitted, truths, threshold),
        tried=Operating(
            threshold=threshold,
            called=trial.called,
            right=trial.right,
            precision=trial.right / trial.called if trial.called else None,
            bound=precision_bound(trial.right, trial.called),
            recall=trial.right / successes,
        ),
        values=len(set(scores)),
        clusters=len(set(clusters)),
        cost=None if goal.costs is None else mean_cost(trial.after, truths, threshold, *goal.costs),
        missed=goal.precision is not None and trial.right < goal.precision * trial.called,
        constant_cost=None
        if goal.costs is None
        else min(mean_cost(trial.after, truths, t, *goal.costs) for t in (0.0, 2.0)),
        fitted=find_overlap(pair.verdict for pair in scored),
        joined=pairing.joined,
    )


def _fitted_to(ids: Sequence[str], digests: Mapping[str, RunDigests]) -> FittedRuns:
    known = FittedRuns.of(digests[id] for id in ids if id in digests)
    return replace(known, ids=FittedRuns.named(id for id in ids if id not in digests).ids)


@dataclass(frozen=True)
class _Trial:
    """Held-out calibrated scores and calls, with maps and thresholds fitted on the other folds."""

    after: list[float]
    called: int
    right: int


def _held_out(
    method: Method, scores: list[float], truths: list[bool], fold_of: list[int], goal: Goal
) -> _Trial:
    after, called, right = [0.0] * len(scores), 0, 0
    for fold in range(FOLDS):
        outside = [i for i, f in enumerate(fold_of) if f != fold]
        fit_scores, fit_truths = [scores[i] for i in outside], [truths[i] for i in outside]
        if len(set(fit_truths)) < 2:
            raise UsageError(
                "successes or failures occur in too few tasks; label runs of more tasks"
            )
        curve = fit_map(method, fit_scores, fit_truths)
        threshold = _threshold(curve, fit_scores, fit_truths, goal)
        for i in (i for i, f in enumerate(fold_of) if f == fold):
            after[i] = round(curve(scores[i]), _DIGITS)
            if threshold is not None and after[i] >= threshold:
                called += 1
                right += truths[i]
    return _Trial(after, called, right)


def _threshold(
    curve: CalibrationMap, scores: list[float], truths: list[bool], goal: Goal
) -> float | None:
    """Returns the threshold on calibrated scores; None if none guarantees the precision."""
    if goal.precision is not None:
        return threshold_for_precision(scores, truths, goal.precision, curve)
    if goal.costs is not None:
        return round(threshold_for_costs(*goal.costs), _DIGITS)
    return _HALF


def _better(trials: Mapping[Method, _Trial], truths: list[bool]) -> tuple[Method, str]:
    """Returns the method and the reason for it.

    It is isotonic if its held-out Brier score is lower by more than a standard error, otherwise
    platt.
    """
    distances = {
        m: [(score - truth) ** 2 for score, truth in zip(trial.after, truths, strict=True)]
        for m, trial in trials.items()
    }
    gains = [
        platt - isotonic
        for platt, isotonic in zip(distances["platt"], distances["isotonic"], strict=True)
    ]
    error = stdev(gains) / sqrt(len(gains))
    means = ", ".join(f"{method} {fmean(values):.4f}" for method, values in distances.items())
    return (
        "isotonic" if fmean(gains) > error else "platt",
        f"Brier score held out: {means}; isotonic where that is lower by more than its standard "
        f"error, {error:.4f}",
    )


def _rule(goal: Goal) -> str:
    if goal.precision is not None:
        return f"precision of at least {goal.precision:g} at 95 % confidence"
    if goal.costs is not None:
        return (
            f"lowest cost, {goal.costs[0]:g} for a false positive and {goal.costs[1]:g} for "
            "a false negative"
        )
    return "success at least as likely as failure"


def _unreachable(scores: list[float], truths: list[bool], target: float) -> str:
    best = max(
        (operating(scores, truths, threshold) for threshold in set(scores)),
        key=lambda point: point.bound,
    )
    return (
        f"no threshold has a precision of at least {target:g} at 95 % confidence; the "
        f"nearest is a calibrated score of {best.threshold:g}, with {best.right} of "
        f"{best.called} correct; even without an error, {_min_called(target, 1)} runs "
        "would have to be called successes; label more runs, or lower the target"
    )


# Thresholds


def operating(scores: Sequence[float], truths: Sequence[bool], threshold: float) -> Operating:
    """Returns the threshold's figures on these runs; scores from `threshold` on are successes."""
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
    """Returns the one-sided lower 95 % confidence bound of the proportion `right` of `called`.

    It is exact for independent runs (Clopper and Pearson 1934).
    """
    from scipy.special import betaincinv

    return float(betaincinv(right, called - right + 1, 1 - CONFIDENCE)) if right else 0.0


class Cut(NamedTuple):
    """Runs with a score of at least `score`: called successes, and true ones among them."""

    score: float
    called: int
    right: int


def find_cuts(scores: Sequence[float], truths: Sequence[bool]) -> list[Cut]:
    """Returns one cut for each distinct score, the highest first."""
    groups = groupby(sorted(zip(scores, truths, strict=True), reverse=True), key=lambda row: row[0])
    counts = [(score, [truth for _, truth in rows]) for score, rows in groups]
    called = accumulate(len(truths) for _, truths in counts)
    right = accumulate(sum(truths) for _, truths in counts)
    return [Cut(score, n, k) for (score, _), n, k in zip(counts, called, right, strict=True)]


def threshold_for_precision(
    scores: Sequence[float],
    truths: Sequence[bool],
    target: float,
    curve: CalibrationMap | None = None,
) -> float | None:
    """Returns the lowest threshold with a precision of at least `target` with 95 % confidence, or
    None.

    `curve` calibrates the scores; None leaves them unchanged. A map with constant segments cannot
    distinguish scores within a segment; the threshold is then at the start of a segment.
    """
    certified = set(certified_cuts(scores, truths, target))
    values = [
        (cut, round(curve(cut.score), _DIGITS) if curve else cut.score)
        for cut in find_cuts(scores, truths)
    ]
    below = [value for _, value in values[1:]] + [-1.0]
    rising = zip(values, below, strict=True)
    return min(
        (value for (cut, value), lower in rising if cut in certified and lower < value),
        default=None,
    )


def certified_cuts(scores: Sequence[float], truths: Sequence[bool], target: float) -> Iterator[Cut]:
    """Yields the thresholds whose precision is at least `target`, with 95 % simultaneous
    confidence.

    Thresholds are tested from the highest down, in an order that depends only on the scores, with
    the exact binomial tail. The error level of 5 % is divided evenly among several starts. From a
    start, the test continues to lower scores at the level of the start until one test fails
    (Angelopoulos et al. 2021, Learn then Test; Wiens and Dmitrienko 2005). Runs are assumed to be
    independent.
    """
    starts = _starts(len(scores), target)
    level, before = 0.0, 0
    for cut in find_cuts(scores, truths):
        begun = sum(before < start <= cut.called for start in starts)
        level += (1 - CONFIDENCE) * begun / max(1, len(starts))
        before = cut.called
        if _tail(cut.right, cut.called, target) <= level:
            yield cut
        else:
            level = 0.0


def threshold_for_costs(false_positive: float, false_negative: float) -> float:
    """Returns the probability from which "success" is cheaper on average (Elkan 2001)."""
    return false_positive / (false_positive + false_negative)


def mean_cost(
    scores: Sequence[float],
    truths: Sequence[bool],
    threshold: float,
    false_positive: float,
    false_negative: float,
) -> float:
    """Returns the mean error cost per run of a threshold."""
    wrong = [(score >= threshold, truth) for score, truth in zip(scores, truths, strict=True)]
    return (
        wrong.count((True, False)) * false_positive + wrong.count((False, True)) * false_negative
    ) / len(wrong)


def _starts(runs: int, target: float) -> list[int]:
    """Returns the numbers of called runs at which the tests start.

    They are the smallest number that proves the precision if all are right, twice that number, and
    so on.
    """
    starts: list[int] = []
    while (least := _min_called(target, len(starts) + 1)) << len(starts) <= runs:
        starts = [least << i for i in range(len(starts) + 1)]
    return starts


def _min_called(target: float, starts: int) -> int:
    """Returns how many runs, if all are right, prove the precision at one of `starts` starts."""
    return ceil(log((1 - CONFIDENCE) / starts) / log(target))


def _tail(right: int, called: int, share: float) -> float:
    """Returns the probability of at least `right` of `called`, each right with chance `share`."""
    from scipy.special import betainc

    return float(betainc(right, called - right + 1, share)) if right else 1.0
