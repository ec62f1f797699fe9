"""Plays many episodes, several at a time, and records each of them to a folder as it happens (see `run_folder`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from prill.errors import EnvironmentFailure
from prill.loop import rollout
from prill.protocols import Environment, Policy
from prill.run_folder import RunFolder
from prill.types import LabelRecord, Step, Task, Trajectory

E = TypeVar("E", bound=Environment)


class Lender(Protocol[E]):
    """Lends environments to one episode at a time (`prill.emulators.pool.Pool`)."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def lend(self) -> AbstractAsyncContextManager[E]:
        """One of them. Raises EnvironmentFailure when none works any more."""
        ...

    async def report(self, environment: E, failure: str | None) -> None:
        """Why an episode could not begin in it; None when it did."""
        ...


@dataclass(frozen=True, kw_only=True)
class Episode(Generic[E]):
    """One attempt to record. `task` is asked for, and `policy` made, when the turn comes; `note` goes to the label only."""

    id: str
    task: Callable[[E], Awaitable[Task]]
    policy: Callable[[], Policy]
    agent: str | None = None
    note: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recorded:
    """What a run did. `skipped` were there already; `undecided` have no label, for want of an oracle or of its decision;
    `broken` ended with an error; `lost` could not begin, so that there is no record.
    """

    success: int = 0
    failure: int = 0
    undecided: int = 0
    broken: int = 0
    skipped: int = 0
    lost: int = 0

    @property
    def total(self) -> int:
        """All episodes seen so far, skipped ones included."""
        return self.success + self.failure + self.undecided + self.broken + self.skipped + self.lost


async def record(
    pool: Lender[E],
    episodes: Iterable[Episode[E]],
    out: Path,
    *,
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None,
    max_steps: int = 30,
    timeout: float | None = 120.0,
    early_stop: Callable[[Sequence[Step]], str | None] | None = None,
    retry_broken: bool = False,
    progress: Callable[[Recorded], None] = lambda recorded: None,
) -> Recorded:
    """Plays the episodes, as many at a time as the pool has environments. Those whose id is in `out` already are skipped.

    The environments have to write their screenshots below `out`. `timeout` is in seconds for one episode. `oracle` labels
    an episode while its environment is still in the state that the agent left. An episode whose environment fails
    before the first action is tried once more. Raises InputError when a file in `out` is broken, EnvironmentFailure when no
    environment is left that works; what is finished stays.
    """
    with RunFolder(out, retry_broken=retry_broken) as folder:

        async def play(episode: Episode[E], environment: E, task: Task) -> tuple[Trajectory, LabelRecord | None]:
            def watch(trajectory: Trajectory) -> None:
                folder.note(replace(trajectory, metadata=episode.metadata))

            trajectory = await rollout(
                episode.policy(),
                environment,
                task,
                id=episode.id,
                agent=episode.agent,
                max_steps=max_steps,
                timeout=timeout,
                early_stop=early_stop,
                watch=watch,
            )
            trajectory = replace(trajectory, metadata={**trajectory.metadata, **episode.metadata})
            return trajectory, await _label(oracle, environment, trajectory, episode.note)

        return await _Run(pool, iter(episodes), folder, play, progress).all()


class _Run(Generic[E]):
    def __init__(
        self,
        pool: Lender[E],
        episodes: Iterable[Episode[E]],
        folder: RunFolder,
        play: Callable[[Episode[E], E, Task], Awaitable[tuple[Trajectory, LabelRecord | None]]],
        progress: Callable[[Recorded], None],
    ) -> None:
        self._pool, self._episodes, self._folder, self._play, self._progress = pool, iter(episodes), folder, play, progress
        self._again: deque[Episode[E]] = deque()
        self._counts = Recorded()

    async def all(self) -> Recorded:
        workers = [asyncio.create_task(self._work()) for _ in range(self._pool.size)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return self._counts

    async def _work(self) -> None:
        while True:
            retried = bool(self._again)
            episode = self._again.popleft() if retried else next(self._episodes, None)
            if episode is None:
                return
            if episode.id in self._folder:
                self._count(skipped=1)
                continue
            async with self._pool.lend() as environment:
                await self._attempt(episode, environment, retried)

    async def _attempt(self, episode: Episode[E], environment: E, retried: bool) -> None:
        try:
            task = await episode.task(environment)
        except EnvironmentFailure as failure:
            await self._pool.report(environment, str(failure))
            if retried:
                self._count(lost=1)
            else:
                self._again.append(episode)
            return
        trajectory, label = await self._play(episode, environment, task)
        stillborn = trajectory.error if not trajectory.observations else None
        await self._pool.report(environment, stillborn)
        if stillborn is not None and not retried:
            self._again.append(episode)
            return
        self._folder.keep(trajectory, label)
        if trajectory.error is not None:
            self._count(broken=1)
        elif label is None or label.success is None:
            self._count(undecided=1)
        else:
            self._count(success=int(label.success), failure=int(not label.success))

    def _count(self, **more: int) -> None:
        self._counts = replace(self._counts, **{name: getattr(self._counts, name) + by for name, by in more.items()})
        self._progress(self._counts)


async def _label(
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None, environment: E, trajectory: Trajectory, note: str | None
) -> LabelRecord | None:
    if oracle is None:
        return None
    try:
        label = await oracle(environment, trajectory)
    except EnvironmentFailure as failure:
        label = LabelRecord(id=trajectory.id, success=None, source="oracle", note=f"the oracle could not look: {failure}")
    return replace(label, note="; ".join(part for part in (note, label.note) if part) or None)
