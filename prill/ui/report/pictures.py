"""Screenshots in the report: linked, or embedded once and scaled down."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

from prill.errors import InputError
from prill.io.images import DAMAGED, open_image, open_image_file

if TYPE_CHECKING:
    from PIL import Image


# Large enough to read a web page or a phone's screen; with larger images, a page with thousands of
# them would not open in a browser.
_EMBEDDED_PIXELS = 640_000
_SMALL = 50_000  # bytes: files up to this size are embedded unchanged
_LONGEST = 16_383  # pixels: the limit of WebP
_MIME = {"JPEG": "image/jpeg", "WEBP": "image/webp", "PNG": "image/png", "GIF": "image/gif"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPicture:
    """A screenshot as the page refers to it.

    `src` is a relative URL, `embedded` the number of a block in the page.

    Both are empty if the file is missing or not an image. Width and height are in pixels of the
    file.
    """

    name: str
    width: int = 0
    height: int = 0
    src: str | None = None
    embedded: int | None = None


def look_at(path: str) -> tuple[int, int] | None:
    """Returns width and height of an image file, in pixels; None if it is missing or not an
    image.
    """
    try:
        with open_image_file(path) as file:
            return open_image(file, path).size
    except (InputError, *DAMAGED):
        return None


class Pictures:
    """Returns the picture for a file; each file is opened once.

    `folder` is the folder of the page. With `embed`, every image is passed to `embed(number,
    data_url)` when it is first requested; without, only headers are read. `outside` counts the
    linked files that are not below the folder.
    """

    def __init__(self, folder: Path, embed: Callable[[int, bytes], object] | None = None) -> None:
        self.missing: list[str] = []
        self.outside = 0
        self._folder = folder
        self._embed = embed
        self._known: dict[str, ReportPicture] = {}

    def __call__(self, path: str) -> ReportPicture:
        """Returns the picture; a file that cannot be opened is added to `missing`."""
        if path not in self._known:
            picture = self._picture(path)
            if not picture.width:
                self.missing.append(path)
            self._known[path] = picture
        return self._known[path]

    def _picture(self, path: str) -> ReportPicture:
        name = Path(path).name
        try:
            with open_image_file(path) as file:
                image = open_image(file, path)
                width, height = image.size
                url = None if self._embed is None else data_url(image, file)
        except (InputError, *DAMAGED):
            return ReportPicture(name=name)
        if self._embed is None or url is None:
            return ReportPicture(name=name, width=width, height=height, src=self._link(path))
        number = len(self._known)
        self._embed(number, url)
        return ReportPicture(name=name, width=width, height=height, embedded=number)

    def _link(self, path: str) -> str:
        real = os.path.realpath(path)
        relative = os.path.relpath(real, os.path.realpath(self._folder))
        if Path(relative).parts[0] == os.pardir:
            # A browser resolves `..` in the path it was given, without following links.
            relative = os.path.relpath(real, os.path.abspath(self._folder))
            self.outside += 1
        return quote(relative.replace(os.sep, "/"))


def data_url(image: Image.Image, file: BinaryIO) -> bytes:
    """Returns an image, scaled down if it is large, as a data URL. Raises what Pillow raises."""
    mime = _MIME.get(image.format or "")
    pixels = image.width * image.height
    if mime and pixels <= 2 * _EMBEDDED_PIXELS and os.fstat(file.fileno()).st_size <= _SMALL:
        image.load()  # a truncated file raises here
        file.seek(0)
        data = file.read()
    else:
        mime = "image/webp"
        scale = min(1.0, (_EMBEDDED_PIXELS / pixels) ** 0.5, _LONGEST / max(image.size))
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image.draft("RGB", size)  # decodes a JPEG at a fraction of its size
        out = BytesIO()
        image.convert("RGB").resize(size).save(out, "WEBP", quality=70, method=2)
        data = out.getvalue()
    return f"data:{mime};base64,".encode() + base64.b64encode(data)
