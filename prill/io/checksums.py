"""Checksums of a run folder (`checksums.jsonl`), which reveal lost or changed files.

Each line contains a file's size, number of lines and SHA-256; the last line about a file is valid.
A file that a run appends to is `growing`: after a kill it may contain additional complete lines,
but no missing or changed ones. A file that is about to be replaced is `replacing`: until the next
line about it, both the old and the new content are valid. Lines are only appended, each with one
system call, so the record is as crash-safe as the files. If a folder has no record, a run that
resumes there starts one with the current content.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Literal

import msgspec

from prill.errors import UsageError
from prill.io.atomic import append_whole, write_errors
from prill.locks import lock_file

CHECKSUMS = "checksums.jsonl"
_FORMAT = "prill checksums 1"
_BEGINNING = b'{"format":"prill checksums'
_BLOCK = 1 << 20
# maximum number of folder levels between a file and its record: seed, arm and round of a study, and
# the adapter
_MAX_LEVELS = 6
_MAX_SHOWN = 5  # maximum number of files in one error message


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A line of the record; `place` is the folder's position in a larger folder."""

    format: str = ""
    place: str | None = None
    file: str = ""
    size: int = 0
    lines: int = 0
    sha256: str = hashlib.sha256().hexdigest()
    state: Literal["whole", "growing", "replacing", "gone"] = "whole"


_decode = msgspec.json.Decoder(_Line).decode


