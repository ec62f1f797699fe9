"""How much there is to go through."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from prill.errors import InputError
from prill.store import read_lines


def expected(paths: Iterable[str], limit: int | None) -> int:
    """The number of lines of some files, at most `limit`. A damaged archive counts as far as it goes: the run reports it."""
    count = 0
    for path in paths:
        with contextlib.suppress(InputError):
            for _ in read_lines(path):
                count += 1
    return count if limit is None else min(count, limit)
