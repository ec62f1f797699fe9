"""Calibration: maps scores to probabilities, measures their quality, and wraps a judge.

`prill calibrate` writes the file (`prill.evaluators.fitted.calibration_fit`); `Calibrated` applies
it.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, log
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from prill.errors import UsageError
from prill.evaluators.fitted.overlap import FittedRuns, worst
from prill.io.lines import read_json
from prill.protocols import Estimator, Evaluator
from prill.types import EvaluatorInfo, FittedOn, Trajectory, Usage, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = "prill calibration 1"
BINS = 10
_DIGITS = 6
Method = Literal["isotonic", "platt"]
_FLAT, _HALVINGS = 1e-12, 30  # of a gradient at the optimum; of a Newton step
_PLATT_DIGITS = 11  # decimals, so that a map is the same on all processors
# Scores of exactly 0 or 1 have no finite logit; they are clipped to an error rate of one in a
# million.
_MIN_ERROR_RATE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationMap:
    """A monotonically increasing function from scores to probabilities.

    `isotonic`: linear interpolation between the points (`scores`, `values`), constant outside.
    `platt`: the logistic function of `slope` times the score's logit plus `offset`.
    """

    method: Method
    scores: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    slope: float = 1.0
    offset: float = 0.0

    def __call__(self, score: float) -> float:
        """Returns the probability of success."""
        if self.method == "platt":
            return sigmoid(self.slope * logit(score) + self.offset)
        index = bisect_right(self.scores, score)
        if index == 0:
            return self.values[0]
        if index == len(self.scores):
            return self.values[-1]
        low, high = self.scores[index - 1], self.scores[index]
        share = (score - low) / (high - low)
        return self.values[index - 1] + share * (self.values[index] - self.values[index - 1])


@dataclass(frozen=True, slots=True)
class Bin:
    """A reliability bin: the number of scores from `low` to `high`, their mean and the success
    rate.

    The last bin includes 1.
    """

    low: float
    high: float
    count: int
    mean_score: float
    success_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The calibration quality of scores; 0 is the best value of both figures."""

    brier: float
    calibration_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A calibration file: the judge, the map, and the threshold with the rule that chose it.

    `method_rule` explains the choice of the method, `truth` the rule for annotators who differ.
    `before` and `after` come from `folds`-fold cross-validation, on runs that the map was not
    fitted to. `fitted_to` identifies the labelled runs; files of earlier versions lack it.
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
    fitted_to: FittedRuns | None = None

    def __call__(self, score: float) -> float:
        """Returns the calibrated score to six digits, as it is compared with the threshold."""
        return round(self.map(score), _DIGITS)

    @property
    def hash(self) -> str:
        """The hash that identifies the map and the threshold in verdicts."""
        digest = hashlib.sha256(msgspec.json.encode((self.map, self.threshold))).hexdigest()
        return f"sha256:{digest[:16]}"


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Reads a calibration file.

    Args:
        path: A file that `prill calibrate` wrote.

    Raises:
        UsageError: The file cannot be read, or is not a calibration of this version.
    """
    calibration = read_json(
        path, Calibration, "not a calibration", "`prill calibrate` writes such a file"
    )
    points = calibration.map.scores
    if (
        calibration.format != FORMAT
        or len(points) != len(calibration.map.values)
        or list(points) != sorted(set(points))
    ):
        raise UsageError(
            f"{path}: the calibration was made by another version of prill; make it again "
            "with `prill calibrate`"
        )
    if calibration.map.method == "isotonic" and not points:
        raise UsageError(
            f"{path}: the calibration has no points; make it again with `prill calibrate`"
        )
    return calibration


class Calibrated:
    """A judge with calibrated scores; a score at or above the calibration's threshold is a success.

    Unscored verdicts stay unscored. A missing score counts as 1 for a success and 0 for a failure.

    Raises:
        UsageError: The calibration was fitted for another judge, or for other settings of this
            judge.
    """

    def __init__(self, judge: Evaluator, calibration: Calibration) -> None:
        own, fitted = judge.info, calibration.evaluator
        if comparable(own) != comparable(fitted):
            both = " and ".join(
                f"{e.name} {e.version} ({e.model}, {e.prompt}, {e.params})" for e in (own, fitted)
            )
            raise UsageError(
                "a calibration only applies to the judge it was made for; judge and "
                f"calibration differ: {both}; calibrate this judge"
            )
        self.judge = judge
        self.calibration = calibration
        params = {
            "judge": own.name,
            "judge_version": own.version,
            **own.params,
            "calibration": calibration.hash,
            "threshold": calibration.threshold,
        }
        self.info = EvaluatorInfo(f"calibrated {own.name}", "1", own.model, own.prompt, params)

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The judge whose scores are calibrated."""
        return (self.judge,)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the judge's screenshots."""
        return self.judge.screenshots(trajectory)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the judge's estimate, or zero usage if it has none."""
        return self.judge.estimate(trajectory) if isinstance(self.judge, Estimator) else Usage()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the judge's verdict with the calibrated score and success by the threshold."""
        verdict = await self.judge(trajectory)
        fitted_to = self.calibration.fitted_to
        own: FittedOn = "unknown" if fitted_to is None else fitted_to.relation(trajectory)
        verdict = replace(verdict, evaluator=self.info, fitted_on=worst((verdict.fitted_on, own)))
        if verdict.success is None:
            return verdict
        score = self.calibration(float(verdict.success) if verdict.score is None else verdict.score)
        success, rewards = score >= self.calibration.threshold, verdict.rewards
        # outcome rewards: the last one depends on the success
        if rewards and verdict.steps is None:
            rewards = (*rewards[:-1], float(success))
        return replace(verdict, score=score, success=success, rewards=rewards)


