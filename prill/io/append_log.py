"""A crash-safe append-only log of JSON Lines records.

An `AppendLog` gives these guarantees for any type of record:

| when | guarantee |
|---|---|
| opened | one writer at a time: a second one is refused (`flock`, with its limits on NFS); `kill -9` releases the lock |
| opened | an incomplete last line is removed, a missing newline restored; a file with other content is refused and left unchanged |
| opened | `known` receives the existing records in order, so that callers can resume by any key |
| appended | a line is written completely or not at all, and survives a process crash; with `durable`, a system crash too |
| appended | an error is raised if another program has written to, replaced or removed the file |
| replaced | the file has either the old or the new content; the lock, links and modes are kept |
| closed | the file is flushed to disk; a new one to which a failed block wrote nothing is removed |
"""  # noqa: E501

from __future__ import annotations

import dataclasses
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.io.kinds import parse_object
from prill.io.lines import Line, decode_as, whole_records
from prill.io.outputs import (
    append_whole,
    backup_path,
    is_current_file,
    locked,
    make_folder,
    write_errors,
)
from prill.io.store import encode
from prill.locks import Closing, lock_file

T = TypeVar("T")
_BROKEN = (msgspec.MsgspecError, ValueError, RecursionError, InputError)
_MAX_NAME = 250  # bytes: file systems allow 255


