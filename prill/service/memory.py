"""Estimates and reserves the memory of requests before they are decoded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import msgspec

from prill.errors import InputError
from prill.types import Trajectory

_V = TypeVar("_V")
# Measured with msgspec 0.22 and Python 3.11: `{"":0}` takes 101 bytes for each of the characters
# counted here, `[]` 36.
VALUE_BYTES = 100
CLIENT_SHARE = 0.75  # of a budget that one client may hold, so that others still get in


def count_values(data: bytes) -> int:
    """How many JSON values a text holds at most: commas and opening brackets, those inside strings
    included.
    """
    return data.count(b",") + data.count(b"{") + data.count(b"[") + 1


def check_values(data: bytes, limit: int) -> int:
    """Estimated bytes of memory that a JSON text takes once it is decoded. Raises InputError for
    more than `limit` values.
    """
    values = count_values(data)
    if values > limit:
        raise InputError(
            f"up to {values:,} JSON values; the limit here is {limit:,} a request: send fewer "
            "trajectories at once"
        )
    return len(data) + VALUE_BYTES * values


def trajectory_bytes(trajectory: Trajectory) -> int:
    """The same for a trajectory; its pictures are files."""
    data = msgspec.json.encode(trajectory)
    return len(data) + VALUE_BYTES * count_values(data)


class ByteBudget:
    """Limits the bytes held in all and per client. `released` is called whenever some become
    free.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self.released: Callable[[], None] = lambda: None
        self._by_client: Counter[str] = Counter()

    def fits(self, size: int) -> bool:
        """Whether so many bytes are free; a single holder always fits."""
        return not self.used or self.used + size <= self.limit

    def within_share(self, client: str, size: int) -> bool:
        """Whether this client may hold so many more; one who holds nothing may."""
        held = self._by_client.get(client, 0)
        return not held or held + size <= self.limit * CLIENT_SHARE

    def reserve(self, client: str, size: int) -> Reservation:
        """Holds so many bytes, whether they fit or not."""
        reservation = Reservation(self, client)
        reservation.resize(size)
        return reservation

    def change(self, client: str, difference: int) -> None:
        """Adds to what a client holds, or takes from it."""
        self.used += difference
        self._by_client[client] += difference
        if not self._by_client[client]:
            del self._by_client[client]
        if difference < 0:
            self.released()


class Reservation:
    """Bytes of a budget that one request, job or judgement holds."""

    __slots__ = ("_budget", "client", "size")

    def __init__(self, budget: ByteBudget, client: str) -> None:
        self._budget, self.client, self.size = budget, client, 0

    def can_grow(self, size: int) -> bool:
        """Whether it may grow to this size."""
        more = size - self.size
        return more <= 0 or (
            self._budget.fits(more) and self._budget.within_share(self.client, more)
        )

    def resize(self, size: int) -> None:
        """Holds so many bytes from now on."""
        difference, self.size = size - self.size, size
        if difference:
            self._budget.change(self.client, difference)

    def release(self) -> None:
        """Holds nothing any more; safe to call twice."""
        self.resize(0)


@cache
def _threads(is_large: bool) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1 if is_large else 8, "prill-service")


async def off_loop(work: Callable[[], _V], *, is_large: bool = False) -> _V:
    """Runs slow work in the service's own threads, as hanging judges may occupy those of
    `asyncio.to_thread`.

    There is one thread for all that is large: decoding a large body holds the interpreter, and two
    at a time would keep everybody else from it for twice as long, and take twice the memory.
    """
    return await asyncio.get_running_loop().run_in_executor(_threads(is_large), work)
