"""Combined judges: vote, weighted ensemble, and cascade from a cheap to an expensive judge.

A judge with an unscored verdict abstains. The combination has a verdict only if the abstaining
judges could not have changed it; otherwise it is unscored. The verdict's `opinions` contain each
judge's verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any, Literal, get_args

import msgspec

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import Calibrated
from prill.evaluators.fitted.overlap import worst
from prill.evaluators.fitted.student import Student
from prill.evaluators.judge import PageJudge
from prill.models.calls import gather_calls
from prill.models.prompts import content_hash
from prill.protocols import Composite, Estimator, Evaluator, SampledModel
from prill.types import EvaluatorInfo, Opinion, Trajectory, UnscoredReason, Usage, Verdict

Rule = Literal["majority", "unanimous", "any", "consensus"]
CascadeOn = Literal["unsure", "unscored"]
# The default band of a first judge without a measured band.
_UNMEASURED = (0.1, 0.9)


class Combined:
    """Base class of combined judges."""

    name: str

    def __init__(self, judges: Sequence[Evaluator], **params: Any) -> None:
        if not judges:
            raise UsageError(f"{self.name} needs at least one judge")
        self.judges = tuple(judges)
        self._params = params

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The combined judges."""
        return self.judges

    @cached_property
    def info(self) -> EvaluatorInfo:
        """The combination rule and the infos of the judges."""
        infos = [judge.info for judge in self.judges]
        models = sorted({info.model for info in infos if info.model})
        params = {**self._params, "judges": [msgspec.to_builtins(info) for info in infos]}
        prompts = [info.prompt for info in infos if info.prompt]
        return EvaluatorInfo(
            self.name,
            "1",
            " + ".join(models) or None,
            content_hash(*prompts) if prompts else None,
            params,
        )

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the screenshots of all judges."""
        return sorted({path for judge in self.judges for path in judge.screenshots(trajectory)})

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the sum over the judges that can estimate usage; for a cascade, the maximum."""
        estimates = (
            judge.estimate(trajectory) for judge in self.judges if isinstance(judge, Estimator)
        )
        return sum(estimates, start=Usage())

    def _verdict(
        self,
        verdicts: Sequence[Verdict],
        success: bool | None,
        score: float | None,
        reason: str,
        *,
        differ: bool = False,
    ) -> Verdict:
        """Returns the combination's verdict.

        Without `success` it is unscored: with `no_evidence` if the judges `differ` where the rule
        requires agreement, otherwise with the reason of the first judge that abstained.
        """
        abstention = next((v for v in verdicts if v.unscored is not None), None)
        code: UnscoredReason | None = None
        if success is None and differ:
            code = "no_evidence"
        elif success is None and abstention is not None:
            code, reason = abstention.unscored, f"{abstention.evaluator.name}: {abstention.reason}"
        return Verdict(
            id=verdicts[0].id,
            success=success,
            score=None if success is None else score,
            unscored=code,
            reason=reason,
            usage=sum((v.usage for v in verdicts), start=Usage()),
            seconds=max(v.seconds for v in verdicts),
            evaluator=self.info,
            opinions=tuple(map(opinion, verdicts)),
            fitted_on=worst(v.fitted_on for v in verdicts),
        )


def opinion(verdict: Verdict) -> Opinion:
    """Returns a verdict in short form."""
    info = verdict.evaluator
    judge = f"{info.name} ({info.model})" if info.model else info.name
    return Opinion(
        judge=judge,
        success=verdict.success,
        score=verdict.score,
        unscored=verdict.unscored,
        reason=verdict.reason,
        usage=verdict.usage,
    )


