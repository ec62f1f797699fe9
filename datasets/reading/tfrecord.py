"""Reads TFRecord files of tf.train.Example without TensorFlow.

A TFRecord is: length (8 bytes), checksum of the length (4), data, checksum of the data (4); all
little-endian, the checksum a masked CRC-32C. An Example is a protocol buffer: a map from names to
lists of bytes, floats or integers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

from prill.errors import InputError

Feature = list[bytes] | list[float] | list[int]
# A larger record is damaged or an attack: the largest real ones are single screenshots of some MB.
_LARGEST = 256 * 2**20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_records(file: BinaryIO, place: str, *, check_data: bool = True) -> Iterator[bytes]:
    """Yields the data of every record.

    Raises InputError with the record's number if the file is damaged.

    `check_data` also verifies the checksum of the data; gzip files do not need this, because gzip
    has its own.
    """
    number = 0
    try:
        while head := file.read(12):
            number += 1
            length = _length(head)
            if length is None:
                raise InputError(
                    f"{place}: record {number}: not a TFRecord (the checksum of the length "
                    "is wrong)"
                )
            if length > _LARGEST:
                raise InputError(
                    f"{place}: record {number}: {length} bytes, more than the limit of {_LARGEST}"
                )
            data, end = file.read(length), file.read(4)
            if len(data) < length or len(end) < 4:
                raise InputError(f"{place}: record {number}: the file ends in the middle of it")
            if check_data and struct.unpack("<I", end)[0] != masked_crc(data):
                raise InputError(f"{place}: record {number}: the checksum of the data is wrong")
            yield data
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{place}: cannot be read after record {number}: {error}") from error


def begins_tfrecord(head: bytes) -> bool:
    """Returns whether the first 12 bytes are a record's length with its correct checksum."""
    return _length(head) is not None


def parse_example(data: bytes) -> dict[str, Feature]:
    """Parses the features of a tf.train.Example by name. Raises InputError for invalid bytes."""
    try:
        return {
            name: feature
            for features in _fields(data, 1)
            for entry in _fields(features, 1)
            for name, feature in [(_only(entry, 1).decode(), _feature(_only(entry, 2)))]
        }
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"not a tf.train.Example: {error}") from None


def masked_crc(data: bytes) -> int:
    """Computes the CRC-32C of the data, rotated and shifted as TFRecord files require."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _length(head: bytes) -> int | None:
    if len(head) < 12:
        return None
    length, crc = struct.unpack("<QI", head[:12])
    return int(length) if crc == masked_crc(head[:8]) else None


def _feature(data: bytes) -> Feature:
    for number, values in _wire(data):
        if not isinstance(values, bytes):
            continue
        if number == 1:
            return list(_fields(values, 1))
        if number == 2:
            return [x for part in _parts(values) for x in _floats(part)]
        if number == 3:
            return [
                x
                for part in _parts(values)
                for x in ([part] if isinstance(part, int) else _integers(part))
            ]
    return list[bytes]()


def _parts(data: bytes) -> Iterator[bytes | int]:
    return (value for number, value in _wire(data) if number == 1)


def _floats(part: bytes | int) -> tuple[float, ...]:
    if isinstance(part, int):
        raise ValueError("an integer where a float was expected")
    return struct.unpack(f"<{len(part) // 4}f", part)


def _integers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value - 2**64 if value >= 2**63 else value


def _only(data: bytes, number: int) -> bytes:
    return next(iter(_fields(data, number)), b"")


def _fields(data: bytes, number: int) -> Iterator[bytes]:
    return (value for n, value in _wire(data) if n == number and isinstance(value, bytes))


def _wire(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yields field numbers and values; varints are int, fixed numbers are bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value - 2**64 if value >= 2**63 else value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"unknown wire type {kind}")
        if at + size > len(data):
            raise ValueError("a field is longer than the record")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than ten bytes")
