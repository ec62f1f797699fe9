"""Shards: which of several machines takes which trajectory, with nothing between them but the numbers."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Self

from prill.errors import UsageError

_FORM = re.compile(r"(\d{1,6})/(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One share of a run that is divided by trajectory id. An id is in the same shard wherever and whenever it is asked.

    Args:
        number: Which share, from 1.
        count: How many shares there are.

    Raises:
        UsageError: The number is not between 1 and the count.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise UsageError(
                f"shard {self.number}/{self.count}: the number goes from 1 to {max(1, self.count)}", parameters=("shard",)
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
            raise UsageError(f"shard {text!r}: give number/count, 1/8 to 8/8 for eight shards", parameters=("shard",))
        return cls(int(match[1]), int(match[2]))

    def takes(self, id: str) -> bool:
        """Tells whether a trajectory is in this shard.

        Args:
            id: The trajectory's id. The first 64 bits of its SHA-256 decide.

        Returns:
            Whether it is.
        """
        digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1
