"""One budget for all models of a run: whatever fails, whoever shares it and however often it is
begun, no more is spent than it and the price of one call.
"""

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
from prill.io.shards import Packing, Shard, packing_for
from prill.io.spending import _OF_ANOTHER, SpendingFile, recorded_spending, spending_path
from prill.models import ledger as ledgers
from prill.models.client import OpenAIModel
from prill.models.ledger import Budget, Ledger, Price, metered, spending_from
from prill.models.registry import make_model
from prill.protocols import Message
from prill.testing import Faults, ScriptedModel
from prill.testing.endpoint.server import serving
from tests.support.models.scripted_endpoint import FORM, GOOD, ScriptedEndpoint, failed, said
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


class Run:
    """A run of several processes that spend one budget, begun again and again; calls begin, end and
    are lost at random.

    What providers charge is counted apart: every call that was sent, whatever became of it.
    """

    def __init__(self, draw: random.Random, place: Path) -> None:
        self.draw, self.place = draw, place
        self.limit, self.dearest, self.billed, self.sent = draw.uniform(0, 40), 0.0, 0.0, 0
        self.costs: dict[int, float] = {}
        self.begin()

    def begin(self) -> None:
        """Starts, or takes up what was killed."""
        record = SpendingFile(self.place)
        # what was killed holds no lock; here it is this process, which does
        record._lock = _OF_ANOTHER
        self.whole = Budget(self.limit, spent_usd=record.read_all() or 0.0, record=record)
        count = self.draw.randint(1, 3)
        self.packed = (
            [self.pack(number, count) for number in range(1, count + 1)] if count > 1 else []
        )
        self.parts = [self.process(number) for number in range(count)]
        self.calls: list[tuple[int, Budget, float]] = []

    def pack(self, number: int, count: int) -> bytes:
        """The budget for a shard."""
        with packing_for(Packing(Shard(number, count), self.place.parent)):
            return pickle.dumps(self.whole)

    def process(self, number: int) -> Budget:
        """The budget as one of the processes has it."""
        part: Budget = pickle.loads(self.packed[number]) if self.packed else self.whole
        return part

    def step(self) -> None:
        """Something happens."""
        what = self.draw.random()
        number = self.draw.randrange(len(self.parts))
        if what < 0.55:
            usd = self.draw.uniform(0, 4)
            try:
                begun = self.parts[number].begin(usd)
            except BudgetSpentError:
                return
            if begun:
                self.dearest = max(self.dearest, usd)
                self.billed += (cost := self.draw.uniform(0.2, 1) * usd)
                self.sent += 1
                self.calls.append((number, self.parts[number], usd))
                self.costs[id(self.calls[-1])] = cost
        elif what < 0.93 and self.calls:
            call = self.calls.pop(self.draw.randrange(len(self.calls)))
            lost = self.draw.random() < 0.3
            call[1].end(call[2], call[2] if lost else self.costs[id(call)])
        elif what < 0.97 and self.packed:  # a process dies, and another one takes its place
            self.parts[number] = self.process(number)
            self.calls = [call for call in self.calls if call[0] != number]
        elif what < 0.99:  # kill -9 of all: nothing is closed
            if self.draw.random() < 0.3:
                self.limit += self.draw.uniform(0, 10)
            self.begin()
        else:  # an end as it should be
            for _, budget, usd in self.calls:
                budget.end(usd, usd)
            self.whole.close()
            self.begin()


@pytest.mark.parametrize("seed", range(120))
def test_no_more_is_spent_than_the_budget_and_one_call(seed: int, tmp_path: Path) -> None:
    run = Run(random.Random(seed), tmp_path / "spending.json")
    for _ in range(150):
        run.step()
        assert run.billed <= run.limit + run.dearest + 1e-9
    assert run.sent > 0 or run.limit < 4


def charged(endpoint: Any, price: Price) -> float:
    return price.usd(endpoint.billed_prompt_tokens, endpoint.billed_completion_tokens)


