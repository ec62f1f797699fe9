"""Stores what a run has spent, so that its budget also holds after a restart.

The file is written atomically before more money is spent than it covers. After a crash it therefore
states too much, never too little: it includes the maximum cost of running calls and a small
advance, which keeps writes rare even for thousands of calls.
"""

from __future__ import annotations

import os
import time
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


class _Spending(msgspec.Struct, frozen=True):
    format: str
    spent_usd: _Usd
    held_usd: _Usd


class SpendingFile:
    """The spending file of one run.

    `held_usd` in the file covers running calls and a small advance; it is 0 once the run has ended.
    Only one process may use the file: `lock` raises UsageError for another one. If the file is not
    `needed`, because there is no budget, a run that cannot lock it continues without it.
    """

    def __init__(self, path: str | os.PathLike[str], *, needed: bool = True) -> None:
        self.path = Path(path)
        self._needed = needed
        self._written = -_PAUSE
        self._lock: int | None = None
        self._is_unavailable = False

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.lock")

    def lock(self) -> bool:
        """Locks the file against other processes until `unlock`.

        Returns False if the lock is unavailable and not needed. Raises UsageError if it is needed.
        """
        if self._lock is None and not self._is_unavailable:
            try:
                make_folder(self._lock_path)
                self._lock = locked(self._lock_path)
            except UsageError as error:
                if self._needed and isinstance(error, InUseError):
                    raise UsageError(
                        f"{self.path}: another process is already using the budget of this run"
                    ) from None
                if self._needed:
                    raise
                self._is_unavailable = True
        return self._lock is not None

    def unlock(self) -> None:
        """Releases the lock; safe to call twice."""
        if self._lock is not None:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

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
            self.path.unlink(missing_ok=True)


def spending_path(output: str | os.PathLike[str]) -> Path:
    """Returns the spending file of a verdict or caption file: `v.spending.json` for `v.jsonl`."""
    path = Path(output)
    return path.with_name(f"{path.name.removesuffix('.gz').removesuffix('.jsonl')}.{SPENDING}")


def recorded_spending(path: Path) -> float:
    """Returns the US dollars in the `usage` of a file's records, for runs without a spending file.

    Costs that another run paid (`reused`) and unreadable lines are not counted.
    """
    if not path.is_file():
        return 0.0
    try:
        return sum(_usd(parse_object(line.data) or {}) for line in read_lines(path))
    except InputError:
        return 0.0


def _usd(record: dict[str, Any]) -> float:
    metadata = record.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    usage = record.get("usage", metadata.get("usage"))
    usd = usage.get("usd") if isinstance(usage, dict) else None
    is_own = metadata.get("reused") is not True
    return (
        float(usd) if is_own and isinstance(usd, int | float) and isfinite(usd) and usd > 0 else 0.0
    )
