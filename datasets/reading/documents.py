"""Finds the documents of a format: one file, or the files below a folder whose first bytes look like one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from prill.datasets.reading.records import read_at_most
from prill.errors import InputError, UsageError
from prill.io.store import BadLine, open_lines

# As much of a file as tells its format; writers put the keys that do near the beginning.
HEAD = 2**16
# Bytes of one document, unpacked: all of it is held in memory.
MAX_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Document:
    """A file of a format. `name` is its path below the source without suffix: the id where the document has none."""

    path: Path
    name: str

    def read(self) -> bytes:
        """Its bytes, unpacked where it is gzip. Raises InputError when it cannot be read or has more than 1 GiB."""
        try:
            with open_lines(self.path) as file:
                return read_at_most(file, MAX_BYTES)
        except (OSError, EOFError, zlib.error, UsageError) as error:
            raise InputError(f"cannot be read: {error}") from None


def find_documents(
    source: str | PathLike[str], suffixes: tuple[str, ...], looks_like: Callable[[bytes], bool], expected: str
) -> Iterator[Document | BadLine]:
    """The source where it is a file, whatever it looks like; else the files below it that look like the format, by path.

    Args:
        source: A file or folder.
        suffixes: How the names of files in a folder end.
        looks_like: Tells by the first 64 KiB, unpacked.
        expected: What the error says that should be there.

    Raises:
        UsageError: There is no such file or folder, or nothing in it looks like the format.
    """
    root = Path(source)
    if not root.exists():
        raise UsageError(f"{source}: no such file or folder")
    if not root.is_dir():
        yield Document(root, _stem(root.name, suffixes))
        return
    found = False
    for path in sorted(path for path in root.rglob("*") if path.name.endswith(suffixes) and path.is_file()):
        try:
            with open_lines(path) as file:
                head = file.read(HEAD)
        except (OSError, EOFError, zlib.error, UsageError) as error:
            yield BadLine(str(path), str(path), f"cannot be read: {error}", b"")
            continue
        if looks_like(head):
            found = True
            yield Document(path, _stem(path.relative_to(root).as_posix(), suffixes))
    if not found:
        raise UsageError(f"{source}: expected {expected}")


def unique_id(id: str, ids: set[str]) -> str:
    """The id, with `#2`, `#3`… behind it where it is among `ids` already; it is added to them."""
    free, count = id, 1
    while free in ids:
        count += 1
        free = f"{id}#{count}"
    ids.add(free)
    return free


def _stem(name: str, suffixes: tuple[str, ...]) -> str:
    longest = max((suffix for suffix in suffixes if name.endswith(suffix)), key=len, default="")
    return name.removesuffix(longest) or name
