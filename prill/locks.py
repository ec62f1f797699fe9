"""Locks between processes, held on an open file and released when the process ends."""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

_Path = str | os.PathLike[str]
_WRITABLE = os.O_RDWR | os.O_CREAT


def lock_file(path: _Path, flags: int = _WRITABLE, mode: int = 0o644) -> int:
    """Waits for the lock on a file or folder and returns the open descriptor.

    The lock is released when the descriptor is closed or the process ends, also by `kill -9`.
    Raises OSError.
    """
    return _locked(path, flags, mode, fcntl.LOCK_EX)


def lock_if_free(path: _Path, flags: int = _WRITABLE) -> int | None:
    """Locks a file like `lock_file` without waiting; None if another process has the lock.

    Raises OSError.
    """
    try:
        return _locked(path, flags, 0o644, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


@contextmanager
def releasing(lock: int | None) -> Iterator[bool]:
    """Yields whether a lock was obtained, and releases it after the block."""
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _locked(path: _Path, flags: int, mode: int, operation: int) -> int:
    file = os.open(path, flags, mode)
    with ExitStack() as on_failure:
        on_failure.callback(os.close, file)
        fcntl.flock(file, operation)
        on_failure.pop_all()
    return file


class Closing(ABC):
    """Base of objects that are closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Closes the object; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
