"""One budget for all models of a run, whatever fails: no more than it and one call are spent."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from prill.errors import (
    BudgetSpentError,
    CallTimeoutError,
    EndpointError,
    UnscoredError,
    UsageError,
)
from prill.io.spending import SpendingFile, recorded_spending, spending_path
from prill.models import ledger as ledgers
from prill.models.client import OpenAIModel
from prill.models.ledger import Budget, Ledger, Price, metered, spending_from
from prill.models.registry import make_model
from prill.protocols import Message
from prill.testing import Faults, ScriptedModel
from prill.testing.endpoint.server import serving
from tests.support.models.scripted_endpoint import FORM, GOOD, ScriptedEndpoint, failed
from tests.unit.models.test_client import ASK

pytestmark = pytest.mark.usefixtures("quick_retries")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks often, and does not wait for the disk."""
    monkeypatch.setattr(ledgers, "_LONGEST_LOOK", 0.01)
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def prices(tmp_path: Path) -> str:
    (tmp_path / "prices.toml").write_text(
        "[m]\nprompt = 1000\ncompletion = 1000\n[n]\nprompt = 1000\ncompletion = 1000\n"
    )
    return str(tmp_path / "prices.toml")


def charged(endpoint: Any, price: Price) -> float:
    return price.usd(endpoint.billed_prompt_tokens, endpoint.billed_completion_tokens)


