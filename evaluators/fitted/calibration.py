"""Calibration: maps from scores to probabilities, their quality, and the calibrated judge.

`prill calibrate` makes the file (`prill.evaluators.meta.calibration_fit`); `Calibrated` puts it to
use.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, log
from pathlib import Path
from typing import Literal

import msgspec

from prill.errors import UsageError
from prill.evaluators.fitted.overlap import FittedRuns, worst
from prill.protocols import Estimator, Evaluator
from prill.types import EvaluatorInfo, FittedOn, Trajectory, Usage, Verdict

FORMAT = "prill calibration 1"
BINS = 10
_DIGITS = 6
Method = Literal["isotonic", "platt"]
# Scores of exactly 0 or 1 have no logit; a judge that sure is taken to be wrong once in a million.
_EDGE = 1e-6
_ROUNDS = 100  # of Newton's method, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationMap:
    """A rising function from scores to probabilities.

    `isotonic`: straight lines between the points (`scores`, `values`), constant outside. `platt`:
    the logistic function of `slope` times the score's logit plus `offset`.
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


@dataclass(frozen=True, slots=True)
class Bin:
    """Scores between `low` and `high` (the last bin includes 1): how many, their mean, and the
    share that were successes.
    """

    low: float
    high: float
    count: int
    mean_score: float
    success_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How good scores are as probabilities; both figures are 0 at best."""

    brier: float
    calibration_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationHeldOut:
    """Calibrated scores of labelled runs that the map was not fitted to, by what the runs truly
    were, and how many of each the judge left unscored: how the judge errs, at any threshold.
    """

    successes: tuple[float, ...]
    failures: tuple[float, ...]
    unscored_successes: int = 0
    unscored_failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The file: whose scores it is for, the map, and the threshold with the rule that chose it.

    `method_rule` says why the map has its method, `truth` which labels counted where annotators
    differ. `before` and `after` are on labelled runs that the map was not fitted to, by
    cross-validation in `folds` parts, and so are the scores `held_out`, which files of earlier
    versions lack, as they lack what names the labelled runs, `fitted_to`.
    """

    format: str
    evaluator: EvaluatorInfo
    map: CalibrationMap
    threshold: float
    rule: str
    method_rule: str = ""
    source: str
    truth: str = "majority"
    labelled: int
    successes: int
    unscored: int
    folds: int
    grouped_by: str
    before: Quality
    after: Quality
    held_out: CalibrationHeldOut | None = None
    fitted_to: FittedRuns | None = None

    def __call__(self, score: float) -> float:
        """The calibrated score, to six digits; the threshold is compared with exactly this."""
        return round(self.map(score), _DIGITS)

    @property
    def hash(self) -> str:
        """Names the map and the threshold in verdicts."""
        digest = hashlib.sha256(msgspec.json.encode((self.map, self.threshold))).hexdigest()
        return f"sha256:{digest[:16]}"


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Reads a calibration file.

    Args:
        path: A file that `prill calibrate` wrote.

    Returns:
        The calibration.

    Raises:
        UsageError: The file cannot be read, or is not a calibration of this version.
    """
    try:
        calibration = msgspec.json.decode(Path(path).read_bytes(), type=Calibration)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; `prill calibrate` writes such a file"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: no calibration ({error}); make one with `prill calibrate`"
        ) from None
    points = calibration.map.scores
    if (
        calibration.format != FORMAT
        or len(points) != len(calibration.map.values)
        or list(points) != sorted(set(points))
    ):
        raise UsageError(
            f"{path}: no calibration of this version of prill; make it again with `prill calibrate`"
        )
    if calibration.map.method == "isotonic" and not points:
        raise UsageError(
            f"{path}: the calibration has no points; make it again with `prill calibrate`"
        )
    return calibration


class Calibrated:
    """A judge with calibrated scores: a success is a score at or above the calibration's threshold.

    What the judge leaves unscored stays unscored. A missing score counts as 1 or 0, by the judge's
    success.

    Args:
        judge: The judge.
        calibration: Its calibration.

    Raises:
        UsageError: The calibration was made for another judge, or for other settings of this one.
    """

    def __init__(self, judge: Evaluator, calibration: Calibration) -> None:
        mine, theirs = judge.info, calibration.evaluator
        if comparable(mine) != comparable(theirs):
            both = " and ".join(
                f"{e.name} {e.version} ({e.model}, {e.prompt}, {e.params})" for e in (mine, theirs)
            )
            raise UsageError(
                f"a calibration is for one judge; judge and calibration differ: {both}; calibrate "
                "this judge"
            )
        self.judge = judge
        self.calibration = calibration
        params = {
            "judge": mine.name,
            "judge_version": mine.version,
            **mine.params,
            "calibration": calibration.hash,
            "threshold": calibration.threshold,
        }
        self.info = EvaluatorInfo(f"calibrated {mine.name}", "1", mine.model, mine.prompt, params)

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The judge whose scores are calibrated."""
        return (self.judge,)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Those of the judge."""
        return self.judge.screenshots(trajectory)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """That of the judge; nothing where it has none."""
        return self.judge.estimate(trajectory) if isinstance(self.judge, Estimator) else Usage()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The judge's verdict with the calibrated score, and success by the threshold."""
        verdict = await self.judge(trajectory)
        fitted_to = self.calibration.fitted_to
        own: FittedOn = "unknown" if fitted_to is None else fitted_to.relation(trajectory)
        verdict = replace(verdict, evaluator=self.info, fitted_on=worst((verdict.fitted_on, own)))
        if verdict.success is None:
            return verdict
        score = self.calibration(float(verdict.success) if verdict.score is None else verdict.score)
        success, rewards = score >= self.calibration.threshold, verdict.rewards
        # the rewards of an outcome: the last one is the outcome
        if rewards and verdict.steps is None:
            rewards = (*rewards[:-1], float(success))
        return replace(verdict, score=score, success=success, rewards=rewards)


