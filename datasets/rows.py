"""Rows of other people's data sets: JSON Lines, plain or gzip, in fields of their own. A broken one is an item, not the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.store import BadLine, read_lines

Row = TypeVar("Row")
Made = TypeVar("Made")


def read_rows(path: str | PathLike[str], row: type[Row], make: Callable[[Row], Iterable[Made]]) -> Iterator[Made | BadLine]:
    """What `make` gives for every row of a file; fields that `row` does not name are passed over.

    A row that does not fit, or for which `make` raises InputError, comes as one BadLine with its place.
    """
    decoder = msgspec.json.Decoder(row)
    for line in read_lines(path):
        place = f"{path}:{line.number}"
        try:
            yield from list(make(decoder.decode(line.data)))
        except (msgspec.MsgspecError, UnicodeDecodeError, InputError) as error:
            yield BadLine(place, place, str(error), line.data)


def made(place: str, make: Callable[[], Made]) -> Made | BadLine:
    """What `make` gives, or a BadLine where it raises InputError; for records that are files. `place` says where it stands."""
    try:
        return make()
    except InputError as error:
        return BadLine(place, place, str(error), b"")


def find_rows(folder: str | PathLike[str], stem: str) -> Path:
    """`stem`.jsonl or `stem`.jsonl.gz in a folder. Raises UsageError when it has neither."""
    names = (f"{stem}.jsonl", f"{stem}.jsonl.gz")
    for name in names:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise UsageError(f"{folder}: expected a folder with {names[0]} or {names[1]}")


def image_in(folder: str | PathLike[str], name: str) -> str:
    """The absolute path of an image named in a row. Raises InputError when it lies outside the folder."""
    root = Path(folder).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise InputError(f"image path {name!r} leaves the folder {folder}")
    return str(path)
