"""What a judge concluded, and the one place where a judgement, or its failure, becomes a verdict."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prill.errors import Unscored
from prill.models.ledger import metered
from prill.protocols import Evaluator
from prill.types import Findings, StepVerdict, Trajectory, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge concluded; `verdict_of` makes it a verdict."""

    success: bool
    score: float
    reason: str
    steps: tuple[StepVerdict, ...] | None = None
    rewards: tuple[float, ...] | None = None
    findings: Findings | None = None


async def verdict_of(evaluator: Evaluator, trajectory: Trajectory, judge: Callable[[], Awaitable[Judgement]]) -> Verdict:
    """Runs a judgement and records it with what it cost; Unscored errors become unscored verdicts here, nowhere else."""
    start = time.perf_counter()
    with metered() as meter:
        try:
            found = await judge()
        except Unscored as failure:
            seconds = time.perf_counter() - start
            return Verdict(
                id=trajectory.id,
                unscored=failure.code,
                reason=str(failure),
                usage=meter.usage,
                seconds=round(seconds, 4),
                evaluator=evaluator.info,
            )
    return Verdict(
        id=trajectory.id,
        success=found.success,
        score=found.score,
        reason=found.reason,
        steps=found.steps,
        rewards=found.rewards,
        findings=found.findings,
        usage=meter.usage,
        seconds=round(time.perf_counter() - start, 4),
        evaluator=evaluator.info,
    )
