"""Where requests wait for the judge: bounded, fair between clients, equal work once, nothing lost when the service ends."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Literal, TypeVar

from prill.errors import PrillError
from prill.protocols import concurrency_of
from prill.refine.rewards import Reward, RewardResult
from prill.scoring import CONCURRENCY, verdict_key
from prill.types import Trajectory

_T = TypeVar("_T")
Source = Literal["judged", "shared", "remembered"]
_MOST_REMEMBERED = 4096


class Busy(Exception):
    """The request cannot be answered now; `after` is when to come again, in seconds."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class JudgeBroke(Exception):
    """No verdict, and no reason that a verdict could carry: the endpoint is gone, or the judge has a bug."""


class FairQueue(Generic[_T]):
    """What waits, by client: clients take turns, and what one client sent keeps its order."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[_T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[_T]:
        return (item for line in self._lines.values() for item in line)

    def push(self, client: str, item: _T) -> None:
        """Puts an item at the end of its client's line."""
        self._lines.setdefault(client, deque()).append(item)
        self._length += 1

    def pop(self) -> _T:
        """The first of the client whose turn it is. Raises IndexError when nothing waits."""
        if not self._lines:
            raise IndexError("nothing waits")
        client, line = self._lines.popitem(last=False)
        item = line.popleft()
        if line:
            self._lines[client] = line  # at the end: the others first
        self._length -= 1
        return item

    def remove(self, client: str, item: _T) -> None:
        """Takes an item out, wherever it stands; nothing happens where it does not wait any more."""
        line = self._lines.get(client)
        if line is None or item not in line:
            return
        line.remove(item)
        self._length -= 1
        if not line:
            del self._lines[client]