def comparable(info: EvaluatorInfo) -> bytes:
    """Returns a form of the info that is equal before and after a round trip through a file.

    For example, a tuple is read back as a list.
    """
    return msgspec.json.encode(info, order="sorted")


# Calibration quality


def brier(scores: Sequence[float], truths: Sequence[bool]) -> float:
    """Returns the Brier score: the mean squared difference of scores from 1 (success) or 0.

    0 is perfect; a constant score of 0.5 has 0.25 (Brier 1950).
    """
    return fsum((score - truth) ** 2 for score, truth in zip(scores, truths, strict=True)) / len(
        scores
    )


def reliability(scores: Sequence[float], truths: Sequence[bool]) -> list[Bin]:
    """Returns the scores in 10 bins of equal width, without empty bins."""
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
    """Returns the expected calibration error (Naeini et al. 2015).

    It is the mean difference between score and success rate over the bins, weighted by their
    counts.
    """
    return fsum(b.count * abs(b.mean_score - b.success_rate) for b in bins) / sum(
        b.count for b in bins
    )


def quality(scores: Sequence[float], truths: Sequence[bool]) -> Quality:
    """Returns both quality figures of the scores."""
    return Quality(
        brier=brier(scores, truths),
        calibration_error=expected_calibration_error(reliability(scores, truths)),
    )


# Maps fitted to labels: isotonic regression and Platt's


def sigmoid(value: float) -> float:
    """Returns the logistic function of a value, without overflow."""
    return 1 / (1 + exp(-value)) if value >= 0 else exp(value) / (1 + exp(value))


def logit(probability: float) -> float:
    """Returns the log odds of a probability, clipped to odds from one in a million to a million."""
    clipped = min(1 - _MIN_ERROR_RATE, max(_MIN_ERROR_RATE, probability))
    return log(clipped / (1 - clipped))


def fit_map(method: Method, scores: Sequence[float], truths: Sequence[bool]) -> CalibrationMap:
    """Fits a map with the given method to labelled scores."""
    if method == "isotonic":
        return fit_isotonic(scores, truths)
    slope, offset = fit_platt([logit(score) for score in scores], truths)
    return CalibrationMap(method="platt", slope=slope, offset=offset)


def fit_isotonic(scores: Sequence[float], truths: Sequence[bool]) -> CalibrationMap:
    """Fits the increasing map with the least squared error (Ayer et al. 1955); ties are a point."""
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
    """Fits slope and offset of the logistic function (Platt 1999, with smoothed targets).

    A negative slope would reverse the order of the scores; it is replaced by 0, with the offset of
    the success rate.
    """
    import numpy as np

    successes = sum(truths)
    failures = len(truths) - successes
    targets = np.where(truths, (successes + 1) / (successes + 2), 1 / (failures + 2))
    base = log((successes + 1) / (failures + 1))
    rows = np.column_stack([logits, np.ones(len(truths))])
    found = fit_logistic(rows, targets, np.zeros(2), np.array([0.0, base]))
    slope, offset = (round(float(weight), _PLATT_DIGITS) for weight in found)
    return (slope, offset) if slope > 0 else (0.0, base)


def fit_logistic(
    rows: NDArray[Any], targets: NDArray[Any], ridge: NDArray[Any], start: NDArray[Any]
) -> NDArray[Any]:
    """Fits a logistic regression by Newton's method, without scipy, whose import takes seconds.

    `ridge` is the L2 penalty of each weight. Steps are halved until the gradient shrinks.
    """
    import numpy as np

    def chances(weights: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(0.5 + 0.5 * np.tanh(rows @ weights / 2))

    def gradient(weights: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(rows.T @ (chances(weights) - targets) + ridge * weights)

    weights, slope = start, gradient(start)
    while slope @ slope > _FLAT**2:
        here = chances(weights)
        curvature = (rows.T * (here * (1 - here))) @ rows + np.diag(ridge)
        step = np.linalg.lstsq(curvature, slope, rcond=None)[0]
        for _ in range(_HALVINGS):
            after = gradient(weights - step)
            if after @ after < slope @ slope:
                break
            step /= 2
        else:
            break
        weights, slope = weights - step, after
    return weights
