"""Calibration: how far a judge's scores are from the shares that come true, and a judge whose scores were put right.

`prill calibrate` makes the file (`prill.evaluators.calibrating`); `Calibrated` puts it to use.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path

import msgspec

from prill.errors import UsageError
from prill.evaluators.monotone import CalibrationMap
from prill.plan import Estimator
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict

BINS = 10
FORMAT = "prill calibration 1"
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Bin:
    """Scores between `low` and `high` (the last bin includes 1): how many, their mean, and the share that were successes."""

    low: float
    high: float
    count: int
    mean_score: float
    success_rate: float


def brier(scores: Sequence[float], truths: Sequence[bool]) -> float:
    """The mean squared distance of scores from 1 (success) or 0: 0 is perfect, 0.25 is always saying 0.5 (Brier 1950)."""
    return fsum((score - truth) ** 2 for score, truth in zip(scores, truths, strict=True)) / len(scores)


def reliability(scores: Sequence[float], truths: Sequence[bool]) -> list[Bin]:
    """The scores in 10 bins of equal width; those that are empty are left out."""
    members: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for score, truth in zip(scores, truths, strict=True):
        members[min(BINS - 1, int(score * BINS))].append((score, truth))
    return [
        Bin(i / BINS, (i + 1) / BINS, len(m), fsum(s for s, _ in m) / len(m), sum(t for _, t in m) / len(m))
        for i, m in enumerate(members)
        if m
    ]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """The mean distance between score and share of successes over the bins, by their counts (Naeini et al. 2015)."""
    return fsum(b.count * abs(b.mean_score - b.success_rate) for b in bins) / sum(b.count for b in bins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How good scores are as probabilities; both figures are 0 at best."""

    brier: float
    calibration_error: float


def quality(scores: Sequence[float], truths: Sequence[bool]) -> Quality:
    """Both figures for some scores."""
    return Quality(brier=brier(scores, truths), calibration_error=expected_calibration_error(reliability(scores, truths)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The file: whose scores it is for, the map, and the threshold with the rule that chose it.

    `before` and `after` are on labelled runs that the map was not fitted to, by cross-validation in `folds` parts.
    """

    format: str
    evaluator: EvaluatorInfo
    map: CalibrationMap
    threshold: float
    rule: str
    source: str
    labelled: int
    successes: int
    unscored: int
    folds: int
    grouped_by: str
    before: Quality
    after: Quality

    def __call__(self, score: float) -> float:
        """The calibrated score, to six digits; the threshold is compared with exactly this."""
        return round(self.map(score), _DIGITS)

    @property
    def hash(self) -> str:
        """Names the map and the threshold in verdicts."""
        digest = hashlib.sha256(msgspec.json.encode((self.map, self.threshold))).hexdigest()
        return f"sha256:{digest[:16]}"


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """The file that `prill calibrate` wrote. Raises UsageError when it is none."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=Calibration)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; `prill calibrate` writes such a file") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: no calibration ({error}); make one with `prill calibrate`") from None
    points = found.map.scores
    if found.format != FORMAT or len(points) != len(found.map.values) or list(points) != sorted(set(points)):
        raise UsageError(f"{path}: no calibration of this version of prill; make it anew with `prill calibrate`")
    if found.map.method == "isotonic" and not points:
        raise UsageError(f"{path}: the calibration has no points; make it anew with `prill calibrate`")
    return found


class Calibrated:
    """A judge with calibrated scores; a run is a success when its score reaches the calibration's threshold.

    What the judge leaves unscored stays so. A score that the judge does not give is 1 or 0, by its success. Raises UsageError
    when the calibration was made for another judge, or for other settings of this one.
    """

    def __init__(self, judge: Evaluator, calibration: Calibration) -> None:
        mine, theirs = judge.info, calibration.evaluator
        if _comparable(mine) != _comparable(theirs):
            shown = " and ".join(f"{e.name} {e.version} ({e.model}, {e.prompt}, {e.params})" for e in (mine, theirs))
            raise UsageError(f"a calibration is for one judge; judge and calibration differ: {shown}; calibrate this judge")
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

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Those of the judge."""
        return self.judge.screenshots(trajectory)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """That of the judge; nothing where it has none."""
        return self.judge.estimate(trajectory) if isinstance(self.judge, Estimator) else Usage()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The judge's verdict with the calibrated score, and success by the threshold."""
        verdict = await self.judge(trajectory)
        if verdict.success is None:
            return replace(verdict, evaluator=self.info)
        score = self.calibration(float(verdict.success) if verdict.score is None else verdict.score)
        return replace(verdict, score=score, success=score >= self.calibration.threshold, evaluator=self.info)


def _comparable(info: EvaluatorInfo) -> bytes:
    """The same for infos that were read from a file and those that were not: a tuple reads back as a list."""
    return msgspec.json.encode(info, order="sorted")
