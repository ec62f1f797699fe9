"""The verdict file: append-only, repaired after a crash, with unique ids after closing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

from prill.errors import UsageError
from prill.io.append_log import AppendLog
from prill.io.cache import scratch_database
from prill.io.lines import is_stream
from prill.io.outputs import is_stdout, write_errors
from prill.io.store import encode
from prill.locks import Closing
from prill.types import EvaluatorInfo, UnscoredReason, Verdict

# These verdicts made no call or are cheap to repeat, so a plain resume judges them again.
RETRIED: tuple[UnscoredReason, ...] = ("budget", "input")


def lasts(unscored: str | None, *, retry_unscored: bool) -> bool:
    """Returns whether a resumed run keeps a verdict, by the reason why it is unscored, if it is."""
    return unscored is None or not (retry_unscored or unscored in RETRIED)


class Logged(Protocol):
    """The interface of records in a log."""

    @property
    def id(self) -> str:
        """Returns the id of the judged trajectory."""
        ...

    @property
    def key(self) -> str:
        """Returns a digest of the judge and its input."""
        ...

    @property
    def unscored(self) -> UnscoredReason | None:
        """Returns why the verdict is unscored, or None if it is scored."""
        ...


class VerdictLog(AppendLog[Any]):
    """The verdicts of one judge in one file.

    Subclasses store other records that have an id, a key and a maker. A new verdict for an id
    replaces the old line when the log is closed. If the run is `finished` then, the lines get the
    order of its input; those of other runs come first. An index of the file is kept in a temporary
    database, so that memory use does not grow with the file. If another program writes to, replaces
    or removes the file, `append` and `close` raise UsageError, and the verdicts are saved to
    another file next to it.
    """

    noun: ClassVar[str] = "verdict"
    maker: ClassVar[str] = "judge"
    record: ClassVar[type[Any]] = Verdict

    def __init__(
        self,
        path: str | os.PathLike[str],
        evaluator: EvaluatorInfo | str,
        *,
        resume: bool = True,
        retry_unscored: bool = False,
    ) -> None:
        self.evaluator = evaluator
        self._retry_unscored = retry_unscored
        self._replaced = False
        self.finished = False
        self._database = scratch_database(self)
        self._database.execute(
            "CREATE TABLE verdicts (id TEXT PRIMARY KEY, key TEXT, unscored TEXT, start INTEGER, "
            "number INTEGER) WITHOUT ROWID"
        )
        super().__init__(path, self.record, self._take, what=self.noun, restart=not resume)

    def done(self, id: str, key: Callable[[], str], number: int | None = None) -> bool:
        """Returns True if the file contains a valid verdict for the same content.

        The key is only computed if there is a verdict to compare, because this may require reading
        images. `number` is the position in the run's input.
        """
        known = self.lasting_key(id)
        if known is None or known != key():
            return False
        self._database.execute("UPDATE verdicts SET number = ? WHERE id = ?", (number, id))
        return True

    def lasting_key(self, id: str) -> str | None:
        """Returns the key of the file's verdict for an id, if it stays valid for the same
        content.
        """
        row = self._database.execute(
            "SELECT key, unscored FROM verdicts WHERE id = ?", (id,)
        ).fetchone()
        if row is None or not lasts(row[1], retry_unscored=self._retry_unscored):
            return None
        return str(row[0])

    def append(self, record: Logged, number: int | None = None) -> None:
        """Writes a record; it is on disk on return. `number` is its position in the run's input."""
        start = self._end
        super().append(record)
        self._remember(record, start, number)

    def drop(self, id: str) -> None:
        """Deletes the verdict of a line that was unreadable before and is readable now."""
        if self._database.execute("DELETE FROM verdicts WHERE id = ?", (id,)).rowcount:
            self._replaced = True

    def close(self) -> None:
        """Keeps only the newest line of each id, and closes the file."""
        if self._file < 0:
            return
        try:
            if not self.is_ours():
                raise UsageError(f"{self.not_ours}; the {self.what}s are in {self.saved()}")
            self._database.execute("CREATE INDEX by_start ON verdicts (start)")
            if self.finished and self._is_out_of_order():
                self.replace(self._in_order())
            elif self._replaced:
                self.replace(line for start, line in self.lines() if self._counts(start))
        finally:
            super().close()

    def abandon(self) -> None:
        """Releases the lock as if the process had ended; safe to call twice."""
        super().abandon()
        self._database.close()

    def _is_out_of_order(self) -> bool:
        found = self._database.execute(
            "SELECT 1 FROM (SELECT number, MAX(number) OVER (ORDER BY start) AS largest "
            "FROM verdicts) WHERE number < largest OR number IS NULL AND largest >= 0 LIMIT 1"
        )
        return found.fetchone() is not None

    def _in_order(self) -> Iterator[bytes]:
        self._database.execute("CREATE TABLE sizes (start INTEGER PRIMARY KEY, size INTEGER)")
        sizes = ((start, len(line)) for start, line in self.lines())
        self._database.executemany("INSERT INTO sizes VALUES (?, ?)", sizes)
        for start, size in self._database.execute(
            "SELECT start, size FROM verdicts JOIN sizes USING (start) "
            "ORDER BY number IS NOT NULL, number, start"
        ):
            yield os.pread(self._file, size, start)

    def _counts(self, start: int) -> bool:
        return (
            self._database.execute("SELECT 1 FROM verdicts WHERE start = ?", (start,)).fetchone()
            is not None
        )

    def _take(self, record: Any, start: int) -> None:
        if record.evaluator != self.evaluator:
            differences = list_differences(record.evaluator, self.evaluator)
            raise UsageError(
                f"{self.path} contains {self.what}s of another {self.maker} "
                f"({differences}); choose another file, or start over",
                parameters=("output", "resume"),
            )
        self._remember(record, start)

    def _remember(self, record: Logged, start: int, number: int | None = None) -> None:
        before = self._database.total_changes
        row = (record.id, record.key, record.unscored, start, number)
        self._database.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?, ?, ?)", row)
        if self._database.total_changes == before:
            self._replaced = True
            self._database.execute(
                "UPDATE verdicts SET key = ?, unscored = ?, start = ?, number = ? WHERE id = ?",
                (*row[1:], record.id),
            )


