"""The lock between processes: held on an open file, and gone with the process that has it."""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Self

_Path = str | os.PathLike[str]
_WRITABLE = os.O_RDWR | os.O_CREAT


def lock_file(path: _Path, flags: int = _WRITABLE, mode: int = 0o644) -> int:
    """A file or folder, opened, once no other process has locked it: locked until it is closed or
    this process ends, by `kill -9` too. Raises OSError.
    """
    return _locked(path, flags, mode, fcntl.LOCK_EX)


def lock_if_free(path: _Path, flags: int = _WRITABLE) -> int | None:
    """The same without waiting: None where another process has locked it. Raises OSError."""
    try:
        return _locked(path, flags, 0o644, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _locked(path: _Path, flags: int, mode: int, operation: int) -> int:
    file = os.open(path, flags, mode)
    with ExitStack() as on_failure:
        on_failure.callback(os.close, file)
        fcntl.flock(file, operation)
        on_failure.pop_all()
    return file


class Closing(ABC):
    """Closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Ends it; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
