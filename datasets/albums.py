"""Screenshots that a loader takes out of other files (HTML, TFRecords): where they lie, and how long."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from prill.errors import InputError

_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"), (b"RIFF", ".webp"))


class Album:
    """The images of one trajectory, named by their content."""

    def __init__(self, folder: Path, kept: bool) -> None:
        self._folder, self._kept = folder, kept

    def add(self, data: bytes) -> str:
        """The absolute path of the written image. Raises InputError for bytes that are no PNG, JPEG, GIF or WebP."""
        suffix = image_suffix(data)
        if suffix is None:
            raise InputError(f"an image inside the file is no PNG, JPEG, GIF or WebP ({len(data)} bytes)")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / (hashlib.sha256(data).hexdigest()[:16] + suffix)
        if not path.exists():
            path.write_bytes(data)
        return str(path)

    def close(self) -> None:
        """Removes the images, unless the user named the folder."""
        if not self._kept:
            shutil.rmtree(self._folder, ignore_errors=True)


class Albums:
    """Makes an album for each trajectory. No path ever stands for two images."""

    def __init__(self, folder: Path, kept: bool) -> None:
        self._folder, self._kept, self._count = folder, kept, 0

    def new(self) -> Album:
        """An empty album."""
        self._count += 1
        return Album(self._folder if self._kept else self._folder / str(self._count), self._kept)


@contextmanager
def albums(folder: str | PathLike[str] | None) -> Iterator[Albums]:
    """Albums in the user's folder, or for None in a temporary one that goes at the end."""
    if folder is not None:
        yield Albums(Path(folder).resolve(), kept=True)
        return
    with TemporaryDirectory(prefix="prill-images-") as temporary:
        yield Albums(Path(temporary).resolve(), kept=False)


def image_suffix(data: bytes) -> str | None:
    """The file suffix that belongs to the first bytes; None when they begin no image of a known kind."""
    return next((suffix for signature, suffix in _SIGNATURES if data.startswith(signature)), None)
