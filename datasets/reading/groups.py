"""Joins the records of a run that are apart in a file, on disk instead of in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.io.cache import scratch_database

Record = TypeVar("Record")
# bytes of the records of one run, which are in memory together
_MAX_GROUP = 2**30
# bytes of all records on disk: a small archive can unpack to any size
_MAX_TOTAL = 2**36


class RecordGroups(Generic[Record]):
    """Records by the run that they belong to, in any order, kept as JSON in a temporary database on
    disk.

    Memory holds the records of one run at a time. The database is in the folder that SQLite uses
    for temporary files (`SQLITE_TMPDIR`, `TMPDIR`) and is deleted when it is closed.
    """

    def __init__(self, type: type[Record]) -> None:
        self._decoder = msgspec.json.Decoder(type)
        self._size = 0
        self._database = scratch_database(self)
        self._database.execute("CREATE TABLE records (run TEXT, data BLOB)")
        self._database.execute("CREATE INDEX by_run ON records (run)")

    def __enter__(self) -> RecordGroups[Record]:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, run: str, record: Record) -> None:
        """Adds a record to a run. Raises UsageError if all records together exceed 64 GiB, or the
        disk is full: no run can be trusted to be whole then.
        """
        data = msgspec.json.encode(record)
        self._size += len(data)
        if self._size > _MAX_TOTAL:
            raise UsageError(
                f"records that are joined by run exceed {_MAX_TOTAL >> 20:,} MiB; split the file "
                "so that each part has whole runs"
            )
        try:
            self._database.execute("INSERT INTO records VALUES (?, ?)", (run, data))
        except (sqlite3.Error, OverflowError) as error:
            raise UsageError(
                f"records cannot be joined by run in a temporary file: {error}; set SQLITE_TMPDIR "
                "to a folder with space, or split the file so that each part has whole runs"
            ) from None

    def records(self) -> Iterator[Record]:
        """Yields all records in the order in which they were added, one in memory at a time."""
        for (data,) in self._database.execute("SELECT data FROM records ORDER BY rowid"):
            yield self._decoder.decode(data)

    def runs(self) -> Iterator[str]:
        """Yields the runs in the order of their first records."""
        rows = self._database.execute("SELECT run FROM records GROUP BY run ORDER BY MIN(rowid)")
        for (run,) in rows:
            yield run

    def read(self, *runs: str) -> list[Record]:
        """Returns the records of runs, run by run, each in the order in which they were added.
        Raises InputError if they exceed 1 GiB.
        """
        found: list[Record] = []
        size = 0
        for run in runs:
            for (data,) in self._database.execute(
                "SELECT data FROM records WHERE run = ? ORDER BY rowid", (run,)
            ):
                size += len(data)
                if size > _MAX_GROUP:
                    raise InputError(
                        f"the records of this run exceed {_MAX_GROUP >> 20:,} MiB, which is the "
                        "limit for one run"
                    )
                found.append(self._decoder.decode(data))
        return found
