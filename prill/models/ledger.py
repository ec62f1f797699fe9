"""What calls cost: prices, a running total, the money limit, and each piece of work's share, with its time in the queue."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path

from prill.errors import BudgetSpent, UsageError
from prill.files.toml import parse_toml
from prill.types import Usage
from prill.workers.seats import Purse, seat_packed_for


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    prompt: float
    completion: float

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """The cost of one call."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


def price_of(model: str, path: str | None = None) -> Price | None:
    """The price of a model: the longest name of the table that it starts with; None when the table has no such name.

    `path` names a TOML file in the form of prices.toml, looked at first. Raises UsageError when it is not in that form.
    """
    for table in (_table(path) if path else {}, _table(None)):
        for name in sorted(table, key=len, reverse=True):
            # "gpt-5" prices "gpt-5-2025-08-07" but not "gpt-5.2" or "gpt-50": another number is another model.
            if any(re.match(rf"{re.escape(name)}(?![.\w])", form) for form in (model, model.rsplit("/", 1)[-1])):
                return table[name]
    return None


@cache
def _table(path: str | None) -> dict[str, Price]:
    try:
        text = (Path(path) if path else files("prill.models") / "prices.toml").read_text(encoding="utf-8")
        prices = {name: Price(float(row["prompt"]), float(row["completion"])) for name, row in parse_toml(text).items()}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f'{path}: not a price table ({error}); give [model] sections with "prompt" and "completion"') from None
    for name, price in prices.items():
        if not all(isfinite(usd) and usd >= 0 for usd in (price.prompt, price.completion)):
            raise UsageError(
                f"{path}: the price of {name} is {price.prompt:g} and {price.completion:g}; give US dollars, 0 or more"
            )
    return prices


class Ledger:
    """The running total of everything a model was asked, with an optional limit in US dollars. Safe across threads."""

    def __init__(self, price: Price | None, budget_usd: float | None = None, purse: Purse | None = None) -> None:
        if budget_usd is not None and not budget_usd >= 0:
            raise UsageError(f"a budget of {budget_usd:g} US dollars is none; give 0 or more")
        if budget_usd is not None and price is None:
            raise UsageError("a budget needs a price for this model: give a price table")
        self.price = price
        self.budget_usd = budget_usd
        self.total = Usage()
        self.open_calls = 0
        self._lock = threading.Lock()
        self._purse = purse.open() if purse else None

    def __reduce__(self) -> tuple[type[Ledger], tuple[Price | None, float | None, Purse | None]]:
        # Another process counts its own calls, and has the whole budget, unless both work together.
        if self.budget_usd is None or (seat := seat_packed_for()) is None:
            return Ledger, (self.price, self.budget_usd, None)
        return Ledger, (self.price, max(0.0, self.budget_usd - (self.total.usd or 0.0)), seat.purse(self))

    def begin(self) -> None:
        """Announce a call. Raises BudgetSpent when the calls made and under way would use up the limit."""
        with self._lock:
            self.open_calls += 1
            self._tell()
            if self.budget_usd is not None:
                usd, calls, under_way = self._spent()
                expected = (under_way - 1) * usd / calls if calls else 0.0
                if usd + expected >= self.budget_usd:
                    self.open_calls -= 1
                    self._tell()
                    raise BudgetSpent(f"the budget of ${self.budget_usd:g} is used up")

    def end(self) -> None:
        """The announced call is over, whatever came of it."""
        with self._lock:
            self.open_calls -= 1
            self._tell()

    def _tell(self) -> None:
        if self._purse is not None:
            self._purse.tell(self.total.usd or 0.0, self.total.calls, self.open_calls)

    def _spent(self) -> tuple[float, int, int]:
        """US dollars, calls, and those under way, of all processes that have this budget together."""
        if self._purse is not None:
            return self._purse.together()
        return self.total.usd or 0.0, self.total.calls, self.open_calls

    def record(self, prompt_tokens: int, completion_tokens: int, images: int) -> Usage:
        """Book one answered call, here and on the work it was made for."""
        usd = None if self.price is None else self.price.usd(prompt_tokens, completion_tokens) * _share.get()
        usage = Usage(1, prompt_tokens, completion_tokens, images, usd)
        with self._lock:
            self.total += usage
            self._tell()
        count_usage(usage)
        return usage


def usage_text(usage: Usage) -> str:
    """Calls, tokens and what they cost, in words."""
    cost = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
    return f"{usage.calls} call{'s' * (usage.calls != 1)}, {usage.prompt_tokens + usage.completion_tokens} tokens, {cost}"


class Meter:
    """Collects the usage of one piece of work, and the seconds in which it stood still because all its calls were queued."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.queued = 0.0
        self._waiting = self._running = 0
        self._since = 0.0
        self._lock = threading.Lock()  # a model in this process begins its calls in a thread of its own

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
    """Counts on the work at hand what a call took. A `Ledger` does it; a model of one's own that has none does it itself."""
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
    """For one call: it waits for its turn until it calls what this gives, and has its turn from then to the end."""
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