class Checksums:
    """The checksum record of a folder, as stored on disk. Raises UsageError if it is unreadable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / CHECKSUMS
        self.place: str | None = None
        self._files: dict[str, tuple[_Line, ...]] = {}
        self._size = -1
        self._read()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def exists(self) -> bool:
        """Returns whether the folder has a record."""
        return self._size >= 0

    @property
    def names(self) -> list[str]:
        """Returns the names of the recorded files."""
        return list(self._files)

    def check(
        self,
        names: Iterable[str] | None = None,
        *,
        but: Iterable[str] = (),
        place: str | None = None,
    ) -> None:
        """Compares files with the record; None: all of them.

        Raises UsageError that names the files that differ.
        """
        wanted = [
            name for name in (self._files if names is None else names) if name not in set(but)
        ]
        problems = []
        if place is not None and self.place not in (None, place):
            problems.append(f"{self.path}: belongs to {self.place}, not to {place}")
        problems += [
            problem for name in wanted if name in self._files and (problem := self._problem(name))
        ]
        if problems:
            more = f"; and {len(problems) - _MAX_SHOWN} more" if len(problems) > _MAX_SHOWN else ""
            raise UsageError(
                f"{'; '.join(problems[:_MAX_SHOWN])}{more}. Restore the original files, or "
                f"accept the folder as it is: prill accept {self.folder}"
            )

    def note(self, *names: str) -> None:
        """Records the current checksums of files; removes files that do not exist.

        Raises UsageError for a symbolic link.
        """
        lines = []
        for name in names:
            try:
                found = _Contents(self.folder / name)
            except FileNotFoundError:
                if name in self._files:
                    lines.append(_Line(file=name, state="gone"))
                continue
            except OSError as error:
                raise UsageError(f"{self.folder / name}: {error.strerror}") from None
            lines.append(found.line(name))
        self._append(*lines)

    def add(self, name: str) -> None:
        """Records the current checksum of a file that is about to be written.

        A missing file is recorded as empty.
        """
        if name not in self._files:
            self.note(name)
        if name not in self._files:
            self._append(_Line(file=name))

    def belongs(self, place: str) -> None:
        """Records the folder's position in a larger folder, so that folders cannot be swapped."""
        if self.place != place:
            self._append(_Line(place=place))

    def begin(self) -> None:
        """Creates the record if there is none."""
        if not self.exists:
            self._append()

    def renew(self) -> list[str]:
        """Updates all recorded files and the folder's position to the current state.

        Returns the names of files that differed. Raises UsageError for a symbolic link.
        """
        differing = [name for name in self._files if self._problem(name)]
        self.note(*differing)
        if self.place is not None and not self.folder.resolve().as_posix().endswith(
            f"/{self.place}"
        ):
            self._append(_Line(place=""))
            differing.append(CHECKSUMS)
        return differing

    def growing(self, name: str) -> Growing:
        """Records a file as one that will be appended to. Raises UsageError if it differs from the
        record.
        """
        return Growing(self, name)

    @contextmanager
    def replacing(self, name: str, part: Path) -> Iterator[None]:
        """Allows `part` to replace the file inside the block; after a crash, either content is
        valid.
        """
        line = _Contents(part).line(name)
        self._append(msgspec.structs.replace(line, state="replacing"))
        yield
        self._append(line)

    def _problem(self, name: str) -> str | None:
        """Returns what is wrong with a file, or None if it matches the record.

        The record is read again first, because the file's writer may be running.
        """
        while True:
            size, expected, path = self._size, self._files[name], self.folder / name
            try:
                found = _Contents(path, [line.size for line in expected])
            except FileNotFoundError:
                problem = (
                    None
                    if expected[0].size == 0
                    else f"{path}: is missing; it had {_count(expected[0])}"
                )
            except OSError as error:
                problem = f"{path}: {error.strerror}"
            else:
                if found.match(expected) is not None:
                    return None
                problem = (
                    f"{path}: has changed: it had {_count(expected[-1])}, and now has "
                    f"{_count(found.line(name))}"
                )
            if problem is None:
                return None
            self._read()
            if self._size == size or name not in self._files:
                return f"{problem} (by {CHECKSUMS})" if name in self._files else None

    def _append(self, *lines: _Line) -> None:
        """Appends lines to the record, starting it if necessary; removes an incomplete last
        line.
        """
        if not lines and self.exists:
            return
        with write_errors(self.path):
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            file = lock_file(self.path, flags)
            try:
                if (size := os.fstat(file).st_size) and os.pread(file, 1, size - 1) != b"\n":
                    with open(self.path, "rb") as source:
                        size = sum(len(raw) for raw in source if raw.endswith(b"\n"))
                    os.ftruncate(file, size)
                if not size:
                    lines = (_Line(format=_FORMAT), *lines)
                append_whole(file, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
                self._size = os.fstat(file).st_size
            finally:
                os.close(file)
        for line in lines:
            self._take(line)

    def _read(self) -> None:
        self._files, self.place, self._size = {}, None, -1
        try:
            with open(self.path, "rb", opener=_plain_file) as file:
                self._size = 0
                for number, raw in enumerate(file, 1):
                    if not raw.endswith(b"\n"):
                        break  # an incomplete line, left by a crash
                    self._size += len(raw)
                    try:
                        self._take(_decode(raw), number)
                    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                        raise UsageError(
                            f"{self.path}:{number}: no checksum ({error}); restore the "
                            "file, or delete it after checking the folder: its present "
                            "content will then be accepted"
                        ) from None
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}") from None

    def _take(self, line: _Line, number: int = 0) -> None:
        if line.format not in ("", _FORMAT) or (number == 1 and not line.format):
            raise ValueError(
                f"the format is {line.format!r}, but this version of prill reads {_FORMAT!r}"
            )
        if line.place is not None:
            self.place = line.place or None
        if not line.file:
            return
        if PurePosixPath(line.file).is_absolute() or ".." in PurePosixPath(line.file).parts:
            raise ValueError(f"{line.file!r} is outside the folder")
        if line.state == "gone":
            self._files.pop(line.file, None)
        elif line.state == "replacing":
            self._files[line.file] = (*self._files.get(line.file, ()), line)
        else:
            self._files[line.file] = (line,)


class Growing:
    """A file that lines are appended to, until its writer closes it."""

    def __init__(self, checksums: Checksums, name: str) -> None:
        self._checksums, self._name = checksums, name
        if name in checksums:
            checksums.check([name])
        self._marked = False  # whether the file is recorded as growing
        self._changed = name not in checksums
        self.restart()

    def restart(self) -> None:
        """Records the current content, after the file was repaired or replaced."""
        path = self._checksums.folder / self._name
        with write_errors(path):
            try:
                found = _Contents(path)
            except FileNotFoundError:
                found = None
        now = found.line(self._name) if found else _Line(file=self._name)
        self._hash, self._size, self._lines = (
            found.hash if found else hashlib.sha256(),
            now.size,
            now.lines,
        )
        there = self._checksums._files.get(self._name)
        self._changed = self._changed or there is None or there[-1] != now
        if there is not None and (there[-1].size, there[-1].sha256) != (now.size, now.sha256):
            self._marked = True
            self._note("growing")

    def replacing(self, part: Path) -> AbstractContextManager[None]:
        """Works like `Checksums.replacing`; call `restart` afterwards."""
        return self._checksums.replacing(self._name, part)

    @contextmanager
    def adding(self, data: bytes) -> Iterator[None]:
        """Tracks data that the block appends to the file."""
        if not self._marked:
            self._marked = self._changed = True
            self._note("growing")
        yield
        self._hash.update(data)
        self._size += len(data)
        self._lines += data.count(b"\n")
        self._note("growing")

    def close(self) -> None:
        """Records that the file is complete."""
        if self._changed and (self._size or self._name in self._checksums):
            self._note("whole")
        self._changed = self._marked = False

    def _note(self, state: Literal["whole", "growing"]) -> None:
        line = _Line(
            file=self._name,
            size=self._size,
            lines=self._lines,
            sha256=self._hash.hexdigest(),
            state=state,
        )
        self._checksums._append(line)


