"""Shards of a run, and the parts of a model's concurrency that workers get."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

from prill.errors import UsageError

_FORM = re.compile(r"(\d{1,6})/(\d{1,6})")


def id_digest(id: str) -> int:
    """Returns the first 64 bits of the SHA-256 of a trajectory's id."""
    return int.from_bytes(hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[:8])


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
        """
        return id_digest(id) % self.count == self.number - 1


_workers: ContextVar[int | None] = ContextVar("prill_workers", default=None)


@contextmanager
def packing_for(workers: int) -> Iterator[None]:
    """Makes models that are pickled inside the block divide their concurrency among workers."""
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)


def packed_for() -> int | None:
    """Returns the number of workers that objects are being pickled for, or None."""
    return _workers.get()
