"""Caches: one on disk, safe for several processes, threads and event loops; one in memory."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Generic, TypeVar
from weakref import finalize

import msgspec

from prill.errors import UsageError

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_ask_again: ContextVar[bool] = ContextVar("ask_again", default=False)
_TRIES, _PAUSE = 600, 0.05  # together 30 seconds, as long as SQLite waits elsewhere


def cache_folder() -> Path:
    """The cache folder: $PRILL_CACHE_DIR, else `prill` in $XDG_CACHE_HOME or ~/.cache."""
    if folder := os.environ.get("PRILL_CACHE_DIR"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prill"


def scratch_database(owner: object = None) -> sqlite3.Connection:
    """A private database that spills to a temporary file and vanishes when closed; nothing in it
    survives a crash.

    Threads may take turns with it. Whoever opens it closes it; where that is forgotten, or the
    constructor of the `owner` raises, it is closed with the owner.
    """
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    if owner is not None:
        finalize(owner, database.close)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    # all of it is one transaction: each statement as one of its own takes twice as long
    database.execute("BEGIN")
    return database


@contextmanager
def asking_again() -> Iterator[None]:
    """Context manager: disk caches neither answer nor store, so every reply comes from the
    endpoint.
    """
    token = _ask_again.set(True)
    try:
        yield
    finally:
        _ask_again.reset(token)


class DiskCache:
    """Bytes by key in one SQLite file, created at first use and open until `close` or garbage
    collection.

    Raises UsageError when the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._end: Callable[[], object] = int

    def __reduce__(self) -> tuple[type[DiskCache], tuple[Path]]:
        return DiskCache, (self.path,)  # the file travels, its connection and lock do not

    def get(self, key: str, read: Callable[[bytes], _T]) -> _T | None:
        """Reads a value with `read`; None where it is missing or damaged."""
        if _ask_again.get():
            return None
        with self._lock, self._failures():
            row = (
                self._open()
                .execute("SELECT value, crc FROM entries WHERE key = ?", (key,))
                .fetchone()
            )
        if row is None or not isinstance(row[0], bytes) or row[1] not in (None, _crc(key, row[0])):
            return None
        try:
            return read(row[0])
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return None

    def put(self, key: str, value: bytes) -> None:
        """Keeps a value; it is on disk when this returns."""
        if _ask_again.get():
            return
        with self._lock, self._failures():
            self._open().execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (key, value, _crc(key, value))
            )

    def close(self) -> None:
        """Closes the file, which the next use opens again; safe to call twice."""
        with self._lock:
            self._end()
            self._connection = None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            advice = "delete it, or choose another folder with $PRILL_CACHE_DIR"
            raise UsageError(
                f"cache {self.path} cannot be used ({error}); {advice}", parameters=("cache",)
            ) from None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._process != os.getpid():
            # Replies quote pages and goals: nobody else on this machine is to read them.
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # SQLite's other files get the mode of this one
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(
                self.path, timeout=30, isolation_level=None, check_same_thread=False
            )
            with ExitStack() as on_failure:
                on_failure.callback(connection.close)
                _share(connection)
                connection.execute("PRAGMA synchronous = NORMAL")
                _prepare(connection)
                on_failure.pop_all()
            self._connection, self._process = connection, os.getpid()
            self._end = finalize(self, _close, connection, self._process)
        return self._connection


def _close(connection: sqlite3.Connection, process: int) -> None:
    """Closes a connection where it was opened: in a forked child it is the parent's."""
    if process == os.getpid():
        connection.close()


def _prepare(connection: sqlite3.Connection) -> None:
    """Makes the table, or gives that of an older version its column of checksums: SQLite has none
    of its own.
    """
    table = (
        "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB, crc INTEGER) "
        "WITHOUT ROWID"
    )
    connection.execute(table)
    if "crc" not in {row[1] for row in connection.execute("PRAGMA table_info(entries)")}:
        try:
            connection.execute("ALTER TABLE entries ADD COLUMN crc INTEGER")
        except sqlite3.OperationalError as error:
            if "duplicate column" not in str(error):  # another process was faster
                raise


def _crc(key: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key.encode("utf-8", "surrogatepass")))


def _share(connection: sqlite3.Connection) -> None:
    """Lets readers and a writer work side by side. SQLite does not wait its turn for this
    statement, so it is tried again.
    """
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
    """A cache in memory with limits on entries and bytes: what was used longest ago goes first."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.max_entries, self.max_bytes, self.bytes = max_entries, max_bytes, 0
        self._entries: OrderedDict[_K, tuple[_V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _K) -> _V | None:
        """The value, which counts as used now; None where it is not kept."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: _K, value: _V, size: int) -> None:
        """Keeps a value of so many bytes; one that is larger than all that may be kept is not."""
        self.remove(key)
        if size > self.max_bytes:
            return
        self._entries[key] = value, size
        self.bytes += size
        while len(self._entries) > self.max_entries or self.bytes > self.max_bytes:
            self.remove(next(iter(self._entries)))

    def remove(self, key: _K) -> None:
        """Forgets a value; nothing happens where it is not kept."""
        _, size = self._entries.pop(key, (None, 0))
        self.bytes -= size
