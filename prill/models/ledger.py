"""Cost of calls: prices, running totals, budgets, and the share of each task."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any, Final

from prill.config.toml import parse_toml
from prill.errors import BudgetSpentError, UsageError
from prill.io.shards import Packing, packed_for
from prill.io.spending import SpendingFile
from prill.types import Usage

# The most tokens that a picture of PIXEL_BUDGET is counted as by any of: OpenAI's tiles (1,445) and
# patches (2,263, gpt-4.1-nano), Qwen2.5-VL (1,913), Claude (1,600), Gemini (1,548). Where a model
# counts more, the price table says so.
IMAGE_TOKENS = 3_000
# of the densest text that is usual, such as URLs and digits: an estimate must not be too low
_BYTES_PER_TOKEN = 2
# times an estimate that calls were found to cost: one odd count must not make all others dear
_MAX_SCALE = 10.0
_FIRST_LOOK, _LONGEST_LOOK = 0.005, 0.2  # seconds between two looks at whether a call may begin


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; `image_tokens` is the most that a picture is counted as."""

    prompt: float
    completion: float
    image_tokens: int = IMAGE_TOKENS

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """The cost of one call."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6

    def at_most(self, text_bytes: int, images: int, completion_tokens: int) -> float:
        """The most that a call may cost, by the size of what is sent and the limit of its reply."""
        return self.usd(
            text_bytes // _BYTES_PER_TOKEN + images * self.image_tokens, completion_tokens
        )


# What a name may have behind that of the table and still mean the same model: a date (-2025-08-07,
# -20250807, @20250514, -0806, -2411, -05-20), a number of a version (-001, -v2, -v2:0), or that it
# is the latest. Whatever else is behind it (-mini, -nix, -audio-preview, :online, :free) may be
# another model, or another price.
_MONTH, _DAY = "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])"
_SAME_MODEL = re.compile(
    rf"(?:[-@](?:latest|default|20\d\d-{_MONTH}-{_DAY}|20\d\d{_MONTH}{_DAY}|{_MONTH}-?{_DAY}|2\d{_MONTH}|0\d\d))?(?:-v\d+(?::\d+)?)?"
)


def find_price(model: str, path: str | None = None) -> Price | None:
    """The price of a model by its name, with or without a vendor and a date; None when the table
    has no such name.

    `path` names a TOML file in the form of prices.toml, looked at first. Raises UsageError when it
    is not in that form.
    """
    for table in (_table(os.path.abspath(path)) if path else {}, _table(None)):
        for name in sorted(table, key=len, reverse=True):
            for form in (model, model.rsplit("/", 1)[-1]):
                if form.startswith(name) and _SAME_MODEL.fullmatch(form, len(name)):
                    return table[name]
    return None


@cache
def _table(path: str | None) -> dict[str, Price]:
    try:
        text = (Path(path) if path else files("prill.models") / "prices.toml").read_text(
            encoding="utf-8"
        )
        prices = {
            name: Price(
                float(row["prompt"]),
                float(row["completion"]),
                int(row.get("image_tokens", IMAGE_TOKENS)),
            )
            for name, row in parse_toml(text).items()
        }
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f'{path}: not a price table ({error}); give [model] sections with "prompt" and '
            '"completion"'
        ) from None
    for name, price in prices.items():
        if not all(
            isfinite(usd) and usd >= 0
            for usd in (price.prompt, price.completion, price.image_tokens)
        ):
            raise UsageError(
                f"{path}: the price of {name} is {price.prompt:g} and {price.completion:g}; give "
                "US dollars, 0 or more"
            )
    return prices


class Budget:
    """US dollars that all models of a run may spend together; None: no limit, only the record. Safe
    across threads, and divided among the shards of a run.

    A call holds the most that it may cost before it is sent, until it is known what it did cost. It
    begins where that fits into what is left, or where no other call is under way and anything is
    left: so all of a budget can be spent, and no more than it and the price of one call. `record`
    is the file that remembers it for the next start; `spent_usd` was spent before. `whole` is the
    budget that this one is a shard's part of; where it is not the first part, each of its calls has
    to fit.
    """

    def __init__(
        self,
        usd: float | None,
        *,
        spent_usd: float = 0.0,
        record: SpendingFile | None = None,
        whole: float | None = None,
        is_strict: bool = False,
    ) -> None:
        if usd is not None and not usd >= 0:
            raise UsageError(f"a budget of {usd:g} US dollars is none; give 0 or more")
        self.usd: Final = usd
        self.closed = False
        self._whole, self._is_strict = whole, is_strict
        self._record = record
        self._lock = threading.Lock()
        self._covered = 0.0  # what the record promises
        self._spent, self._held, self._calls = spent_usd, 0.0, 0  # `_calls` hold `_held`
        self._parts: dict[int, SpendingFile] = {}  # what shards have spent of it, by their numbers

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has the whole of what is left, and keeps no record, unless it judges a
        # shard.
        if (packing := packed_for()) is not None:
            return self._part_for(packing)
        return Budget, (self.usd,), {"spent_usd": self.spent_usd}

    def __setstate__(self, state: dict[str, float]) -> None:
        self._spent = state["spent_usd"]

    def _part_for(self, packing: Packing) -> tuple[Any, ...]:
        """A shard's part of what is left."""
        shard = packing.shard
        if self not in packing.budgets:
            packing.budgets.append(self)
        if self._record is None:
            number = packing.budgets.index(self)
            record = SpendingFile(packing.folder / f"{number}.spending.json").part(shard.number)
        else:
            self._record.lock()
            record = self._record.part(shard.number)
        with self._lock:
            self._parts[shard.number] = record
            rest = None if self.usd is None else max(0.0, self.usd - self._spent) / shard.count
        return _part, (rest, record, self.usd, shard.number > 1)

    def take_back(self) -> None:
        """Books what shards have spent of it, when they have ended; what they still held counts as
        spent.
        """
        with self._lock:
            self._spent += sum(part.read() or 0.0 for part in self._parts.values())
            if self._record is not None and self._parts:
                self._record.write(self._spent, self._held)
            for part in self._parts.values():
                part.clear()
            self._parts.clear()

    @property
    def spent_usd(self) -> float:
        """The amount spent, earlier runs included, without reservations of running calls."""
        with self._lock:
            return self._spent

    def begin(self, usd: float) -> bool:
        """Holds what a call may cost at most; False: it has to wait for others. Raises
        BudgetSpentError if nothing is left.
        """
        with self._lock:
            spent = self._spent
            if self.usd is not None:
                fits = spent + self._held + usd <= self.usd
                if spent >= self.usd or (self._is_strict and not fits and not self._calls):
                    part = "" if self._whole is None else f"this shard's part of ${self.usd:g} of "
                    whole = self.usd if self._whole is None else self._whole
                    raise BudgetSpentError(
                        f"{part}the budget of ${whole:g} is used up (${spent:.4f} spent); a "
                        "higher one goes on"
                    )
                if self._calls and not fits:
                    return False
            self._held += usd
            self._calls += 1
            self._note()
            return True

    def end(self, held_usd: float, usd: float) -> None:
        """A call that began has cost `usd`."""
        with self._lock:
            self._spent += usd
            self._calls -= 1
            self._held = self._held - held_usd if self._calls else 0.0
            self._note()

    def spend(self, usd: float) -> None:
        """Something that held nothing has cost `usd`."""
        with self._lock:
            self._spent += usd
            self._note()

    def _note(self) -> None:
        if self._record is not None:
            self._covered = self._record.keep(self.usd, self._spent, self._held, self._covered)

    def close(self) -> None:
        """Ends the run that it is of: writes down what was spent, by its shards too; what was still
        held counts as spent.
        """
        self.closed = True
        self.take_back()
        if self._record is not None:
            with self._lock:
                self._record.write(self._spent + self._held, 0.0)
            self._record.unlock()


