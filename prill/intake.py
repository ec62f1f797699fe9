"""Input files for scoring: ids once, broken lines as items of their own, a clear error when nothing can be read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence

from prill.cache import scratch_database
from prill.errors import InputError, UsageError
from prill.store import BadLine, numbered_trajectories
from prill.types import Trajectory

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
        """Each item with its place, `file:line`. Raises UsageError when no line is a trajectory, before any item."""
        self._look_for_one()
        yield from self._items()

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

    def _look_for_one(self) -> None:
        first, broken, left = None, 0, self.limit
        for path in self.paths:
            try:
                for _, item in numbered_trajectories(path):
                    if left is not None and (left := left - 1) < 0:
                        break
                    if not isinstance(item, BadLine):
                        return
                    first, broken = first or item.message, broken + 1
            except InputError as error:
                first, broken = first or str(error), broken + 1
        if first is None:
            names = ", ".join(map(str, self.paths))
            raise UsageError(f"{names}: the file is empty" if len(self.paths) == 1 else f"{names}: the files are empty")
        more = f" (and {broken - 1} more broken lines)" if broken > 1 else ""
        raise UsageError(f"no trajectory could be read; {first}{more}")
