"""Full-text search over agents' observations, actions and texts, and judges' reasons."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator

from prill.errors import UsageError
from prill.io.cache import scratch_database
from prill.types import Trajectory

MAX_TEXT = 400_000  # characters of a run that are indexed
_MAX_QUERY = 300  # characters
_MAX_WORDS = 12


class SearchIndex:
    """A full-text index of runs and reasons, in a temporary database that does not grow in memory.

    A query word matches the beginnings of words; case and accents are ignored.

    Raises:
        UsageError: Python's SQLite has no full-text search.
    """

    def __init__(self) -> None:
        self._database = scratch_database(self)
        self._lock = threading.Lock()
        self._reasons: list[tuple[int, int]] = []  # run and judge, by row
        self._latest: dict[tuple[int, int], int] = {}
        try:
            for table in ("runs", "reasons"):
                self._database.execute(
                    f"CREATE VIRTUAL TABLE {table} USING fts5(text, content='', detail=full, "
                    "tokenize='unicode61 remove_diacritics 2')"
                )
        except sqlite3.OperationalError as error:
            raise UsageError(
                f"prill view needs an SQLite with FTS5, and this Python's has none: {error}"
            ) from None

    def add_run(self, number: int, trajectory: Trajectory) -> None:
        """Adds the text of a run."""
        text = "\n".join(_searched_texts(trajectory))[:MAX_TEXT]
        with self._lock:
            self._database.execute("INSERT INTO runs (rowid, text) VALUES (?, ?)", (number, text))

    def add_reason(self, number: int, judge: int, reason: str) -> None:
        """Adds a judge's reason on a run, replacing the judge's earlier one."""
        with self._lock:
            row = len(self._reasons)
            self._reasons.append((number, judge))
            self._latest[number, judge] = row
            self._database.execute("INSERT INTO reasons (rowid, text) VALUES (?, ?)", (row, reason))

    def search(self, query: str, *, reasons: bool = True) -> set[int] | None:
        """Returns the runs that contain every word of the query.

        Args:
            query: Search words; at most 12 are used.
            reasons: Whether to search judges' reasons, too.

        Returns:
            Their numbers; None if the query has no words, which matches all.
        """
        words = [word for word in query[:_MAX_QUERY].split() if any(map(str.isalnum, word))]
        found: set[int] | None = None
        for word in words[:_MAX_WORDS]:
            quoted = '"{}"*'.format(word.replace('"', '""').replace("\0", " "))
            with self._lock:
                here = {row[0] for row in self._rows("runs", quoted)}
                if reasons:
                    matches = [row[0] for row in self._rows("reasons", quoted)]
                    here |= {
                        self._reasons[row][0]
                        for row in matches
                        if self._latest[self._reasons[row]] == row
                    }
            found = here if found is None else found & here
        return found

    def close(self) -> None:
        """Deletes the temporary database."""
        self._database.close()

    def _rows(self, table: str, query: str) -> sqlite3.Cursor:
        return self._database.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (query,))


def _searched_texts(trajectory: Trajectory) -> Iterator[str]:
    yield from (trajectory.id, trajectory.task.goal, trajectory.answer or "")
    for turn in trajectory.task.earlier:
        yield from (turn.task.goal, turn.answer or "")
    for step in trajectory.steps:
        action = step.action
        yield from (action.text, action.target or "", action.value or "", step.thought or "")
    for state in trajectory.observations:
        yield from (state.url or "", state.caption or "", state.text or "")