class Vote(Combined):
    """A vote of several judges, or of samples of one judge. The score is the mean of their scores.

    Therefore a failure with `unanimous`, or a success with `any`, can have a score on the other
    side of 0.5.

    Args:
        judges: The judges. All are called concurrently.
        rule: When the vote is a success. `majority`: more than half of all judges say success.
            `unanimous`: all do, which favours precision. `any`: at least one does. `consensus`: all
            do; a failure if none does; unscored otherwise.

    Raises:
        UsageError: The rule is not known.
    """

    name = "vote"

    def __init__(self, judges: Sequence[Evaluator], rule: Rule = "majority") -> None:
        super().__init__(judges, rule=rule)
        if rule not in get_args(Rule):
            raise UsageError(f"unknown rule {rule!r}; expected one of {', '.join(get_args(Rule))}")
        self.rule = rule

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict of the vote; all judges are called concurrently."""
        verdicts = await gather_calls([judge(trajectory) for judge in self.judges])
        count = len(verdicts)
        yes, no = (sum(v.success is outcome for v in verdicts) for outcome in (True, False))
        # The minimum numbers of successes and of failures that decide the vote.
        needed, enough = {
            "majority": (count // 2 + 1, count - count // 2),
            "unanimous": (count, 1),
            "any": (1, count),
            "consensus": (count, count),
        }[self.rule]
        open_votes = count - yes - no
        success = True if yes >= needed else False if no >= enough else None
        abstained = f", {open_votes} abstained" if open_votes else ""
        reason = f"{yes} of {count} judges say success{abstained} ({self.rule})"
        agreeing = next(
            (v.reason for v in verdicts if v.success is success is not None and v.reason), ""
        )
        return self._verdict(
            verdicts,
            success,
            _mean(verdicts),
            f"{reason}. {agreeing}".rstrip(" ."),
            differ=self.rule == "consensus" and yes > 0 and no > 0,
        )


def sampled_votes(verdict: Verdict) -> tuple[bool, ...]:
    """Returns the scored votes behind a verdict, in order, if they are samples of one judge; the
    first is at the judge's own temperature.

    Empty for any other verdict, and for a vote of different judges, whose differences are not noise
    of one judge.
    """
    judges = verdict.evaluator.params.get("judges")
    if verdict.evaluator.name != Vote.name or not isinstance(judges, list):
        return ()
    kinds = [
        {**judge, "model": str(judge.get("model")).partition(" (")[0]}
        for judge in judges
        if isinstance(judge, dict)
    ]
    if verdict.success is None or len(kinds) < 2 or any(kind != kinds[0] for kind in kinds):
        return ()
    return tuple(o.success for o in verdict.opinions or () if o.success is not None)


def sampled_judges(judge: Evaluator, count: int, temperature: float) -> list[Evaluator]:
    """Returns the judge and `count` - 1 copies that sample at the temperature, each with its own
    seed.

    Raises UsageError for a judge or a model that cannot be sampled.
    """
    if not isinstance(judge, PageJudge):
        raise UsageError(
            f"{judge.info.name} calls no language model itself; give several judges to "
            "vote, instead of samples"
        )
    model = judge.model
    if not isinstance(model, SampledModel):
        raise UsageError(f"model {model.name} cannot be sampled; give several judges instead")
    return [
        judge,
        *(replace(judge, model=model.sampled(temperature, seed)) for seed in range(1, count)),
    ]


class Ensemble(Combined):
    """The weighted mean of several judges' scores.

    Args:
        judges: The judges. All are called concurrently.
        weights: A weight for each judge, relative to the others. None: all equal.
        threshold: The minimum mean score of a success, in [0, 1].

    Raises:
        UsageError: The numbers of weights and judges differ, a weight is negative, all weights are
            0, or the threshold is not in (0, 1].
    """

    name = "ensemble"

    def __init__(
        self,
        judges: Sequence[Evaluator],
        weights: Sequence[float] | None = None,
        *,
        threshold: float = 0.5,
    ) -> None:
        weights = tuple(weights) if weights is not None else (1.0,) * len(judges)
        if (
            len(weights) != len(judges)
            or not all(isfinite(w) and w >= 0 for w in weights)
            or not sum(weights)
        ):
            raise UsageError(
                f"expected {len(judges)} weights, one per judge, none negative and not all 0"
            )
        if not 0.0 < threshold <= 1.0:
            raise UsageError(f"threshold {threshold:g}: expected a score above 0 and up to 1")
        super().__init__(judges, weights=list(weights), threshold=threshold)
        self.weights = tuple(w / sum(weights) for w in weights)
        self.threshold = threshold

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict by the mean score; all judges are called concurrently."""
        verdicts = await gather_calls([judge(trajectory) for judge in self.judges])
        weighted = [
            (w, v.score) for w, v in zip(self.weights, verdicts, strict=True) if v.score is not None
        ]
        low = sum(w * score for w, score in weighted)
        share = sum(w for w, _ in weighted)
        high = low + 1.0 - share
        # Scores are rounded, so tolerate a rounding error at the threshold.
        success = (
            True
            if low >= self.threshold - 1e-9
            else False
            if high < self.threshold - 1e-9
            else None
        )
        score = round(min(1.0, low / share), 6) if share else None
        return self._verdict(
            verdicts, success, score, f"weighted mean of {len(weighted)} scores: {score}"
        )


