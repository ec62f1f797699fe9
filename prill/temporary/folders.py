"""Temporary folders that record their owner, so that leftovers of killed runs can be removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prill.locks import lock_file, lock_if_free


class TempFolder:
    """A folder in the system's temporary folder, deleted by `close`; its name begins with
    `prefix`.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # The lock file is locked before it is renamed, so that it is locked exactly as long as the
        # owner lives.
        self._lock = lock_file(self.path / "lock.new", mode=0o600)
        (self.path / "lock.new").rename(self.path / "lock")

    def close(self) -> None:
        """Deletes the folder with its content; only once."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.abandon()

    def abandon(self) -> None:
        """Leaves the folder to a later clean-up."""
        os.close(self._lock)


def abandoned(prefix: str) -> list[Path]:
    """Returns folders whose owners may be dead; `taken_over` verifies it."""
    return [lock.parent for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/lock")]


@contextmanager
def taken_over(folder: Path) -> Iterator[bool]:
    """Yields whether the owner is dead and this process may clean up; if so, locks the folder."""
    try:
        lock = lock_if_free(folder / "lock", os.O_RDWR)
    except OSError:
        lock = None
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        os.close(lock)


def remove_abandoned(prefix: str) -> None:
    """Deletes the folders whose owners are dead."""
    for folder in abandoned(prefix):
        with taken_over(folder) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)
