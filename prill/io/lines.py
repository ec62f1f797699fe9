"""Reads input as lines: files, pipes and standard input, plain or gzip."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NamedTuple, TypeVar, cast

import msgspec

from prill.errors import InputError, UsageError

T = TypeVar("T")
STREAM = "-"
# What decoding JSON raises.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# How input deviates from one JSON object per line in plain UTF-8. All of these are read; `prill
# check` reports them.
Form = Literal["line", "mark", "crlf", "array", "pretty"]
_MARK, _GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"
_UTF16 = re.compile(rb"\xff\xfe|\xfe\xff|[\[{]\x00|\x00[\[{]")
_MAX_ARRAY = 64 << 20  # an array is read as a whole
# bytes; longer lines are rejected, because a small archive can contain a line that fills the memory
MAX_LINE = 256 << 20
# JSON values of a record: a small archive can contain one whose values fill the memory
MAX_VALUES = 1_000_000
MAX_BLANK = 100_000  # empty lines in a row: an archive of 400 kB can contain 400 million
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_spools: dict[str, IO[bytes]] = {}
_held: dict[str, Sequence[object]] = {}


class Line(NamedTuple):
    """One record of a file: its (first) line number, from 1, and its bytes without newlines.

    `complete` is False for a last line without a newline, which a crash may have truncated. `start`
    is its byte offset in the file, and `size` its number of bytes there; both are unset if the file
    is compressed or the record is in an array.
    """

    number: int
    data: bytes
    complete: bool
    form: Form = "line"
    start: int | None = None
    size: int = 0


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Returns whether the path is standard input (`-`), a pipe or a device, which can be read only
    once.
    """
    if os.fspath(path) in (STREAM, *_spools, *_held):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def held(name: str, records: Iterable[object]) -> Iterator[str]:
    """Yields a name, such as `<labels>`, under which records in memory are read like a file.

    Readers that know records take them as they are (see `held_records`); others read JSON lines.
    """
    made = list(records)
    names = (f"<{name}{number or ''}>" for number in count())
    path = next(path for path in names if _held.setdefault(path, made) is made)
    try:
        yield path
    finally:
        del _held[path]
        if (spool := _spools.pop(path, None)) is not None:
            spool.close()


def held_records(path: str | os.PathLike[str]) -> Sequence[object] | None:
    """Returns the records behind a name of `held`; None for a file."""
    return _held.get(os.fspath(path))


def get_name(path: str | os.PathLike[str]) -> str:
    """Returns the path as printable text: a file name may contain bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def valid_unicode(text: str) -> str:
    r"""Returns text that can be encoded as UTF-8.

    A surrogate pair ("\ud83d\ude00") becomes one character, an unpaired surrogate a replacement
    character.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def resolve_folder(path: str | os.PathLike[str]) -> Path:
    """Returns the folder that paths in a file are relative to; for a pipe, the current folder."""
    return Path.cwd() if is_stream(path) else Path(path).resolve().parent


