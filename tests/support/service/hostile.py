"""A test judge that misbehaves according to the first word of the goal."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from prill.types import EvaluatorInfo, Trajectory, Verdict

INFO = EvaluatorInfo("hostile", "1")


release = threading.Event()  # releases threads that would keep a test process from ending


async def hang() -> None:
    await asyncio.Event().wait()


async def stubborn() -> None:
    """Ignores its cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if release.is_set():
                raise


async def thread() -> None:
    """Hangs in one of the shared threads."""
    await asyncio.to_thread(release.wait)


async def block() -> None:
    """Blocks the event loop, briefly enough for tests to end."""
    time.sleep(30)


async def leave() -> None:
    raise SystemExit(7)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def close() -> None:
    raise GeneratorExit


async def cancel() -> None:
    raise asyncio.CancelledError


DEEDS: dict[str, Callable[[], Awaitable[None]]] = {
    deed.__name__: deed for deed in (hang, stubborn, thread, block, leave, interrupt, close, cancel)
}


class Hostile:
    """A judge that returns success for words without a behaviour."""

    info = INFO

    def __init__(self, concurrency: int = 4) -> None:
        self.concurrency = concurrency

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        if trajectory.task.goal.startswith("blind"):
            raise SystemExit(7)
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        word = trajectory.task.goal.partition(" ")[0]
        if word in DEEDS:
            await DEEDS[word]()
        verdict = Verdict(
            id=trajectory.id, success=True, score=0.75, reason="words", evaluator=INFO
        )
        odd = {
            "surrogate": replace(verdict, reason="half \ud800"),
            "other": replace(verdict, id="another"),
            "odd": replace(verdict, reason=5),  # type: ignore[arg-type]
            "nothing": None,
        }
        return odd.get(word, verdict)  # type: ignore[return-value]