@pytest.mark.parametrize("seed", range(5))
async def test_endpoint_charges_no_more_than_the_budget_and_one_call(
    seed: int, tmp_path: Path, prices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    rates = [draw.uniform(0, 1) for _ in range(10)]
    names = (
        "rate_limit", "server_error", "drop", "stall", "garbage", "html", "cut", "empty",
        "error_inside", "broken_off",
    )  # fmt: skip
    share = draw.uniform(0.1, 0.9) / sum(rates)
    chances = {name: rate * share for name, rate in zip(names, rates, strict=True)}
    faults = Faults(seed=seed, retry_after=0.001, stall_seconds=2.0, **chances)  # type: ignore[arg-type]
    file, price, budget = tmp_path / "spending.json", Price(1000.0, 1000.0), draw.uniform(0.5, 6.0)
    held: list[float] = []
    begin = Budget.begin
    monkeypatch.setattr(Budget, "begin", lambda self, usd: (held.append(usd), begin(self, usd))[1])
    async with serving(faults) as (endpoint, url):
        for start in range(4):
            record = SpendingFile(file)
            with spending_from(
                Budget(budget, spent_usd=record.read() or 0.0, record=record)
            ) as run:
                models = [
                    OpenAIModel(
                        name,
                        base_url=url,
                        prices=prices,
                        timeout=0.2,
                        retries=2,
                        concurrency=draw.randint(2, 24),
                    )
                    for name in ("m", "n")
                ]
            tasks = [
                asyncio.create_task(
                    draw.choice(models).complete(
                        (Message("user", (f"{start} {n}",)),), form=FORM, max_tokens=60
                    )
                )
                for n in range(24)
            ]
            for task in draw.sample(tasks, draw.randint(0, 8)):
                asyncio.get_running_loop().call_later(draw.uniform(0, 0.3), task.cancel)
            killed = start < 3 and draw.random() < 0.5
            if killed:  # what the file says at that moment is all that is known afterwards
                await asyncio.wait(tasks, timeout=draw.uniform(0.01, 0.2))
                known = file.read_bytes() if file.exists() else None
                for task in tasks:
                    task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [
                end
                for end in ends
                if isinstance(end, Exception) and not isinstance(end, UnscoredError | EndpointError)
            ]
            run.close()
            if killed:
                file.unlink(missing_ok=True) if known is None else file.write_bytes(known)
            assert charged(endpoint, price) <= budget + max(held, default=0.0) + 1e-9
            assert killed or run.spent_usd >= charged(endpoint, price) - 1e-9
    assert held


async def test_burst_before_the_first_answer_is_held(
    endpoint: ScriptedEndpoint, prices: str
) -> None:
    """64 calls at once on a budget for 30 of them, each of 15 tokens."""
    asked = OpenAIModel(
        "m", base_url=endpoint.base_url, prices=prices, budget_usd=30 * 0.015, concurrency=64
    )
    ends = await asyncio.gather(
        *(asked.complete(ASK, form=FORM, max_tokens=5) for _ in range(64)), return_exceptions=True
    )
    assert sum(isinstance(end, BudgetSpentError) for end in ends) == 34
    assert len(endpoint.bodies) == 30 and asked.ledger.total.usd == pytest.approx(0.45)


async def test_estimate_learns_from_what_calls_cost(
    endpoint: ScriptedEndpoint, prices: str
) -> None:
    """A model that counts far more tokens than its words let expect: only the first call can be
    underrated.
    """
    choice = {
        "message": {"content": '{"thoughts": "fine", "status": "success"}'},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 300, "completion_tokens": 100}
    endpoint.script = [lambda body: web.json_response({"choices": [choice], "usage": usage})]
    asked = OpenAIModel(
        "m", base_url=endpoint.base_url, prices=prices, budget_usd=2.0, concurrency=64
    )
    await asked.complete(ASK, form=FORM, max_tokens=10)
    await asyncio.gather(
        *(asked.complete(ASK, form=FORM, max_tokens=10) for _ in range(40)), return_exceptions=True
    )
    assert asked.ledger.total.usd == pytest.approx(2.0) and len(endpoint.bodies) == 5


async def test_all_of_a_small_budget_can_be_spent(endpoint: ScriptedEndpoint, prices: str) -> None:
    asked = OpenAIModel("m", base_url=endpoint.base_url, prices=prices, budget_usd=0.02)
    # which may cost a dollar, and costs 1.5 cents
    await asked.complete(ASK, form=FORM, max_tokens=1000)
    await asked.complete(ASK, form=FORM, max_tokens=1000)
    with pytest.raises(BudgetSpentError, match=r"\$0.02 is used up \(\$0.0300 spent\)"):
        await asked.complete(ASK, form=FORM)


async def test_call_without_an_answer_is_paid_for(endpoint: ScriptedEndpoint, prices: str) -> None:
    endpoint.script = [5.0]
    asked = OpenAIModel("m", base_url=endpoint.base_url, prices=prices, timeout=0.05, retries=1)
    with metered() as meter, pytest.raises(CallTimeoutError):
        await asked.complete(ASK, form=FORM, max_tokens=100)
    usage = meter.usage
    assert usage == asked.ledger.total
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (0, 0, 0)
    # two attempts, of 100 tokens of reply each
    assert usage.usd == usage.estimated_usd and usage.usd > 2 * 0.1
    assert "estimated, for calls without an answer" in ledgers.usage_text(usage)


@pytest.mark.parametrize(
    ("first", "is_paid"),
    [
        ("drop", True),
        (failed(500), False),
        (failed(429), False),
        (failed(504), True),
        (GOOD, False),
    ],
)
async def test_only_what_was_sent_and_not_refused_is_estimated(
    endpoint: ScriptedEndpoint, prices: str, first: Any, is_paid: bool
) -> None:
    endpoint.script = [first, GOOD]
    asked = OpenAIModel("m", base_url=endpoint.base_url, prices=prices)
    reply = await asked.complete(ASK, form=FORM)
    assert bool(reply.usage.estimated_usd) == is_paid
    assert reply.usage.usd == pytest.approx(0.015 + (reply.usage.estimated_usd or 0.0))
    assert (reply.usage.calls, reply.usage.prompt_tokens) == (1, 10)


def test_budget_names_the_model_that_it_cannot_cover(prices: str) -> None:
    with spending_from(Budget(1.0)):
        for name in ("gpt-4o-nix", "my-gpt-4o"):
            with pytest.raises(UsageError, match=f"needs a price for {name}"):
                OpenAIModel(name)
        with pytest.raises(
            UsageError, match="own model: this model does not report the cost of its calls"
        ):
            make_model(ScriptedModel(lambda messages: ""), place="own model")
        assert OpenAIModel("m", prices=prices).ledger.budgets
    assert not OpenAIModel("gpt-4o-nix").ledger.budgets


def test_spending_is_taken_up(tmp_path: Path) -> None:
    file = SpendingFile(tmp_path / "spending.json")
    assert file.read() is None
    budget = Budget(1.0, record=file)
    budget.close()
    assert not file.path.exists(), "a run that spends nothing leaves no file"
    assert Budget(1.0, record=file).begin(0.5)
    assert 0.5 <= (SpendingFile(file.path).read() or 0.0) < 0.63, "known before it is spent"
    file.unlock()
    budget = Budget(1.0, spent_usd=0.25, record=file)
    budget.spend(0.5)
    budget.close()
    assert SpendingFile(file.path).read() == 0.75
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spending.json"]


def test_only_one_run_spends_at_a_time(tmp_path: Path) -> None:
    first, second = SpendingFile(tmp_path / "s.json"), SpendingFile(tmp_path / "s.json")
    first.lock()
    with pytest.raises(UsageError, match="another process is already using"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", (b'{"format": "prill '
b'spending 1"}'), b'{"format": "x", "spent_usd": 1, "held_usd": 0}',
             (b'{"format": "prill spending 1", '
b'"spent_usd": -1, "held_usd": 0}'), b"\xff", b"[" * 100_000,
             b'{"format": "prill spending 1", "spent_usd": true, "held_usd": 0}',
             b'{"format": "prill spending 1", "spent_usd": 1e999, "held_usd": 0}']
)  # fmt: skip
def test_damaged_spending_is_no_zero(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "spending.json").write_bytes(data)
    with pytest.raises(UsageError, match=r"spending.json: cannot be read"):
        SpendingFile(tmp_path / "spending.json").read()