@pytest.mark.parametrize("seed", range(12))
async def test_endpoint_charges_no_more_than_the_budget_and_one_call(
    seed: int, tmp_path: Path, prices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    rates = [draw.uniform(0, 1) for _ in range(10)]
    names = (
        "rate_limit",
        "server_error",
        "drop",
        "stall",
        "garbage",
        "html",
        "cut",
        "empty",
        "error_inside",
        "broken_off",
    )
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


async def test_nobody_there_costs_nothing(prices: str) -> None:
    asked = OpenAIModel(
        "m", base_url="http://127.0.0.1:9/v1", prices=prices, retries=0, budget_usd=1.0
    )
    with pytest.raises(UnscoredError):
        await asked.complete(ASK, form=FORM)
    assert asked.ledger.budgets[0].spent_usd == 0.0


async def test_cancelled_call_is_paid_for(endpoint: ScriptedEndpoint, prices: str) -> None:
    endpoint.script = [5.0]
    asked = OpenAIModel("m", base_url=endpoint.base_url, prices=prices, budget_usd=10.0)
    task = asyncio.create_task(asked.complete(ASK, form=FORM))
    while not endpoint.bodies:
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # 1,024 tokens of reply
    assert asked.ledger.budgets[0].spent_usd == asked.ledger.total.estimated_usd > 1.0


@pytest.mark.parametrize("count", [True, False, -3, 3.5, 1e300, "3", None, 10**12])
async def test_what_is_no_count_is_no_usage(endpoint: ScriptedEndpoint, count: object) -> None:
    def answer(body: dict[str, Any]) -> Any:
        response = said('{"thoughts": "fine", "status": "success"}')(body)
        record = msgspec.json.decode(response.body)  # type: ignore[union-attr]
        record["usage"] = {
            "prompt_tokens": count,
            "completion_tokens": count,
            "total_tokens": count,
        }
        response.body = msgspec.json.encode(record)  # type: ignore[union-attr]
        return response

    endpoint.script = [answer]
    reply = await OpenAIModel("m", base_url=endpoint.base_url).complete(ASK, form=FORM)
    words = sum(len(part) for message in ASK for part in message.parts if isinstance(part, str))
    assert reply.usage.prompt_tokens == (words + 3) // 4 > 1
    assert reply.usage.completion_tokens > 1


@pytest.mark.parametrize(
    "key", ["x", "token", "none", "EMPTY", "dummy", "max_tok", "not-needed", "Placeholder"]
)
async def test_short_key_spoils_no_words(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """What people put for servers that want no key must not keep the client from understanding an
    error.
    """
    monkeypatch.setenv("OPENAI_API_KEY", key)
    words = (
        f"Unsupported parameter: 'max_tokens' is not for this {key} model. Use "
        "'max_completion_tokens' instead."
    )
    endpoint.script = [failed(400, words), GOOD]
    reply = await OpenAIModel("m", base_url=endpoint.base_url).complete(ASK, form=FORM)
    assert reply.fields["status"] == "success" and "max_completion_tokens" in endpoint.bodies[1]
    endpoint.script = [failed(400, f"no {key} here")]
    with pytest.raises(UnscoredError, match=f"no {key} here"):
        await OpenAIModel("m", base_url=endpoint.base_url).complete(ASK, form=FORM)


async def test_key_is_hidden_and_the_error_understood(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "max_completion_tokens"  # the worst that a key could be
    monkeypatch.setenv("OPENAI_API_KEY", key)
    endpoint.script = [
        failed(400, f"'max_tokens' is not supported, use '{key}'"),
        failed(400, f"content policy of {key}"),
    ]
    with pytest.raises(UnscoredError, match=r"content policy of \*\*\*"):
        await OpenAIModel("m", base_url=endpoint.base_url).complete(ASK, form=FORM)
    assert key in endpoint.bodies[1]


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


async def test_models_of_a_run_spend_one_budget(endpoint: ScriptedEndpoint, prices: str) -> None:
    with spending_from(Budget(0.05)) as budget:
        asked = [
            OpenAIModel(name, base_url=endpoint.base_url, prices=prices) for name in ("m", "n")
        ]
    ends = [
        await asyncio.gather(asked[n % 2].complete(ASK, form=FORM), return_exceptions=True)
        for n in range(8)
    ]
    assert [isinstance(end[0], BudgetSpentError) for end in ends] == [False] * 4 + [True] * 4
    assert budget.spent_usd == pytest.approx(0.06)


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
    assert recorded_spending([path, tmp_path / "gone.jsonl"]) == 0.75
    assert spending_path(path) == tmp_path / "v.spending.json"


SAME = [
    "gpt-4o-2024-11-20",
    "openai/gpt-4o",
    "gpt-4o-0806",
    "gpt-4o-latest",
    "gpt-4o@20240806",
    "gpt-4o@default",
    "gpt-4o-20240806",
    "gpt-4o-001",
    "gpt-4o-v2:0",
    "azure/gpt-4o-2024-08-06",
    "gpt-4o-05-13",
    "gpt-4o-2411",
]
OTHERS = [
    "gpt-4o-nix",
    "gpt-4o-audio-preview",
    "gpt-4o-realtime",
    "gpt-4o:free",
    "gpt-4o:online",
    "gpt-4o-2024",
    "gpt-4os",
    "gpt-4o-4096",
    "gpt-4o-",
    "gpt-4o-9999-99-99",
    "gpt-4o-mini-tts",
    "o3-deep-research",
    "gpt-5-codex",
    "o3-pro",
    "gpt-5-pro",
    "gpt-4o-search-preview",
    "ft:gpt-4o:org::1",
    "gpt-4o-latest-nix",
    "gpt-4o-2024-11-20-x",
]


@pytest.mark.parametrize("name", SAME)
def test_date_or_version_has_the_price_of_the_model(name: str) -> None:
    assert ledgers.find_price(name) == ledgers.find_price("gpt-4o") is not None


@pytest.mark.parametrize("name", OTHERS)
def test_another_ending_is_another_model(name: str) -> None:
    assert ledgers.find_price(name) is None


async def test_attempt_that_nobody_ended_is_lost() -> None:
    with spending_from(Budget(10.0)) as budget:
        call = Ledger(Price(0.0, 1e6)).call(lambda: (0, 0, 2))
    await call.reserve()
    await call.reserve()
    assert budget.spent_usd == 2.0
    assert call.settle(0, 1, 0).usd == 3.0


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


async def test_budget_is_divided_among_shards(tmp_path: Path) -> None:
    whole = Ledger(Price(0.0, 1e6), 10.0)
    whole.record(0, 2, 0)
    parts, budgets = list[Ledger](), list[Budget]()
    packed = []
    for number in (1, 2):
        with packing_for(Packing(Shard(number, 2), tmp_path, budgets)):
            packed.append(pickle.dumps(whole))
    # the last takes the place of the first, which died in a call
    for number, held, spent in ((0, 1, 0), (1, 2, 2), (0, 2, 2)):
        parts.append(pickle.loads(packed[number]))
        booking = parts[-1].call(lambda held=held: (0, 0, held))
        await booking.reserve()
        if spent:
            booking.settle(0, spent, 0)
    with pytest.raises(
        BudgetSpentError,
        match=r"this shard's part of \$4 of the budget of \$10 is used up \(\$2.0000 spent\)",
    ):
        # alone, it would be begun with less left than it may cost; but not in each shard
        parts[1].budgets[0].begin(3)
    parts[2].budgets[0].begin(3)
    assert [budget.collect_shards() for budget in budgets] == [None]
    assert 2 + 1 + 2 + 2 + 3 <= whole.budgets[0].spent_usd < 10.5, (
        "what was held by those that died counts, and a little ahead"
    )
    assert not list(tmp_path.glob("*spending*"))
    with pytest.raises(BudgetSpentError):
        whole.budgets[0].begin(0)
