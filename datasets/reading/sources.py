"""Files and folders as format detection reads them."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from prill.datasets.reading.records import (
    MAX_FILE,
    decode_json,
    decoded_lines,
    json_or_none,
    read_file,
    read_record,
    too_large,
)
from prill.errors import InputError, UsageError
from prill.io.lines import MAX_BLANK, MAX_LINE, count_signs, open_lines
from prill.io.store import BadLine
from prill.types import StrPath

Item = TypeVar("Item")
JSON_FILES = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz")
_MAX_NAMES = 5_000  # files of a folder, and entries of an archive, that are listed
_MAX_FILES = 40  # files of a folder that are opened for one format
_HEAD = 64 << 10
_MARK = b"\xef\xbb\xbf"
_LARGEST = 64 << 20  # bytes of a document that are parsed to detect its format
_CACHE_BYTES = 128 << 20  # bytes of parsed documents that are cached during detection


class Source:
    """A file or folder for format detection; each part is read lazily and within limits."""

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        self._value: object = None
        self._is_kept = False
        self._room = [_CACHE_BYTES]  # the cache space left, shared by the files of a folder
        self._below: dict[str, Source] = {}

    @cached_property
    def is_folder(self) -> bool:
        """Returns whether it is a folder."""
        return self.path.is_dir()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Returns the files below a folder, as `/` paths relative to it, the nearest first.

        Hidden files are excluded.
        """
        found: list[str] = []
        level = [self.path] if self.is_folder else []
        while level and len(found) < _MAX_NAMES:
            below: list[Path] = []
            for folder in level:
                try:
                    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
                except OSError:
                    continue
                below += [
                    Path(e.path)
                    for e in entries
                    if e.name[0] != "." and e.is_dir(follow_symlinks=False)
                ]
                found += [
                    Path(e.path).relative_to(self.path).as_posix()
                    for e in entries
                    if e.name[0] != "." and e.is_file()
                ]
            level = below
        return tuple(found[:_MAX_NAMES])

    @cached_property
    def head(self) -> bytes:
        """Returns a file's first 64 KiB, unpacked if it is gzip; empty if it cannot be read."""
        return self._read(_HEAD)

    @property
    def value(self) -> object:
        """Returns a file's JSON document, or the first record of JSON lines; None for others."""
        if self._is_kept:
            return self._value
        value, text = self._parsed()
        # about how many bytes it takes
        size = 0 if value is None else len(text) + 64 * count_signs(text)
        if size <= self._room[0]:
            self._room[0] -= size
            self._value, self._is_kept = value, True
        return value

    @cached_property
    def records(self) -> tuple[object, ...]:
        """Returns the records among the first lines of a file of JSON lines.

        A document over several lines has none.
        """
        lines = self.head.split(b"\n")
        values = map(json_or_none, lines if len(self.head) < _HEAD else lines[:-1])
        return tuple(value for value in values if value is not None)

    @property
    def keys(self) -> frozenset[str]:
        """Returns the keys of `value`; empty if it is not an object."""
        value = self.value
        return frozenset(value) if isinstance(value, dict) else frozenset()

    @cached_property
    def zip_names(self) -> tuple[str, ...]:
        """Returns the names in a ZIP archive; empty for another file."""
        if not self.head.startswith(b"PK"):
            return ()
        try:
            with zipfile.ZipFile(self.path) as archive:
                return tuple(archive.namelist()[:_MAX_NAMES])
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
            return ()

    def has(self, test: Callable[[Source], bool], *patterns: str) -> bool:
        """Returns whether a file passes the test.

        For a folder, whether one of the first files whose name or path matches a pattern does.
        """
        if not self.is_folder:
            return test(self)
        return any(test(file) for file in self.files(*patterns))

    def files(self, *patterns: str) -> Iterator[Source]:
        """Yields the first files below a folder whose name or path matches one of the patterns."""
        fitting = (
            n
            for n in self.names
            if any(fnmatch(n, p) or fnmatch(n.rpartition("/")[2], p) for p in patterns)
        )
        for count, name in enumerate(fitting):
            if count == _MAX_FILES:
                return
            if name not in self._below:
                self._below[name] = Source(self.path / name)
                self._below[name]._room = self._room
            yield self._below[name]

    def _parsed(self) -> tuple[object, bytes]:
        """Returns the value, and the text that was read for it."""
        if self.head.lstrip(_MARK + b" \t\r\n")[:1] not in (b"{", b"["):
            return None, b""
        if len(self.head) < _HEAD:
            return _first_value(self.head), self.head
        line, newline, _ = self.head.removeprefix(_MARK).lstrip().partition(b"\n")
        if not newline:
            line = self._read(_LARGEST, a_line=True).removeprefix(_MARK)
        if (value := json_or_none(line)) is not None:
            return value, line  # the rest of JSON lines is not read
        data = self._read(_LARGEST)
        return _first_value(data), data

    def _read(self, most: int, *, a_line: bool = False) -> bytes:
        if self.is_folder:
            return b""
        try:
            with open_lines(self.path) as file:
                return file.readline(most) if a_line else file.read(most)
        except (OSError, EOFError, zlib.error, UsageError, InputError, ValueError):
            return b""


