"""Selects the steps to learn from (filtered behavioural cloning, arXiv 2404.06474).

`prill.refine.rows` converts the kept steps into rows in the formats of trainers.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.config.registry import read_options
from prill.config.shared import CalibrationOption
from prill.config.values import Config
from prill.errors import InputError, UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.fitted.calibration import Calibration, comparable, read_calibration
from prill.evaluators.judgement import kept_steps
from prill.evaluators.labels import get_template, latest_verdicts, make_task
from prill.io.images import file_hash
from prill.io.joining import NOTHING_LEFT_OUT, JoinCounts, join, record_digest
from prill.models.options import SamplingSeed
from prill.types import EvaluatorInfo, Observation, Trajectory, UnscoredReason, Verdict

# The least reward of a kept step: the default reward that the judge `steps` gives a step towards
# the goal. The paper leaves the value open (arXiv 2404.06474, 4.3).
REWARD = 0.5
NO_VERDICT, NOT_JUDGED, FAILURE = "no verdict", "not judged", "judged a failure"
AFTER_GOAL, NO_EFFECT, NOT_BEST, OVER_CAP = (
    "after the goal was reached",
    "without effect",
    "of an attempt that is not among the best of its task",
    "more than the limit of its task",
)
# Options about the judge's scores, which keep_all ignores.
OF_SCORES = ("threshold", "calibration", "precision")
_DIGITS = 6
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class FilterSpec(Config):
    """The options of the filter, also on the command line and in a TOML or JSON table.

    A verdict on the whole attempt keeps all of its steps or none. A verdict on steps keeps those
    with a reward of `threshold` or more.

    Raises:
        UsageError: The options contradict each other.
    """

    level: Annotated[
        Literal["auto", "attempt", "step"],
        Meta(
            description="Keep whole attempts, or steps by their rewards. auto: steps if "
            "the judge labelled them."
        ),
    ] = "auto"
    threshold: Annotated[
        float | None,
        Meta(
            description="Minimum score of an attempt (default: what the judge calls a "
            "success), or minimum reward of a step (default 0.5)."
        ),
    ] = None
    calibration: CalibrationOption = None
    precision: Annotated[
        float | None,
        Meta(
            gt=0,
            lt=1,
            description="Choose the threshold at which this share of the kept attempts is "
            "expected to be true successes.",
        ),
    ] = None
    keep_all: Annotated[
        bool, Meta(description="Keep all judged attempts whatever the verdict (self-training).")
    ] = False
    stop_at_reached: Annotated[
        bool, Meta(description="Drop the steps after the first one that reached the goal.")
    ] = True
    drop_idle: Annotated[bool, Meta(description="Drop steps that leave the state unchanged.")] = (
        False
    )
    best: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Keep only this many attempts of each task: those with the highest "
            "scores, the earlier ones in the file of equals.",
        ),
    ] = None
    per_task: Annotated[
        int | None,
        Meta(ge=1, description="Maximum number of steps per task, sampled with the seed."),
    ] = None
    balance: Annotated[
        bool,
        Meta(
            description="Keep equally many steps of each task, as many as the task with the "
            "fewest has."
        ),
    ] = False
    seed: SamplingSeed = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FilterSpec:
        """Converts a TOML or JSON table into filter settings. Raises OptionError."""
        return cls(**read_options(cls, given, "the filter"))

    def check(self) -> None:
        """Checks options that depend on each other."""
        if self.precision is not None and self.calibration is None:
            raise UsageError(
                "precision needs a calibration of the judge, which `prill calibrate` makes",
                parameters=("calibration",),
            )
        if self.precision is not None and self.threshold is not None:
            raise UsageError(
                "precision chooses the threshold; give only one of the two",
                parameters=("precision", "threshold"),
            )
        if self.calibration is not None and self.level == "step":
            raise UsageError(
                "a calibration applies to scores of attempts, not to rewards of steps",
                parameters=("level",),
            )
        if self.keep_all and any(getattr(self, name) is not None for name in OF_SCORES):
            raise UsageError(
                "keep_all keeps everything, so a threshold has no effect; leave it out",
                parameters=("keep_all",),
            )


@dataclass(frozen=True, slots=True)
class KeptStep:
    """One step of a trajectory, by its index."""

    trajectory: Trajectory
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFact:
    """The filter's decision on one step. `label` is the judge's label of the step or its attempt;
    `why` is the reason for dropping the step, empty for a kept one.
    """

    id: str
    index: int
    task: str
    site: str
    action: str
    label: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """The kept and lost steps of a filter.

    `steps` are kept. `rejected` are the steps that the judge found bad and that no other rule
    dropped; preference pairs use them. `facts` has every step once. `attempts` counts the
    trajectories, `unscored` those without a verdict by reason; their steps are in neither list.
    `joined` counts what was not used. `threshold` is the applied score or reward;
    None if the judge's own decision applied. `expected_precision` is the mean calibrated
    probability of success of the kept attempts; None without a calibration.
    """

    steps: tuple[KeptStep, ...]
    rejected: tuple[KeptStep, ...]
    facts: tuple[StepFact, ...]
    judge: EvaluatorInfo
    attempts: int
    unscored: Mapping[str, int]
    joined: JoinCounts
    threshold: float | None
    expected_precision: float | None

    @property
    def lost(self) -> tuple[StepFact, ...]:
        """The steps that were not kept, with the reasons."""
        return tuple(fact for fact in self.facts if fact.why)

    @property
    def label_noise(self) -> float | None:
        """The expected share of failures among the kept attempts; None without a calibration."""
        return None if self.expected_precision is None else 1 - self.expected_precision


def filter_steps(
    trajectories: Iterable[Trajectory], verdicts: Iterable[Verdict], spec: FilterSpec = FilterSpec()
) -> Filtered:
    """Selects the steps worth imitating.

    Attempts that are unscored or have no verdict are never kept. If an id has several verdicts, the
    last one counts.

    Args:
        trajectories: The attempts.
        verdicts: The verdicts of one judge on them.
        spec: The rules of the filter.

    Returns:
        The kept and the rejected steps in the order of the trajectories, with the reason for each
        step.

    Raises:
        UsageError: The verdicts are by several judges, on other trajectories or on other contents
            of these, a threshold is set and the verdicts have no scores, or no threshold reaches
            the precision.
    """
    known = list(verdicts)
    judge, latest = latest_verdicts(known)
    calibration = None if spec.calibration is None else calibration_for(judge, spec.calibration)
    facts: list[StepFact] = []
    judged: list[tuple[Trajectory, Verdict]] = []
    unscored: Counter[str] = Counter()
    digests: dict[str, str] = {}
    for trajectory in trajectories:
        digests[trajectory.id] = record_digest(trajectory)
        verdict = latest.get(trajectory.id)
        if verdict is None or verdict.success is None:
            reason: UnscoredReason | str = NO_VERDICT if verdict is None else verdict.unscored or ""
            unscored[reason] += 1
            why = NO_VERDICT if verdict is None else f"unscored: {reason}"
            facts += [_fact(trajectory, i, "unscored", why) for i in range(len(trajectory.steps))]
            continue
        _expect_same(trajectory, verdict)
        judged.append((trajectory, verdict))
    counts = join(known, (), digests).counts if digests else NOTHING_LEFT_OUT
    rule = _Rule.of(spec, calibration, [verdict for _, verdict in judged])
    kept: list[KeptStep] = []
    rejected: list[KeptStep] = []
    for trajectory, verdict in judged:
        for i, (label, why) in enumerate(rule(verdict, len(trajectory.steps))):
            if spec.drop_idle and (not why or rule.is_rejection(why)) and _is_idle(trajectory, i):
                why = NO_EFFECT
            facts.append(_fact(trajectory, i, label, why))
            if not why:
                kept.append(KeptStep(trajectory, i))
            elif rule.is_rejection(why):
                rejected.append(KeptStep(trajectory, i))
    if spec.best is not None:
        best = _best(kept, {trajectory.id: verdict for trajectory, verdict in judged}, spec.best)
        kept = [step for step in kept if step.trajectory.id in best]
        facts = [
            replace(fact, why=NOT_BEST) if not fact.why and fact.id not in best else fact
            for fact in facts
        ]
    kept, over = _capped(kept, spec)
    rejected, _ = _capped(rejected, spec)
    facts = [
        replace(fact, why=OVER_CAP) if not fact.why and (fact.id, fact.index) in over else fact
        for fact in facts
    ]
    ids = {step.trajectory.id for step in kept}
    return Filtered(
        steps=tuple(kept),
        rejected=tuple(rejected),
        facts=tuple(facts),
        judge=judge,
        attempts=len(digests),
        unscored=dict(unscored),
        joined=counts,
        threshold=rule.threshold,
        expected_precision=rule.expected(
            [verdict for trajectory, verdict in judged if trajectory.id in ids]
        ),
    )


def require_steps(filtered: Filtered) -> None:
    """Raises UsageError if no step was kept; the message says how many steps each rule removed."""
    if filtered.steps:
        return
    counts = Counter(fact.why for fact in filtered.facts)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rules = ", ".join(f"{why} {count}" for why, count in ordered) or "the attempts have no steps"
    raise UsageError(
        f"no step is left of {len(filtered.facts)} in {filtered.attempts} attempts: {rules}"
    )


@dataclass(frozen=True)
class _Rule:
    """The label of each step by the judge's verdict, and the reason if it is not kept."""

    spec: FilterSpec
    calibration: Calibration | None
    by_step: bool
    threshold: float | None

    @staticmethod
    def of(spec: FilterSpec, calibration: Calibration | None, verdicts: Sequence[Verdict]) -> _Rule:
        labelled = any(verdict.steps is not None for verdict in verdicts)
        by_step = spec.level == "step" or (
            spec.level == "auto" and labelled and calibration is None
        )
        threshold = spec.threshold
        if spec.keep_all:
            threshold = None
        elif by_step and threshold is None:
            threshold = REWARD
        elif spec.precision is not None and calibration is not None:
            threshold = _threshold_for(
                spec.precision, [calibrated_score(calibration, verdict) for verdict in verdicts]
            )
        elif calibration is not None and threshold is None:
            threshold = calibration.threshold
        return _Rule(spec, calibration, by_step, threshold)

    def __call__(self, verdict: Verdict, steps: int) -> list[tuple[str, str]]:
        outcome = "success" if verdict.success else "failure"
        if not self.by_step:
            return [(outcome, self._of_attempt(verdict))] * steps
        labels = {step.index: str(step.label) for step in verdict.steps or ()}
        return [
            (labels.get(i, outcome), why) for i, why in enumerate(self._of_steps(verdict, steps))
        ]

    def is_rejection(self, why: str) -> bool:
        """Whether the judge rejected the step, rather than another rule."""
        return why == FAILURE or why == self._below

    @property
    def _below(self) -> str:
        return (
            f"{'reward' if self.by_step else 'score'} below {self.threshold:g}"
            if self.threshold is not None
            else FAILURE
        )

    def _of_attempt(self, verdict: Verdict) -> str:
        if self.spec.keep_all:
            return ""
        if self.threshold is None:
            return "" if verdict.success else FAILURE
        score = (
            verdict.score
            if self.calibration is None
            else calibrated_score(self.calibration, verdict)
        )
        if score is None:
            raise UsageError(
                f"the verdict on {verdict.id} by {verdict.evaluator.name} has no score to "
                "compare with a threshold; without a threshold, what the judge calls a "
                "success is kept",
                parameters=("threshold",),
            )
        return "" if score >= self.threshold else self._below

    def _of_steps(self, verdict: Verdict, steps: int) -> list[str]:
        if self.spec.keep_all:
            return [""] * steps
        threshold = REWARD if self.threshold is None else self.threshold
        if verdict.steps is None:
            if verdict.rewards is None:
                raise UsageError(
                    f"the verdict on {verdict.id} by {verdict.evaluator.name} has no "
                    "rewards of steps; use the judge `steps`, or the level `attempt`",
                    parameters=("level",),
                )
            return ["" if reward >= threshold else self._below for reward in verdict.rewards]
        # A reply without a label counts as `not_sure`: the step is neither kept nor rejected.
        judged = {step.index: step.label for step in verdict.steps if not step.flagged}
        kept = judged.keys() & kept_steps(
            verdict, threshold, stop_at_reached=self.spec.stop_at_reached
        )
        reached = min(
            (index for index, label in judged.items() if label == "reached"), default=steps
        )
        end = reached if self.spec.stop_at_reached else steps

        def why(i: int) -> str:
            if i in kept:
                return ""
            return AFTER_GOAL if i > end else self._below if i in judged else NOT_JUDGED

        return [why(i) for i in range(steps)]

    def expected(self, kept: Sequence[Verdict]) -> float | None:
        """Returns the mean calibrated probability of success of these verdicts."""
        if self.calibration is None or not kept:
            return None
        calibration = self.calibration
        return round(fmean(calibrated_score(calibration, verdict) for verdict in kept), _DIGITS)


