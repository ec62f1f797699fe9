"""Judgements, and their conversion to verdicts and rewards."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from prill.errors import UnscoredError, UsageError
from prill.models.ledger import Meter, metered
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, Findings, StepVerdict, Trajectory, Usage, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's conclusion, from which `make_verdict` makes a verdict.

    Args:
        success: Whether the goal was reached.
        score: The probability of success, in [0, 1].
        reason: The reason, in words.
        steps: The judgements of individual steps.
        rewards: One reward for each step.
        findings: Findings in addition to the outcome.
    """

    success: bool
    score: float
    reason: str
    steps: tuple[StepVerdict, ...] | None = None
    rewards: tuple[float, ...] | None = None
    findings: Findings | None = None


async def make_verdict(
    evaluator: Evaluator, trajectory: Trajectory, judge: Callable[[], Awaitable[Judgement]]
) -> Verdict:
    """Runs a judgement and records its outcome and cost. An `UnscoredError` becomes an unscored
    verdict.

    Args:
        evaluator: The judge, for the record.
        trajectory: The trajectory.
        judge: Makes the judgement.

    Returns:
        The verdict. `seconds` excludes the time spent waiting for a free request slot.

    Raises:
        EndpointError: The judge's model cannot be used at all.
        UsageError: The judge cannot be used as described.
    """
    start = time.perf_counter()
    with metered() as meter:
        try:
            judgement = await judge()
        except UnscoredError as failure:
            return Verdict(
                id=trajectory.id,
                unscored=failure.code,
                reason=str(failure),
                findings=failure.findings,
                usage=meter.usage,
                seconds=_own_seconds(start, meter),
                evaluator=evaluator.info,
            )
    return Verdict(
        id=trajectory.id,
        success=judgement.success,
        score=judgement.score,
        reason=judgement.reason,
        steps=judgement.steps,
        rewards=judgement.rewards,
        findings=judgement.findings,
        usage=meter.usage,
        seconds=_own_seconds(start, meter),
        evaluator=evaluator.info,
    )


def _own_seconds(start: float, meter: Meter) -> float:
    return round(max(0.0, time.perf_counter() - start - meter.queued), 4)


class WithoutModel:
    """Base class of judges that read no images and make no calls."""

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns nothing: the judge reads no screenshots."""
        return ()

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns zero usage."""
        return Usage()


class Baseline(WithoutModel, ABC):
    """Base class of judges without a model that implement `_judge`."""

    info: EvaluatorInfo

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict; unscored (`no_evidence`) if there is nothing to judge by."""
        return await make_verdict(self, trajectory, lambda: self._judge(trajectory))

    @abstractmethod
    async def _judge(self, trajectory: Trajectory) -> Judgement:
        """Returns the judgement. Raises UnscoredError if there is none."""


@runtime_checkable
class ClaimReader(Evaluator, Protocol):
    """A judge that states whether it needs the agents' claims."""

    @property
    def needs_claims(self) -> bool:
        """Whether its verdicts would be wrong without the agent's claims."""
        ...


def compute_rewards(success: bool, steps: int) -> tuple[float, ...]:
    """Returns the rewards of arXiv 2404.06474: 0 for every step, 1 for the last of a success."""
    return tuple(float(success and i == steps - 1) for i in range(steps))


def kept_steps(
    verdict: Verdict, threshold: float, *, stop_at_reached: bool = True
) -> tuple[int, ...]:
    """Selects the steps worth imitating.

    Args:
        verdict: The verdict of a step judge. An unscored verdict keeps no step.
        threshold: The minimum reward of a kept step.
        stop_at_reached: Drop the steps after the first step that reached the goal.

    Returns:
        The indices of the steps, from 0, ascending.

    Raises:
        UsageError: The verdict has no step labels.
    """
    if verdict.unscored is not None:
        return ()
    if verdict.steps is None:
        raise UsageError(
            f"the verdict on {verdict.id} by {verdict.evaluator.name} has no labels of "
            "steps; use the judge `steps`"
        )
    indices = []
    for step in sorted(verdict.steps, key=lambda step: step.index):
        if step.reward >= threshold:
            indices.append(step.index)
        if stop_at_reached and step.label == "reached":
            break
    return tuple(indices)


def outcome_rewards(verdict: Verdict, trajectory: Trajectory) -> tuple[float, ...] | None:
    """Converts the outcome of a trajectory into step rewards.

    Args:
        verdict: The verdict.
        trajectory: The trajectory that was judged.

    Returns:
        One reward per step: 0, and 1 for the last step of a success. None for an unscored verdict.
    """
    if verdict.success is None:
        return None
    return compute_rewards(verdict.success, len(trajectory.steps))
