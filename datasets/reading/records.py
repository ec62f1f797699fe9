"""Reads JSON Lines rows with foreign fields; a broken row is returned as an item."""

from __future__ import annotations

import errno
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar, dataclass_transform

import msgspec

from prill.errors import InputError, UsageError
from prill.io.lines import UNREADABLE as UNREADABLE
from prill.io.lines import check_values, decode_as, is_stream
from prill.io.store import BadLine, open_lines, read_lines
from prill.types import StrPath

Row = TypeVar("Row")
Item = TypeVar("Item")
# bytes of a file that is read as a whole; an archive of 1 MB can unpack to as much
MAX_FILE = 2**30
# JSON values of a document or a row: one of 60 MB can have 20 million, which take 1.6 GB
MAX_FILE_VALUES = 4_000_000
# "2024-10-26_05-28-49" of AgentLab's folders, "20240419@115711" of OSWorld's rows, "2023-08-09
# 15:22:31,123" of logs, ISO 8601.
_DATE = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(-?)(\d\d)\2(\d\d)[T@_ ](\d\d)([-:_]?)(\d\d)\6(\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:\d\d)?"  # noqa: E501
)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True):
    """A record of another tool; fields that it does not declare are skipped."""


def read_rows(
    path: StrPath, row: type[Row], make: Callable[[Row], Iterable[Item]]
) -> Iterator[Item | BadLine]:
    """Yields `make(row)` for each row of a file; fields that `row` does not declare are ignored.

    A row that does not match, or for which `make` raises InputError, becomes one BadLine with its
    position; so does the lost part of a damaged archive.
    """
    for place, data, value in decoded_lines(path, row):
        if isinstance(value, BadLine):
            yield value
            continue
        try:
            yield from list(make(value))
        except (*UNREADABLE, InputError) as error:
            yield BadLine(place, place, str(error), data)


def decoded_lines(path: StrPath, type: type[Row]) -> Iterator[tuple[str, bytes, Row | BadLine]]:
    """Yields the place, the bytes and the value of each line, one in memory at a time.

    A line that does not match, and the lost part of a damaged archive, is a BadLine.
    """
    lines = read_lines(path)
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except InputError as error:
            bad = BadLine(str(path), str(path), str(error).removeprefix(f"{path}:"), b"")
            yield str(path), b"", bad
            return
        place = f"{path}:{line.number}"
        try:
            yield place, line.data, decode_as(line.data, type, MAX_FILE_VALUES)
        except UNREADABLE as error:
            yield place, line.data, BadLine(place, place, str(error), line.data)


def decode_json(data: bytes, type: type[Row]) -> Row:
    """Decodes JSON into a record.

    Raises InputError, with the field's path, for another form, and for what `decode_as` refuses.
    """
    try:
        return decode_as(bytes(data), type, MAX_FILE_VALUES)
    except UNREADABLE as error:
        raise InputError(str(error)) from None


def json_or_none(data: bytes | str) -> object:
    """Decodes JSON to detect its format; None for anything else, as for null, and for too many
    values. Of several equal keys, the last counts.
    """
    try:
        check_values(data.encode() if isinstance(data, str) else data, MAX_FILE_VALUES)
        return msgspec.json.decode(data)
    except UNREADABLE:
        return None


def as_record(value: object, type: type[Row]) -> Row:
    """Converts a decoded JSON value to a record.

    Raises InputError, with the field's path, if it does not match.
    """
    try:
        return msgspec.convert(value, type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(str(error)) from None


def record_at(place: str, value: object, type: type[Row]) -> Row | BadLine:
    """Converts a decoded JSON value to a record, or to a BadLine at its place; one stays."""
    if isinstance(value, BadLine):
        return value
    return read_record(place, lambda: as_record(value, type))


def iso_date(seconds: float | None) -> str | None:
    """Converts seconds since 1970 to a UTC date, `2026-11-22T02:35:19Z`; None if out of range."""
    try:
        return (
            None
            if seconds is None
            else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        )
    except (ValueError, OverflowError, OSError):
        return None


def read_file(path: StrPath) -> bytes:
    """Reads a file, plain or gzip.

    Raises InputError if it cannot be read, or has more than 1 GiB, unpacked.
    """
    try:
        size = 0 if is_stream(path) else Path(path).stat().st_size
        if size > MAX_FILE:
            raise too_large(f"{size >> 20:,} MiB")
        with open_lines(path) as file:
            return read_at_most(file, MAX_FILE)
    except (OSError, EOFError, zlib.error, UsageError) as error:
        raise InputError(f"cannot be read: {error}") from None


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """Reads all bytes of a file incrementally. Raises InputError if there are more than `limit`."""
    parts, size = [], 0
    while part := file.read(2**20):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise InputError(f"unpacks to more than {limit >> 20} MiB, which is the limit")
    return b"".join(parts)


def too_large(size: str) -> InputError:
    """Returns the error for a file of a size that is too large to be read as a whole."""
    return InputError(
        f"the file has {size}, and the limit for one that is read as a whole is "
        f"{MAX_FILE >> 20:,} MiB; split it by run, or write JSON lines with one record each"
    )


def read_record(place: str, make: Callable[[], Item]) -> Item | BadLine:
    """Returns the result of `make`, or a BadLine at `place` if it raises InputError.

    It is for records that are whole files.
    """
    try:
        return make()
    except InputError as error:
        return BadLine(place, place, str(error), b"")
    except RecursionError:
        return BadLine(place, place, "nested too deeply", b"")


def date_in(text: str) -> str | None:
    """Finds the first date with a time in a folder's name, a log line or a timestamp.

    The result is in ISO 8601 with seconds.

    It is in UTC (`…Z`) if the text has a time zone; otherwise it is the local time of the machine
    that wrote it, without a zone.
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


def find_rows(folder: StrPath, stem: str) -> Path:
    """Finds `stem`.jsonl or `stem`.jsonl.gz in a folder. Raises UsageError if it has neither."""
    names = (f"{stem}.jsonl", f"{stem}.jsonl.gz")
    for name in names:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise UsageError(f"{folder}: expected a folder that contains {names[0]} or {names[1]}")


def _is_circular(path: Path) -> bool:
    """Returns whether links are circular, for which `resolve` does not raise from 3.13 on."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def image_in(folder: StrPath, name: str) -> str:
    """Returns the absolute path of an image named in a row.

    Raises InputError if it lies outside the folder, or the name is not a file name.
    """
    root = Path(folder).resolve()
    try:
        path = (root / name).resolve()
        circular = _is_circular(path)
    except (ValueError, RuntimeError):  # a null character, an unpaired surrogate, circular links
        circular = True
    if circular:
        raise InputError(f"image path {name!r} is not a file name")
    if not path.is_relative_to(root):
        raise InputError(f"image path {name!r} leaves the folder {folder}")
    return str(path)
