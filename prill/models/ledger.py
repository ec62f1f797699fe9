"""Costs of calls: prices, running totals, budgets, and the usage of each task."""

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

from msgspec import UNSET, UnsetType

from prill.config.toml import parse_toml
from prill.errors import BudgetSpentError, UsageError
from prill.io.spending import SpendingFile
from prill.types import Usage

# An upper bound for the tokens of an image of PIXEL_BUDGET pixels: OpenAI's tiles (1,445) and
# patches (2,263, gpt-4.1-nano), Qwen2.5-VL (1,913), Claude (1,600), Gemini (1,548). The price table
# overrides it for models that count more.
IMAGE_TOKENS = 3_000
# for dense text such as URLs and digits, because an estimate must not be too low
_BYTES_PER_TOKEN = 2
# maximum ratio of actual to estimated cost, so that one odd count does not inflate all estimates
_MAX_SCALE = 10.0
_FIRST_LOOK, _LONGEST_LOOK = 0.005, 0.2  # seconds between checks whether a call may start


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; `image_tokens` is the maximum that an image is counted as."""

    prompt: float
    completion: float
    image_tokens: int = IMAGE_TOKENS

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Returns the cost of one call in US dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6

    def at_most(self, text_bytes: int, images: int, completion_tokens: int) -> float:
        """Returns the maximum cost of a call, from the request's size and the reply's token
        limit.
        """
        return self.usd(
            text_bytes // _BYTES_PER_TOKEN + images * self.image_tokens, completion_tokens
        )


# Suffixes that a model's name may have and still mean the same model as in the table: a date
# (-2025-08-07, -20250807, @20250514, -0806, -2411, -05-20), a version number (-001, -v2, -v2:0), or
# "latest". Any other suffix (-mini, -nix, -audio-preview, :online, :free) may be another model or
# have another price.
_MONTH, _DAY = "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])"
_SAME_MODEL = re.compile(
    rf"(?:[-@](?:latest|default|20\d\d-{_MONTH}-{_DAY}|20\d\d{_MONTH}{_DAY}|{_MONTH}-?{_DAY}|2\d{_MONTH}|0\d\d))?(?:-v\d+(?::\d+)?)?"
)


def find_price(model: str, path: str | None = None) -> Price | None:
    """Finds a model's price by name, with or without vendor and date; None if it is not in the
    table.

    `path` is a TOML file in the format of prices.toml, which takes precedence. Raises UsageError if
    it is invalid.
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
                f"{path}: the price of {name} is {price.prompt:g} and {price.completion:g}; "
                "expected US dollars, 0 or more"
            )
    return prices


class Budget:
    """The US dollars that all models of a run may spend; None: no limit, only a record.

    It is thread-safe. It belongs to one process: an engine's workers cannot share it.

    Each call reserves its maximum cost before it is sent, until the actual cost is known. A call
    may start if its reservation fits into the rest, or if no other call is running and anything is
    left. A run can therefore spend its whole budget, and exceed it by at most the price of one
    call. `record` is the file that stores the spending across restarts, and `spent_usd` the amount
    spent before.
    """

    def __init__(
        self, usd: float | None, *, spent_usd: float = 0.0, record: SpendingFile | None = None
    ) -> None:
        if usd is not None and not usd >= 0:
            raise UsageError(f"the budget is {usd:g} US dollars; expected 0 or more")
        self.usd: Final = usd
        self.closed = False
        self._record = record
        self._lock = threading.Lock()
        self._covered = 0.0  # the amount that the record covers
        self._spent = spent_usd
        self._reserved, self._calls = 0.0, 0  # the running calls, and what they reserved

    def __reduce__(self) -> tuple[Any, ...]:
        if self.usd is not None:
            raise UsageError(
                "workers of an engine cannot share a budget; leave it out, or judge shards "
                "with a budget each",
                parameters=("budget_usd",),
            )
        return Budget, (None,)

    @property
    def spent_usd(self) -> float:
        """Returns the US dollars spent, including earlier runs but not reservations."""
        with self._lock:
            return self._spent

    def begin(self, usd: float) -> bool:
        """Reserves the maximum cost of a call; returns False if the call has to wait for others.

        Raises BudgetSpentError if nothing is left.
        """
        with self._lock:
            spent = self._spent
            if self.usd is not None:
                if spent >= self.usd:
                    raise BudgetSpentError(
                        f"the budget of ${self.usd:g} is used up (${spent:.4f} spent); "
                        "raise it to resume"
                    )
                if self._calls and spent + self._reserved + usd > self.usd:
                    return False
            self._reserved += usd
            self._calls += 1
            self._note()
            return True

    def end(self, held_usd: float, usd: float) -> None:
        """Replaces a call's reservation with its cost."""
        with self._lock:
            self._spent += usd
            self._calls -= 1
            self._reserved = self._reserved - held_usd if self._calls else 0.0
            self._note()

    def spend(self, usd: float) -> None:
        """Adds a cost without a reservation."""
        with self._lock:
            self._spent += usd
            self._note()

    def _note(self) -> None:
        if self._record is not None:
            self._covered = self._record.keep(self.usd, self._spent, self._reserved, self._covered)

    def close(self) -> None:
        """Ends the run of this budget and stores its spending; open reservations count as spent."""
        self.closed = True
        if self._record is not None:
            with self._lock:
                self._record.write(self._spent + self._reserved, 0.0)
            self._record.unlock()


