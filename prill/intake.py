"""Input files for scoring: ids once, broken lines as items of their own, a clear error when nothing can be read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence

from prill.cache import scratch_database
from prill.errors import InputError, UsageError
from prill.store import BadLine, numbered_trajectories
from prill.types import Trajectory

_HELD_BACK = 1000  # broken lines kept waiting for a first good one
Item = Trajectory | BadLine


class Intake:
    """The items of some trajectory files, in order; ids seen are kept in a temporary database, not in memory."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], limit: int | None = None) -> None:
        self.paths = paths
        self.limit = limit
        self.read = 0
        self._ids = scratch_database()
        self._ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID")

    def __iter__(self) -> Iterator[tuple[str, Item]]:
        """Each item with its place, `file:line`. Broken lines come after the first good one.

        Raises UsageError when no line is a trajectory, before any item.
        """
        held: list[tuple[str, Item]] = []
        waiting = True
        for place, item in self._items():
            if waiting and isinstance(item, BadLine) and len(held) < _HELD_BACK:
                held.append((place, item))
                continue
            waiting = False
            yield from held
            held = []
            yield place, item
        if waiting:
            raise UsageError(self._nothing(held))

    def close(self) -> None:
        """Drops the temporary database."""
        self._ids.close()

    def _items(self) -> Iterator[tuple[str, Item]]:
        for path in self.paths:
            try:
                for place, item in numbered_trajectories(path):
                    if self.limit is not None and self.read >= self.limit:
                        return
                    self.read += 1
                    yield place, self._unique(place, item)
            except InputError as error:  # a damaged archive: what came before it counts
                self.read += 1
                yield str(path), BadLine(str(path), str(path), str(error), b"")

    def _unique(self, place: str, item: Item) -> Item:
        try:
            self._ids.execute("INSERT INTO ids VALUES (?, ?)", (item.id, place))
        except sqlite3.IntegrityError:
            first = self._ids.execute("SELECT place FROM ids WHERE id = ?", (item.id,)).fetchone()[0]
            problem = item.problem if isinstance(item, BadLine) else f"duplicate id {item.id!r}, first used at {first}"
            return BadLine(place, place, problem, item.id.encode())
        return item

    def _nothing(self, broken: list[tuple[str, Item]]) -> str:
        names = ", ".join(map(str, self.paths))
        if not broken:
            return f"{names}: the file is empty" if len(self.paths) == 1 else f"{names}: the files are empty"
        first = broken[0][1]
        assert isinstance(first, BadLine)
        more = f" (and {len(broken) - 1} more broken lines)" if len(broken) > 1 else ""
        return f"no trajectory could be read; {first.message}{more}"
