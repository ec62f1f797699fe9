"""The judgements under way: few at a time, equal ones made once, none endless."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

import msgspec

from prill.errors import InputError, PrillError
from prill.evaluators.scoring.items import check_verdict
from prill.evaluators.scoring.scorer import CONCURRENCY, verdict_key
from prill.io.cache import BoundedCache
from prill.models.flow_control import MIN_CALLS
from prill.protocols import Evaluator, get_concurrency, why_unreachable
from prill.refine.rewards import Reward, RewardResult
from prill.types import Trajectory

_T = TypeVar("_T")
Outcome = RewardResult | BaseException
Source = Literal["judged", "shared", "remembered"]
MAX_REMEMBERED, MAX_REMEMBERED_BYTES = 4096, 16_000_000
MAX_MESSAGE = 1000  # characters of an error message
RETRY_AFTER, _RETRY_JUDGE = 5.0, 10.0  # seconds
_NO_ANSWER = frozenset({"error", "transport", "timeout"})
# the other reasons occur before any call
_ANSWERED = frozenset({None, "refusal", "truncated", "parse", "context"})
_PROBE_EVERY, _PROBE_SECONDS = 10.0, 3.0
# Seconds after failed judgements during which the service reports itself as not ready; afterwards
# requests may try the judge again.
_UNREADY = 30.0


class RefusedError(Exception):
    """The request gets this status, code and message; `after` is the Retry-After in seconds."""

    def __init__(self, status: int, code: str, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.after = status, code, after


class JudgeError(RefusedError):
    """The judge failed without a verdict: its endpoint is unreachable, or it has a bug."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "judge_unavailable", message, _RETRY_JUDGE)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result and its source: judged for this request, shared with another, or cached."""

    result: RewardResult
    key: str
    source: Source


@dataclass(eq=False, slots=True)
class _Work:
    """One trajectory to judge; `waiters` counts the requests that wait for it."""

    task: asyncio.Task[RewardResult | JudgeError]
    waiters: int = 0
    began: float | None = None