_budgets: ContextVar[tuple[Budget, ...]] = ContextVar("prill_budgets", default=())


@contextmanager
def spending_from(budget: Budget) -> Iterator[Budget]:
    """Makes models created inside the block also spend from this budget."""
    token = _budgets.set((*_budgets.get(), budget))
    try:
        yield budget
    finally:
        _budgets.reset(token)


def current_budgets() -> tuple[Budget, ...]:
    """Returns the budgets that a model created now spends from."""
    return _budgets.get()


class Ledger:
    """The running total of a model's usage. It is thread-safe.

    It spends from the budgets that are active where it is created (`spending_from`), and from its
    own budget if `budget_usd` is given. `name` is the model's name.
    """

    def __init__(
        self, price: Price | None, budget_usd: float | None = None, *, name: str = "this model"
    ) -> None:
        self.price = price
        self.name = name
        self.total = Usage()
        self.budgets: tuple[Budget, ...] = ()
        self._lock = threading.Lock()
        self._scale = 1.0  # ratio of actual to estimated maximum cost
        self.draw_from(
            current_budgets() if budget_usd is None else (*current_budgets(), Budget(budget_usd))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # the copy in another process counts its own calls
        return _ledger, (self.price, self.name, self.budgets)

    def draw_from(self, budgets: Iterable[Budget]) -> None:
        """Adds budgets to spend from. Raises UsageError if the model's price is unknown."""
        others = tuple(budget for budget in self.budgets if not budget.closed)
        self.budgets = others + tuple(budget for budget in budgets if budget not in others)
        if self.price is None and any(budget.usd is not None for budget in self.budgets):
            raise UsageError(
                f"a budget needs a price for {self.name}; give a price table",
                parameters=("prices",),
            )

    def call(self, most: Callable[[], tuple[int, int, int]]) -> Booking:
        """Starts the accounting of one answer.

        `most` returns its maximum size: bytes of text, number of images, and the token limit of the
        reply.
        """
        return Booking(self, most)

    def record(self, prompt_tokens: int, completion_tokens: int, images: int) -> Usage:
        """Records one answered call without a reservation, here and for the current task."""
        return self.call(lambda: (0, 0, 0)).settle(prompt_tokens, completion_tokens, images)

    def book(self, usage: Usage) -> None:
        """Adds usage, here and for the current task."""
        with self._lock:
            self.total += usage
        count_usage(usage)


def _ledger(price: Price | None, name: str, budgets: tuple[Budget, ...]) -> Ledger:
    ledger = Ledger(price, name=name)
    ledger.budgets = budgets
    return ledger


class Booking:
    """The accounting of one answer: `reserve` before each attempt, then `release`, `lose` or
    `settle`.
    """

    __slots__ = ("_expected", "_ledger", "_most", "_reserved", "lost")

    def __init__(self, ledger: Ledger, most: Callable[[], tuple[int, int, int]]) -> None:
        self._ledger, self._most = ledger, most
        self._expected = 0.0
        self._reserved: float | None = None
        self.lost = Usage()

    async def reserve(self) -> None:
        """Waits until the budgets allow the call, and reserves its maximum cost.

        Raises BudgetSpentError.
        """
        ledger = self._ledger
        if self._reserved is not None:  # the outcome of the previous attempt is unknown
            self.lose()
        if not ledger.budgets or (usd := self._estimate()) is None:
            return
        look = _FIRST_LOOK
        while not self._begin(usd):
            await asyncio.sleep(look)
            look = min(2 * look, _LONGEST_LOOK)
            usd = self._estimate() or 0.0
        self._reserved = usd

    def _begin(self, usd: float) -> bool:
        """Reserves the amount in all budgets, or in none."""
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
        """Returns the maximum cost of the call; None if calls are free or their price is
        unknown.
        """
        price = self._ledger.price
        if price is None or not (price.prompt or price.completion):
            return None
        self._expected = price.at_most(*self._most()) * _share.get()
        return self._expected * self._ledger._scale

    def release(self) -> None:
        """Records an attempt without cost: it was not sent, or was rejected."""
        self._end(0.0)

    def lose(self) -> None:
        """Records the estimated cost of an attempt without an answer, which providers charge
        for.
        """
        if (usd := self._estimate() if self._reserved is None else self._reserved) is None:
            return
        self._end(usd)
        lost = Usage(usd=usd, estimated_usd=usd)
        self.lost += lost
        self._ledger.book(lost)

    def settle(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        images: int,
        cached_tokens: int | UnsetType = UNSET,
    ) -> Usage:
        """Records the cost of an answer, and of the lost attempts before it."""
        ledger = self._ledger
        usd = (
            None
            if ledger.price is None
            else ledger.price.usd(prompt_tokens, completion_tokens) * _share.get()
        )
        if (
            usd is not None
            and self._reserved is not None
            and usd > self._expected * ledger._scale > 0
        ):
            ledger._scale = min(usd / self._expected, _MAX_SCALE)
        self._end(usd or 0.0)
        usage = Usage(1, prompt_tokens, completion_tokens, images, usd, UNSET, cached_tokens)
        ledger.book(usage)
        usage, self.lost = usage + self.lost, Usage()
        return usage

    def _end(self, usd: float) -> None:
        reservation, self._reserved = self._reserved, None
        for budget in self._ledger.budgets:
            if reservation is not None:
                budget.end(reservation, usd)
            elif usd:
                budget.spend(usd)


def usage_text(usage: Usage) -> str:
    """Formats calls, tokens and cost as text."""
    cost = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
    if usage.estimated_usd:
        cost += f" (${usage.estimated_usd:.4f} of it estimated, for calls without an answer)"
    cached = f" ({usage.cached_tokens} of them cached)" if usage.cached_tokens else ""
    return (
        f"{usage.calls} call{'s' * (usage.calls != 1)}, "
        f"{usage.prompt_tokens + usage.completion_tokens} tokens{cached}, {cost}"
    )


class Meter:
    """Collects the usage of a task, and the seconds during which all its calls were queued."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.queued = 0.0
        self._waiting = self._running = 0
        self._since = 0.0
        # local models start their calls in another thread
        self._lock = threading.Lock()

    def count(self, *, waiting: int = 0, running: int = 0) -> None:
        """Changes the number of waiting and of running calls."""
        with self._lock:
            now = time.perf_counter()
            if self._waiting and not self._running:
                self.queued += now - self._since
            self._since = now
            self._waiting += waiting
            self._running += running


_share: ContextVar[float] = ContextVar("prill_price_share", default=1.0)


@contextmanager
def price_factor(share: float) -> Iterator[None]:
    """Multiplies the price of calls inside the block by a factor."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


_meter: ContextVar[Meter | None] = ContextVar("prill_meter", default=None)


def count_usage(usage: Usage) -> None:
    """Adds a call's usage to the current task.

    A `Ledger` calls this; models without one must call it themselves.
    """
    if (meter := _meter.get()) is not None:
        meter.usage += usage


@contextmanager
def metered() -> Iterator[Meter]:
    """Counts every call made inside the block, including failed calls and calls in tasks started
    there.
    """
    meter = Meter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


@dataclass(slots=True)
class CallStarts:
    """Whether the calls of a task have started: none has while the first one waits for a slot."""

    waiting: int = 0
    begun: bool = False

    @property
    def only_waits(self) -> bool:
        """Whether a call waits for a free slot, and no call has started."""
        return self.waiting > 0 and not self.begun


_starts: ContextVar[CallStarts | None] = ContextVar("prill_call_starts", default=None)


@contextmanager
def watched_starts() -> Iterator[CallStarts]:
    """Watches whether the calls made inside the block have started."""
    starts = CallStarts()
    token = _starts.set(starts)
    try:
        yield starts
    finally:
        _starts.reset(token)


@contextmanager
def queued() -> Iterator[Callable[[], None]]:
    """Marks a call as queued until the yielded function is called, and as running from then on."""
    meter, starts = _meter.get() or Meter(), _starts.get() or CallStarts()
    began = False

    def begin() -> None:
        nonlocal began
        meter.count(waiting=-1, running=1)
        starts.waiting -= 1
        began = starts.begun = True

    meter.count(waiting=1)
    starts.waiting += 1
    try:
        yield begin
    finally:
        if began:
            meter.count(running=-1)
        else:
            meter.count(waiting=-1)
            starts.waiting -= 1
