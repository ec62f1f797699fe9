"""Temporary folders that record their owner, so that leftovers of killed runs can be removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TempFolder:
    """Below the system's folder for temporary files; its name begins with `prefix`. Gone after
    `close`.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it has its name: nobody ever finds it free while the owner lives, nor longer
        # than that.
        self._lock = os.open(self.path / "lock.new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "lock.new").rename(self.path / "lock")

    def close(self) -> None:
        """Removes it with everything in it; once only."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.abandon()

    def abandon(self) -> None:
        """Leaves it to whoever looks for abandoned ones."""
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
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def remove_abandoned(prefix: str) -> None:
    """Removes the folders whose owners are dead."""
    for folder in abandoned(prefix):
        with taken_over(folder) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)