class Judgements:
    """Judges trajectories, `concurrency` at a time, for at most `limit` that requests wait for.

    Equal trajectories (by the key of verdict files) are judged once. The latest verdicts are
    cached, so that a client that retries is answered at once; failures are not cached. A judgement
    that takes longer than `judge_seconds` is cancelled and unscored (`timeout`); its slot is free
    once it has ended. `judged` is called with every outcome and its seconds in the queue and at
    the judge. `abandoned` says that cancelled judgements may still occupy threads.
    """

    def __init__(
        self,
        reward: Reward,
        *,
        concurrency: int | None = None,
        limit: int = 4096,
        judge_seconds: float = 600.0,
        stalled_seconds: float = 300.0,
        judged: Callable[[Outcome, float, float], None] = lambda outcome, waited, took: None,
    ) -> None:
        self.reward, self.limit = reward, limit
        self.concurrency = concurrency or get_concurrency(reward.judge) or CONCURRENCY
        self.judge_seconds, self.stalled_seconds = judge_seconds, stalled_seconds
        self.active, self.abandoned = 0, False
        self._judged, self._health = judged, _Health(reward.judge)
        self._slots = asyncio.Semaphore(self.concurrency)
        self._works: dict[str, _Work] = {}
        self._running: dict[asyncio.Task[Outcome], float] = {}  # since when
        self._remembered: BoundedCache[str, RewardResult] = BoundedCache(
            MAX_REMEMBERED, MAX_REMEMBERED_BYTES
        )

    @property
    def in_flight(self) -> int:
        """The number of trajectories being judged."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """The number of trajectories that wait for the judge."""
        return sum(work.began is None for work in self._works.values())

    @contextmanager
    def admitted(self, count: int = 1) -> Iterator[None]:
        """Counts so many trajectories as under way for the duration of the block.

        Raises RefusedError.
        """
        if self.active + count > self.limit:
            problem = f"{self.limit:,} judgements are under way, which is the limit"
            raise RefusedError(429, "busy", problem, RETRY_AFTER)
        self.active += count
        try:
            yield
        finally:
            self.active -= count

    async def result(self, trajectory: Trajectory, deadline: float | None = None) -> Answer:
        """Returns the reward of a trajectory.

        Raises RefusedError at the deadline (a time of the event loop), InputError and JudgeError.
        """
        key = await _caught(self._key(trajectory))
        if isinstance(key, InputError):
            raise key
        if isinstance(key, BaseException):
            raise JudgeError(_describe_error(key))
        if (known := self._remembered.get(key)) is not None:
            return Answer(known, key, "remembered")
        source: Source = "shared"
        if (work := self._works.get(key)) is None:
            source = "judged"
            work = self._works[key] = _Work(asyncio.create_task(self._run(key, trajectory)))
        left = deadline and max(0.0, deadline - asyncio.get_running_loop().time())
        work.waiters += 1
        try:
            await asyncio.wait([work.task], timeout=left)
        finally:
            work.waiters -= 1
            if not work.waiters and work.began is None:  # nobody waits for it any more
                work.task.cancel()
                self._forget(key, work)
        if not work.task.done():
            problem = "not judged within the time limit of this client"
            raise RefusedError(503, "busy", problem, RETRY_AFTER)
        if work.task.cancelled():
            raise JudgeError("the service is shutting down")
        outcome = work.task.result()
        if isinstance(outcome, JudgeError):
            raise JudgeError(str(outcome))  # a new one for each waiter, because raising modifies it
        return Answer(outcome, key, source)

    async def cancel(self) -> None:
        """Cancels all judgements; whoever waits for them gets an error."""
        tasks = [work.task for work in self._works.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def trouble(self) -> str:
        """Returns why no judgement can finish; empty if one can."""
        now = time.monotonic()
        old = sum(now - since > self.stalled_seconds for since in self._running.values())
        if old >= self.concurrency:
            return f"all slots are in use, and none was freed for {self.stalled_seconds:g} s"
        return await self._health.trouble()

    async def _key(self, trajectory: Trajectory) -> str:
        judge = self.reward.judge
        if screenshots := judge.screenshots(trajectory):  # their files are read for the key
            return await off_loop(lambda: verdict_key(judge.info, trajectory, screenshots))
        return verdict_key(judge.info, trajectory, ())

    async def _run(self, key: str, trajectory: Trajectory) -> RewardResult | JudgeError:
        """Judges a trajectory in its turn, and notes what became of it."""
        work, since = self._works[key], time.monotonic()
        try:
            await self._slots.acquire()
            work.began = time.monotonic()
            outcome = await self._outcome(trajectory)
        finally:
            self._forget(key, work)
        self._health.note(outcome)
        self._judged(outcome, work.began - since, time.monotonic() - work.began)
        if not isinstance(outcome, RewardResult):
            return JudgeError(_describe_error(outcome))
        if outcome.verdict.unscored is None:
            # results of custom reward functions may contain anything
            with suppress(TypeError, ValueError):
                self._remembered.put(key, outcome, len(msgspec.json.encode(outcome)))
        return outcome

    async def _outcome(self, trajectory: Trajectory) -> Outcome:
        """Judges a trajectory; its slot is released when the judge has ended."""
        task = asyncio.create_task(_caught(self._judge(trajectory)))
        self._running[task] = time.monotonic()
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait([task], timeout=self.judge_seconds)
        finally:
            if not task.done():
                task.cancel()  # which a judge may ignore
                self.abandoned = True
        if not task.done():
            reason = f"no verdict within {self.judge_seconds:g} s"
            return self.reward.unscored(trajectory, "timeout", reason)
        return JudgeError("the judgement was cancelled") if task.cancelled() else task.result()

    def _ended(self, task: asyncio.Task[Outcome]) -> None:
        del self._running[task]
        self._slots.release()

    async def _judge(self, trajectory: Trajectory) -> RewardResult:
        result = await self.reward.result(trajectory)
        check_verdict(result.verdict, trajectory, self.reward.judge.info)
        return result

    def _forget(self, key: str, work: _Work) -> None:
        if self._works.get(key) is work:
            del self._works[key]


@dataclass(slots=True)
class _Health:
    """Whether the judge answers: the outcomes of recent judgements, else whether its endpoint can
    be reached, which is tried once per interval.
    """

    judge: Evaluator
    _unanswered: int = 0  # judgements in a row
    _noted_at: float = float("-inf")
    _probed_at: float = float("-inf")
    _unreachable: str = ""

    def note(self, outcome: Outcome) -> None:
        """Records a judgement. A few without an answer may be the fault of their requests."""
        unscored = outcome.verdict.unscored if isinstance(outcome, RewardResult) else "error"
        if unscored in _ANSWERED:
            self._unanswered = 0
        self._unanswered += unscored in _NO_ANSWER
        if unscored in _ANSWERED or self._unanswered >= MIN_CALLS:
            self._noted_at = time.monotonic()

    async def trouble(self) -> str:
        """Returns the current problem; empty if there is none, or its state is unknown."""
        if time.monotonic() - self._noted_at < _UNREADY:
            count = self._unanswered
            return "" if count < MIN_CALLS else f"the latest {count:,} judgements got no response"
        if time.monotonic() - self._probed_at > _PROBE_EVERY:
            self._probed_at, is_reachable = time.monotonic(), False
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS):
                    is_reachable = not await why_unreachable(self.judge)
            # no address in the message: any client may ask
            self._unreachable = "" if is_reachable else "the judge's endpoint cannot be reached"
        return self._unreachable


async def _caught(work: Awaitable[_T]) -> _T | BaseException:
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
    is_ours = isinstance(error, PrillError | JudgeError)
    text = str(error) if is_ours else f"the judge raised {type(error).__name__}"
    return text[:MAX_MESSAGE].encode("utf-8", "replace").decode()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, "prill-service")


async def off_loop(work: Callable[[], _T]) -> _T:
    """Runs slow work in the service's own threads: judges may hang in those of
    `asyncio.to_thread`.
    """
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)
