"""Caches: one on disk for several processes, threads and event loops, and one in memory."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import finalize

import msgspec

from prill.errors import UsageError

if TYPE_CHECKING:
    import sqlite3

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
# 30 seconds in total, the same as SQLite's timeout elsewhere in this module
_TRIES, _PAUSE = 600, 0.05


def cache_folder() -> Path:
    """Returns the cache folder: $PRILL_CACHE_DIR, else `prill` in $XDG_CACHE_HOME or ~/.cache."""
    if folder := os.environ.get("PRILL_CACHE_DIR"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prill"


def scratch_database(owner: object = None) -> sqlite3.Connection:
    """Opens a private temporary database that is deleted when it is closed.

    It spills to disk but does not survive a crash. Several threads may use it one after the other.
    The caller must close it; otherwise it is closed together with its `owner`, also if the owner's
    constructor raises.
    """
    import sqlite3

    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    if owner is not None:
        finalize(owner, database.close)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    # use a single transaction: one per statement takes twice as long
    database.execute("BEGIN")
    return database


class DiskCache:
    """A persistent key-value cache in one SQLite file.

    The file is created on first use and stays open until `close` or garbage collection. Raises
    UsageError if the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._end: Callable[[], object] = int

    def __reduce__(self) -> tuple[type[DiskCache], tuple[Path]]:
        return DiskCache, (self.path,)  # only the path is pickled, not the connection and the lock

    def get(self, key: str, read: Callable[[bytes], _T]) -> _T | None:
        """Reads a value with `read`; returns None if it is missing or damaged."""
        with self._lock, self._failures():
            row = (
                self._open()
                .execute("SELECT value, crc FROM entries WHERE key = ?", (key,))
                .fetchone()
            )
        if row is None or not isinstance(row[0], bytes) or row[1] != _crc(key, row[0]):
            return None
        try:
            return read(row[0])
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return None

    def put(self, key: str, value: bytes) -> None:
        """Stores a value; it is on disk on return."""
        with self._lock, self._failures():
            self._open().execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (key, value, _crc(key, value))
            )

    def close(self) -> None:
        """Closes the file; the next use opens it again. Safe to call twice."""
        with self._lock:
            self._end()
            self._connection = None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except (sqlite3.Error, OSError) as error:
            advice = "delete it, or choose another folder with $PRILL_CACHE_DIR"
            raise UsageError(
                f"cache {self.path} cannot be used ({error}); {advice}", parameters=("cache",)
            ) from None

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        if self._connection is None or self._process != os.getpid():
            # Replies quote pages and goals, so other users must not be able to read them.
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # SQLite's other files get the same mode as this one
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(
                self.path, timeout=30, isolation_level=None, check_same_thread=False
            )
            with ExitStack() as on_failure:
                on_failure.callback(connection.close)
                _share(connection)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS entries "
                    "(key TEXT PRIMARY KEY, value BLOB, crc INTEGER) WITHOUT ROWID"
                )
                on_failure.pop_all()
            self._connection, self._process = connection, os.getpid()
            self._end = finalize(self, _close, connection, self._process)
        return self._connection


def _close(connection: sqlite3.Connection, process: int) -> None:
    """Closes a connection in the process that opened it; in a forked child it belongs to the
    parent.
    """
    if process == os.getpid():
        connection.close()


def _crc(key: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key.encode("utf-8", "surrogatepass")))


def _share(connection: sqlite3.Connection) -> None:
    """Turns on WAL mode, so that readers and a writer can work at the same time.

    SQLite does not apply its timeout to this statement, so it is retried.
    """
    import sqlite3

    for _ in range(_TRIES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(_PAUSE)
    connection.execute("PRAGMA journal_mode = WAL")


class BoundedCache(Generic[_K, _V]):
    """An LRU cache in memory with limits on entries and bytes."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.max_entries, self.max_bytes, self.bytes = max_entries, max_bytes, 0
        self._entries: OrderedDict[_K, tuple[_V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _K) -> _V | None:
        """Returns the value and marks it as recently used; None if it is not cached."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: _K, value: _V, size: int) -> None:
        """Stores a value of `size` bytes, unless it is larger than the whole cache."""
        self.remove(key)
        if size > self.max_bytes:
            return
        self._entries[key] = value, size
        self.bytes += size
        while len(self._entries) > self.max_entries or self.bytes > self.max_bytes:
            self.remove(next(iter(self._entries)))

    def remove(self, key: _K) -> None:
        """Removes a value, if it is cached."""
        _, size = self._entries.pop(key, (None, 0))
        self.bytes -= size
