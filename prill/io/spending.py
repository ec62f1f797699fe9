"""Stores what a run has spent, so that its budget also holds after a restart.

The file is written atomically before more money is spent than it covers. After a crash it therefore
states too much, never too little: it includes the maximum cost of running calls and a small
advance, which keeps writes rare even for thousands of calls.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from glob import escape
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import msgspec

from prill.errors import InputError, UsageError
from prill.io.kinds import parse_object
from prill.io.lines import read_lines
from prill.io.outputs import InUseError, locked, make_folder, write_errors, write_output

SPENDING = "spending.json"
_FORMAT = "prill spending 1"
_Usd = Annotated[float, msgspec.Meta(ge=0)]
# The advance: a fraction of the budget, of the reserved amount, and, without a budget, of the
# amount spent; and a minimum in US dollars.
_OF_BUDGET, _OF_RESERVED, _OF_SPENT, _MIN_ADVANCE = 1 / 200, 1 / 8, 1 / 100, 0.01
_MAX_ADVANCE_RATIO = 4  # a larger advance than this factor is reduced, at most once a second
_PAUSE = 1.0
_NOT_LOCKED, _OF_ANOTHER, _OTHER_PROCESS = -1, -2, -3


class _Spending(msgspec.Struct, frozen=True):
    format: str
    spent_usd: _Usd
    held_usd: _Usd


class SpendingFile:
    """The spending file of one run.

    `held_usd` in the file covers running calls and a small advance; it is 0 once the run has ended.
    Only one process and its workers may use the file: `lock` raises UsageError for another one. If
    the file is not `needed`, because there is no budget, a run that cannot lock it continues
    without it.
    """

    def __init__(self, path: str | os.PathLike[str], *, needed: bool = True) -> None:
        self.path = Path(path)
        self._needed = needed
        self._written = -_PAUSE
        self._lock = _NOT_LOCKED

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_in_worker, (self.path,)

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.lock")

    def lock(self) -> bool:
        """Locks the file against other processes until `unlock`.

        Returns False if the lock is unavailable and not needed. Raises UsageError if it is needed.
        """
        if self._lock == _NOT_LOCKED:
            try:
                make_folder(self._lock_path)
                self._lock = locked(self._lock_path)
            except UsageError as error:
                if not self._needed:
                    self._lock = _OTHER_PROCESS
                elif isinstance(error, InUseError):
                    raise UsageError(
                        f"{self.path}: another process is already using the budget of this run"
                    ) from None
                else:
                    raise
        return self._lock != _OTHER_PROCESS

    def unlock(self) -> None:
        """Releases the lock; safe to call twice."""
        if self._lock >= 0:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = _NOT_LOCKED

    def part(self, number: int) -> SpendingFile:
        """Returns the file of one shard of the run, next to this one."""
        return SpendingFile(self._part_path(str(number)))

    def _part_path(self, number: str) -> Path:
        return self.path.with_name(f"{self.path.name}.shard{number}")

    def _parts(self) -> list[SpendingFile]:
        return [
            SpendingFile(path)
            for path in self.path.parent.glob(escape(self._part_path("").name) + "*")
        ]

    def read_all(self) -> float | None:
        """Reads the amount like `read`, including shards of a killed run. Raises UsageError."""
        known, parts = self.read(), self._parts()
        if parts:
            known = (known or 0.0) + sum(part.read() or 0.0 for part in parts)
            self.write(known, 0.0)
            for part in parts:
                part.clear()
        return known

    def read(self) -> float | None:
        """Returns the US dollars spent by the run, including reservations of a killed run.

        Returns None if there is no file. Raises UsageError.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}") from None
        try:
            found = msgspec.json.decode(data, type=_Spending)
            if found.format != _FORMAT or not isfinite(found.spent_usd + found.held_usd):
                raise ValueError(found.format)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{self.path}: cannot be read, but it records what this run has spent; "
                f'write {{"format": "{_FORMAT}", "spent_usd": X, "held_usd": 0}} into it, '
                "with X in US dollars"
            ) from None
        return found.spent_usd + found.held_usd

    def keep(self, budget: float | None, spent: float, reserved: float, covered: float) -> float:
        """Makes sure that the file covers `spent` and `reserved`.

        `covered` is the amount that the file covers now. Returns the amount that it covers
        afterwards.
        """
        needed = spent + reserved
        ahead = max(
            reserved * _OF_RESERVED,
            max(_MIN_ADVANCE, spent * _OF_SPENT) if budget is None else budget * _OF_BUDGET,
        )
        if budget is not None:  # a crash must not use up the rest of the budget
            ahead = min(ahead, max((budget - needed) / 2, budget * _OF_BUDGET**2))
        now = time.monotonic()
        if needed <= covered and (
            covered - needed <= _MAX_ADVANCE_RATIO * ahead or now - self._written < _PAUSE
        ):
            return covered
        self._written = now
        self.write(spent, reserved + ahead)
        return needed + ahead

    def write(self, spent: float, reserved: float) -> None:
        """Writes the file, unless nothing was spent. Raises UsageError."""
        if (spent or reserved or self.path.exists()) and self.lock():
            record = _Spending(_FORMAT, max(0.0, spent), max(0.0, reserved))
            write_output(self.path, msgspec.json.encode(record) + b"\n")

    def clear(self) -> None:
        """Resets the spending to 0. Raises UsageError."""
        with write_errors(self.path):
            for file in (self, *self._parts()):
                file.path.unlink(missing_ok=True)


def _open_in_worker(path: Path) -> SpendingFile:
    file = SpendingFile(path)
    file._lock = _OF_ANOTHER
    return file


def spending_path(output: str | os.PathLike[str]) -> Path:
    """Returns the spending file of a verdict or caption file: `v.spending.json` for `v.jsonl`."""
    path = Path(output)
    return path.with_name(f"{path.name.removesuffix('.gz').removesuffix('.jsonl')}.{SPENDING}")


def recorded_spending(paths: Iterable[Path]) -> float:
    """Returns the US dollars in the `usage` of some files' records, for runs without a spending
    file.

    Costs that another run paid (`reused`) and unreadable lines are not counted.
    """
    return sum(_usd(parse_object(line.data) or {}) for path in paths for line in _lines(path))


def _lines(path: Path) -> Iterable[Any]:
    if not path.is_file():
        return
    try:
        yield from read_lines(path)
    except InputError:
        return


def _usd(record: dict[str, Any]) -> float:
    metadata = record.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    usage = record.get("usage", metadata.get("usage"))
    usd = usage.get("usd") if isinstance(usage, dict) else None
    is_own = metadata.get("reused") is not True
    return (
        float(usd) if is_own and isinstance(usd, int | float) and isfinite(usd) and usd > 0 else 0.0
    )
