"""A test judge whose verdict is the goal's text, after a delay or when it is released."""

import asyncio
from collections import Counter

from prill.errors import EndpointError
from prill.types import EvaluatorInfo, Trajectory, UnscoredReason, Verdict

INFO = EvaluatorInfo("gate", "1")
REASONS: dict[str, UnscoredReason] = {
    "timeout": "timeout",
    "parse": "parse",
    "input": "input",
    "no_evidence": "no_evidence",
}


class Gate:
    """Counts calls by id in `asked`. While closed, it holds every judgement."""

    info = INFO

    def __init__(self, seconds: float = 0.0, concurrency: int = 4) -> None:
        self.seconds, self.concurrency = seconds, concurrency
        self.asked: Counter[str] = Counter()
        self.order: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return [seen.screenshot for seen in trajectory.observations if seen.screenshot]

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        id, goal = trajectory.id, trajectory.task.goal
        self.asked[id] += 1
        self.order.append(id)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        await self.open.wait()
        if goal == "gone":
            raise EndpointError("no call can succeed: unreachable")
        if goal == "bug":
            raise KeyError("secret words of a page")
        if (reason := REASONS.get(goal)) is not None:
            return Verdict(id=id, unscored=reason, reason=f"it was {goal}", evaluator=INFO)
        return Verdict(
            id=id,
            success=goal != "failure",
            score=0.25 if goal == "failure" else 0.75,
            reason="words",
            evaluator=INFO,
        )
