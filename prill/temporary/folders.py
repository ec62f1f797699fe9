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
    """Below the system's folder for temporary files; its name begins with `prefix`. Gone after
    `close`.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it has its name: nobody ever finds it free while the owner lives, nor longer
        # than that.
        self._lock = lock_file(self.path / "lock.new", mode=0o600)
        (self.path / "lock.new").rename(self.path / "lock")

    def close(self) -> None:
        """Removes it with everything in it; once only."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.abandon()

    def abandon(self) -> None:
        """Leaves the folder to a later clean-up."""
        os.close(self._lock)


def abandoned(prefix: str) -> list[Path]:
    """Folders of owners that may be dead: `taken_over` tells."""
    return [lock.parent for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/lock")]


@contextmanager
def taken_over(folder: Path) -> Iterator[bool]:
    """Whether its owner is dead and nobody else clears up; if so, nobody else will during the
    block.
    """
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
    """Removes the folders whose owners are dead."""
    for folder in abandoned(prefix):
        with taken_over(folder) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)