def calibration_for(judge: EvaluatorInfo, path: str | Path) -> Calibration:
    """Reads the calibration. Raises UsageError unless it belongs to this judge, or the judge's
    scores already went through it.
    """
    calibration = read_calibration(path)
    if judge.params.get("calibration") == calibration.hash or comparable(judge) == comparable(
        calibration.evaluator
    ):
        return calibration
    raise UsageError(
        f"{path}: this calibration is for another judge, or for other settings of "
        f"{judge.name}; make one from these verdicts with `prill calibrate`",
        parameters=("calibration",),
    )


def calibrated_score(calibration: Calibration, verdict: Verdict) -> float:
    """Returns the calibrated probability that the attempt succeeded."""
    score = as_score(verdict) or 0.0
    is_calibrated = verdict.evaluator.params.get("calibration") == calibration.hash
    return score if is_calibrated else calibration(score)


def _threshold_for(precision: float, probabilities: Sequence[float]) -> float:
    """Returns the lowest probability such that those at or above it have a mean of `precision` or
    more.

    If the calibration is right, that mean is the expected share of true successes among them.
    """
    ordered = sorted(probabilities, reverse=True)
    totals = enumerate(accumulate(ordered), 1)
    # Equal probabilities are kept together or not at all, so the last of them counts.
    enough = [count for count, total in totals if total / count >= precision - _ROUNDING]
    ends = [
        count for count in enough if count == len(ordered) or ordered[count] < ordered[count - 1]
    ]
    best = ordered[ends[-1] - 1] if ends else None
    if best is None:
        most = f"the highest is {ordered[0]:.3f}" if ordered else "there are none"
        raise UsageError(
            f"no threshold reaches a precision of {precision:g}: of the attempts' "
            f"calibrated scores {most}; lower it, or judge more attempts",
            parameters=("precision",),
        )
    return best


