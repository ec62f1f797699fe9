"""The verdict file while it is being written: append-only, repaired after a crash, each id once when closed."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from prill.cache import scratch_database
from prill.errors import UsageError
from prill.store import encode, read_lines
from prill.types import EvaluatorInfo, UnscoredReason, Verdict

_BEGINNING = b'{"id":"'
# Not asked, or cheap to find again: a plain resume takes these up.
RETRIED: tuple[UnscoredReason, ...] = ("budget", "input")


@dataclass(frozen=True, slots=True)
class _Entry:
    id: str
    evaluator: EvaluatorInfo
    key: str = ""
    unscored: UnscoredReason | None = None


class VerdictLog:
    """Verdicts of one evaluator in one file.

    A line is written whole, with one system call, as soon as its verdict is there, so killing the process loses nothing
    that was finished. A new verdict for an id replaces the old line when the log is closed. What the file says of each id is
    kept in a temporary database, so that memory does not grow with the file.
    """

    def __init__(
        self, path: str | os.PathLike[str], evaluator: EvaluatorInfo, *, resume: bool = True, retry_unscored: bool = False
    ) -> None:
        self.path = Path(path)
        self.evaluator = evaluator
        self._retry_unscored = retry_unscored
        self._replaced = False
        self._database = scratch_database()
        self._database.execute("CREATE TABLE verdicts (id TEXT PRIMARY KEY, key TEXT, unscored TEXT) WITHOUT ROWID")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise UsageError(f"{self.path}: another process is writing this file") from None
        with ExitStack() as on_failure:
            on_failure.callback(lambda: os.close(self._file))
            if os.fstat(self._file).st_size:
                self._take_up() if resume else self._set_aside()
            on_failure.pop_all()

    def done(self, id: str, key: str) -> bool:
        """True when the file holds a verdict of this very content that need not be made again."""
        row = self._database.execute("SELECT key, unscored FROM verdicts WHERE id = ?", (id,)).fetchone()
        if row is None or row[0] != key:
            return False
        return row[1] is None or not (self._retry_unscored or row[1] in RETRIED)

    def append(self, verdict: Verdict) -> None:
        """Writes a verdict; it survives the process from here on."""
        line = memoryview(encode(verdict))
        while line:
            line = line[os.write(self._file, line) :]
        self._remember(verdict.id, verdict.key, verdict.unscored)

    def drop(self, id: str) -> None:
        """Forgets a verdict that has lost its subject: a line could not be read before, and now it can."""
        if self._database.execute("DELETE FROM verdicts WHERE id = ?", (id,)).rowcount:
            self._replaced = True

    def close(self) -> None:
        """Leaves each id once, the newest line of it, and closes the file."""
        if self._file < 0:
            return
        try:
            if self._replaced:
                self._compact()
            else:
                os.fsync(self._file)
        finally:
            os.close(self._file)
            self._database.close()
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _remember(self, id: str, key: str, unscored: str | None) -> None:
        before = self._database.total_changes
        self._database.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?)", (id, key, unscored))
        if self._database.total_changes == before:
            self._replaced = True
            self._database.execute("UPDATE verdicts SET key = ?, unscored = ? WHERE id = ?", (key, unscored, id))

    def _take_up(self) -> None:
        decoder = msgspec.json.Decoder(_Entry)
        end, whole = 0, True
        with open(self.path, "rb") as file:
            for number, raw in enumerate(file, 1):
                if raw == b"\n":
                    end += 1
                    continue
                try:
                    entry = decoder.decode(raw)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    # A torn line of ours begins like a verdict; a file of something else must not be cut.
                    if not raw.endswith(b"\n") and (end or raw.startswith(_BEGINNING) or _BEGINNING.startswith(raw)):
                        break
                    raise UsageError(
                        f"{self.path}:{number}: not a verdict ({error}); choose another file", parameters=("output",)
                    ) from None
                if entry.evaluator != self.evaluator:
                    self._refuse(entry.evaluator)
                self._remember(entry.id, entry.key, entry.unscored)
                end += len(raw)
                whole = raw.endswith(b"\n")
        os.ftruncate(self._file, end)
        if not whole:
            os.write(self._file, b"\n")

    def _refuse(self, other: EvaluatorInfo) -> None:
        pairs = [
            (name, getattr(other, name), getattr(self.evaluator, name))
            for name in ("name", "version", "model", "prompt", "params")
        ]
        differences = "; ".join(f"{name} {theirs} there, {ours} now" for name, theirs, ours in pairs if theirs != ours)
        raise UsageError(
            f"{self.path} holds verdicts of another evaluator ({differences}); choose another file, or begin anew",
            parameters=("output", "resume"),
        )

    def _set_aside(self) -> None:
        os.replace(self.path, self.path.with_name(self.path.name + ".bak"))
        os.close(self._file)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def _compact(self) -> None:
        self._database.execute("CREATE TABLE lines (id TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        ids = msgspec.json.Decoder(_Entry)
        for line in read_lines(self.path):
            self._database.execute("INSERT OR REPLACE INTO lines VALUES (?, ?)", (ids.decode(line.data).id, line.number))
        self._database.execute("DELETE FROM lines WHERE id NOT IN (SELECT id FROM verdicts)")
        self._database.execute("CREATE INDEX by_number ON lines (number)")
        with (
            tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as file,
            ExitStack() as on_failure,
        ):
            on_failure.callback(os.unlink, file.name)
            for line in read_lines(self.path):
                if self._database.execute("SELECT 1 FROM lines WHERE number = ?", (line.number,)).fetchone():
                    file.write(line.data + b"\n")
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, os.fstat(self._file).st_mode & 0o777)
            os.replace(file.name, self.path)
            on_failure.pop_all()