class Cascade(Combined):
    """A cascade: calls the second judge only if the first one is unsure.

    The first judge is unsure if it has no score, or one inside the band, including both ends; with
    `on="unscored"`, only if its verdict is unscored. Then the verdict is that of `then`, even if it
    is unscored.

    Args:
        first: The first judge.
        then: The second judge.
        band: The lowest and the highest unsure score, in [0, 1]. None: for a fitted `first`, the
            band outside of which it was right on 95 % of the trajectories that it was not fitted
            on; otherwise 0.1 and 0.9.
        first_may_accept: Let the first judge also decide a success. False: the band ends at 1, so
            that the second judge checks every success.
        on: When the second judge is called: `unsure`, or only `unscored`, as a fallback.

    Raises:
        UsageError: The band is not within [0, 1], or ends below 1 without `first_may_accept`; or
            it is set for a fallback, which has none.
    """

    name = "cascade"

    def __init__(
        self,
        first: Evaluator,
        then: Evaluator,
        *,
        band: tuple[float, float] | None = None,
        first_may_accept: bool = False,
        on: CascadeOn = "unsure",
    ) -> None:
        self.first, self.then, self.on = first, then, on
        if on == "unscored":
            if band is not None or first_may_accept:
                raise UsageError(
                    "on = 'unscored' has no band: the first judge decides all that it scores",
                    parameters=("on",),
                )
            super().__init__((first, then), on=on)
            return
        low, high = band or _uncertainty_band(first)
        if not 0.0 <= low <= high <= 1.0:
            raise UsageError(
                f"band {low:g} to {high:g}: expected two numbers between 0 and 1, the "
                "smaller one first"
            )
        if band is not None and high < 1.0 and not first_may_accept:
            raise UsageError(
                f"with a band up to {high:g}, the first judge would accept runs that the "
                "second never sees; end the band at 1, or set first_may_accept",
                parameters=("first_may_accept",),
            )
        high = high if first_may_accept else 1.0
        super().__init__((first, then), band=[low, high])
        self.low, self.high = low, high

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict of `first` if it is sure, otherwise that of `then`."""
        verdict = await self.first(trajectory)
        verdicts = [verdict]
        if verdict.success is None or (self.on == "unsure" and self._is_unsure(verdict.score)):
            verdict = await self.then(trajectory)
            verdicts.append(verdict)
        return replace(
            verdict,
            usage=sum((v.usage for v in verdicts), start=Usage()),
            seconds=round(sum(v.seconds for v in verdicts), 4),
            evaluator=self.info,
            opinions=tuple(map(opinion, verdicts)),
            fitted_on=worst(v.fitted_on for v in verdicts),
        )

    def _is_unsure(self, score: float | None) -> bool:
        return score is None or self.low <= score <= self.high


def _uncertainty_band(judge: Evaluator) -> tuple[float, float]:
    """Returns the band on a fitted judge's card, mapped by its calibration if it has one."""
    if isinstance(judge, Calibrated):
        low, high = _uncertainty_band(judge.judge)
        return judge.calibration(low), judge.calibration(high)
    if isinstance(judge, Student):
        return judge.model.card.band.low, judge.model.card.band.high
    if isinstance(judge, Composite) and not isinstance(judge, Combined) and len(judge.parts) == 1:
        return _uncertainty_band(judge.parts[0])
    return _UNMEASURED


def cascade_inside(judge: Evaluator) -> Cascade | None:
    """Returns the cascade inside a judge's wrappers; None if the judge is not a cascade."""
    while not isinstance(judge, Cascade):
        if isinstance(judge, Combined) or not isinstance(judge, Composite) or len(judge.parts) != 1:
            return None
        judge = judge.parts[0]
    return judge


@dataclass(frozen=True, slots=True)
class Savings:
    """The savings of a cascade: of `judged` trajectories, `escalated` went to the second judge.

    `calls` and `usd` estimate the avoided cost of the second judge, from its mean over the
    trajectories it judged; None: unknown.
    """

    judged: int
    escalated: int
    calls: float | None
    usd: float | None

    def __str__(self) -> str:
        text = f"cascade: the second judge was asked for {self.escalated} of {self.judged}"
        if self.calls is None:
            return text
        usd = "" if not self.usd else f" and ${self.usd:.4f}"
        return f"{text}; that saved about {self.calls:.0f} of its calls{usd}"


def savings(verdicts: Iterable[Verdict]) -> Savings:
    """Computes the savings of a cascade, calibrated or not.

    Returns:
        The number of judged trajectories, the number that went to the second judge, and the calls
        and US dollars saved. Both savings are None if the second judge was never called; the
        dollars are also None if a price is unknown.

    Raises:
        UsageError: A verdict is not that of a cascade.
    """
    count, second = 0, []
    for verdict in verdicts:
        if not verdict.opinions or len(verdict.opinions) > 2:
            # an invalid line, or a trajectory that failed before any judge received it
            if verdict.unscored is not None:
                continue
            raise UsageError(f"{verdict.id}: not a verdict of a cascade")
        count += 1
        second += [opinion.usage for opinion in verdict.opinions[1:]]
    if not second:
        return Savings(count, 0, None, None)
    usage, skips = sum(second, start=Usage()), count - len(second)
    usd = None if usage.usd is None else skips * usage.usd / len(second)
    return Savings(count, len(second), skips * usage.calls / len(second), usd)


def _mean(verdicts: Iterable[Verdict]) -> float | None:
    scores = [v.score for v in verdicts if v.score is not None]
    return round(sum(scores) / len(scores), 6) if scores else None


def as_score(verdict: Verdict | Opinion | None) -> float | None:
    """Returns a verdict's score, or 1 or 0 if it has none; None if it is missing or unscored."""
    if verdict is None or verdict.success is None:
        return None
    return float(verdict.success) if verdict.score is None else verdict.score
