"""Shards: which process handles which trajectory, and its part of shared limits.

A model's concurrency and a budget are divided when an object is pickled for a shard
(`packing_for`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from prill.errors import UsageError

_FORM = re.compile(r"(\d{1,6})/(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a run, selected by trajectory id. An id is always in the same shard.

    Args:
        number: The number of the shard, from 1.
        count: The number of shards.

    Raises:
        UsageError: The number is not between 1 and the count.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise UsageError(
                f"shard {self.number}/{self.count}: expected a number from 1 to "
                f"{max(1, self.count)}",
                parameters=("shard",),
            )

    @classmethod
    def read(cls, text: str) -> Self:
        """Parses a shard.

        Args:
            text: `2/8` for the second of eight.

        Returns:
            The shard.

        Raises:
            UsageError: The text is anything else.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"shard {text!r}: expected number/count, for example 1/8 to 8/8 for eight shards",
                parameters=("shard",),
            )
        return cls(int(match[1]), int(match[2]))

    def takes(self, id: str) -> bool:
        """Tells whether a trajectory is in this shard.

        Args:
            id: The trajectory's id. The first 64 bits of its SHA-256 determine the shard.

        Returns:
            True if it is.
        """
        digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1

    def takes_turn(self, position: int) -> bool:
        """Tells whether this shard handles the item at a position, if items are dealt in turn.

        Args:
            position: The position, from 0.

        Returns:
            True if it does.
        """
        return position % self.count == self.number - 1

    def share(self, whole: int) -> int:
        """Returns this shard's part of a limit on concurrency.

        Args:
            whole: The limit of all shards together.

        Returns:
            The part of this shard, at least 1.
        """
        return max(1, whole // self.count + (self.number <= whole % self.count))


@dataclass(frozen=True, slots=True)
class Packing:
    """The shard that an object is pickled for, and the folder of the run's shards.

    `budgets` are the budgets that were divided.
    """

    shard: Shard
    folder: Path
    budgets: list[Any] = field(default_factory=list)


_packing: ContextVar[Packing | None] = ContextVar("prill_packing", default=None)


@contextmanager
def packing_for(packing: Packing) -> Iterator[None]:
    """Makes objects that are pickled inside the block belong to a shard."""
    token = _packing.set(packing)
    try:
        yield
    finally:
        _packing.reset(token)


def packed_for() -> Packing | None:
    """Returns the shard that objects are being pickled for, or None."""
    return _packing.get()