def _part(usd: float | None, record: SpendingFile, whole: float | None, is_strict: bool) -> Budget:
    """A shard's part of a budget; what the shard has spent already, before its process died,
    counts.
    """
    return Budget(
        usd, spent_usd=record.read() or 0.0, record=record, whole=whole, is_strict=is_strict
    )


_budgets: ContextVar[tuple[Budget, ...]] = ContextVar("prill_budgets", default=())


@contextmanager
def spending_from(budget: Budget) -> Iterator[Budget]:
    """Models that are made inside spend from that budget, whatever else they spend from."""
    token = _budgets.set((*_budgets.get(), budget))
    try:
        yield budget
    finally:
        _budgets.reset(token)


def budgets_here() -> tuple[Budget, ...]:
    """The budgets that models which are made now spend from."""
    return _budgets.get()


class Ledger:
    """The running total of everything a model was asked. It spends from the budgets that are there
    where it is made (`spending_from`), and from one of its own where that is given. `name`: the
    model's. Safe across threads.
    """

    def __init__(
        self, price: Price | None, budget_usd: float | None = None, *, name: str = "this model"
    ) -> None:
        self.price = price
        self.name = name
        self.total = Usage()
        self.budgets: tuple[Budget, ...] = ()
        self._lock = threading.Lock()
        self._scale = 1.0  # what calls have cost, of the most that they were estimated to cost
        self.draw_from(
            budgets_here() if budget_usd is None else (*budgets_here(), Budget(budget_usd))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # another process counts its own calls
        return _ledger, (self.price, self.name, self.budgets)

    def draw_from(self, budgets: Iterable[Budget]) -> None:
        """Lets it spend from these budgets, too. Raises UsageError where nobody knows what its
        calls cost.
        """
        others = tuple(budget for budget in self.budgets if not budget.closed)
        self.budgets = others + tuple(budget for budget in budgets if budget not in others)
        if self.price is None and any(budget.usd is not None for budget in self.budgets):
            raise UsageError(
                f"a budget needs a price for {self.name}: give a price table",
                parameters=("prices",),
            )

    def call(self, most: Callable[[], tuple[int, int, int]]) -> Booking:
        """The books of one answer. `most` tells how large it may be: bytes of text and pictures
        that are sent, and the limit of tokens of the reply.
        """
        return Booking(self, most)

    def record(self, prompt_tokens: int, completion_tokens: int, images: int) -> Usage:
        """Book one answered call that held nothing, here and on the work it was made for."""
        return self.call(lambda: (0, 0, 0)).settle(prompt_tokens, completion_tokens, images)

    def book(self, usage: Usage) -> None:
        """Counts what was spent, here and on the work that it was spent for."""
        with self._lock:
            self.total += usage
        count_usage(usage)


def _ledger(price: Price | None, name: str, budgets: tuple[Budget, ...]) -> Ledger:
    ledger = Ledger(price, name=name)
    ledger.budgets = budgets
    return ledger


class Booking:
    """One answer in the books: `hold` before each attempt that is sent, then one of `release`,
    `lose` and `settle`.
    """

    __slots__ = ("_expected", "_held", "_ledger", "_most", "lost")

    def __init__(self, ledger: Ledger, most: Callable[[], tuple[int, int, int]]) -> None:
        self._ledger, self._most = ledger, most
        self._expected = 0.0
        self._held: float | None = None
        self.lost = Usage()

    async def hold(self) -> None:
        """Waits until the budgets cover the call, and holds what it may cost. Raises
        BudgetSpentError.
        """
        ledger = self._ledger
        if self._held is not None:  # nobody has said what became of the attempt before
            self.lose()
        if not ledger.budgets or (usd := self._estimate()) is None:
            return
        look = _FIRST_LOOK
        while not self._begin(usd):
            await asyncio.sleep(look)
            look = min(2 * look, _LONGEST_LOOK)
            usd = self._estimate() or 0.0
        self._held = usd

    def _begin(self, usd: float) -> bool:
        """Holds it in all budgets, or in none."""
        begun = list[Budget]()
        try:
            for budget in self._ledger.budgets:
                if not budget.begin(usd):
                    break
                begun.append(budget)
            else:
                begun.clear()
                return True
            return False
        finally:
            for budget in begun:
                budget.end(usd, 0.0)

    def _estimate(self) -> float | None:
        """The most that the call may cost; None where it costs nothing, or nobody knows what."""
        price = self._ledger.price
        if price is None or not (price.prompt or price.completion):
            return None
        self._expected = price.at_most(*self._most()) * _share.get()
        return self._expected * self._ledger._scale

    def release(self) -> None:
        """The attempt was not sent, or was refused: it costs nothing."""
        self._end(0.0)

    def lose(self) -> None:
        """The attempt was sent and brought no answer: providers charge for it, and nobody says how
        much. It is estimated.
        """
        if (usd := self._estimate() if self._held is None else self._held) is None:
            return
        self._end(usd)
        lost = Usage(usd=usd, estimated_usd=usd)
        self.lost += lost
        self._ledger.book(lost)

    def settle(self, prompt_tokens: int, completion_tokens: int, images: int) -> Usage:
        """The answer is there. What it cost, with the attempts before it that were lost."""
        ledger = self._ledger
        usd = (
            None
            if ledger.price is None
            else ledger.price.usd(prompt_tokens, completion_tokens) * _share.get()
        )
        if usd is not None and self._held is not None and usd > self._expected * ledger._scale > 0:
            ledger._scale = min(usd / self._expected, _MAX_SCALE)
        self._end(usd or 0.0)
        usage = Usage(1, prompt_tokens, completion_tokens, images, usd)
        ledger.book(usage)
        usage, self.lost = usage + self.lost, Usage()
        return usage

    def _end(self, usd: float) -> None:
        held, self._held = self._held, None
        for budget in self._ledger.budgets:
            if held is not None:
                budget.end(held, usd)
            elif usd:
                budget.spend(usd)


def usage_text(usage: Usage) -> str:
    """Calls, tokens and cost as text."""
    cost = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
    if usage.estimated_usd:
        cost += f" (${usage.estimated_usd:.4f} of it estimated, for calls without an answer)"
    return (
        f"{usage.calls} call{'s' * (usage.calls != 1)}, "
        f"{usage.prompt_tokens + usage.completion_tokens} tokens, {cost}"
    )


class Meter:
    """Collects the usage of one piece of work, and the seconds in which it stood still because all
    its calls were queued.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.queued = 0.0
        self._waiting = self._running = 0
        self._since = 0.0
        # a model in this process begins its calls in a thread of its own
        self._lock = threading.Lock()

    def count(self, *, waiting: int = 0, running: int = 0) -> None:
        """So many more of its calls wait for their turn, and so many more have it."""
        with self._lock:
            now = time.perf_counter()
            if self._waiting and not self._running:
                self.queued += now - self._since
            self._since = now
            self._waiting += waiting
            self._running += running


_share: ContextVar[float] = ContextVar("prill_price_share", default=1.0)


@contextmanager
def at_share_of_price(share: float) -> Iterator[None]:
    """Inside it, calls cost that share of what the price table says."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


_meter: ContextVar[Meter | None] = ContextVar("prill_meter", default=None)


def count_usage(usage: Usage) -> None:
    """Counts on the work at hand what a call took. A `Ledger` does it; a model of one's own that
    has none does it itself.
    """
    if (meter := _meter.get()) is not None:
        meter.usage += usage


@contextmanager
def metered() -> Iterator[Meter]:
    """Counts every call made inside, in tasks started inside too, also when they fail."""
    meter = Meter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


@contextmanager
def queued() -> Iterator[Callable[[], None]]:
    """For one call: it waits for its turn until it calls what this gives, and has its turn from
    then to the end.
    """
    meter = _meter.get() or Meter()
    began = False

    def begin() -> None:
        nonlocal began
        meter.count(waiting=-1, running=1)
        began = True

    meter.count(waiting=1)
    try:
        yield begin
    finally:
        if began:
            meter.count(running=-1)
        else:
            meter.count(waiting=-1)
