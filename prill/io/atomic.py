"""Atomic file replacement and whole-line appends."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from prill.errors import UsageError

_Path = str | os.PathLike[str]


def part_path(path: Path) -> Path:
    """Returns an unpredictable temporary name next to a file; open it with mode "x"."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")


def backup_path(path: Path) -> Path:
    """Returns the first free name of a backup: `.bak`, `.bak2` and so on at the end."""
    endings = (".bak" if number == 1 else f".bak{number}" for number in count(1))
    names = (path.with_name(path.name + ending) for ending in endings)
    return next(name for name in names if not os.path.lexists(name))


def is_current_file(file: int, path: _Path, size: int | None = None) -> bool:
    """Returns whether the open file still has this name, and, if given, this size in bytes.

    Another program may have replaced or removed it.
    """
    try:
        status = os.fstat(file)
        return os.path.samestat(status, os.stat(path)) and size in (None, status.st_size)
    except OSError:
        return False


def append_whole(file: int, data: bytes) -> None:
    """Appends all of the data to a file, or nothing.

    A partial line, left by a full disk, would corrupt the next line. Raises OSError.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        if written := len(data) - len(rest):
            os.ftruncate(file, os.fstat(file).st_size - written)
        raise


@contextmanager
def write_errors(path: _Path) -> Iterator[None]:
    """Converts write errors inside the block to UsageError.

    BrokenPipeError, raised when the reader of a pipe has exited, is passed on.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
