"""Screenshots that a loader takes out of other files (HTML, TFRecords): where they lie, and how long."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from prill.datasets.reading.records import image_in
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


# Pictures that records of others name: data URLs written out as files, paths kept within their folder, sizes.


MAX_BYTES = 32 * 1024 * 1024


"""The largest picture that is unpacked: a 4K screen as PNG takes less than 25 MiB even when it does not compress."""


_DATA_URL = re.compile(r"data:([\w/+.-]*)((?:;[\w=+.-]+)*),", re.ASCII)


class Unpacked:
    """The pictures of one record after another: those of the last one go when the next begins, unless the user keeps them."""

    def __init__(self, store: Albums, beside: Path | None = None) -> None:
        """`beside` is the folder that paths in the records are relative to; None when they may name no files."""
        self._store = store
        self._beside = beside
        self._album = store.new()

    def next_record(self) -> None:
        """Removes the pictures of the record before."""
        self._album.close()
        self._album = self._store.new()

    def file(self, url: str) -> str | None:
        """The path of the picture that a data URL or a relative path stands for; None for an address in the network.

        Raises InputError for what is no PNG, JPEG, WebP or GIF, is too large, or names a file outside the folder.
        """
        if url[:5].lower() == "data:":
            return self._decoded(url)
        if re.match(r"(?!file:)[a-z][a-z0-9+.-]+://", url, re.IGNORECASE):
            return None
        if self._beside is None:
            raise InputError(f"image {_brief(url)} is neither a data URL nor an address")
        if "\0" in url:
            raise InputError(f"image path {_brief(url)} holds a null character")
        return image_in(self._beside, url)

    def _decoded(self, url: str) -> str:
        head = _DATA_URL.match(url)
        if head is None or ";base64" not in head[2].lower():
            raise InputError(f"image {_brief(url)} is no base64 data URL")
        size = (len(url) - head.end()) * 3 // 4
        if size > MAX_BYTES + 2:
            raise InputError(f"an image of {size >> 20} MiB; at most {MAX_BYTES >> 20} MiB are unpacked")
        try:
            data = base64.b64decode(url[head.end() :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"image {_brief(url)} is damaged: {error}") from None
        return self._album.add(data)


def picture_size(path: str) -> tuple[float, float] | None:
    """Width and height in pixels, from the head of the file; None when it is missing or no picture."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return float(image.width), float(image.height)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
        return None


def _brief(url: str) -> str:
    return repr(url if len(url) <= 60 else f"{url[:57]}…")