def _first_value(data: bytes) -> object:
    """Returns the document, or else the value of the first line."""
    data = data.removeprefix(_MARK).lstrip()
    value = json_or_none(data)
    return value if value is not None else json_or_none(data.partition(b"\n")[0])


@dataclass(frozen=True)
class Document:
    """A file that holds one JSON document, or JSON lines, which are read when they are needed.

    Args:
        path: The file.
        name: Its path below the source without the suffix, for ids.
        value: The document; None for JSON lines.
        is_lines: Whether the file holds JSON lines.
    """

    path: Path
    name: str
    value: object = None
    is_lines: bool = False

    @property
    def place(self) -> str:
        """Returns the path, for messages."""
        return str(self.path)

    @property
    def only(self) -> object:
        """Returns the document. Raises InputError if there are several, which are lines."""
        if self.is_lines:
            raise InputError("has several records; this format has one in a file")
        return self.value

    def records(self) -> Iterator[tuple[str, object | BadLine]]:
        """Yields each line with its position, one in memory at a time; a document is one record.

        A line that is not JSON is a BadLine.
        """
        if not self.is_lines:
            yield self.place, self.value
            return
        for place, _, value in decoded_lines(self.path, object):
            yield place, value

    def values(self) -> Iterator[tuple[str, object | BadLine]]:
        """Yields each record as `records` does; a list is its items."""
        for place, value in self.records():
            for one in value if isinstance(value, list) else (value,):
                yield place, one

    def read_all(self) -> list[tuple[str, object | BadLine]]:
        """Returns all records, for a file that is one run. Raises InputError if they have more than
        1 GiB.
        """
        if not self.is_lines:
            return [(self.place, self.value)]
        found, size = [], 0
        for place, data, value in decoded_lines(self.path, object):
            size += len(data)
            if size > MAX_FILE:
                raise too_large(f"more than {MAX_FILE >> 20:,} MiB")
            found.append((place, value))
        return found


def read_documents(
    source: StrPath,
    is_ours: Callable[[Source], bool],
    patterns: Iterable[str],
    read: Callable[[Document], Iterable[Item]],
) -> Iterator[Item | BadLine]:
    """Yields what `read` makes of each document of a file, or of the files below a folder, as
    `find_files` finds them; a file that is no document is a BadLine.

    One document is in memory at a time, and of JSON lines none.
    """
    for path, name in find_files(source, is_ours, *patterns):
        document = read_record(str(path), partial(read_document, path, name))
        yield from [document] if isinstance(document, BadLine) else read(document)


def find_files(
    source: StrPath, is_ours: Callable[[Source], bool], *patterns: str
) -> Iterator[tuple[Path, str]]:
    """Yields a file, or the files below a folder of one format, each with its path below the source
    without the suffix. Raises UsageError if there is no such file, or none of the format.
    """
    root = Path(source)
    if not root.exists():
        raise UsageError(f"{source}: no such file or folder")
    paths = (
        sorted(path for pattern in patterns for path in root.rglob(pattern))
        if root.is_dir()
        else [root]
    )
    found = False
    for path in dict.fromkeys(paths):
        if root.is_dir() and not (path.is_file() and is_ours(Source(path))):
            continue
        found = True
        yield (
            path,
            _without_suffix(path.relative_to(root).as_posix() if root.is_dir() else path.name),
        )
    if not found:
        raise UsageError(f"{source}: contains no file of this format")


def members(folder: Path, *patterns: str) -> list[Path]:
    """Returns the regular files in a folder that match a pattern, sorted.

    Reading from a pipe could block forever.
    """
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return sorted(found)


def read_document(path: Path, name: str) -> Document:
    """Reads the JSON document of a file, or finds that the file holds JSON lines. Raises InputError
    if nothing in it is JSON, or it is a document of more than 1 GiB.
    """
    lines = Document(path, name, is_lines=True)
    first, second = _first_lines(path)
    if json_or_none(first) is not None:
        return lines if second else Document(path, name, decode_json(first, object))
    try:
        data = read_file(path).removeprefix(_MARK)
    except InputError:
        if isinstance(json_or_none(second), dict):  # only the first line is broken
            return lines
        raise
    try:
        return Document(path, name, decode_json(data, object))
    except InputError:
        # a truncated document over several lines, or nothing that is JSON
        if first in (b"{", b"[") or all(json_or_none(line) is None for line in io.BytesIO(data)):
            raise
    return lines


def _first_lines(path: Path) -> tuple[bytes, bytes]:
    """Returns the first two lines of a file that are not empty; empty ones if it has fewer."""
    found: list[bytes] = []
    try:
        with open_lines(path) as file:
            for line in islice(iter(partial(file.readline, MAX_LINE), b""), MAX_BLANK):
                found += [text] if (text := line.removeprefix(_MARK).strip()) else []
                if len(found) == 2:
                    break
    except (OSError, EOFError, zlib.error, UsageError):
        found.append(b"?")  # the file is read as lines, which reports what is wrong
    first, second, *_ = (*found, b"", b"")
    return first, second


def _without_suffix(name: str) -> str:
    for suffix in (".gz", ".json", ".jsonl", ".eval", ".zip"):
        name = name.removesuffix(suffix)
    return name
