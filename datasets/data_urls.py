"""Pictures that records of others name: data URLs written out as files, paths kept within their folder, sizes."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from prill.datasets.albums import Albums
from prill.datasets.rows import image_in
from prill.errors import InputError

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
