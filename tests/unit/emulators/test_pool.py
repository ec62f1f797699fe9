"""A pool lends each environment to one borrower at a time, and sets aside those that do not
work.
"""

from __future__ import annotations

import asyncio

from prill.episodes.record import Pool
from prill.errors import EnvironmentFailedError
from prill.types import Action, Observation, Task


class Phone:
    """Counts how often it is closed; with `closes`, that raises or hangs."""

    closed = 0

    def __init__(self, closes: str = "well") -> None:
        self.closes = closes

    async def reset(self, task: Task) -> Observation:
        return Observation()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        return Observation(), True

    async def close(self) -> None:
        self.closed += 1
        if self.closes == "badly":
            raise EnvironmentFailedError("the copy cannot be deleted")
        if self.closes == "never":
            await asyncio.sleep(600)


async def test_longest_rested_is_lent_first() -> None:
    phones = [Phone(), Phone()]
    pool = Pool(phones)
    seen: list[int] = []
    inside = 0

    async def borrow() -> None:
        nonlocal inside
        async with pool.lend() as phone:
            inside += 1
            assert inside <= 2
            seen.append(phones.index(phone))
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(borrow() for _ in range(6)))
    assert seen == [0, 1] * 3


async def test_repeated_failure_sets_aside() -> None:
    bad, good = Phone(), Phone()
    pool = Pool([bad, good], patience=2)
    for failure in ("gone", None, "gone", "gone"):
        async with pool.lend() as phone:
            await pool.report(bad, failure)
        del phone
    assert (bad.closed, pool.size) == (1, 1)
    for _ in range(3):
        async with pool.lend() as phone:
            assert phone is good


async def test_retry_gets_another_environment() -> None:
    one, other = Phone(), Phone()
    pool = Pool([one, other], patience=1)
    for _ in range(2):
        async with pool.lend(but=one) as phone:
            assert phone is other
    async with pool.lend(but=other) as phone:
        assert phone is one
    await pool.report(other, "gone")
    async with pool.lend(but=one) as phone:
        assert phone is one
