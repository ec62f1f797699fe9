"""Rows of other people's data sets: folders with trajectories.jsonl and labels.jsonl, plain or gzip, in fields of their own."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.store import read_lines

Row = TypeVar("Row")


def read_rows(folder: str | PathLike[str], stem: str, row: type[Row]) -> Iterator[Row]:
    """Every row of `stem`.jsonl or `stem`.jsonl.gz; fields that `row` does not name are passed over.

    Raises UsageError when the folder has no such file, InputError with file, line and field for a row that does not fit.
    """
    path = _find(Path(folder), stem)
    decoder = msgspec.json.Decoder(row)
    for line in read_lines(path):
        try:
            yield decoder.decode(line.data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"{path}:{line.number}: {error}") from None


def image_in(folder: str | PathLike[str], name: str) -> str:
    """The absolute path of an image named in a row. Raises InputError when it lies outside the folder."""
    root = Path(folder).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise InputError(f"image path {name!r} leaves the folder {folder}")
    return str(path)


def _find(folder: Path, stem: str) -> Path:
    names = (f"{stem}.jsonl", f"{stem}.jsonl.gz")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise UsageError(f"{folder}: expected a folder with {names[0]} or {names[1]}")
