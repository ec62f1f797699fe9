"""Checksums of a run folder (`checksums.jsonl`), which reveal lost or changed files.

A line is about one file: its bytes, its lines, their SHA-256; the last line about a file counts. A
file that a run appends to is `growing`: after a kill it may hold further whole lines, never fewer
or others. One that is about to be replaced is `replacing`: until the next line about it, the old
content and the new one are both right. Lines are only appended, each with one system call, so the
record is as safe from a crash as the files are. A folder without one is as it is: a run that goes
on in it begins the record.
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
from prill.io.atomic import append_whole, failures
from prill.locks import lock_file

CHECKSUMS = "checksums.jsonl"
_FORMAT = "prill checksums 1"
_BEGINNING = b'{"format":"prill checksums'
_BLOCK = 1 << 20
# of folders between a file and the record that has it: seed, arm and round of a study, and the
# adapter's
_MAX_LEVELS = 6
_MAX_SHOWN = 5  # files named by one error


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A line of the record; `place` is where the folder belongs in a larger one."""

    format: str = ""
    place: str | None = None
    file: str = ""
    size: int = 0
    lines: int = 0
    sha256: str = hashlib.sha256().hexdigest()
    state: Literal["whole", "growing", "replacing", "gone"] = "whole"


_decode = msgspec.json.Decoder(_Line).decode


class Checksums:
    """The record of a folder, as it is on disk now. Raises UsageError when it cannot be read."""

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
        """Tells whether the folder has a record."""
        return self._size >= 0

    @property
    def names(self) -> list[str]:
        """The files on record."""
        return list(self._files)

    def check(
        self,
        names: Iterable[str] | None = None,
        *,
        but: Iterable[str] = (),
        place: str | None = None,
    ) -> None:
        """Compares files with the record; None: all of them. Raises UsageError that names those
        that differ.
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
                f"{'; '.join(problems[:_MAX_SHOWN])}{more}. Put back what was there, or accept the "
                f"folder as it is now: prill accept {self.folder}"
            )

    def note(self, *names: str) -> None:
        """Puts files on record as they are now; one that is not there leaves the record. Raises
        UsageError for a link.
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
        """Puts a file on record that is to be written to, as it is now: empty where it is not
        there.
        """
        if name not in self._files:
            self.note(name)
        if name not in self._files:
            self._append(_Line(file=name))

    def belongs(self, place: str) -> None:
        """Notes where the folder belongs in a larger one, so that it cannot be taken for
        another.
        """
        if self.place != place:
            self._append(_Line(place=place))

    def begin(self) -> None:
        """Makes the record where there is none."""
        if not self.exists:
            self._append()

    def renew(self) -> list[str]:
        """Takes the files on record, and the folder's place, as they are now; gives the names of
        files that differed.

        Raises UsageError for a link.
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
        """A file of the folder to append to, its content on record. Raises UsageError when it
        differs from the record.
        """
        return Growing(self, name)

    @contextmanager
    def replacing(self, name: str, part: Path) -> Iterator[None]:
        """Within it, `part` may take the place of the file: a crash leaves the one or the other,
        and both are right.
        """
        line = _Contents(part).line(name)
        self._append(msgspec.structs.replace(line, state="replacing"))
        yield
        self._append(line)

    def _problem(self, name: str) -> str | None:
        """What is wrong with a file; None where it is as on record, by now: its writer may be at
        work.
        """
        while True:
            size, expected, path = self._size, self._files[name], self.folder / name
            try:
                found = _Contents(path, [line.size for line in expected])
            except FileNotFoundError:
                problem = (
                    None
                    if expected[0].size == 0
                    else f"{path}: is gone, and had {_count(expected[0])}"
                )
            except OSError as error:
                problem = f"{path}: {error.strerror}"
            else:
                if found.match(expected) is not None:
                    return None
                problem = (
                    f"{path}: has changed: it had {_count(expected[-1])}, and has "
                    f"{_count(found.line(name))}"
                )
            if problem is None:
                return None
            self._read()
            if self._size == size or name not in self._files:
                return f"{problem} (by {CHECKSUMS})" if name in self._files else None

    def _append(self, *lines: _Line) -> None:
        """Writes lines, and the first one of the record where there is none. Half a line that a
        crash left is cut.
        """
        if not lines and self.exists:
            return
        with failures(self.path):
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            file = lock_file(self.path, flags)
            try:
                if (size := os.fstat(file).st_size) and os.pread(file, 1, size - 1) != b"\n":
                    with open(self.path, "rb") as whole:
                        size = sum(len(raw) for raw in whole if raw.endswith(b"\n"))
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
                        break  # half a line, which a crash left
                    self._size += len(raw)
                    try:
                        self._take(_decode(raw), number)
                    except (
                        msgspec.MsgspecError,
                        UnicodeDecodeError,
                        RecursionError,
                        ValueError,
                    ) as error:
                        raise UsageError(
                            f"{self.path}:{number}: no checksum ({error}); put the file back as "
                            "it was, or delete it and look "
                            "through the folder: what it holds now will count"
                        ) from None
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}") from None

    def _take(self, line: _Line, number: int = 0) -> None:
        if line.format not in ("", _FORMAT) or (number == 1 and not line.format):
            raise ValueError(f"the form is {line.format!r}, and this prill reads {_FORMAT!r}")
        if line.place is not None:
            self.place = line.place or None
        if not line.file:
            return
        if PurePosixPath(line.file).is_absolute() or ".." in PurePosixPath(line.file).parts:
            raise ValueError(f"{line.file!r} is outside of the folder")
        if line.state == "gone":
            self._files.pop(line.file, None)
        elif line.state == "replacing":
            self._files[line.file] = (*self._files.get(line.file, ()), line)
        else:
            self._files[line.file] = (line,)


class Growing:
    """A file that lines are appended to, while its writer is at work."""

    def __init__(self, checksums: Checksums, name: str) -> None:
        self._checksums, self._name = checksums, name
        if name in checksums:
            checksums.check([name])
        self._marked = False  # whether the record says that the file grows
        self._changed = name not in checksums
        self.restart()

    def restart(self) -> None:
        """Takes the content as it is now: after the file was mended or replaced."""
        path = self._checksums.folder / self._name
        with failures(path):
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
        """As `Checksums.replacing`; `restart` comes afterwards."""
        return self._checksums.replacing(self._name, part)

    @contextmanager
    def adding(self, data: bytes) -> Iterator[None]:
        """Within it, the data are appended to the file."""
        if not self._marked:
            self._marked = self._changed = True
            self._note("growing")
        yield
        self._hash.update(data)
        self._size += len(data)
        self._lines += data.count(b"\n")
        self._note("growing")

    def close(self) -> None:
        """Notes that the file is whole."""
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
    """A file read once: the hashes of its first bytes, of these sizes, and of all. Raises OSError,
    for a link too.
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
        """The line of these that says what the file holds."""
        for line in expected:
            if self.at.get(line.size) == line.sha256 and (
                self.size == line.size or line.state == "growing"
            ):
                return line
        return None

    def line(self, name: str) -> _Line:
        """The record as a line."""
        return _Line(file=name, size=self.size, lines=self.lines, sha256=self.hash.hexdigest())