class Door:
    """Lets so many requests in at a time; the others wait outside, unread, and clients take turns. Raises Busy."""

    def __init__(self, inside: int, outside: int) -> None:
        self._most_inside, self._most_outside = inside, outside
        self.inside, self.closed = 0, False
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def outside(self) -> int:
        """How many wait at the door."""
        return len(self._waiting)

    @asynccontextmanager
    async def place(self, client: str, deadline: float) -> AsyncIterator[None]:
        """A place inside, while open. `deadline` is a time of the event loop."""
        loop = asyncio.get_running_loop()
        if self.closed:
            raise Busy("the service is ending", 30)
        if self.inside < self._most_inside and not self._waiting:
            self.inside += 1
        elif self.outside >= self._most_outside:
            raise Busy("too many requests are waiting already", 5)
        else:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.push(client, turn)
            try:
                await asyncio.wait([turn], timeout=_left(deadline, loop))
            except asyncio.CancelledError:
                self._step_back(client, turn)
                raise
            if not turn.done():
                self._step_back(client, turn)
                raise Busy("the service is busy, and the time that this client waits is over", 2)
        self._empty.clear()
        try:
            yield
        finally:
            self._leave()

    def close(self) -> None:
        """Lets nobody come any more; who waits already still gets in."""
        self.closed = True

    async def empty(self) -> None:
        """Returns when nobody is inside or waits."""
        await self._empty.wait()

    def _step_back(self, client: str, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self._leave()
        else:
            self._waiting.remove(client, turn)
            self._tell()

    def _leave(self) -> None:
        if self._waiting:
            self._waiting.pop().set_result(None)  # the place passes on
        else:
            self.inside -= 1
        self._tell()

    def _tell(self) -> None:
        if not self.inside and not self._waiting:
            self._empty.set()


def _left(deadline: float, loop: asyncio.AbstractEventLoop) -> float | None:
    return None if deadline == float("inf") else max(0.0, deadline - loop.time())


@dataclass(eq=False, slots=True)
class _Work:
    """One trajectory to judge, and who asked first; `waiters` counts the requests that want its result."""

    key: str
    client: str
    trajectory: Trajectory
    future: asyncio.Future[RewardResult]
    waiters: int = 0
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, and how it came: judged for this request, shared with another, or remembered."""

    result: RewardResult
    key: str
    source: Source


class Desk:
    """Judges what requests bring, as many at a time as the judge's model takes calls.

    Equal trajectories (by the key of verdict files) that are under way at the same time are judged once, and the latest
    verdicts are remembered, so that a client that comes again after a 503 is answered at once. What could not be judged is not
    remembered. `judged` is told every result with its seconds in the queue and at the judge.
    """

    def __init__(
        self,
        reward: Reward,
        *,
        concurrency: int | None = None,
        judged: Callable[[RewardResult | BaseException, float, float], None] = lambda result, waited, took: None,
    ) -> None:
        self.reward = reward
        self.concurrency = concurrency or concurrency_of(reward.judge) or CONCURRENCY
        self._judged = judged
        self._queue: FairQueue[_Work] = FairQueue()
        self._under_way: dict[str, _Work] = {}
        self._running: set[asyncio.Task[RewardResult]] = set()
        self._remembered: OrderedDict[str, RewardResult] = OrderedDict()
        self._paces: deque[float] = deque(maxlen=50)

    @property
    def waiting(self) -> int:
        """Trajectories that wait for the judge."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """Trajectories at the judge."""
        return len(self._running)

    async def result(self, trajectory: Trajectory, client: str, deadline: float) -> Answer:
        """The reward of a trajectory. Raises Busy at the deadline, a time of the event loop, and JudgeBroke."""
        judge = self.reward.judge
        screenshots = judge.screenshots(trajectory)
        # Files are read for the key: other requests go on meanwhile.
        key = (
            await asyncio.to_thread(verdict_key, judge.info, trajectory, screenshots)
            if screenshots
            else verdict_key(judge.info, trajectory, ())
        )
        if (known := self._remembered.get(key)) is not None:
            self._remembered.move_to_end(key)
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
            await asyncio.wait([work.future], timeout=_left(deadline, loop))
        finally:
            work.waiters -= 1
            if not work.waiters and not work.future.done():
                self._forget(work)
        if not work.future.done():
            raise Busy("not judged within the time that this client waits", self._pace())
        failure = work.future.exception()
        if failure is not None:
            raise JudgeBroke(str(failure) if isinstance(failure, PrillError) else f"the judge raised {type(failure).__name__}")
        return Answer(work.future.result(), key, source)

    def _forget(self, work: _Work) -> None:
        """Nobody waits for it: unless it is at the judge, it is not judged."""
        before = len(self._queue)
        self._queue.remove(work.client, work)
        if len(self._queue) < before:
            self._under_way.pop(work.key, None)

    def _begin(self) -> None:
        while len(self._running) < self.concurrency and len(self._queue):
            work = self._queue.pop()
            task = asyncio.create_task(self.reward.result(work.trajectory))
            self._running.add(task)
            began = time.monotonic()
            task.add_done_callback(partial(self._end, work, began))

    def _end(self, work: _Work, began: float, task: asyncio.Task[RewardResult]) -> None:
        self._running.discard(task)
        self._under_way.pop(work.key, None)
        took = time.monotonic() - began
        self._paces.append(took)
        if task.cancelled():
            failure: BaseException | None = JudgeBroke("the judgement was given up")
        else:
            failure = task.exception()
        if failure is None:
            result = task.result()
            if result.verdict.unscored is None:
                self._remembered[work.key] = result
                if len(self._remembered) > _MOST_REMEMBERED:
                    self._remembered.popitem(last=False)
            work.future.set_result(result)
            self._judged(result, began - work.since, took)
        else:
            work.future.set_exception(failure)
            work.future.exception()  # read here: nobody may wait for it any more
            self._judged(failure, began - work.since, took)
        self._begin()

    def _pace(self) -> float:
        """When the queue should have moved: the time of what waits now, by the latest judgements, within a minute."""
        if not self._paces:
            return 2.0
        mean = sum(self._paces) / len(self._paces)
        return min(60.0, max(1.0, mean * (1 + self.waiting / self.concurrency)))
