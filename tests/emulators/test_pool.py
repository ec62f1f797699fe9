"""A pool lends each environment to one borrower at a time, and sets aside those that do not work."""

from __future__ import annotations

import asyncio

import pytest

from prill.emulators.pool import Pool
from prill.errors import EnvironmentFailure, UsageError
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
            raise EnvironmentFailure("the copy cannot be deleted")
        if self.closes == "never":
            await asyncio.sleep(600)


async def test_a_borrower_waits_until_one_is_free_and_gets_the_one_that_rested_longest() -> None:
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


async def test_one_that_fails_several_times_in_a_row_is_closed_and_not_lent_again() -> None:
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


async def test_those_who_wait_are_told_when_none_is_left() -> None:
    phone = Phone()
    pool = Pool([phone], patience=1)

    async def wait() -> None:
        async with pool.lend():
            pass

    async with pool.lend():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        await pool.report(phone, "no such device")
    with pytest.raises(EnvironmentFailure, match="no such device"):
        await waiting


async def test_closing_closes_every_one_and_an_empty_pool_is_refused() -> None:
    phones = [Phone(), Phone()]
    await Pool(phones).close()
    assert [phone.closed for phone in phones] == [1, 1]
    with pytest.raises(UsageError, match="at least one"):
        Pool([])


async def test_another_one_than_the_one_that_failed_is_lent_while_there_are_others() -> None:
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


async def test_one_that_does_not_close_keeps_neither_the_others_nor_the_run_from_ending() -> None:
    phones = [Phone("never"), Phone("badly"), Phone()]
    pool = Pool(phones, patience=1, closing=0.01)
    for phone in phones[:2]:
        await pool.report(phone, "gone")
    assert pool.size == 1
    with pytest.raises(EnvironmentFailure, match=r"did not close within 0\.01 s"):
        await pool.close()
    assert [phone.closed for phone in phones] == [2, 2, 1]
