"""The judge's queue: bounded, fair, deduplicated, and drained on shutdown."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import msgspec

from prill.errors import InputError, PrillError
from prill.io.cache import BoundedCache
from prill.protocols import get_concurrency
from prill.refine.rewards import Reward, RewardResult
from prill.scoring.items import check_verdict
from prill.scoring.scorer import CONCURRENCY, verdict_key
from prill.service.admission import FairQueue, time_left
from prill.service.memory import BusyError, ByteBudget, Reservation, off_loop, trajectory_bytes
from prill.types import Trajectory

_T = TypeVar("_T")
Source = Literal["judged", "shared", "remembered"]
MAX_REMEMBERED, MAX_REMEMBERED_BYTES = 4096, 16_000_000
# Judgements that timed out but are still running, per slot; beyond this number none is started.
MAX_HUNG = 4
MAX_MESSAGE = 1000  # characters of an error message
ENDING = "the service is shutting down"
_JUDGE_SECONDS = 600.0


class JudgeError(Exception):
    """The judge failed without a verdict: its endpoint is unreachable, or it has a bug."""


@dataclass(eq=False, slots=True)
class _Work:
    """One trajectory to judge and its first client; `waiters` counts the requests that wait for
    it.
    """

    key: str
    client: str
    trajectory: Trajectory
    future: asyncio.Future[RewardResult | JudgeError]
    waiters: int = 0
    since: float = field(default_factory=time.monotonic)
    began: float = 0.0
    limit: asyncio.TimerHandle | None = None
    reservation: Reservation | None = None  # set once no request waits for it


@dataclass(frozen=True, slots=True)
class Answer:
    """A result and its source: judged for this request, shared with another, or cached."""

    result: RewardResult
    key: str
    source: Source


class JudgeQueue:
    """Judges trajectories with bounded concurrency.

    Equal trajectories (by the key of verdict files) that are in progress at the same time are
    judged once. The latest verdicts are cached, so that a client that retries after a 503 is
    answered at once; failures are not cached. A judgement that takes longer than `judge_seconds` is
    abandoned: it is unscored (`timeout`) and its slot is freed. `judged` is called with every
    result and its seconds in the queue and at the judge. `budget` counts the bytes of trajectories
    that are still being judged although they were abandoned or no request waits for them.
    """

    def __init__(
        self,
        reward: Reward,
        *,
        concurrency: int | None = None,
        judge_seconds: float = _JUDGE_SECONDS,
        budget: ByteBudget | None = None,
        judged: Callable[
            [RewardResult | BaseException, float, float], None
        ] = lambda result, waited, took: None,
    ) -> None:
        self.reward = reward
        self.concurrency = concurrency or get_concurrency(reward.judge) or CONCURRENCY
        self.judge_seconds = judge_seconds
        self._budget = ByteBudget(2**62) if budget is None else budget
        self._judged = judged
        self._queue: FairQueue[_Work] = FairQueue()
        self._under_way: dict[str, _Work] = {}
        self._running: dict[asyncio.Task[RewardResult | BaseException], _Work] = {}
        self._hung: dict[asyncio.Task[RewardResult | BaseException], Reservation] = {}
        self._remembered: BoundedCache[str, RewardResult] = BoundedCache(
            MAX_REMEMBERED, MAX_REMEMBERED_BYTES
        )
        self._paces: deque[float] = deque(maxlen=50)
        self._closed = False

    @property
    def waiting(self) -> int:
        """Returns the number of trajectories that wait for the judge."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """Returns the number of trajectories being judged."""
        return len(self._running)

    @property
    def hung(self) -> int:
        """Returns the number of abandoned judgements that are still running."""
        return len(self._hung)

    def is_stalled(self, seconds: float) -> bool:
        """Returns whether every slot has been busy for longer than that, or too many judgements
        hang.
        """
        now = time.monotonic()
        old = sum(now - work.began > seconds for work in self._running.values())
        return old >= self.concurrency or self._is_stuck

    async def result(
        self, trajectory: Trajectory, client: str, deadline: float, *, is_large: bool = False
    ) -> Answer:
        """Returns the reward of a trajectory.

        Raises BusyError at the deadline (a time of the event loop), InputError and JudgeError.
        """
        if self._closed:
            raise JudgeError(ENDING)
        key = await _outcome(self._key(trajectory, is_large))
        if isinstance(key, InputError):
            raise key
        if isinstance(key, BaseException):
            raise JudgeError(_describe_error(key))
        if (known := self._remembered.get(key)) is not None:
            return Answer(known, key, "remembered")
        loop = asyncio.get_running_loop()
        source: Source = "shared"
        if (work := self._under_way.get(key)) is None:
            source = "judged"
            work = self._under_way[key] = _Work(key, client, trajectory, loop.create_future())
            self._queue.push(client, work)
            self._begin()
        work.waiters += 1
        try:
            await asyncio.wait([work.future], timeout=time_left(deadline, loop))
        finally:
            work.waiters -= 1
            if not work.waiters and not work.future.done():
                self._leave(work)
        if not work.future.done():
            raise BusyError("not judged within the time limit of this client", self._pace())
        outcome = work.future.result()
        if isinstance(outcome, JudgeError):
            raise JudgeError(str(outcome))  # a new one for each waiter, because raising modifies it
        return Answer(outcome, key, source)

    def close(self) -> None:
        """Cancels all waiting and running judgements; their callers get an error."""
        self._closed = True
        for work in list(self._queue):
            self._queue.remove(work.client, work)
            self._settle(work, JudgeError(ENDING))
        for task in list(self._running):
            self._give_up(task, JudgeError(ENDING))

    async def _key(self, trajectory: Trajectory, is_large: bool) -> str:
        judge = self.reward.judge
        screenshots = judge.screenshots(trajectory)
        # The key requires reading files: let other requests proceed meanwhile.
        if screenshots or is_large:
            return await off_loop(
                lambda: verdict_key(judge.info, trajectory, screenshots), is_large=is_large
            )
        return verdict_key(judge.info, trajectory, ())

    def _leave(self, work: _Work) -> None:
        """Drops a judgement that no request waits for, unless it is already running."""
        before = len(self._queue)
        self._queue.remove(work.client, work)
        if len(self._queue) < before:
            self._under_way.pop(work.key, None)
        elif work.reservation is None:
            work.reservation = self._budget.reserve(work.client, trajectory_bytes(work.trajectory))

    @property
    def _is_stuck(self) -> bool:
        return len(self._hung) >= MAX_HUNG * self.concurrency

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self._running) < self.concurrency and len(self._queue):
            work = self._queue.pop()
            work.began = time.monotonic()
            if self._is_stuck:
                self._settle(
                    work,
                    self._timed_out(
                        work, f"{len(self._hung)} judgements hang, so no new one is started"
                    ),
                )
                continue
            task = asyncio.create_task(_outcome(self._judge(work.trajectory)))
            self._running[task] = work
            reason = f"no verdict within {self.judge_seconds:g} s"
            work.limit = loop.call_later(self.judge_seconds, self._too_long, task, reason)
            task.add_done_callback(self._end)

    async def _judge(self, trajectory: Trajectory) -> RewardResult:
        result = await self.reward.result(trajectory)
        check_verdict(result.verdict, trajectory, self.reward.judge.info)
        return result

    def _end(self, task: asyncio.Task[RewardResult | BaseException]) -> None:
        if (reservation := self._hung.pop(task, None)) is not None:  # it was abandoned before
            reservation.release()
            return
        work = self._running.pop(task)
        self._settle(
            work, JudgeError("the judgement was cancelled") if task.cancelled() else task.result()
        )
        self._begin()

    def _too_long(self, task: asyncio.Task[RewardResult | BaseException], reason: str) -> None:
        if task in self._running and not task.done():
            self._give_up(task, self._timed_out(self._running[task], reason))
            self._begin()

    def _give_up(
        self, task: asyncio.Task[RewardResult | BaseException], outcome: RewardResult | JudgeError
    ) -> None:
        work = self._running.pop(task)
        self._hung[task] = self._budget.reserve(work.client, trajectory_bytes(work.trajectory))
        task.cancel()  # a judge may ignore the cancellation
        self._settle(work, outcome)

    def _timed_out(self, work: _Work, reason: str) -> RewardResult:
        return self.reward.unscored(work.trajectory, "timeout", reason)

    def _settle(self, work: _Work, outcome: RewardResult | BaseException) -> None:
        """Passes the outcome of a judgement to all waiters."""
        now = time.monotonic()
        self._under_way.pop(work.key, None)
        if work.limit is not None:
            work.limit.cancel()
        if work.reservation is not None:
            work.reservation.release()
        waited, took = (work.began or now) - work.since, now - (work.began or now)
        self._paces.append(took)
        if isinstance(outcome, RewardResult):
            self._remember(work.key, outcome)
            work.future.set_result(outcome)
        else:
            work.future.set_result(JudgeError(_describe_error(outcome)))
        self._judged(outcome, waited, took)

    def _remember(self, key: str, result: RewardResult) -> None:
        if result.verdict.unscored is None:
            # results of custom reward functions may contain anything
            with suppress(TypeError, ValueError):
                self._remembered.put(key, result, len(msgspec.json.encode(result)))

    def _pace(self) -> float:
        """Returns the expected seconds until the current queue is done, up to a minute."""
        if not self._paces:
            return 2.0
        mean = sum(self._paces) / len(self._paces)
        return min(60.0, max(1.0, mean * (1 + self.waiting / self.concurrency)))


async def _outcome(work: Awaitable[_T]) -> _T | BaseException:
    """Awaits a judge's work and returns its result or error, so that an error affects one
    trajectory only.
    """
    try:
        return await work
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit would end the service
        return error.with_traceback(None)


def _describe_error(error: BaseException) -> str:
    """Returns the error message for clients.

    Other packages' errors are reduced to their type, because their messages may quote a page.
    """
    text = (
        str(error)
        if isinstance(error, PrillError | JudgeError)
        else f"the judge raised {type(error).__name__}"
    )
    return text[:MAX_MESSAGE].encode("utf-8", "replace").decode()
