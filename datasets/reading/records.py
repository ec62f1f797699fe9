"""Reads JSON Lines rows with foreign fields; a broken row is an item, not the end."""

from __future__ import annotations

import errno
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.io.store import BadLine, open_lines, read_lines

Row = TypeVar("Row")
Item = TypeVar("Item")
# The last one is for brackets in brackets without end.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# What an archive may unpack to where all of it is held in memory; an archive of 1 MB can hold as
# much.
_LARGEST = 2**30
# "2024-10-26_05-28-49" of AgentLab's folders, "20240419@115711" of OSWorld's rows, "2023-08-09
# 15:22:31,123" of logs, ISO 8601.
_DATE = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(-?)(\d\d)\2(\d\d)[T@_ ](\d\d)([-:_]?)(\d\d)\6(\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:\d\d)?"  # noqa: E501
)


def read_rows(
    path: str | PathLike[str], row: type[Row], make: Callable[[Row], Iterable[Item]]
) -> Iterator[Item | BadLine]:
    """Yields `make(row)` for each row of a file; fields that `row` does not declare are ignored.

    A row that does not fit, or for which `make` raises InputError, comes as one BadLine with its
    place; so does all that a damaged archive loses.
    """
    decoder = msgspec.json.Decoder(row)
    lines = read_lines(path)
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except InputError as error:
            yield BadLine(str(path), str(path), str(error).removeprefix(f"{path}:"), b"")
            return
        place = f"{path}:{line.number}"
        try:
            yield from list(make(decoder.decode(line.data)))
        except (*UNREADABLE, InputError) as error:
            yield BadLine(place, place, str(error), line.data)


def decode_json(data: bytes, type: type[Row]) -> Row:
    """The record that some JSON holds. Raises InputError, with the field's path, when it holds
    none.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except UNREADABLE as error:
        raise InputError(str(error)) from None


def as_record(value: object, type: type[Row]) -> Row:
    """The record that a decoded JSON value holds. Raises InputError, with the field's path, when it
    holds none.
    """
    try:
        return msgspec.convert(value, type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(str(error)) from None


def iso_date(seconds: float | None) -> str | None:
    """Seconds since 1970 as a date in UTC, `2026-11-22T02:35:19Z`; None for what is no date."""
    try:
        return (
            None
            if seconds is None
            else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        )
    except (ValueError, OverflowError, OSError):
        return None


def read_file(path: str | PathLike[str]) -> bytes:
    """The bytes of a file, plain or gzip. Raises InputError when it cannot be read, or is an
    archive of more than 1 GiB.
    """
    try:
        with open_lines(path) as file:
            packed = isinstance(file, gzip.GzipFile)
            return read_at_most(file, _LARGEST) if packed else file.read()
    except (OSError, EOFError, zlib.error, UsageError) as error:
        raise InputError(f"cannot be read: {error}") from None


def read_at_most(file: BinaryIO, most: int) -> bytes:
    """All bytes of a file; room is made as they come. Raises InputError when there are more than
    `most`.
    """
    parts, size = [], 0
    while part := file.read(2**20):
        parts.append(part)
        size += len(part)
        if size > most:
            raise InputError(f"holds more than {most >> 20} MiB unpacked; more is not read")
    return b"".join(parts)


def read_record(place: str, make: Callable[[], Item]) -> Item | BadLine:
    """What `make` gives, or a BadLine where it raises InputError; for records that are files.
    `place` says where it stands.
    """
    try:
        return make()
    except InputError as error:
        return BadLine(place, place, str(error), b"")
    except RecursionError:
        return BadLine(place, place, "nested too deeply", b"")


def date_in(text: str) -> str | None:
    """The first date with a time of day that a folder's name, a log's line or a time stamp holds,
    in ISO 8601 with seconds.

    In UTC (`…Z`) where the text has a zone; without a zone it is the time of the machine that wrote
    it, and stays without.
    """
    for match in _DATE.finditer(text):
        year, _, month, day, hour, _, minute, second, zone = match.groups()
        try:
            date = datetime.fromisoformat(
                f"{year}-{month}-{day}T{hour}:{minute}:{second}{zone or ''}"
            )
        except ValueError:
            continue
        return date.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if zone else date.isoformat()
    return None


def find_rows(folder: str | PathLike[str], stem: str) -> Path:
    """`stem`.jsonl or `stem`.jsonl.gz in a folder. Raises UsageError when it has neither."""
    names = (f"{stem}.jsonl", f"{stem}.jsonl.gz")
    for name in names:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise UsageError(f"{folder}: expected a folder with {names[0]} or {names[1]}")


def _is_circular(path: Path) -> bool:
    """Whether links lead in a circle: from Python 3.13 on, `resolve` leaves those as they are."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def image_in(folder: str | PathLike[str], name: str) -> str:
    """The absolute path of an image named in a row. Raises InputError when it lies outside the
    folder, or the name is none.
    """
    root = Path(folder).resolve()
    try:
        path = (root / name).resolve()
        circular = _is_circular(path)
    except (ValueError, RuntimeError):  # a null character, an unpaired surrogate, links in a circle
        circular = True
    if circular:
        raise InputError(f"image path {name!r} is no name of a file")
    if not path.is_relative_to(root):
        raise InputError(f"image path {name!r} leaves the folder {folder}")
    return str(path)