def _expect_same(trajectory: Trajectory, verdict: Verdict) -> None:
    """Raises UsageError if the verdict is on another recording with the same id."""
    count = len(trajectory.steps)
    indices = [step.index for step in verdict.steps or ()]
    judged = max(len(verdict.rewards or ()), max(indices, default=-1) + 1)
    if judged > count or (verdict.rewards and len(verdict.rewards) != count):
        raise UsageError(
            f"the verdict on {trajectory.id} judges {judged} steps, but the trajectory has "
            f"{count}; it is for another recording"
        )


def _is_idle(trajectory: Trajectory, index: int) -> bool:
    """Whether the recorded states before and after the step are equal; False if unknown."""
    states = trajectory.observations
    if index + 1 >= len(states) or trajectory.steps[index].action.is_final:
        return False
    before, after = states[index], states[index + 1]
    if not any((before.text, before.screenshot, before.caption)):
        return False
    return (before.text, before.url, before.caption) == (
        after.text,
        after.url,
        after.caption,
    ) and _same_picture(before, after)


def _same_picture(before: Observation, after: Observation) -> bool:
    if before.screenshot == after.screenshot:
        return True
    if before.screenshot is None or after.screenshot is None:
        return False
    try:
        return file_hash(before.screenshot) == file_hash(after.screenshot)
    except InputError:  # the conversion into rows reports it
        return False