class AppendLog(Closing, Generic[T]):
    """An append-only JSON Lines file, opened for writing.

    Args:
        path: The file. It and its folder are created if they do not exist.
        record: The type of the records: a dataclass whose first field is a text that is always
            written.
        known: Called with each existing record and the byte offset of its line.
        what: The name of one record in messages.
        decode: Reads a record from its line. None: strictly, as JSON.
        durable: Whether an appended record must survive a system crash, not only a process crash.
        restart: Start with an empty file; the existing one is renamed to end in `.bak`.
        parameter: The name of the caller's parameter that names the file, for errors.
        advice: What messages tell the user to do if the file has other content.

    Raises:
        UsageError: Another process writes the file, it holds something else, or it cannot be
            written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        record: type[T],
        known: Callable[[T, int], object] = lambda record, start: None,
        *,
        what: str,
        decode: Callable[[bytes], T] | None = None,
        durable: bool = False,
        restart: bool = False,
        parameter: str = "output",
        advice: str = "choose another file",
    ) -> None:
        self.path, self.what, self._durable = Path(path), what, durable
        self._target = Path(os.path.realpath(path))  # a rename would replace a symbolic link itself
        self._beginning = f'{{"{dataclasses.fields(record)[0].name}":"'.encode()  # type: ignore[arg-type]
        self._decode = decode or partial(decode_as, type_=record)
        self._refusal = advice, parameter
        make_folder(path)
        self._is_new = restart or not self._target.exists()
        self._file = locked(self._target)
        with ExitStack() as on_failure:
            on_failure.callback(lambda: os.close(self._file))
            if restart and os.fstat(self._file).st_size:
                self._set_aside()
            with write_errors(path):
                # left by a process that was killed while writing
                _new(self._target).unlink(missing_ok=True)
            self._end = self._read_existing(known)
            on_failure.pop_all()

    def append(self, record: T) -> None:
        """Writes a record.

        Raises:
            UsageError: The record cannot be written, and the file is unchanged. Or another program
                has written to, replaced or removed the file; the record is then in the file that
                is still open.
        """
        self.append_line(encode(record))

    def append_line(self, line: bytes) -> None:
        """Appends a record that is already encoded, including its newline."""
        with write_errors(self.path):
            append_whole(self._file, line)
            if self._durable:
                os.fsync(self._file)
        self._end += len(line)
        if not self.is_ours():
            raise UsageError(self.not_ours)

    @property
    def not_ours(self) -> str:
        """Returns the error message for a file that another program has changed."""
        return f"{self.path}: another program has written to this file, replaced or removed it"

    def is_ours(self) -> bool:
        """Returns whether the file still exists under its name and contains only what was written
        here.
        """
        return is_current_file(self._file, self._target, self._end)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields the raw lines with their newlines, each with its byte offset."""
        for line in self._there():
            start = line.start or 0
            yield start, os.pread(self._file, line.size, start)

    def replace(self, lines: Iterable[bytes]) -> None:
        """Replaces the content of the file atomically.

        Args:
            lines: The new lines, with their newlines.

        Raises:
            UsageError: It cannot be written; the file is as before.
        """
        part = _new(self._target)
        with write_errors(self.path), ExitStack() as on_failure:
            # The caller holds the file's lock, so one temporary name is enough. The new file is
            # locked before it is renamed, so that no other process can open it in between.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
            new = lock_file(part, flags, 0o600)
            on_failure.callback(part.unlink, missing_ok=True)
            on_failure.callback(os.close, new)
            with open(new, "wb", closefd=False) as file:
                file.writelines(lines)
            os.fsync(new)
            os.fchmod(new, os.fstat(self._file).st_mode & 0o777)
            part.replace(self._target)
            on_failure.pop_all()
        os.close(self._file)
        self._file, self._end = new, os.fstat(new).st_size
        with write_errors(self.path):
            _sync_folder(self._target.parent)

    def close(self) -> None:
        """Flushes the file to disk and releases the lock; safe to call twice.

        Raises:
            UsageError: The file could not be flushed to disk.
        """
        if self._file < 0:
            return
        try:
            with write_errors(self.path):
                os.fsync(self._file)
        finally:
            self.abandon()

    def __exit__(self, *failure: object) -> None:
        """Closes the file; if it is new and a failed block wrote nothing to it, removes it."""
        if failure[0] is not None and self._is_new and not self._end and self.is_ours():
            self._target.unlink()
            self.abandon()
        self.close()

    def abandon(self) -> None:
        """Releases the lock as if the process had ended; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def saved(self) -> Path:
        """Copies the current content to another file and returns its path."""
        copy = backup_path(self._target)
        with write_errors(copy), open(os.dup(self._file), "rb") as file, copy.open("xb") as out:
            file.seek(0)
            shutil.copyfileobj(file, out)
        return copy

    def _set_aside(self) -> None:
        with write_errors(self.path):
            os.rename(self._target, backup_path(self._target))
        before, self._file = self._file, locked(self._target)
        os.close(before)

    def _read_existing(self, known: Callable[[T, int], object]) -> int:
        """Reads the existing records, repairs the last line, and returns the size."""
        with write_errors(self.path):
            end = os.fstat(self._file).st_size
            is_cut = end > 0 and os.pread(self._file, 1, end - 1) != b"\n"
        is_half = False
        for line in self._there() if end else ():
            try:
                record = self._decode(line.data)
            except _BROKEN as error:
                if is_cut and not line.complete and self._is_half(line):
                    end, is_cut, is_half = line.start or 0, False, True
                    break
                advice, parameter = self._refusal
                raise UsageError(
                    f"{self._problem(line, error)}; {advice}", parameters=(parameter,)
                ) from None
            else:
                known(record, line.start or 0)
        with write_errors(self.path):
            if is_half:
                os.ftruncate(self._file, end)
            elif is_cut:
                append_whole(self._file, b"\n")
        return end + is_cut

    def _problem(self, line: Line, error: Exception) -> str:
        article = "an" if self.what[0] in "aeiou" else "a"
        return f"{self.path}:{line.number}: not {article} {self.what} ({error})"

    def _there(self) -> Iterator[Line]:
        try:
            with open(self._target, "rb") as file:
                yield from whole_records(file)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read: {error.strerror or error}") from None

    def _is_half(self, line: Line) -> bool:
        """Returns whether the last line was left incomplete by a crash and can be removed: it
        begins like a record, or follows valid ones.
        """
        begins = line.data.startswith(self._beginning) or self._beginning.startswith(line.data)
        return parse_object(line.data) is None and (begins or line.start != 0)


def _new(target: Path) -> Path:
    """Returns the name of the temporary file that will replace a file."""
    name = target.name
    if len(os.fsencode(name)) > _MAX_NAME:
        name = f"{name[:50]}.{zlib.crc32(os.fsencode(name)):08x}"
    return target.with_name(f".{name}.new")


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