def test_thousands_of_calls_are_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[float] = []
    monkeypatch.setattr(
        SpendingFile, "write", lambda self, spent, held: writes.append(spent + held)
    )
    budget = Budget(100.0, record=SpendingFile(tmp_path / "s.json"))
    for _ in range(10_000):
        assert budget.begin(0.02)
        budget.end(0.02, 0.005)
    assert len(writes) < 500
    assert budget.spent_usd == pytest.approx(50.0)


def test_spending_of_older_runs_is_what_their_records_say(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "usage": {"usd": 0.5}},
        {"id": "b", "metadata": {"usage": {"usd": 0.25}}},
        {"id": "c", "metadata": {"usage": {"usd": 9}, "reused": True}},
        {"id": "d", "usage": {"usd": None}},
        {"id": "e", "usage": "many"},
    ]
    path = tmp_path / "v.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\nbroken\n")
    assert recorded_spending(path) == 0.75 and not recorded_spending(tmp_path / "gone.jsonl")
    assert spending_path(path) == tmp_path / "v.spending.json"


SAME = [
    "gpt-4o-2024-11-20", "openai/gpt-4o", "gpt-4o-0806", "gpt-4o-latest", "gpt-4o@20240806",
    "gpt-4o@default", "gpt-4o-20240806", "gpt-4o-001", "gpt-4o-v2:0", "azure/gpt-4o-2024-08-06",
    "gpt-4o-05-13", "gpt-4o-2411",
]  # fmt: skip
OTHERS = [
    "gpt-4o-nix", "gpt-4o-audio-preview", "gpt-4o-realtime", "gpt-4o:free", "gpt-4o:online",
    "gpt-4o-2024", "gpt-4os", "gpt-4o-4096", "gpt-4o-", "gpt-4o-9999-99-99", "gpt-4o-mini-tts",
    "o3-deep-research", "gpt-5-codex", "o3-pro", "gpt-5-pro", "gpt-4o-search-preview",
    "ft:gpt-4o:org::1", "gpt-4o-latest-nix", "gpt-4o-2024-11-20-x",
]  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_date_or_version_has_the_price_of_the_model(name: str) -> None:
    assert ledgers.find_price(name) == ledgers.find_price("gpt-4o") is not None


@pytest.mark.parametrize("name", OTHERS)
def test_another_ending_is_another_model(name: str) -> None:
    assert ledgers.find_price(name) is None


def test_ledger_of_ones_own_counts_in_the_budget() -> None:
    class Own(ScriptedModel):
        ledger = Ledger(Price(1e6, 1e6))

    with spending_from(Budget(10.0)) as budget:
        model = make_model(Own(lambda messages: ""))
    model.ledger.record(3, 1, 0)  # type: ignore[attr-defined]
    assert budget.spent_usd == 4.0
    budget.close()
    with spending_from(Budget(5.0)) as later:
        make_model(model)
    model.ledger.record(1, 0, 0)  # type: ignore[attr-defined]
    assert (budget.spent_usd, later.spent_usd) == (4.0, 1.0), "a run that has ended spends nothing"


def test_workers_of_an_engine_cannot_share_a_budget() -> None:
    assert pickle.loads(pickle.dumps(Ledger(Price(1, 1)))).price == Price(1, 1)
    with pytest.raises(UsageError, match="workers of an engine cannot share a budget"):
        pickle.dumps(Ledger(Price(1, 1), 10.0))
