"""The verdict file: append-only, repaired after a crash, with unique ids after closing."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from prill.errors import UsageError
from prill.io.append_log import AppendLog
from prill.io.cache import scratch_database
from prill.io.kinds import parse_object
from prill.io.lines import is_stream, read_lines
from prill.io.outputs import check_output, is_stdout, write_errors, writing
from prill.io.store import encode, read_verdicts
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
    replaces the old line when the log is closed. An index of the file is kept in a temporary
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
        self._database = scratch_database(self)
        self._database.execute(
            "CREATE TABLE verdicts (id TEXT PRIMARY KEY, key TEXT, unscored TEXT, start INTEGER) "
            "WITHOUT ROWID"
        )
        super().__init__(path, self.record, self._take, what=self.noun, restart=not resume)

    def done(self, id: str, key: Callable[[], str]) -> bool:
        """Returns True if the file contains a valid verdict for the same content.

        The key is only computed if there is a verdict to compare, because this may require reading
        images.
        """
        known = self.lasting_key(id)
        return known is not None and known == key()

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

    def append(self, record: Logged) -> None:
        """Writes a record; it is on disk on return."""
        start = self._end
        super().append(record)
        self._remember(record, start)

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
            if self._replaced:
                self._database.execute("CREATE INDEX by_start ON verdicts (start)")
                self.replace(line for start, line in self.lines() if self._counts(start))
        finally:
            super().close()
            self._database.close()

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

    def _remember(self, record: Logged, start: int) -> None:
        before = self._database.total_changes
        row = (record.id, record.key, record.unscored, start)
        self._database.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?, ?)", row)
        if self._database.total_changes == before:
            self._replaced = True
            self._database.execute(
                "UPDATE verdicts SET key = ?, unscored = ?, start = ? WHERE id = ?",
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


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of `merge_verdicts`: the numbers of ids, of unscored ones and of lines left out.

    `cut` are the files with an incomplete last line, left by a crash; that line is left out.
    """

    verdicts: int
    unscored: int
    left_out: int
    cut: tuple[str, ...] = ()

    def __str__(self) -> str:
        twice = (
            f"; {self.left_out} lines left out, whose ids have a better or newer one"
            if self.left_out
            else ""
        )
        return f"{self.verdicts} verdicts, {self.unscored} of them unscored{twice}"


def merge_verdicts(
    paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]
) -> Merged:
    """Merges verdict files, such as the shards of one run, into one file with unique ids.

    Within a file, the newest line of an id counts. Between files, the first scored one counts.

    Args:
        paths: Verdict files.
        output: The file to write. An existing file counts as the first input, so its verdicts are
            kept.

    Returns:
        The numbers of verdicts, of unscored verdicts and of lines left out, and the files that end
        in an incomplete line.

    Raises:
        UsageError: Two files have verdicts of different judges, or of different content under one
            id. The output is then unchanged.
    """
    check_output(output, "verdicts", paths)
    if (
        not (is_stdout(output) or is_stream(output))
        and os.path.exists(output)
        and os.path.getsize(output)
    ):
        paths = [output, *paths]
    with closing(scratch_database()) as database:
        database.execute(
            "CREATE TABLE best (id TEXT PRIMARY KEY, file INT, line INT, key TEXT, scored INT) "
            "WITHOUT ROWID"
        )
        read = _choose(database, paths)
        database.execute("CREATE UNIQUE INDEX by_line ON best (file, line)")
        cut = dict[str, None]()
        with writing(output) as out:
            for number, path in enumerate(paths):
                for index, line in enumerate(read_lines(path)):
                    if not line.complete and parse_object(line.data) is None:
                        cut[os.fspath(path)] = None
                    if database.execute(
                        "SELECT 1 FROM best WHERE file = ? AND line = ?", (number, index)
                    ).fetchone():
                        out.write(line.data + b"\n")
        count, scored = database.execute("SELECT COUNT(*), TOTAL(scored) FROM best").fetchone()
    return Merged(count, count - int(scored), read - count, tuple(cut))


def _choose(database: sqlite3.Connection, paths: Sequence[str | os.PathLike[str]]) -> int:
    """Stores the line that counts for each id; returns the number of verdicts read."""
    read, first = 0, None
    for number, path in enumerate(paths):
        for index, verdict in enumerate(read_verdicts(path)):
            read, first = read + 1, first or verdict.evaluator
            if verdict.evaluator != first:
                differences = list_differences(
                    verdict.evaluator, first, ("there", f"in {paths[0]}")
                )
                raise UsageError(
                    f"{path}: verdicts of another judge than in {paths[0]} ({differences}); "
                    "merge each judge separately"
                )
            row = database.execute(
                "SELECT file, key, scored FROM best WHERE id = ?", (verdict.id,)
            ).fetchone()
            scored = verdict.unscored is None
            if row is not None and row[0] != number:
                if row[1] != verdict.key:
                    raise UsageError(
                        f"{path}: {verdict.id!r} differs from that in {paths[row[0]]}; keep "
                        "one of the files"
                    )
                if row[2] or not scored:
                    continue
            entry = (verdict.id, number, index, verdict.key, scored)
            database.execute("INSERT OR REPLACE INTO best VALUES (?, ?, ?, ?, ?)", entry)
    return read


class VerdictStream(Closing):
    """Writes verdicts to standard output or a pipe immediately; earlier output cannot be read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._file = sys.stdout.buffer if is_stdout(path) else open(path, "wb")  # noqa: SIM115 - closed by `close`

    def done(self, id: str, key: Callable[[], str]) -> bool:
        """Returns False, because nothing can be resumed."""
        return False

    def append(self, verdict: Verdict) -> None:
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
