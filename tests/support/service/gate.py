"""A test judge that does what the first word of the goal says."""

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

from prill.errors import EndpointError
from prill.types import EvaluatorInfo, Trajectory, UnscoredReason, Verdict

INFO = EvaluatorInfo("gate", "1")
REASONS: dict[str, UnscoredReason] = {
    "timeout": "timeout",
    "parse": "parse",
    "input": "input",
    "no_evidence": "no_evidence",
    "dead": "transport",
}
ERRORS: dict[str, BaseException] = {
    "gone": EndpointError("no call can succeed: unreachable"),
    "bug": KeyError("secret words of a page"),
    "leave": SystemExit(7),
    "interrupt": KeyboardInterrupt(),
    "close": GeneratorExit(),
    "cancel": asyncio.CancelledError(),
}
release = threading.Event()  # releases what would keep a test process from ending


class Gate:
    """Counts calls by id in `asked`. While closed, it holds every judgement."""

    info = INFO

    def __init__(self, seconds: float = 0.0, concurrency: int = 4) -> None:
        self.seconds, self.concurrency = seconds, concurrency
        self.asked: Counter[str] = Counter()
        self.open = asyncio.Event()
        self.open.set()

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        if trajectory.task.goal == "blind":
            raise SystemExit(7)
        return [seen.screenshot for seen in trajectory.observations if seen.screenshot]

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        id, word = trajectory.id, trajectory.task.goal.partition(" ")[0]
        self.asked[id] += 1
        await asyncio.sleep(self.seconds)
        await self.open.wait()
        if word == "hang":
            await asyncio.Event().wait()
        if word == "thread":
            await asyncio.to_thread(release.wait)
        while word == "stubborn" and not release.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
        if word in ERRORS:
            raise ERRORS[word]
        if (reason := REASONS.get(word)) is not None:
            return Verdict(id=id, unscored=reason, reason=f"it was {word}", evaluator=INFO)
        good = word != "failure"
        score = 0.75 if good else 0.25
        verdict = Verdict(id=id, success=good, score=score, reason="words", evaluator=INFO)
        odd: dict[str, Any] = {
            "surrogate": replace(verdict, reason="half \ud800"),
            "other": replace(verdict, id="another"),
            "odd": replace(verdict, reason=5),  # type: ignore[arg-type]
            "nothing": None,
        }
        made: Verdict = odd.get(word, verdict)
        return made
