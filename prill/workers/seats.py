"""What each of several processes that work together may take of what belongs to all of them: calls at once, and money.

Objects that hold such a thing ask for their part when they are pickled for one of these processes.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from prill.errors import UsageError

_PART = 3  # numbers that a process writes: US dollars, calls answered, calls under way
_MOST_BUDGETS = 64


@dataclass(frozen=True, slots=True)
class Purse:
    """What several processes have spent of one budget. Each writes its own numbers in a file that all of them map: none has to
    wait for another one, and one that dies leaves no lock behind."""

    file: int
    place: int
    number: int
    of: int

    def open(self) -> OpenPurse:
        """For the process that it was made for."""
        return OpenPurse(self)


class OpenPurse:
    """A purse in the process that it was made for. Who takes a dead process's place goes on from its numbers."""

    def __init__(self, purse: Purse) -> None:
        numbers = memoryview(mmap.mmap(purse.file, 0)).cast("d")
        self._all = numbers[purse.place : purse.place + _PART * purse.of]
        self._own = self._all[_PART * purse.number : _PART * (purse.number + 1)]
        self._before = self._own[0], self._own[1]

    def tell(self, usd: float, calls: int, open_calls: int) -> None:
        """What this process has spent so far, the calls that it paid for, and those that are under way."""
        self._own[0], self._own[1], self._own[2] = self._before[0] + usd, self._before[1] + calls, open_calls

    def together(self) -> tuple[float, int, int]:
        """The same of all processes."""
        return sum(self._all[0::_PART]), int(sum(self._all[1::_PART])), int(sum(self._all[2::_PART]))


class Table:
    """Seats for processes that work together. `file` is what they share: they need it open, under the same number."""

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - gone with `close`, or with this process
        self._purse_numbers = _PART * seats
        self._file.truncate(8 * self._purse_numbers * _MOST_BUDGETS)
        self._places: dict[int, int] = {}

    @property
    def file(self) -> int:
        """The number of the open file."""
        return self._file.fileno()

    def purse(self, owner: object, number: int) -> Purse:
        """The purse of a budget, for one seat. `owner` has the budget, and lives as long as this."""
        place = self._places.setdefault(id(owner), len(self._places))
        if place >= _MOST_BUDGETS:
            raise ValueError(f"more than {_MOST_BUDGETS} budgets in one judge")
        return Purse(self.file, place * self._purse_numbers, number, self.seats)

    def close(self) -> None:
        """Closes the file here."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Seat:
    """One place at the table, from 0."""

    table: Table
    number: int

    def share(self, whole: int) -> int:
        """This seat's part of `whole`, at least 1."""
        return max(1, whole // self.table.seats + (self.number < whole % self.table.seats))

    def purse(self, owner: object) -> Purse:
        """This seat's part of a budget."""
        return self.table.purse(owner, self.number)


@dataclass(frozen=True, slots=True)
class Share:
    """One of `of` equal workers that have nothing in common, on several machines perhaps."""

    of: int

    def share(self, whole: int) -> int:
        """A worker's part of `whole`, at least 1."""
        return max(1, -(-whole // self.of))

    def purse(self, owner: object) -> Purse:
        """Raises UsageError: nobody there sees what the others spend."""
        raise UsageError(
            "a budget cannot be kept by workers of an engine, which do not see what the others spend; judge by several "
            "processes of one machine, or set the limit at the endpoint",
            parameters=("budget_usd", "engine"),
        )


_seat: ContextVar[Seat | Share | None] = ContextVar("prill_seat", default=None)


@contextmanager
def packing_for(seat: Seat | Share) -> Iterator[None]:
    """What is pickled inside it goes to the process of that seat."""
    token = _seat.set(seat)
    try:
        yield
    finally:
        _seat.reset(token)


def seat_packed_for() -> Seat | Share | None:
    """The seat whose process gets what is pickled now; None: it is pickled for something else."""
    return _seat.get()
