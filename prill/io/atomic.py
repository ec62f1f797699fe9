"""Atomic file replacement and whole-line appends."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prill.errors import UsageError

_Path = str | os.PathLike[str]


def part_path(path: Path) -> Path:
    """A name beside the file that nobody can foresee, for what is not whole yet; open it with mode
    "x".
    """
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")


def is_there(file: int, path: _Path, size: int | None = None) -> bool:
    """Whether the open file is still the one that has this name: another program may have replaced
    or removed it. With a `size` in bytes: and is still that long.
    """
    try:
        status = os.fstat(file)
        return os.path.samestat(status, os.stat(path)) and size in (None, status.st_size)
    except OSError:
        return False


def append_whole(file: int, data: bytes) -> None:
    """All of the data at the end of a file, or nothing of it: half a line, left by a full disk,
    would hide the next one.

    Raises OSError.
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
def failures(path: _Path) -> Iterator[None]:
    """Within it, a file that cannot be written is a UsageError; a reader of a pipe that has gone
    stays a BrokenPipeError.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
