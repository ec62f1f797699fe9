"""The retry rule: whether to try again, when to stop, and which attempt to return.

Judges make errors. A false negative repeats a correct attempt, and the retry often fails (arXiv
2404.06474 found false negatives to hurt more than false positives). `keep_best`, a lower threshold
and a second judge each reduce this loss. This module never reads an attempt's true success.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, Literal

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.evaluators.combine import Cascade, as_score
from prill.evaluators.fitted.calibration import Calibrated
from prill.evaluators.fitted.calibration_fit import threshold_for_costs
from prill.io.retries import End, Lesson
from prill.protocols import E, Evaluator, Learner, every_judge
from prill.types import Task, Verdict

# The next stage of a task, and the reasons for its end.
Move = Literal["play", "judge", "reflect"]
PASSED, FAILED = "PASSED", "FAILED"
# Judges that return labels (correct or with deliberate errors) without a reason.
_REASONLESS = ("oracle", "noisy")


@dataclass(frozen=True, kw_only=True)
class RetrySpec(Config):
    """Options of retries."""

    attempts: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Maximum number of attempts at a task, including the first (the paper: 4).",
        ),
    ] = 4
    status: Annotated[
        Literal["language", "bit"],
        Meta(
            description="What the agent is told about a failed attempt: the judge's reason, or "
            "only FAILED."
        ),
    ] = "language"
    keep_best: Annotated[
        bool,
        Meta(
            description="Return the attempt with the highest score (the earliest of "
            "several) instead of the last."
        ),
    ] = False
    threshold: Annotated[
        float | None,
        Meta(
            ge=0,
            le=1,
            description="Minimum score that ends the retries (default: the judge's verdict).",
        ),
    ] = None
    false_negative_cost: Annotated[
        float | None,
        Meta(
            gt=0,
            description="Choose the threshold for this cost of repeating a correct "
            "attempt, relative to keeping a wrong one.",
        ),
    ] = None
    stop_on_repeat: Annotated[
        bool, Meta(description="Stop when a lesson repeats an earlier one.")
    ] = True
    order: Annotated[
        Literal["attempt", "task"],
        Meta(
            description="attempt: all first attempts, then all second ones. task: one task "
            "after the other, as in the paper."
        ),
    ] = "attempt"


@dataclass(frozen=True, kw_only=True)
class Challenge(Generic[E]):
    """One task to try several times.

    Args:
        name: The task's name in the results.
        id: Returns the id of an attempt from its number, from 0. The same settings give the same
            ids.
        task: Returns the task; it is called before each attempt with the environment.
        learner: Creates the agent of an attempt from the lessons of the attempts before it and the
            attempt's number, from 0.
        agent: The agent's name for the record. None: no name.
        metadata: Additional metadata of the trajectories.
        needs: The resources that no other episode may use at the same time, such as the sites that
            a reset restores.
    """

    name: str
    id: Callable[[int], str]
    task: Callable[[E], Awaitable[Task]]
    learner: Callable[[Sequence[str], int], Learner]
    agent: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt and its stage: played, judged, reflected on."""

    id: str
    verdict: Verdict | None = None
    lesson: Lesson | None = None
    broken: str | None = None

    @property
    def is_unjudged(self) -> bool:
        """Whether the attempt still needs a verdict; an aborted one does not."""
        return self.verdict is None and self.broken is None


def next_move(attempts: Sequence[Attempt], spec: RetrySpec) -> Move | End:
    """Returns the next stage after these attempts at one task, or why the task ended."""
    if not attempts:
        return "play"
    last = attempts[-1]
    if any(attempt.is_unjudged for attempt in attempts):
        return "judge"
    if last.verdict is None:
        return "broken"
    if last.verdict.success is None:
        return "unscored"
    if last.verdict.success:
        return "accepted"
    if len(attempts) >= spec.attempts:
        return "attempts"
    if last.lesson is None:
        return "reflect"
    if last.lesson.text is None:
        return "no_lesson"
    if spec.stop_on_repeat and _normalized(last.lesson.text) in {
        _normalized(text) for text in collect_lessons(attempts[:-1])
    }:
        return "repeated_lesson"
    return "play"