class _Contents:
    """The hashes of a file and of its prefixes of the given sizes, computed in one pass.

    Raises OSError, also for a symbolic link.
    """

    def __init__(self, path: Path, sizes: Iterable[int] = ()) -> None:
        self.hash = hashlib.sha256()
        self.size = self.lines = 0
        self.at: dict[int, str] = {}
        with open(path, "rb", opener=_plain_file) as file:
            for size in sorted({*sizes}):
                self._read(file, size)
                if self.size == size:
                    self.at[size] = self.hash.hexdigest()
            self._read(file, None)

    def _read(self, file: IO[bytes], until: int | None) -> None:
        while block := file.read(_BLOCK if until is None else min(_BLOCK, until - self.size)):
            self.hash.update(block)
            self.size += len(block)
            self.lines += block.count(b"\n")

    def match(self, expected: Iterable[_Line]) -> _Line | None:
        """Returns the expected line that matches the file, or None."""
        for line in expected:
            if self.at.get(line.size) == line.sha256 and (
                self.size == line.size or line.state == "growing"
            ):
                return line
        return None

    def line(self, name: str) -> _Line:
        """Returns the record as a line."""
        return _Line(file=name, size=self.size, lines=self.lines, sha256=self.hash.hexdigest())


def read_checksums(path: str | os.PathLike[str]) -> tuple[Checksums, str] | None:
    """Returns the record that contains a file, and the file's name in it, or None."""
    absolute = Path(os.path.abspath(path))
    for level, folder in enumerate(list(absolute.parents)[:_MAX_LEVELS]):
        if _is_record(folder / CHECKSUMS) if level else os.path.lexists(folder / CHECKSUMS):
            name = absolute.relative_to(folder).as_posix()
            if name in _names(folder, _state(folder / CHECKSUMS)) and name in (
                checksums := Checksums(folder)
            ):
                return checksums, name
    return None


@lru_cache(maxsize=16)
def _names(folder: Path, state: object) -> frozenset[str]:
    """Returns the recorded file names; cached, so that a long record is not read for every
    write.
    """
    return frozenset(Checksums(folder).names)


def _state(path: Path) -> tuple[int, ...]:
    try:
        there = os.lstat(path)
    except OSError:
        return ()
    return there.st_ino, there.st_size, there.st_mtime_ns


def growing(path: Path) -> Growing | None:
    """Returns the recorded file as one to append to, or None if it is not recorded.

    Raises UsageError if the file differs from the record.
    """
    found = read_checksums(path)
    return None if found is None else found[0].growing(found[1])


def expect_unchanged(path: str | os.PathLike[str]) -> None:
    """Raises UsageError if a file of a run folder differs from its checksum."""
    if (found := read_checksums(path)) is not None:
        checksums, name = found
        checksums.check([name])


def expect_folder_unchanged(path: str | os.PathLike[str]) -> None:
    """Raises UsageError if a file recorded together with this one, such as an image, has
    changed.
    """
    if (found := read_checksums(path)) is not None:
        found[0].check()


@contextmanager
def replaced(target: Path, part: Path) -> Iterator[None]:
    """Allows `part` to replace a file inside the block; if the file is recorded, its checksum is
    updated.
    """
    if (found := read_checksums(target)) is None:
        yield
        return
    checksums, name = found
    with checksums.replacing(name, part):
        yield


def _is_record(path: Path) -> bool:
    """Returns whether the file is a checksum record; a parent folder may have an unrelated file of
    that name.
    """
    try:
        with open(path, "rb", opener=_plain_file) as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


def _plain_file(path: str, flags: int) -> int:
    """Opens regular files only: a link may point anywhere, and opening a pipe blocks."""
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise OSError(0, "is a symbolic link, not a file")
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "is not a file")
    return file


def _count(line: _Line) -> str:
    lines = f"{line.lines:,} lines and " if line.lines else ""
    return f"{lines}{line.size:,} bytes"
