"""Admission control: limits requests and bytes in progress, fair between clients."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from prill.service.memory import BusyError, ByteBudget, Reservation

_T = TypeVar("_T")


class FairQueue(Generic[_T]):
    """A queue in which clients take turns; each client's requests keep their order."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[_T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[_T]:
        return (item for line in self._lines.values() for item in line)

    def push(self, client: str, item: _T) -> None:
        """Appends an item to its client's queue."""
        self._lines.setdefault(client, deque()).append(item)
        self._length += 1

    def first(self, may: Callable[[_T], bool] = lambda item: True) -> _T | None:
        """Returns the next item by turn, among clients whose first item passes `may`.

        The result is None if there is none.
        """
        return next((line[0] for line in self._lines.values() if may(line[0])), None)

    def pop(self) -> _T:
        """Removes and returns the next item by turn. Raises IndexError if the queue is empty."""
        if not self._lines:
            raise IndexError("the queue is empty")
        client, line = next(iter(self._lines.items()))
        item = line[0]
        self.remove(client, item)
        return item

    def remove(self, client: str, item: _T) -> None:
        """Removes an item at any position and moves its client's next turn to the end.

        Nothing happens if the item is no longer queued.
        """
        line = self._lines.get(client)
        if line is None or item not in line:
            return
        was_first = line[0] is item
        line.remove(item)
        self._length -= 1
        if not line:
            del self._lines[client]
        elif was_first:
            self._lines.move_to_end(client)


@dataclass(eq=False, slots=True)
class _Waiting:
    client: str
    size: int
    turn: asyncio.Future[Reservation]


class AdmissionQueue:
    """Admits a limited number of requests and bytes, by their declared length. Raises BusyError."""

    def __init__(self, max_active: int, max_waiting: int, budget: ByteBudget | None = None) -> None:
        self._max_active, self._max_waiting = max_active, max_waiting
        self.budget = ByteBudget(2**62) if budget is None else budget
        self.budget.released = self._admit
        self.active, self.closed = 0, False
        self._waiting: FairQueue[_Waiting] = FairQueue()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def waiting(self) -> int:
        """Returns the number of waiting requests."""
        return len(self._waiting)

    @asynccontextmanager
    async def admitted(
        self, client: str, deadline: float, size: int = 0
    ) -> AsyncIterator[Reservation]:
        """Admits a request for the duration of the block and yields its memory reservation.

        `deadline` is a time of the event loop.
        """
        if self.closed:
            raise BusyError("the service is shutting down", 30)
        if self.waiting >= self._max_waiting and not self._may_enter(client, size):
            raise BusyError("too many requests are waiting", 5)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(client, size, loop.create_future())
        self._waiting.push(client, waiting)
        self._empty.clear()
        self._admit()
        try:
            if not waiting.turn.done():
                await asyncio.wait([waiting.turn], timeout=time_left(deadline, loop))
        except asyncio.CancelledError:
            self._cancel_waiting(waiting)
            raise
        if not waiting.turn.done():
            self._cancel_waiting(waiting)
            raise BusyError("the service is busy, and the time limit of this client is over", 2)
        reservation = waiting.turn.result()
        try:
            yield reservation
        finally:
            self._leave(reservation)

    def close(self) -> None:
        """Admits no new request; waiting requests are still admitted."""
        self.closed = True

    def reject_waiting(self) -> None:
        """Rejects all waiting requests."""
        for waiting in list(self._waiting):
            self._waiting.remove(waiting.client, waiting)
            waiting.turn.set_exception(BusyError("the service is shutting down", 30))
        self._tell()

    async def empty(self) -> None:
        """Waits until no request is admitted or waiting."""
        await self._empty.wait()

    def _may_enter(self, client: str, size: int) -> bool:
        if self.active >= self._max_active or self._waiting:
            return False
        return self.budget.fits(size) and self.budget.within_share(client, size)

    def _admit(self) -> None:
        while self.active < self._max_active:
            first = self._waiting.first(lambda one: self.budget.within_share(one.client, one.size))
            if first is None or not self.budget.fits(first.size):
                return
            self._waiting.remove(first.client, first)
            self.active += 1
            first.turn.set_result(self.budget.reserve(first.client, first.size))

    def _cancel_waiting(self, waiting: _Waiting) -> None:
        if waiting.turn.done() and not waiting.turn.exception():
            self._leave(waiting.turn.result())
        else:
            self._waiting.remove(waiting.client, waiting)
            self._tell()

    def _leave(self, reservation: Reservation) -> None:
        self.active -= 1
        reservation.release()
        self._admit()
        self._tell()

    def _tell(self) -> None:
        if not self.active and not self._waiting:
            self._empty.set()


def time_left(deadline: float, loop: asyncio.AbstractEventLoop) -> float | None:
    """Returns the seconds until a time of the event loop; None if there is no deadline."""
    return None if deadline == float("inf") else max(0.0, deadline - loop.time())