def read_checksums(path: str | os.PathLike[str]) -> tuple[Checksums, str] | None:
    """The record that has this file, and its name there; None where none has."""
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
    """The files on record: one that is written often must not cost the reading of a long record
    each time.
    """
    return frozenset(Checksums(folder).names)


def _state(path: Path) -> tuple[int, ...]:
    try:
        there = os.lstat(path)
    except OSError:
        return ()
    return there.st_ino, there.st_size, there.st_mtime_ns


def growing(path: Path) -> Growing | None:
    """The file as one to append to, where it is on record. Raises UsageError when it differs from
    the record.
    """
    found = read_checksums(path)
    return None if found is None else found[0].growing(found[1])


def expect_unchanged(path: str | os.PathLike[str]) -> None:
    """Raises UsageError for a file of a run folder that is not as its run left it."""
    if (found := read_checksums(path)) is not None:
        checksums, name = found
        checksums.check([name])


def expect_folder_unchanged(path: str | os.PathLike[str]) -> None:
    """As `expect_unchanged`, of all files that are on record together with this one: a file's
    images, say.
    """
    if (found := read_checksums(path)) is not None:
        found[0].check()


@contextmanager
def replaced(target: Path, part: Path) -> Iterator[None]:
    """Within it, `part` may take the place of the file, which may be one on record: prill's own
    changes are no damage.
    """
    if (found := read_checksums(target)) is None:
        yield
        return
    checksums, name = found
    with checksums.replacing(name, part):
        yield


def _is_record(path: Path) -> bool:
    """Whether this is such a file at all: further up, somebody else's may have the same name."""
    try:
        with open(path, "rb", opener=_plain_file) as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


def _plain_file(path: str, flags: int) -> int:
    """Opens files only: what a link points to may be anything, and a pipe would be waited for."""
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise OSError(0, "is a symbolic link, in the place of the file")
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "is no file")
    return file


def _count(line: _Line) -> str:
    lines = f"{line.lines:,} lines and " if line.lines else ""
    return f"{lines}{line.size:,} bytes"