def collect_lessons(attempts: Sequence[Attempt]) -> list[str]:
    """Returns the agent's memory: all lessons so far, oldest first."""
    return [a.lesson.text for a in attempts if a.lesson is not None and a.lesson.text is not None]


def answer_among(
    ended: Sequence[bool], scores: Sequence[float | None], *, keep_best: bool
) -> int | None:
    """Returns the index of the attempt that counts as the answer; None if no attempt is complete.

    `ended` says for each attempt whether it ended regularly; `scores` has the judge's scores.
    Without `keep_best`, the answer is the last complete attempt. With it, the answer is the one
    with the highest score, the earliest on a tie; the last one if none has a score.
    """
    indices = [i for i, has_ended in enumerate(ended) if has_ended]
    scored = [(score, -i) for i in indices if (score := scores[i]) is not None]
    if keep_best and scored:
        return -max(scored)[1]
    return indices[-1] if indices else None


def decided(verdict: Verdict, threshold: float | None) -> Verdict:
    """Decides the verdict's success by the threshold; unscored verdicts stay unscored."""
    score = as_score(verdict)
    return (
        verdict
        if threshold is None or score is None
        else replace(verdict, success=score >= threshold)
    )


def visible_verdict(verdict: Verdict, status: Literal["language", "bit"]) -> Verdict:
    """Returns the feedback on an attempt: the judge's reason, or PASSED or FAILED.

    Oracles, including those with deliberate errors, give no reasons, so their feedback is PASSED or
    FAILED only.
    """
    if status == "language" and verdict.reason and verdict.evaluator.name not in _REASONLESS:
        return verdict
    bit, info = PASSED if verdict.success else FAILED, verdict.evaluator
    return Verdict(
        id=verdict.id,
        success=verdict.success,
        unscored=verdict.unscored,
        reason=bit,
        evaluator=info,
    )


def get_threshold(spec: RetrySpec, judge: Evaluator) -> float | None:
    """Returns the least score of an accepted attempt; None: the judge's own decision counts.

    With `false_negative_cost`, the threshold is the probability at which accepting has a lower
    expected cost than retrying. This needs scores that are probabilities; raises UsageError if they
    are not calibrated.
    """
    if spec.false_negative_cost is None:
        return spec.threshold
    if spec.threshold is not None:
        both = ("threshold", "false_negative_cost")
        raise UsageError(
            "give either a threshold, or the cost that chooses one, not both", parameters=both
        )
    if not any(isinstance(part, Calibrated) for part in every_judge(judge)):
        raise UsageError(
            "choosing a threshold by cost needs scores that are probabilities; give the "
            "judge a calibration",
            parameters=("false_negative_cost",),
        )
    return threshold_for_costs(1.0, spec.false_negative_cost)


def with_second_opinion(
    judge: Evaluator, second: Evaluator, threshold: float | None = None
) -> Evaluator:
    """Makes a judge whose rejections a second judge reviews; the second verdict then counts.

    An attempt that the second judge leaves unscored stays unscored; it does not count as a failure.

    Args:
        judge: The first judge.
        second: The second judge.
        threshold: The score, in [0, 1], below which the second judge is asked. None: that of the
            first judge's calibration, else 0.5.
    """
    if threshold is None:
        threshold = judge.calibration.threshold if isinstance(judge, Calibrated) else 0.5
    # A band includes both ends, but a score equal to the threshold does not go to the second judge.
    return Cascade(judge, second, band=(0.0, max(0.0, threshold - 1e-9)), first_may_accept=True)


def _normalized(text: str) -> str:
    return " ".join(text.lower().split())