def comparable(info: EvaluatorInfo) -> bytes:
    """The same for infos that were read from a file and those that were not: a tuple reads back as
    a list.
    """
    return msgspec.json.encode(info, order="sorted")


# How good scores are as probabilities


def brier(scores: Sequence[float], truths: Sequence[bool]) -> float:
    """The mean squared distance of scores from 1 (success) or 0: 0 is perfect, 0.25 is always
    saying 0.5 (Brier 1950).
    """
    return fsum((score - truth) ** 2 for score, truth in zip(scores, truths, strict=True)) / len(
        scores
    )


def reliability(scores: Sequence[float], truths: Sequence[bool]) -> list[Bin]:
    """The scores in 10 bins of equal width; those that are empty are left out."""
    members: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for score, truth in zip(scores, truths, strict=True):
        members[min(BINS - 1, int(score * BINS))].append((score, truth))
    return [
        Bin(
            i / BINS,
            (i + 1) / BINS,
            len(m),
            fsum(s for s, _ in m) / len(m),
            sum(t for _, t in m) / len(m),
        )
        for i, m in enumerate(members)
        if m
    ]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """The mean distance between score and share of successes over the bins, by their counts (Naeini
    et al. 2015).
    """
    return fsum(b.count * abs(b.mean_score - b.success_rate) for b in bins) / sum(
        b.count for b in bins
    )


def quality(scores: Sequence[float], truths: Sequence[bool]) -> Quality:
    """Both figures for some scores."""
    return Quality(
        brier=brier(scores, truths),
        calibration_error=expected_calibration_error(reliability(scores, truths)),
    )


# Maps fitted to labels: isotonic regression and Platt's


def sigmoid(value: float) -> float:
    """The logistic function, without overflow."""
    return 1 / (1 + exp(-value)) if value >= 0 else exp(value) / (1 + exp(value))


def logit(probability: float) -> float:
    """The log odds, of at least one in a million and at most a million."""
    clipped = min(1 - _EDGE, max(_EDGE, probability))
    return log(clipped / (1 - clipped))


def fit_map(method: Method, scores: Sequence[float], truths: Sequence[bool]) -> CalibrationMap:
    """The map of that method for labelled scores."""
    if method == "isotonic":
        return fit_isotonic(scores, truths)
    slope, offset = fit_platt([logit(score) for score in scores], truths)
    return CalibrationMap(method="platt", slope=slope, offset=offset)


def fit_isotonic(scores: Sequence[float], truths: Sequence[bool]) -> CalibrationMap:
    """The rising map with the least squared error (Ayer et al. 1955). Equal scores are one
    point.
    """
    import numpy as np
    from scipy.optimize import isotonic_regression

    levels, level, counts = np.unique(
        np.asarray(scores, dtype=float), return_inverse=True, return_counts=True
    )
    fitted = isotonic_regression(np.bincount(level, weights=truths) / counts, weights=counts).x
    inner = np.zeros(len(levels), dtype=bool)  # between two scores of the same value
    inner[1:-1] = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
    return CalibrationMap(
        method="isotonic",
        scores=tuple(levels[~inner].tolist()),
        values=tuple(fitted[~inner].tolist()),
    )


def fit_platt(logits: Sequence[float], truths: Sequence[bool]) -> tuple[float, float]:
    """Slope and offset of the logistic function that fits best (Platt 1999, with its smoothed
    targets; Newton's method).

    A slope below 0 would turn the scores upside down; then it is 0, and the offset gives the share
    of successes.
    """
    successes = sum(truths)
    failures = len(truths) - successes
    targets = [
        (successes + 1) / (successes + 2) if truth else 1 / (failures + 2) for truth in truths
    ]
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
        down, across, size = (
            (h00 * g1 - h10 * g0) / determinant,
            (h11 * g0 - h10 * g1) / determinant,
            1.0,
        )
        while (
            size > 1e-10
            and (new := _loss(slope - size * down, offset - size * across, logits, targets)) > loss
        ):
            size /= 2
        if size <= 1e-10:
            break
        slope, offset, loss = slope - size * down, offset - size * across, new
    return (slope, offset) if slope > 0 else (0.0, base)


def _loss(slope: float, offset: float, logits: Sequence[float], targets: Sequence[float]) -> float:
    """Cross-entropy; log(1 + e^v) is taken apart so that it does not overflow."""
    values = [slope * x + offset for x in logits]
    return fsum(
        max(v, 0.0) + log(1 + exp(-abs(v))) - t * v for v, t in zip(values, targets, strict=True)
    )
