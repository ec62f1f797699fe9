"""The stacked judge (`prill fit --with-verdicts`): combines a student's and other judges' scores.

The log odds of the student's and the other judges' scores are the inputs of a logistic regression
(stacking, Wolpert 1992). No score has a negative weight. A missing score has its own weight: it is
neither 0 nor a failure. There is one regression for each number of judges called, the cheapest
judge first, so that the stacked judge can stop once its probability is outside a band. Fitting:
`prill.evaluators.fitted.stack_fit`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum

from msgspec import UNSET

from prill.errors import UsageError
from prill.evaluators.combine import Combined, as_score, opinion
from prill.evaluators.fitted.calibration import Quality, comparable, sigmoid
from prill.evaluators.fitted.calibration import logit as log_odds
from prill.evaluators.fitted.overlap import FittedRuns, held_out_verdicts, worst
from prill.evaluators.fitted.student import (
    Student,
    StudentHeldOut,
    StudentModel,
    check_features,
    make_label,
)
from prill.evaluators.judgement import WithoutModel
from prill.io.joining import record_digest
from prill.io.lines import decode_json, read_whole
from prill.models.calls import gather_calls
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, FittedOn, Trajectory, Usage, Verdict

FORMAT = "prill stack 1"
# Scores are clipped to this distance from 0 and 1. Files of earlier versions used 0.02, which made
# all confident scores equal.
EDGE, _OLD_EDGE = 1e-6, 0.02
# A source may be missing only if at least this many fitted runs lacked it, so that the effect could
# be estimated.
MIN_LACKING = 10
Scores = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The mean cost of one verdict of a judge; `usd` is None if a price is unknown."""

    usd: float | None
    tokens: float
    calls: float


@dataclass(frozen=True, kw_only=True)
class StackedSource:
    """A judge whose scores are used, and its cost."""

    judge: EvaluatorInfo
    cost: Cost

    @property
    def name(self) -> str:
        """The judge and its model."""
        model = self.judge.model
        return f"{self.judge.name} ({model})" if model else self.judge.name


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The regression on the first sources: the student, then one judge for each further weight.

    `missing` is the weight of each source if it has no score, and `lacking` the number of fitted
    runs without its score. A run is a success from the probability `threshold`.
    Scores are clipped to the distance `edge` from 0 and 1.
    """

    bias: float
    weights: tuple[float, ...]
    missing: tuple[float, ...]
    lacking: tuple[int, ...]
    threshold: float
    edge: float = _OLD_EDGE

    def probability(self, scores: Scores, *, narrow: bool) -> float | None:
        """Returns the probability of success by the score of each source in [0, 1] (None: missing);
        None if too many are missing.

        `narrow`: the student uses the narrow features. If it abstains, the other judges alone
        cannot decide a success; otherwise an agent would benefit from making it abstain.
        """
        if all(score is None for score in scores):
            return None
        parts = [self.bias]
        for score, weight, without, count in zip(
            scores, self.weights, self.missing, self.lacking, strict=True
        ):
            if score is None and count < MIN_LACKING:
                return None
            parts.append(without if score is None else weight * clipped_logit(score, self.edge))
        found = round(sigmoid(fsum(parts)), 6)
        return None if narrow and scores[0] is None and found >= self.threshold else found

    def is_sure(self, probability: float | None, width: float) -> bool:
        """Returns whether a probability lies outside the threshold's band; never at width 1."""
        return probability is not None and not (
            self.threshold * (1 - width)
            <= probability
            <= self.threshold + (1 - self.threshold) * width
        )


@dataclass(frozen=True, kw_only=True)
class Worth:
    """The contribution of one source, on held-out runs.

    `without` has the figures of the other sources together. The gain is the kappa of all
    sources minus theirs, on runs with both verdicts. `alone` has the figures of the source by
    itself, and `over_alone` the kappa of all sources minus the kappa of this source, on the runs
    that it scored. Intervals are 95 % intervals over tasks; None if there is none.
    """

    name: str
    without: StudentHeldOut
    kappa_gain: float | None
    kappa_interval: tuple[float, float] | None
    alone: StudentHeldOut
    over_alone: float | None
    over_alone_interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class PlanPoint:
    """A band's `width`, its cost per run, and the held-out kappa of its verdicts.

    `asked` is the share of runs for which each judge is called.
    """

    width: float
    asked: dict[str, float]
    cost: float
    kappa: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class StackCard:
    """The card of a stacked judge: its data and its held-out figures.

    The figures come from `folds`-fold cross-validation grouped by task; students, weights and
    thresholds are fitted without the judged runs.

    `planned` has the figures of the file's plan, with a band chosen on the other folds; None if all
    judges are called. `unit` is the unit of costs: `usd`, or `tokens` if a price is unknown.
    """

    data: tuple[str, ...]
    source: str
    runs: int
    tasks: int
    successes: int
    folds: int
    seed: int
    all_runs: StudentHeldOut
    quality: Quality
    worth: tuple[Worth, ...]
    unit: str
    plan: tuple[PlanPoint, ...]
    wanted: float | None
    planned: StudentHeldOut | None


@dataclass(frozen=True, kw_only=True)
class StackModel:
    """The file of a stacked judge.

    It contains the student, the other judges in call order, a regression for each number of judges,
    and the width of the band inside which the next judge is called.
    """

    format: str
    student: StudentModel
    sources: tuple[StackedSource, ...]
    stages: tuple[Stage, ...]
    width: float
    card: StackCard
    fitted_to: FittedRuns