def list_differences(
    other: EvaluatorInfo | str, own: EvaluatorInfo | str, places: tuple[str, str] = ("there", "now")
) -> str:
    """Returns as text how two judges differ; empty if they are equal."""
    names = (
        ("name", "version", "model", "prompt", "params")
        if isinstance(other, EvaluatorInfo)
        else ("name",)
    )
    pairs = ((name, getattr(other, name, other), getattr(own, name, own)) for name in names)
    return "; ".join(
        f"{name} {theirs} {places[0]}, {ours} {places[1]}"
        for name, theirs, ours in pairs
        if theirs != ours
    )


class VerdictStream(Closing):
    """Writes verdicts to standard output or a pipe immediately; earlier output cannot be read."""

    finished = False  # lines are written at once, in the order of completion

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._file = sys.stdout.buffer if is_stdout(path) else open(path, "wb")  # noqa: SIM115 - closed by `close`

    def done(self, id: str, key: Callable[[], str], number: int | None = None) -> bool:
        """Returns False, because nothing can be resumed."""
        return False

    def append(self, verdict: Verdict, number: int | None = None) -> None:
        """Writes a verdict."""
        with write_errors(self.path):
            self._file.write(encode(verdict))
            self._file.flush()

    def drop(self, id: str) -> None:
        """Does nothing, because written verdicts cannot be removed."""

    def close(self) -> None:
        """Closes the pipe; standard output stays open."""
        if self._file is not sys.stdout.buffer:
            with write_errors(self.path):
                self._file.close()


def open_log(
    path: str | os.PathLike[str], evaluator: EvaluatorInfo, *, resume: bool, retry_unscored: bool
) -> VerdictLog | VerdictStream:
    """Opens the destination of verdicts: a file, standard output (`-`) or a pipe."""
    if is_stdout(path) or is_stream(path):
        return VerdictStream(path)
    return VerdictLog(path, evaluator, resume=resume, retry_unscored=retry_unscored)
