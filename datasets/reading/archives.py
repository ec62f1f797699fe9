"""Reads untrusted ZIP archives with size limits; entries may be stored, deflated, or zstd."""

from __future__ import annotations

import importlib
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from prill.datasets.reading.records import read_at_most
from prill.errors import InputError, MissingExtraError

# An archive may unpack to this many times its size (logs that repeat a conversation reach 40), or
# to the minimum.
_MAX_RATIO, _MIN_BYTES = 300, 64 * 2**20
# The bytes that may be unpacked for one record.
_MAX_RECORD = 2**30
_ZSTD = 93  # the method's number (PKWARE's APPNOTE.TXT, 4.4.5)
# the signature, and the lengths of the name and the extra field
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_BROKEN = (
    zipfile.BadZipFile,
    OSError,
    EOFError,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)


class Archive:
    """An open ZIP archive.

    Reads count against a limit for the record, and one for the archive.
    """

    def __init__(self, path: Path) -> None:
        """Raises InputError if the file is not a ZIP archive, or cannot be read."""
        try:
            self._zip = zipfile.ZipFile(path)
            size = path.stat().st_size
        except _BROKEN as error:
            raise InputError(f"not a readable ZIP archive: {error}") from None
        self._raw: BinaryIO | None = None
        self._path = path
        self._left = max(_MIN_BYTES, _MAX_RATIO * size)
        self._record = _MAX_RECORD
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        self.names = tuple(self._entries)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        if self._raw is not None:
            self._raw.close()

    def next_record(self) -> None:
        """Starts another record, for which 1 GiB may be unpacked."""
        self._record = _MAX_RECORD

    def read(self, name: str) -> bytes:
        """Returns an entry, unpacked. Raises InputError if there is none, it is damaged, or it
        exceeds the limits, and MissingExtraError for zstd without its package.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise InputError(f"{name!r} is not in the archive")
        most = min(self._left, self._record)
        try:
            with self._open(entry) as file:
                data = read_at_most(file, most)
        except InputError:
            self._left = 0  # read nothing more of a possible attack
            raise InputError(
                f"{name!r} unpacks to more than {most >> 20} MiB, which is the limit"
            ) from None
        except MissingExtraError:
            raise
        except _BROKEN as error:
            raise InputError(f"{name!r} cannot be unpacked: {error}") from None
        self._left -= len(data)
        self._record -= len(data)
        return data

    def _open(self, entry: zipfile.ZipInfo) -> BinaryIO:
        if entry.compress_type != _ZSTD or hasattr(zipfile, "ZIP_ZSTANDARD"):
            return cast(BinaryIO, self._zip.open(entry))
        try:
            zstandard = importlib.import_module("zstandard")
        except ImportError:
            raise MissingExtraError("zstandard", "inspect") from None
        self._raw = self._raw or self._path.open("rb")
        self._raw.seek(entry.header_offset)
        signature, name, extra = _LOCAL_HEADER.unpack(self._raw.read(_LOCAL_HEADER.size))
        if signature != b"PK\x03\x04":
            raise zipfile.BadZipFile("no local header")
        self._raw.seek(name + extra, 1)
        return cast(BinaryIO, _Zstd(_Part(self._raw, entry.compress_size), zstandard))


class _Part:
    """The next bytes of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


class _Zstd:
    """Unpacks consecutive zstd frames, as Inspect writes them."""

    def __init__(self, part: _Part, zstandard: object) -> None:
        self._error: type[Exception] = zstandard.ZstdError  # type: ignore[attr-defined]
        self._reader = zstandard.ZstdDecompressor().stream_reader(part, read_across_frames=True)  # type: ignore[attr-defined]

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._reader.read(size))
        except self._error as error:
            raise zipfile.BadZipFile(str(error)) from None

    def __enter__(self) -> _Zstd:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(self._error):
            self._reader.close()
