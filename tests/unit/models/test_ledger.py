"""Prices and totals."""

import asyncio
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.models.ledger import Ledger, Price, find_price, metered
from prill.types import Usage


def test_the_users_table_goes_first(tmp_path: Path) -> None:
    table = tmp_path / "p.toml"
    table.write_text('["gpt-4o"]\nprompt = 1\ncompletion = 2\n[mine]\nprompt = 3\ncompletion = 4\n')
    assert find_price("gpt-4o", str(table)) == Price(1, 2)
    assert find_price("mine", str(table)) == Price(3, 4)
    assert Price(1, 2).usd(1_000_000, 500_000) == 2.0


@pytest.mark.parametrize("text", ["[m]\nprompt = 1", "not toml", "m = 3"])
def test_wrong_price_table_is_refused(tmp_path: Path, text: str) -> None:
    table = tmp_path / "p.toml"
    table.write_text(text)
    with pytest.raises(UsageError, match="not a price table"):
        find_price("m", str(table))


@pytest.mark.parametrize("budget", [float("nan"), -1.0])
def test_budget_that_is_none_is_refused(budget: float) -> None:
    with pytest.raises(UsageError, match="the budget is"):
        Ledger(Price(1, 1), budget)


async def test_each_meter_gets_its_own_share() -> None:
    ledger = Ledger(Price(1e6, 1e6))

    async def work(tokens: int) -> Usage:
        with metered() as meter:
            await asyncio.gather(
                *(asyncio.to_thread(ledger.record, tokens, 0, 0) for _ in range(3))
            )
            return meter.usage

    shares = await asyncio.gather(work(1), work(10))
    assert [share.prompt_tokens for share in shares] == [3, 30]
    assert ledger.total == Usage(6, 33, 0, 0, 33.0)