def open_input(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Opens a file for reading raw bytes. Raises UsageError.

    Data from a pipe is kept in a temporary file until `forget_streams`, so that it can be opened
    again.
    """
    try:
        if is_stream(path):
            return io.BufferedReader(_Reader(_spooled(os.fspath(path))))
        return open(path, "rb")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory; give a file in it") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def open_lines(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file like `open_input` and decompresses it.

    Gzip is detected by its first two bytes, whatever the file name.
    """
    file = open_input(path)
    try:
        packed = file.peek(2)[:2] == _GZIP
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if not packed:
        return file
    if is_stream(path):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    file.close()
    return cast(BinaryIO, gzip.open(path))


def read_lines(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yields every non-empty line with memory use independent of the file's size.

    It also accepts a byte order mark, Windows line ends, objects over several lines, as `jq` or
    editors write them, and an array of up to 64 MB, which is read into memory. Raises InputError
    for UTF-16. For a damaged archive or a record of more than MAX_LINE, it raises InputError after
    the readable lines.
    """
    number = 0
    with open_lines(path) as file:
        try:
            first = file.readline(MAX_LINE)
            if _UTF16.match(first):
                raise InputError(
                    f"{path}:1: the text is UTF-16; save it as UTF-8: iconv -f UTF-16 -t UTF-8"
                )
            for line in _records(first, file, isinstance(file, gzip.GzipFile)):
                number = line.number
                yield line
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}:{number + 1}: cannot be read any further: {error}") from error


def forget_streams() -> None:
    """Deletes the saved data of pipes."""
    while _spools:
        _spools.popitem()[1].close()


class _Reader(io.RawIOBase):
    """Reads an unnamed file from its start; each reader has its own position."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._file.fileno(), len(buffer), self._place)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def _spooled(name: str) -> IO[bytes]:
    if name not in _spools:
        spool = tempfile.TemporaryFile()  # noqa: SIM115 - stays open until it is forgotten
        if name in _held:
            spool.writelines(msgspec.json.encode(record) + b"\n" for record in _held[name])
        elif name == STREAM:
            shutil.copyfileobj(sys.stdin.buffer, spool)
        else:
            with open(name, "rb") as source:
                shutil.copyfileobj(source, spool)
        spool.flush()
        _spools[name] = spool
    return _spools[name]


def _records(first: bytes, file: BinaryIO, packed: bool) -> Iterator[Line]:
    has_mark = first.startswith(_MARK)
    offset = None if packed else len(_MARK) if has_mark else 0
    first = first.removeprefix(_MARK)
    rest: Iterable[bytes] = iter(lambda: file.readline(MAX_LINE), b"")
    if first.lstrip().startswith(b"["):
        head = first + file.read(_MAX_ARRAY) + file.readline(MAX_LINE)
        if (elements := _elements(head)) is not None and not file.read(1):
            yield from elements
            return
        first, *others = head.splitlines(keepends=True)
        rest = chain(others, rest)
    for line in _join_objects(enumerate(chain([first], rest), 1), offset):
        yield line._replace(form="mark") if has_mark else line
        has_mark = False


def _elements(text: bytes) -> list[Line] | None:
    """Returns the elements of a JSON array, or None if the text is not one."""
    try:
        check_values(text, MAX_VALUES)
        elements = msgspec.json.decode(text, type=list[msgspec.Raw])
    except UNREADABLE:
        return None
    lines, number, end = [], 1, 0
    for element in map(bytes, elements):
        start = text.index(element, end)  # only whitespace and a comma can be between two elements
        number += text.count(b"\n", end, start)
        lines.append(Line(number, element.replace(b"\n", b" "), True, "array"))
        number, end = number + element.count(b"\n"), start + len(element)
    return lines


def whole_records(file: BinaryIO) -> Iterator[Line]:
    """Yields the records of an uncompressed JSON Lines file, each with its offset.

    Raises OSError for a record of more than MAX_LINE.
    """
    return _join_objects(enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1), 0)


def _join_objects(lines: Iterable[tuple[int, bytes]], offset: int | None) -> Iterator[Line]:
    """Yields the lines, and joins an object that spans several lines into one.

    Such an object extends from a lone `{` to a lone `}`, with no other unindented line that opens
    an object. `offset` is the byte offset of the first line. None: the lines have no offsets.
    """
    several: list[bytes] = []
    first = size = blank = 0
    start: int | None = None
    for number, raw in lines:
        data = raw.strip()
        here = offset
        if offset is not None:
            offset += len(raw)
        if several and raw.startswith(b"{"):
            # the object is never closed, but the following lines may be valid
            yield _together(first, several, start, size)
            several = []
        size = size + len(raw) if several else len(raw)
        if size >= MAX_LINE:
            raise OSError(f"the record is longer than {MAX_LINE >> 20} MB")
        blank = 0 if data else blank + 1
        if blank > MAX_BLANK:
            raise OSError(f"more than {MAX_BLANK:,} empty lines in a row; delete them")
        if several:
            several.append(data)
            if raw.startswith(b"}"):
                yield _together(first, several, start, size)
                several = []
        elif data == b"{":
            several, first, start = [data], number, here
        elif data:
            yield Line(
                number,
                data,
                raw.endswith(b"\n"),
                "crlf" if raw.endswith(b"\r\n") else "line",
                here,
                len(raw),
            )
    if several:
        yield _together(first, several, start, size)._replace(complete=len(several) > 1)


def _together(number: int, lines: list[bytes], start: int | None, size: int) -> Line:
    return Line(number, b" ".join(lines), True, "pretty", start, size if start is not None else 0)


def check_values(data: bytes, limit: int) -> None:
    """Raises ValidationError for a JSON text of more values than the limit, without decoding it."""
    if count_signs(data) < limit:
        return
    count, end = 1, 0
    for text in _TEXT.finditer(data):
        count += count_signs(data, end, text.start())
        end = text.end()
        if count > limit:
            break
    if count + count_signs(data, end) > limit:
        raise msgspec.ValidationError(
            f"too many JSON values; the limit is {limit:,}; leave out what is not needed"
        )


def count_signs(data: bytes, start: int = 0, end: int | None = None) -> int:
    """Returns at least how many JSON values but the first a text has."""
    return sum(data.count(sign, start, end) for sign in (b",", b"{", b"["))


def decode_record(data: bytes, limit: int = MAX_VALUES) -> Any:
    """Decodes the JSON of one record.

    Raises one of UNREADABLE, also for a record of more values than the limit, and for a key twice
    in an object: which of the values counts would be a guess.
    """
    if len(data) > limit:
        check_values(data, limit)
    record = msgspec.json.decode(data)
    _check_keys(data, record)
    return record


def decode_as(data: bytes, type_: type[T], limit: int = MAX_VALUES) -> T:
    """Decodes one record like `decode_record`, as a value of the type."""
    if len(data) > limit:
        check_values(data, limit)
    value = msgspec.json.decode(data, type=type_)
    if _encode(value) != data:
        try:
            record = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            record = None  # what the type leaves out is no value of Python
        _check_keys(data, record)
    return value


def _check_keys(data: bytes, record: object) -> None:
    r"""Raises ValidationError if the text of a decoded record has a key twice in one object.

    msgspec takes the last of several equal keys, so that the record has fewer colons than its text.
    An escaped colon (`\u003a`) could hide that.
    """
    encoded = _encode(record)
    escaped = b"\\" in data and b"\\u003" in data  # a search of one byte is faster
    if encoded != data and (escaped or encoded.count(b":") != data.count(b":")):
        # names the key, and takes five times as long
        _scan(data.decode(errors="surrogateescape"))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise msgspec.ValidationError(f"the key {twice!r} is in one object twice; keep one of them")
    return record


_encode = msgspec.json.Encoder().encode
_scan = json.JSONDecoder(object_pairs_hook=_unique, parse_float=str, parse_int=str).decode


def read_json(path: str | os.PathLike[str], type_: type[T], fault: str, remedy: str) -> T:
    """Reads a JSON file as a record.

    Raises UsageError with the path, the fault if the file is not such a record, and the remedy.
    """
    return decode_json(read_whole(path, remedy), type_, f"{path}: {fault}", remedy)


def read_whole(path: str | os.PathLike[str], remedy: str) -> bytes:
    """Returns the bytes of a file. Raises UsageError with the remedy."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from None


def decode_json(data: bytes, type_: type[T], fault: str, remedy: str) -> T:
    """Decodes JSON as a record. Raises UsageError with the fault and the remedy."""
    try:
        return msgspec.json.decode(data, type=type_)
    except UNREADABLE as error:
        raise UsageError(f"{fault} ({error}); {remedy}") from None


def file_sha256(path: str) -> str:
    """Returns the SHA-256 of a file, which cards record for their data."""
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
