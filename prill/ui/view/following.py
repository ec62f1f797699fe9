"""Reads the lines of a file as it grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prill.io.lines import Line, is_stream, read_lines, resolve_folder, whole_records


class FollowedFile:
    """A file of JSON lines that another program may be writing.

    Args:
        path: The file. A pipe, an archive or a JSON array is read once.

    Attributes:
        path: The file.
        root: The folder that paths in it are relative to.
        waits: Whether it ends in an incomplete line, which a later read may find complete.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.root: Path = resolve_folder(path)
        self.waits = False
        self._begun = False
        self._end: int | None = 0  # bytes read; None: reading cannot continue
        self._lines = 0
        self._file: tuple[int, int] | None = None

    @property
    def read(self) -> int:
        """Returns the number of bytes read so far; all of them if it is read once."""
        return self.size if self._end is None else self._end

    @property
    def size(self) -> int:
        """Returns its current size in bytes; 0 for a pipe."""
        return 0 if is_stream(self.path) else Path(self.path).stat().st_size

    def was_replaced(self) -> bool:
        """Returns whether the file was replaced or truncated and must be read again."""
        if self._end is None or is_stream(self.path) or self._file is None:
            return False
        try:
            now = Path(self.path).stat()
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != self._file or now.st_size < self._end

    def new_lines(self) -> Iterator[Line]:
        """Yields the records since the last read, each with its number and, if known, its position.

        An incomplete last line is included; `forget` leaves it to the next read.

        Raises:
            InputError: A damaged archive, or a record that is too long.
            UsageError: It cannot be read.
        """
        if not self._begun:
            self._begun = True
            if not is_stream(self.path):
                status = Path(self.path).stat()
                self._file = (status.st_dev, status.st_ino)
            for line in read_lines(self.path):
                self._lines = line.number
                self._end = None if line.start is None else line.start + line.size
                yield line
            return
        if self._end is None or self.size <= self._end:
            return
        begin, before = self._end, self._lines
        with Path(self.path).open("rb") as file:
            file.seek(begin)
            for line in whole_records(file):
                here = line._replace(number=before + line.number, start=begin + (line.start or 0))
                self._lines = here.number
                self._end = (here.start or 0) + here.size
                yield here

    def forget(self, line: Line) -> None:
        """Leaves the last line to the next read."""
        self._lines, self._end, self.waits = line.number - 1, line.start, True