class RecordedVerdicts(WithoutModel):
    """A judge that returns recorded verdicts under the name of the original judge, at no cost. A
    trajectory without one is unscored.
    """

    def __init__(self, info: EvaluatorInfo, verdicts: Mapping[str, Verdict]) -> None:
        self.info = info
        self.verdicts = verdicts

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the recorded verdict on this run; without one, `no_evidence`."""
        verdict = self.verdicts.get(trajectory.id)
        if verdict and verdict.record in (UNSET, record_digest(trajectory)):
            return replace(verdict, usage=Usage(), seconds=0.0)
        return Verdict(
            id=trajectory.id,
            unscored="no_evidence",
            reason="there is no recorded verdict for this trajectory"
            + (" with these contents" if verdict else ""),
            evaluator=self.info,
        )


class Stacked(Combined):
    """A judge that combines a student with other judges.

    The judges are called one after another if the file has a plan that can stop early, otherwise
    concurrently. The verdict is unscored if all judges abstain, or if one abstains that never did
    during fitting.

    Args:
        model: The fitted file.
        judges: The other judges, in any order.
        label: The name recorded in verdicts.

    Raises:
        UsageError: A judge of the file is missing, or has other settings.
    """

    name = "stacked"

    def __init__(self, model: StackModel, judges: Sequence[Evaluator], *, label: str) -> None:
        self.model = model
        self.student = Student(model.student, label=label)
        available = {comparable(judge.info): judge for judge in judges}
        others: list[Evaluator] = []
        for source in model.sources:
            judge = available.pop(comparable(source.judge), None)
            if judge is None:
                raise UsageError(
                    _missing(source.judge, [other.info for other in available.values()])
                )
            others.append(judge)
        if available:
            names = ", ".join(judge.info.name for judge in available.values())
            raise UsageError(f"{names}: this file was not fitted with this judge")
        # the student, then the other judges in call order
        super().__init__((self.student, *others), width=model.width)
        self.label = label

    @cached_property
    def info(self) -> EvaluatorInfo:
        """The file's label, and the infos of the judges."""
        return replace(super().info, model=self.label, prompt=None)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict of the first judges that make it sure, otherwise that of all."""
        model, narrow = self.model, self.model.student.narrow
        verdicts = [await self.student(trajectory)]
        if model.width >= 1:
            verdicts += await gather_calls([judge(trajectory) for judge in self.judges[1:]])
        while True:
            stage = model.stages[len(verdicts) - 1]
            found = stage.probability([as_score(verdict) for verdict in verdicts], narrow=narrow)
            if len(verdicts) == len(self.judges) or stage.is_sure(found, model.width):
                return self._stacked(trajectory, stage, found, verdicts)
            verdicts.append(await self.judges[len(verdicts)](trajectory))

    def _stacked(
        self,
        trajectory: Trajectory,
        stage: Stage,
        found: float | None,
        verdicts: Sequence[Verdict],
    ) -> Verdict:
        own: FittedOn = self.model.fitted_to.relation(trajectory)
        blank = Verdict(
            id=trajectory.id,
            unscored="no_evidence",
            usage=sum((v.usage for v in verdicts), start=Usage()),
            seconds=round(sum(v.seconds for v in verdicts), 4),
            evaluator=self.info,
            opinions=tuple(map(opinion, verdicts)),
            fitted_on=worst((own, *(v.fitted_on for v in verdicts))),
        )
        opinions = "; ".join(f"{v.evaluator.name} {_verdict_text(v)}" for v in verdicts)
        if found is None:
            # prefer the reason of a failure that a retry may fix
            silent = [v for v in verdicts if v.unscored is not None]
            last = next((v for v in silent if v.unscored != "no_evidence"), silent[0])
            return replace(blank, unscored=last.unscored, reason=f"too little evidence: {opinions}")
        calls = len(verdicts) - 1
        left = [source.name for source in self.model.sources[calls:]]
        rest = f"; not called: {', '.join(left)}" if left else ""
        return replace(
            blank,
            success=found >= stage.threshold,
            score=found,
            unscored=None,
            reason=f"{opinions}{rest}; success from {stage.threshold:g}",
        )

    def out_of_fold(
        self, ids: Sequence[str], found: Sequence[tuple[float | None, bool]]
    ) -> list[Verdict]:
        """Returns verdicts in this judge's name from out-of-fold probabilities and decisions."""
        return held_out_verdicts(self.info, ids, found, "too little to judge by")


def clipped_logit(score: float, edge: float) -> float:
    """Returns the clipped log odds of a score, the input of the regressions."""
    return log_odds(min(1 - edge, max(edge, score)))


def read_stack(path: str | os.PathLike[str]) -> tuple[StackModel, str]:
    """Reads a file that `prill fit --with-verdicts` wrote: the stacked judge, and its label in
    verdicts.

    Raises UsageError if it cannot be read, or is not a stacked judge of this version.
    """
    advice = "make the file with `prill fit` and verdicts of other judges"
    data = read_whole(path, advice)
    model = decode_json(data, StackModel, f"{path}: not a stacked judge", advice)
    if model.format != FORMAT or len(model.stages) != len(model.sources) + 1:
        raise UsageError(
            f"{path}: fitted by another version of prill ({model.format}); {advice} again"
        )
    check_features(model.student, path)
    return model, make_label(data)


def _verdict_text(verdict: Verdict) -> str:
    score = as_score(verdict)
    return f"unscored ({verdict.unscored})" if score is None else f"{score:.2f}"


def _missing(info: EvaluatorInfo, others: Sequence[EvaluatorInfo]) -> str:
    who = f"{info.name} {info.version} ({info.model}, {info.prompt}, {info.params})"
    there = "; ".join(f"{e.name} {e.version} ({e.model}, {e.prompt}, {e.params})" for e in others)
    return (
        f"a judge that this file was fitted with is missing: {who}; given: "
        f"{there or 'none'}. Give it in `judges`, or its verdict file in `verdicts`, or fit "
        "again"
    )
