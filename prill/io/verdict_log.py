"""The verdict file while it is being written: append-only, repaired after a crash, each id once when closed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import msgspec

from prill.errors import UsageError
from prill.io.cache import scratch_database
from prill.io.checksums import growing
from prill.io.kinds import object_of
from prill.io.lines import MOST_LINE, is_stream, read_lines
from prill.io.outputs import append_whole, check_output, failures, is_stdout, is_there, locked, make_folder, part_of, writing
from prill.io.store import encode, read_verdicts
from prill.types import EvaluatorInfo, UnscoredReason, Verdict

_BEGINNING = b'{"id":"'
# Not asked, or cheap to find again: a plain resume takes these up.
RETRIED: tuple[UnscoredReason, ...] = ("budget", "input")


class Logged(Protocol):
    """What a log asks of its records."""

    @property
    def id(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def unscored(self) -> UnscoredReason | None: ...


@dataclass(frozen=True, slots=True)
class _Entry:
    id: str


class VerdictLog:
    """Verdicts of one evaluator in one file; subclasses hold other records that have an id, a key and a maker.

    A line is written whole, with one system call, as soon as its verdict is there, so killing the process loses nothing
    that was finished. A new verdict for an id replaces the old line when the log is closed. What the file says of each id is
    kept in a temporary database, so that memory does not grow with the file.

    Where another program writes to the file meanwhile, replaces or removes it, `append` and `close` raise UsageError. What was
    judged is then kept in a file beside it.
    """

    what: ClassVar[str] = "verdict"
    maker: ClassVar[str] = "evaluator"
    record: ClassVar[type[Any]] = Verdict

    def __init__(
        self, path: str | os.PathLike[str], evaluator: EvaluatorInfo | str, *, resume: bool = True, retry_unscored: bool = False
    ) -> None:
        self.path = Path(path)
        self._target = Path(os.path.realpath(path))  # renaming onto a link would replace the link
        self.evaluator = evaluator
        self._retry_unscored = retry_unscored
        self._replaced = False
        self._database = scratch_database(self)
        self._database.execute("CREATE TABLE verdicts (id TEXT PRIMARY KEY, key TEXT, unscored TEXT) WITHOUT ROWID")
        make_folder(path)
        self._growing = growing(self._target)
        self._file = locked(self._target)
        with ExitStack() as on_failure:
            on_failure.callback(lambda: os.close(self._file))
            if os.fstat(self._file).st_size:
                self._take_up() if resume else self._set_aside()
            self._end = os.fstat(self._file).st_size
            if self._growing is not None:
                self._growing.restart()
            on_failure.pop_all()

    def done(self, id: str, key: Callable[[], str]) -> bool:
        """True when the file holds a verdict of this very content that need not be made again. The key is made only where
        there is one to compare: it may take reading pictures."""
        known = self.lasting_key(id)
        return known is not None and known == key()

    def lasting_key(self, id: str) -> str | None:
        """The key of the verdict that the file holds and that need not be made again, as long as its content is the same."""
        row = self._database.execute("SELECT key, unscored FROM verdicts WHERE id = ?", (id,)).fetchone()
        if row is None or (row[1] is not None and (self._retry_unscored or row[1] in RETRIED)):
            return None
        return str(row[0])

    def append(self, verdict: Logged) -> None:
        """Writes a record; it survives the process from here on."""
        line = encode(verdict)
        with failures(self.path), self._growing.adding(line) if self._growing else nullcontext():
            append_whole(self._file, line)
        self._end += len(line)
        self._remember(verdict.id, verdict.key, verdict.unscored)
        if not self._is_ours():
            raise UsageError(f"{self.path}: another program has written to this file, replaced or removed it")

    def drop(self, id: str) -> None:
        """Forgets a verdict that has lost its subject: a line could not be read before, and now it can."""
        if self._database.execute("DELETE FROM verdicts WHERE id = ?", (id,)).rowcount:
            self._replaced = True

    def close(self) -> None:
        """Leaves each id once, the newest line of it, and closes the file."""
        if self._file < 0:
            return
        try:
            if not self._is_ours():
                raise UsageError(
                    f"{self.path}: another program has written to this file, replaced or removed it; the {self.what}s "
                    f"are in {self._saved()}"
                )
            if self._replaced:
                with failures(self.path):
                    self._compact()
            else:
                os.fsync(self._file)
            if self._growing is not None:
                self._growing.close()
        finally:
            os.close(self._file)
            self._database.close()
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _is_ours(self) -> bool:
        """Whether the file has its name still, and holds what was written here and nothing else."""
        return is_there(self._file, self._target) and os.fstat(self._file).st_size == self._end

    def _saved(self) -> Path:
        """Where a copy of the file was made, as it is now: its name may be gone."""
        copy = self._free_name()
        with failures(copy), open(os.dup(self._file), "rb") as file, copy.open("xb") as out:
            file.seek(0)
            shutil.copyfileobj(file, out)
        return copy

    def _free_name(self) -> Path:
        endings = (".bak" if number == 1 else f".bak{number}" for number in count(1))
        names = (self._target.with_name(self._target.name + ending) for ending in endings)
        return next(name for name in names if not os.path.lexists(name))

    def _remember(self, id: str, key: str, unscored: str | None) -> None:
        before = self._database.total_changes
        self._database.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?)", (id, key, unscored))
        if self._database.total_changes == before:
            self._replaced = True
            self._database.execute("UPDATE verdicts SET key = ?, unscored = ? WHERE id = ?", (key, unscored, id))

    def _take_up(self) -> None:
        decoder = msgspec.json.Decoder(self.record)  # all of it: what others could not read is not taken up
        end, whole = 0, True
        with open(self._target, "rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
                if raw == b"\n":
                    end += 1
                    continue
                try:
                    entry = decoder.decode(raw)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    # A torn line of ours begins like a verdict; a file of something else must not be cut.
                    is_ours = end or raw.startswith(_BEGINNING) or _BEGINNING.startswith(raw)
                    if not raw.endswith(b"\n") and object_of(raw) is None and is_ours:
                        break
                    raise UsageError(
                        f"{self.path}:{number}: not a {self.what} ({error}); choose another file", parameters=("output",)
                    ) from None
                if entry.evaluator != self.evaluator:
                    self._refuse(entry.evaluator)
                self._remember(entry.id, entry.key, entry.unscored)
                end += len(raw)
                whole = raw.endswith(b"\n")
        os.ftruncate(self._file, end)
        if not whole:
            os.write(self._file, b"\n")

    def _refuse(self, other: EvaluatorInfo | str) -> None:
        differences = _differences(other, self.evaluator, ("there", "now"))
        raise UsageError(
            f"{self.path} holds {self.what}s of another {self.maker} ({differences}); choose another file, or begin anew",
            parameters=("output", "resume"),
        )

    def _set_aside(self) -> None:
        with failures(self.path):
            os.rename(self._target, self._free_name())
        before, self._file = self._file, locked(self._target)
        os.close(before)

    def _compact(self) -> None:
        self._database.execute("CREATE TABLE lines (id TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        ids = msgspec.json.Decoder(_Entry)
        for line in read_lines(self._target):
            self._database.execute("INSERT OR REPLACE INTO lines VALUES (?, ?)", (ids.decode(line.data).id, line.number))
        self._database.execute("DELETE FROM lines WHERE id NOT IN (SELECT id FROM verdicts)")
        self._database.execute("CREATE INDEX by_number ON lines (number)")
        part = part_of(self._target)
        with part.open("xb") as file, ExitStack() as on_failure:
            on_failure.callback(part.unlink)
            for line in read_lines(self._target):
                if self._database.execute("SELECT 1 FROM lines WHERE number = ?", (line.number,)).fetchone():
                    file.write(line.data + b"\n")
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), os.fstat(self._file).st_mode & 0o777)
            with self._growing.replacing(part) if self._growing else nullcontext():
                part.replace(self._target)
            on_failure.pop_all()
        if self._growing is not None:
            self._growing.restart()


def _differences(other: EvaluatorInfo | str, own: EvaluatorInfo | str, places: tuple[str, str]) -> str:
    names = ("name", "version", "model", "prompt", "params") if isinstance(other, EvaluatorInfo) else ("name",)
    pairs = ((name, getattr(other, name, other), getattr(own, name, own)) for name in names)
    return "; ".join(f"{name} {theirs} {places[0]}, {ours} {places[1]}" for name, theirs, ours in pairs if theirs != ours)


@dataclass(frozen=True, slots=True)
class Merged:
    """What `merge_verdicts` wrote: ids, how many of them are unscored, and lines left out because a better one was there.

    `cut` are the files whose last line is incomplete, as a crash leaves it: that line is left out.
    """

    verdicts: int
    unscored: int
    left_out: int
    cut: tuple[str, ...] = ()

    def __str__(self) -> str:
        twice = f"; {self.left_out} lines left out, whose ids have a better or newer one" if self.left_out else ""
        return f"{self.verdicts} verdicts, {self.unscored} of them unscored{twice}"


def merge_verdicts(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> Merged:
    """Merges verdict files, such as the shards of one run, into one file that holds each id once.

    Within a file the newest line of an id counts; between files, the first scored one.

    Args:
        paths: Verdict files.
        output: The file to write. Where it exists, it counts as the first of the files, so none of its verdicts is lost.

    Returns:
        How many verdicts there are, how many of them are unscored, how many lines were left out, and which files end in an
        incomplete line.

    Raises:
        UsageError: Two files have verdicts of different judges, or of different content under one id. The output is then
            unchanged.
    """
    check_output(output, "verdicts", paths)
    if not (is_stdout(output) or is_stream(output)) and os.path.exists(output) and os.path.getsize(output):
        paths = [output, *paths]
    with closing(scratch_database()) as database:
        database.execute("CREATE TABLE best (id TEXT PRIMARY KEY, file INT, line INT, key TEXT, scored INT) WITHOUT ROWID")
        read = _choose(database, paths)
        database.execute("CREATE UNIQUE INDEX by_line ON best (file, line)")
        cut = dict[str, None]()
        with writing(output) as out:
            for number, path in enumerate(paths):
                for place, line in enumerate(read_lines(path)):
                    if not line.complete and object_of(line.data) is None:
                        cut[os.fspath(path)] = None
                    if database.execute("SELECT 1 FROM best WHERE file = ? AND line = ?", (number, place)).fetchone():
                        out.write(line.data + b"\n")
        count, scored = database.execute("SELECT COUNT(*), TOTAL(scored) FROM best").fetchone()
    return Merged(count, count - int(scored), read - count, tuple(cut))


def _choose(database: sqlite3.Connection, paths: Sequence[str | os.PathLike[str]]) -> int:
    """Notes the line that counts for each id; gives how many verdicts were read."""
    read, first = 0, None
    for number, path in enumerate(paths):
        for place, verdict in enumerate(read_verdicts(path)):
            read, first = read + 1, first or verdict.evaluator
            if verdict.evaluator != first:
                differences = _differences(verdict.evaluator, first, ("there", f"in {paths[0]}"))
                raise UsageError(f"{path}: verdicts of another evaluator than in {paths[0]} ({differences}); merge each apart")
            row = database.execute("SELECT file, key, scored FROM best WHERE id = ?", (verdict.id,)).fetchone()
            scored = verdict.unscored is None
            if row is not None and row[0] != number:
                if row[1] != verdict.key:
                    raise UsageError(f"{path}: {verdict.id!r} has other content than in {paths[row[0]]}; keep one of the files")
                if row[2] or not scored:
                    continue
            entry = (verdict.id, number, place, verdict.key, scored)
            database.execute("INSERT OR REPLACE INTO best VALUES (?, ?, ?, ?, ?)", entry)
    return read


class VerdictStream:
    """Verdicts on standard output or in a pipe, each as soon as it is there; what went there before is not known."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._file = sys.stdout.buffer if is_stdout(path) else open(path, "wb")  # noqa: SIM115 - closed by `__exit__`

    def done(self, id: str, key: Callable[[], str]) -> bool:
        """False: nothing can be taken up."""
        return False

    def append(self, verdict: Verdict) -> None:
        """Writes a verdict."""
        with failures(self.path):
            self._file.write(encode(verdict))
            self._file.flush()

    def drop(self, id: str) -> None:
        """Nothing: what is written stays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not sys.stdout.buffer:
            with failures(self.path):
                self._file.close()


def open_log(
    path: str | os.PathLike[str], evaluator: EvaluatorInfo, *, resume: bool, retry_unscored: bool
) -> VerdictLog | VerdictStream:
    """Where verdicts go: a file, or standard output (`-`) or a pipe."""
    if is_stdout(path) or is_stream(path):
        return VerdictStream(path)
    return VerdictLog(path, evaluator, resume=resume, retry_unscored=retry_unscored)