def _best(steps: Sequence[KeptStep], verdicts: Mapping[str, Verdict], most: int) -> set[str]:
    """Returns the ids of the highest-scored attempts of each task, among those of these steps."""
    of_task: dict[str, dict[str, float]] = defaultdict(dict)
    for step in steps:
        score = as_score(verdicts[step.trajectory.id])
        assert score is not None  # unscored attempts have no kept step
        of_task[make_task(step.trajectory)][step.trajectory.id] = score
    return {
        id
        for scores in of_task.values()
        for id in sorted(scores, key=scores.__getitem__, reverse=True)[:most]
    }


def _capped(steps: list[KeptStep], spec: FilterSpec) -> tuple[list[KeptStep], set[tuple[str, int]]]:
    """Returns at most as many steps of each task as the settings allow, in their order, and the
    dropped ones.

    The choice does not depend on the other steps or on their order: a hash of the seed and the
    step's name ranks each step.
    """
    of_task: dict[str, list[KeptStep]] = defaultdict(list)
    for step in steps:
        of_task[get_template(step.trajectory)].append(step)
    limits = [spec.per_task] if spec.per_task is not None else []
    if spec.balance and of_task:
        limits.append(min(map(len, of_task.values())))
    if not limits:
        return steps, set()
    over: set[tuple[str, int]] = set()
    for group in of_task.values():
        drawn = sorted(group, key=lambda step: draw(spec.seed, step.trajectory.id, step.index))
        over |= {(step.trajectory.id, step.index) for step in drawn[min(limits) :]}
    return [step for step in steps if (step.trajectory.id, step.index) not in over], over


def draw(*parts: object) -> str:
    """Returns a pseudo-random sort key that depends on these parts alone."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _fact(trajectory: Trajectory, index: int, label: str, why: str) -> StepFact:
    return StepFact(
        id=trajectory.id,
        index=index,
        task=get_template(trajectory),
        site=trajectory.task.site or "",
        action=trajectory.steps[index].action.kind,
        label=label,
        why=why,
    )
