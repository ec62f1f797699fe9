"""Runs many episodes concurrently and records each of them continuously (see `run_folder`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

import msgspec

from prill.episodes.loop import run_episode
from prill.episodes.run_folder import RunFolder, unlabelled_attempts
from prill.errors import (
    BudgetSpentError,
    EnvironmentFailedError,
    PrillError,
    UnscoredError,
    UsageError,
)
from prill.models.ledger import Meter, metered
from prill.models.transport import PATIENCE
from prill.protocols import Abridging, E, Environment, Policy
from prill.types import LabelRecord, Step, Task, Trajectory

_MIN_FAILED_STARTS = (
    5  # consecutive episodes that failed to start: fewer may be caused by their tasks
)


class Pool(Generic[E]):
    """A pool of environments; the least recently used one is handed out first.

    Args:
        environments: The environments.
        patience: After this many consecutive failed starts, an environment is closed and not used
            again, so that a dead phone does not use up tasks that other environments could run.
        closing: The time limit for closing one environment, in seconds. The default is long enough
            to shut down a virtual device and delete its copy.

    Raises:
        UsageError: There are no environments.
    """

    def __init__(
        self, environments: Sequence[E], *, patience: int = 3, closing: float = 120.0
    ) -> None:
        if not environments:
            raise UsageError("a pool needs at least one environment")
        self._all = tuple(environments)
        self._free = deque(environments)
        self._patience, self._closing = patience, closing
        self._failures: dict[int, int] = {id(environment): 0 for environment in environments}
        self._set_aside: set[int] = set()
        self._last = ""
        self._change = asyncio.Condition()

    @property
    def size(self) -> int:
        """Returns the number of environments, in use or free."""
        return len(self._all) - len(self._set_aside)

    @contextlib.asynccontextmanager
    async def lend(self, *, but: E | None = None) -> AsyncIterator[E]:
        """Waits for a free environment.

        Args:
            but: An environment to skip as long as others are free. None: no preference.

        Returns:
            The environment, as a context manager that returns it to the pool.

        Raises:
            EnvironmentFailedError: All environments have failed.
        """
        async with self._change:
            await self._change.wait_for(lambda: not self.size or self._next(but) is not None)
            environment = self._next(but)
            if environment is None:
                raise EnvironmentFailedError(f"all environments failed; last error: {self._last}")
            self._free.remove(environment)
        try:
            yield environment
        finally:
            async with self._change:
                self._free.append(environment)
                self._change.notify_all()

    async def report(self, environment: E, failure: str | None) -> None:
        """Records whether an environment could start its episode.

        Args:
            environment: The environment.
            failure: Why the episode could not start. None: it started.
        """
        key = id(environment)
        self._failures[key] = 0 if failure is None else self._failures[key] + 1
        if failure is None or self._failures[key] < self._patience:
            return
        self._last = failure
        self._set_aside.add(key)
        # The environment is already known to be broken.
        with contextlib.suppress(EnvironmentFailedError):
            await self._close(environment)

    async def close(self) -> None:
        """Closes all environments; safe to call twice.

        Raises:
            EnvironmentFailedError: An environment could not be closed. All others are closed first.
        """
        ended = await asyncio.gather(*map(self._close, self._all), return_exceptions=True)
        for failure in ended:
            if failure is not None:
                raise failure

    def _next(self, but: E | None) -> E | None:
        working = (one for one in self._free if id(one) not in self._set_aside)
        return next((one for one in working if one is not but or self.size == 1), None)

    async def _close(self, environment: E) -> None:
        try:
            async with asyncio.timeout(self._closing):
                await environment.close()
        except TimeoutError:
            raise EnvironmentFailedError(
                f"an environment did not close within {self._closing:g} s"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Episode(Generic[E]):
    """One attempt to record. `task` and `policy` are called when the episode starts.

    `note` is stored only in the label. `needs` names resources that no other episode may use at the
    same time, such as the sites that a reset restores.
    """

    id: str
    task: Callable[[E], Awaitable[Task]]
    policy: Callable[[], Policy]
    agent: str | None = None
    note: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RecordTally:
    """Counts of a run's episodes.

    `skipped` were already recorded. `undecided` have no label, because there is no oracle or it did
    not decide. `broken` ended with an error. `lost` could not start and have no record.
    `last_problem` is the latest error message of a broken or lost episode. `budget` is the message
    of a spent budget: unfinished episodes count as lost, and the next run starts them. `unlabelled`
    are those of the skipped ones whose label the oracle gave, and which was lost since.
    """

    success: int = 0
    failure: int = 0
    undecided: int = 0
    broken: int = 0
    skipped: int = 0
    lost: int = 0
    last_problem: str | None = field(default=None, compare=False)
    budget: str | None = field(default=None, compare=False)
    unlabelled: int = 0

    @property
    def state(self) -> tuple[Any, ...]:
        """Returns what a progress bar shows: phase, count, total, note, and the count before."""
        return "", self.total, None, "", self.skipped

    @property
    def total(self) -> int:
        """Returns the number of episodes so far, including skipped ones."""
        return self.success + self.failure + self.undecided + self.broken + self.skipped + self.lost


async def record(
    pool: Pool[E],
    episodes: Iterable[Episode[E]],
    out: Path,
    *,
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None,
    max_steps: int = 30,
    timeout: float | None = 120.0,
    early_stop: Callable[[Sequence[Step]], str | None] | None = None,
    retry_broken: bool = False,
    patience: float = PATIENCE,
    progress: Callable[[RecordTally], None] = lambda recorded: None,
) -> RecordTally:
    """Runs episodes, one per environment of the pool at a time, and skips those already in `out`.

    The model usage of an episode is in its `metadata["usage"]`; cached replies cost nothing.

    The environments must write their screenshots below `out`. `timeout` limits, in seconds, each of
    three parts: an episode, naming its task, and labelling it. `oracle` labels an episode while its
    environment is still in the state that the agent left. An episode that fails to start is tried
    once more, in another environment if there is one. The run ends if at least five consecutive
    episodes fail to start within `patience` seconds. Episodes that ended because the budget was
    spent are run again by every call.

    Raises UsageError if nothing can be written, InputError if a file is damaged, and
    EnvironmentFailedError if no environment is left or no episode starts. Other exceptions, such as
    a bug in a policy, end the run too; that episode is recorded as broken, so that the next call
    continues after it. Finished episodes are kept.
    """
    listed = tuple(episodes)
    ids = frozenset(episode.id for episode in listed)
    with RunFolder(out, again=ids if retry_broken else (), unpaid=ids) as folder:
        known = oracle is not None and any(id in folder for id in ids)
        lost = await asyncio.to_thread(unlabelled_attempts, out) if known else set()
        todo: deque[tuple[Episode[E], E | None]] = deque((episode, None) for episode in listed)
        run = _Run(pool, todo, folder, oracle, max_steps, timeout, early_stop, patience, progress)
        return replace(await run.all(), unlabelled=len(lost & ids))


@dataclass
class _Run(Generic[E]):
    """Workers that run one episode after another, each in an environment of the pool."""

    pool: Pool[E]
    episodes: deque[tuple[Episode[E], E | None]]
    folder: RunFolder
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None
    max_steps: int
    timeout: float | None
    early_stop: Callable[[Sequence[Step]], str | None] | None
    patience: float
    progress: Callable[[RecordTally], None]
    _again: deque[tuple[Episode[E], E | None]] = field(default_factory=deque)
    _in_use: set[str] = field(default_factory=set)
    _change: asyncio.Condition = field(default_factory=asyncio.Condition)
    _counts: RecordTally = RecordTally()
    _not_begun: set[str] = field(default_factory=set)
    _since: float = 0.0

    async def all(self) -> RecordTally:
        """Runs all episodes; an exception in one worker cancels the others."""
        workers = [asyncio.create_task(self._work()) for _ in range(self.pool.size)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return self._counts

    async def _work(self) -> None:
        while (item := await self._take()) is not None:
            episode, tried = item
            try:
                if episode.id in self.folder:
                    self._count(skipped=1)
                elif self._counts.budget is not None:
                    self._count(self._counts.budget, lost=1)
                else:
                    async with self.pool.lend(but=tried) as environment:
                        await self._attempt(episode, environment, retried=tried is not None)
            finally:
                async with self._change:
                    self._in_use -= episode.needs
                    self._change.notify_all()

    async def _take(self) -> tuple[Episode[E], E | None] | None:
        """Returns the next episode that can run now, and the environment in which it failed to
        start.

        Returns None if no episode is left.
        """
        async with self._change:
            while self._again or self.episodes:
                for waiting in (self._again, self.episodes):
                    for index, (episode, tried) in enumerate(waiting):
                        if self._in_use.isdisjoint(episode.needs):
                            del waiting[index]
                            self._in_use |= episode.needs
                            return episode, tried
                await self._change.wait()
        return None

    async def _attempt(self, episode: Episode[E], environment: E, *, retried: bool) -> None:
        try:
            async with asyncio.timeout(self.timeout):
                task = await episode.task(environment)
        except (EnvironmentFailedError, TimeoutError) as failure:
            problem = str(failure) or f"no task within {self.timeout:g} s"
            await self.pool.report(environment, problem)
            if retried:
                self._count(problem, lost=1)
            else:
                self._again.append((episode, environment))
            self._note_beginning(episode.id, problem)
            return
        trajectory, begun = await self._play(episode, environment, task)
        await self.pool.report(environment, None if begun else trajectory.error)
        if not begun and not retried:
            self._again.append((episode, environment))
            self._note_beginning(episode.id, trajectory.error)
            return
        try:
            if trajectory.metadata.get("unscored") == BudgetSpentError.code:
                raise BudgetSpentError(trajectory.error)
            label = await self._grade(episode, environment, trajectory)
        # the episode does not count as run until its calls can be paid for
        except BudgetSpentError as spent:
            self.folder.drop(trajectory)
            self._counts = replace(self._counts, budget=str(spent))
            self._count(str(spent), lost=1)
            return
        self.folder.keep(trajectory, label)
        self._count_played(trajectory, label)
        self._note_beginning(episode.id, None if begun else trajectory.error)

    def _note_beginning(self, id: str, problem: str | None) -> None:
        """Counts consecutive episodes that failed to start, each once; raises if none starts.

        `problem` says why the episode failed to start. None: it started.
        """
        if problem is None:
            self._not_begun.clear()
            return
        now = asyncio.get_running_loop().time()
        self._since = self._since if self._not_begun else now
        self._not_begun.add(id)
        count = len(self._not_begun)
        if count >= _MIN_FAILED_STARTS and (spent := now - self._since) >= self.patience:
            raise EnvironmentFailedError(
                f"no episode could start for {spent:.3g} s, {count} in a row; last error: {problem}"
            )

    async def _play(
        self, episode: Episode[E], environment: E, task: Task
    ) -> tuple[Trajectory, bool]:
        """Returns the episode, and whether it started, that is, whether its first state was
        observed.
        """
        with metered() as meter:
            watch = _Watch(self.folder, episode, environment, task, meter)
            trajectory = await self._rollout(episode, environment, task, watch)
        trajectory = _abridge(environment, trajectory)
        return replace(
            trajectory, metadata={**trajectory.metadata, **watch.spent(), **episode.metadata}
        ), watch.begun

    async def _rollout(
        self, episode: Episode[E], environment: E, task: Task, watch: _Watch
    ) -> Trajectory:
        try:
            return await run_episode(
                episode.policy(),
                environment,
                task,
                id=episode.id,
                agent=episode.agent,
                max_steps=self.max_steps,
                timeout=self.timeout,
                early_stop=self.early_stop,
                watch=watch,
            )
        except PrillError:
            raise
        except (
            Exception
        ) as bug:  # the exception ends the run, and the episode is recorded as broken
            # The record omits the exception's message, which may contain secrets; it is only in the
            # traceback.
            error = f"a bug ended the episode: {type(bug).__name__}"
            metadata = {**watch.so_far.metadata, **watch.spent(), "ended_by": "error"}
            self.folder.keep(replace(watch.so_far, error=error, metadata=metadata), None)
            bug.add_note(
                f"This happened in episode {episode.id}, which is recorded as broken; the "
                "next run continues after it."
            )
            raise

    async def _grade(
        self, episode: Episode[E], environment: E, trajectory: Trajectory
    ) -> LabelRecord | None:
        if self.oracle is None:
            return None
        self.folder.note(trajectory)
        try:
            async with asyncio.timeout(self.timeout):
                label = await self.oracle(environment, trajectory)
        except BudgetSpentError:
            raise
        except (EnvironmentFailedError, UnscoredError) as failure:
            label = _undecided(trajectory, str(failure))
        except TimeoutError:
            label = _undecided(trajectory, f"no response within {self.timeout:g} s")
        return replace(
            label, note="; ".join(part for part in (episode.note, label.note) if part) or None
        )

    def _count_played(self, trajectory: Trajectory, label: LabelRecord | None) -> None:
        if trajectory.error is not None:
            self._count(trajectory.error, broken=1)
        elif label is None or label.success is None:
            self._count(undecided=1)
        else:
            self._count(success=int(label.success), failure=int(not label.success))

    def _count(self, problem: str | None = None, /, **more: int) -> None:
        counts = {name: getattr(self._counts, name) + by for name, by in more.items()}
        self._counts = replace(
            self._counts, last_problem=problem or self._counts.last_problem, **counts
        )
        self.progress(self._counts)


class _Watch:
    """Records an episode's progress in the folder."""

    def __init__(
        self,
        folder: RunFolder,
        episode: Episode[Any],
        environment: Environment,
        task: Task,
        meter: Meter,
    ) -> None:
        self._folder, self._metadata, self._environment, self._meter = (
            folder,
            episode.metadata,
            environment,
            meter,
        )
        start = Trajectory(id=episode.id, task=task, agent=episode.agent, metadata=episode.metadata)
        self.so_far = _abridge(environment, start)
        self.begun = False

    def __call__(self, trajectory: Trajectory) -> None:
        trajectory = _abridge(self._environment, trajectory)
        self.so_far = replace(
            trajectory, metadata={**trajectory.metadata, **self.spent(), **self._metadata}
        )
        self.begun = True
        self._folder.note(self.so_far)

    def spent(self) -> dict[str, Any]:
        """Returns the usage of the episode so far."""
        return {"usage": msgspec.to_builtins(self._meter.usage)} if self._meter.usage.calls else {}


def _abridge(environment: Environment, trajectory: Trajectory) -> Trajectory:
    return environment.abridged(trajectory) if isinstance(environment, Abridging) else trajectory


def _undecided(trajectory: Trajectory, problem: str) -> LabelRecord:
    return LabelRecord(
        id=trajectory.id,
        success=None,
        source="oracle",
        note=f"the oracle failed: {problem}",
    )
