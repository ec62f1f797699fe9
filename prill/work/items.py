"""Items worked through several at a time, the signal that ends it, and the counts of a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from prill.models.ledger import CallStarts, watched_starts
from prill.types import Usage

_T = TypeVar("_T")
_MAX_PROBLEMS = 20
_STOP_SECONDS = 0.2  # how soon a stop is noticed


class Stop(Protocol):
    """A signal that no further items should be started; `asyncio.Event` satisfies it."""

    def is_set(self) -> bool:
        """Returns whether the run should end."""
        ...

    def set(self) -> None:
        """Ends the run after the running items."""
        ...


@dataclass(slots=True, kw_only=True)
class RunTally:
    """Counts of a run that calls models: failures by reason, usage, and whether it was stopped."""

    unscored: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    stopped: bool = False

    @property
    def costs(self) -> str:
        """Returns the tokens and the cost so far, as text."""
        cost = "cost unknown" if self.usage.usd is None else f"${self.usage.usd:.4f}"
        tokens = self.usage.prompt_tokens + self.usage.completion_tokens
        return f"{tokens / 1000:.1f}k tokens, {cost}"

    def note(self, problem: str) -> None:
        """Stores a problem if it is among the first ones."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)


async def work_through(
    items: Iterator[_T], workers: int, stop: Stop, work: Callable[[_T], Awaitable[None]]
) -> None:
    """Passes items to `work`, several at a time.

    After the first error, or when `stop` is set, no further item is started; running items are
    finished, and then the error is raised. Items whose first model call still waits for a free slot
    are dropped instead, so that a stop takes no longer than the calls in flight.
    """
    starts: dict[asyncio.Task[None], CallStarts] = {}
    dropped: set[asyncio.Task[None]] = set()

    async def one_after_another() -> None:
        task: asyncio.Task[None] = cast(Any, asyncio.current_task())
        with ExitStack() as on_failure:
            on_failure.callback(stop.set)
            while not stop.is_set() and (item := next(items, None)) is not None:
                with watched_starts() as starts[task]:
                    try:
                        await work(item)
                    except asyncio.CancelledError:
                        if task not in dropped:
                            raise
            on_failure.pop_all()

    running = [asyncio.create_task(one_after_another()) for _ in range(workers)]
    try:
        left: set[asyncio.Task[None]] = set(running)
        while left:
            _, left = await asyncio.wait(left, timeout=_STOP_SECONDS)
            waiting = {task for task in left if task in starts and starts[task].only_waits}
            for task in waiting - dropped if stop.is_set() else ():
                dropped.add(task)
                task.cancel()
    except asyncio.CancelledError:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
    for task in running:
        task.result()
