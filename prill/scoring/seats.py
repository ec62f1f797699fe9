"""What each of several processes that work together may take of what belongs to all of them: calls at once, and money.

Objects that hold such a thing ask for their part when they are pickled for one of these processes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from prill.errors import UsageError

_NUMBERS = 3  # that a process writes: US dollars spent, US dollars held for calls under way, and these calls
_SIZE = 8  # bytes of a number
_MAX_BUDGETS = 64


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """Where several processes keep what they have spent of one budget: a part of a file that all of them map, and lock while
    they look and write. The lock of a process that dies is gone with it."""

    file: int
    offset: int
    number: int
    of: int

    def open(self) -> OpenSharedBudget:
        """For the process of that number."""
        return OpenSharedBudget(self)


class OpenSharedBudget:
    """A shared budget in one of the processes. Who takes a dead process's place goes on from its numbers: what it held for
    calls under way counts as spent."""

    def __init__(self, shared: SharedBudget) -> None:
        self._file = os.dup(shared.file)
        self._offset, self._length = shared.offset, _SIZE * (1 + _NUMBERS * shared.of)
        numbers = memoryview(mmap.mmap(self._file, 0)).cast("d")
        first = shared.offset // _SIZE
        self.numbers = numbers[first : first + 1 + _NUMBERS * shared.of]
        self.first = 1 + _NUMBERS * shared.number
        with self.locked():
            own = self.numbers[self.first : self.first + _NUMBERS]
            own[0], own[1], own[2] = own[0] + own[1], 0.0, 0.0

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside it no other process looks or writes."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, self._length, self._offset)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, self._length, self._offset)


class Table:
    """Seats for processes that work together. `file` is what they share: they need it open, under the same number."""

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - gone with `close`, or with this process
        self._budget_size = _SIZE * (1 + _NUMBERS * (seats + 1))
        self._file.truncate(self._budget_size * _MAX_BUDGETS)
        self._budgets: dict[int, int] = {}

    @property
    def file(self) -> int:
        """The number of the open file."""
        return self._file.fileno()

    def budget(self, owner: object, number: int | None = None) -> SharedBudget:
        """A budget's part of the file, for one seat; None: for the process that has the table. `owner` is the budget there, and
        lives as long as this."""
        place = self._budgets.setdefault(id(owner), len(self._budgets))
        if place >= _MAX_BUDGETS:
            raise ValueError(f"more than {_MAX_BUDGETS} budgets in one judge")
        return SharedBudget(self.file, place * self._budget_size, self.seats if number is None else number, self.seats + 1)

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

    def budget(self, owner: object) -> tuple[SharedBudget, SharedBudget]:
        """A budget's part of what is shared: for the process that has the table, and for this seat."""
        return self.table.budget(owner), self.table.budget(owner, self.number)


@dataclass(frozen=True, slots=True)
class Share:
    """One of `of` equal workers that have nothing in common, on several machines perhaps."""

    of: int

    def share(self, whole: int) -> int:
        """A worker's part of `whole`, at least 1."""
        return max(1, -(-whole // self.of))

    def budget(self, owner: object) -> tuple[SharedBudget, SharedBudget]:
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
