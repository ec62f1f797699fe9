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
# Measured with msgspec 0.22 and Python 3.11: `{"":0}` takes 101 bytes per character counted here,
# `[]` 36.
VALUE_BYTES = 100
CLIENT_SHARE = 0.75  # of a budget that one client may hold, so that others are still admitted


class BusyError(Exception):
    """The request cannot be answered now; `after` is the Retry-After in seconds."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


def count_values(data: bytes) -> int:
    """Returns an upper bound on the JSON values in a text: commas and opening brackets, including
    those inside strings.
    """
    return data.count(b",") + data.count(b"{") + data.count(b"[") + 1


def check_values(data: bytes, limit: int) -> int:
    """Returns the estimated bytes of memory of a decoded JSON text. Raises InputError for more than
    `limit` values.
    """
    values = count_values(data)
    if values > limit:
        raise InputError(
            f"up to {values:,} JSON values; the limit is {limit:,} per request; send fewer "
            "trajectories at once"
        )
    return len(data) + VALUE_BYTES * values


def trajectory_bytes(trajectory: Trajectory) -> int:
    """Returns the estimated bytes of memory of a trajectory, whose images are files."""
    data = msgspec.json.encode(trajectory)
    return len(data) + VALUE_BYTES * count_values(data)


class ByteBudget:
    """Limits the bytes held in total and per client.

    `released` is called whenever some are freed.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self.released: Callable[[], None] = lambda: None
        self._by_client: Counter[str] = Counter()

    def fits(self, size: int) -> bool:
        """Returns whether so many bytes are free; a single holder always fits."""
        return not self.used or self.used + size <= self.limit

    def within_share(self, client: str, size: int) -> bool:
        """Returns whether this client may hold so many more; one that holds nothing may."""
        reserved = self._by_client.get(client, 0)
        return not reserved or reserved + size <= self.limit * CLIENT_SHARE

    def reserve(self, client: str, size: int) -> Reservation:
        """Reserves so many bytes, even beyond the limit."""
        reservation = Reservation(self, client)
        reservation.resize(size)
        return reservation

    def change(self, client: str, difference: int) -> None:
        """Adds to the bytes that a client holds, or subtracts from them."""
        self.used += difference
        self._by_client[client] += difference
        if not self._by_client[client]:
            del self._by_client[client]
        if difference < 0:
            self.released()


class Reservation:
    """The bytes of a budget that one request, job or judgement holds."""

    __slots__ = ("_budget", "client", "size")

    def __init__(self, budget: ByteBudget, client: str) -> None:
        self._budget, self.client, self.size = budget, client, 0

    def grow(self, size: int) -> None:
        """Grows to this size, unless it is as large already. Raises BusyError if there is no
        memory.
        """
        more = size - self.size
        if more <= 0:
            return
        if not (self._budget.fits(more) and self._budget.within_share(self.client, more)):
            raise BusyError("other requests use all the memory; send fewer trajectories at once", 2)
        self.resize(size)

    def resize(self, size: int) -> None:
        """Changes the reserved bytes to this size."""
        difference, self.size = size - self.size, size
        if difference:
            self._budget.change(self.client, difference)

    def release(self) -> None:
        """Releases all bytes; safe to call twice."""
        self.resize(0)


@cache
def _threads(is_large: bool) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1 if is_large else 8, "prill-service")


async def off_loop(work: Callable[[], _V], *, is_large: bool = False) -> _V:
    """Runs slow work in the service's own threads.

    Hanging judges may occupy the threads of `asyncio.to_thread`.

    All large work shares one thread: decoding a large body holds the GIL, and two at a time would
    block other threads twice as long and take twice the memory.
    """
    return await asyncio.get_running_loop().run_in_executor(_threads(is_large), work)
