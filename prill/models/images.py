"""Screenshots made ready for a model: checked, scaled down to a pixel budget, encoded once."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from prill.errors import InputError, UsageError
from prill.io.images import DAMAGED, FileVersion, decoded, file_version, known_hashes, open_image, read_image, remember_hash

if TYPE_CHECKING:
    from PIL import Image


# Formats that every OpenAI-compatible endpoint takes as they are; the rest is re-encoded as PNG.
_MIME = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
# What every picture is sent as, whatever its file is.
JPEG_QUALITY = 95  # at full resolution of colour (4:4:4): small text stays legible
ImageFormat = Annotated[
    Literal["jpeg"] | None,
    Meta(description=f"send every picture as JPEG (quality {JPEG_QUALITY}), for servers that read nothing else"),
]
_CACHE_BYTES = 32_000_000
_SMALL_BYTES = 1_000_000  # of a file that is encoded in less than a millisecond


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """A picture as it is sent; width and height in pixels. `literal` is its data URL as JSON, quotation marks and all: half a
    megabyte is copied as seldom as can be.

    `sha256` and `size`, in bytes, are those of the file that it was made from.
    """

    literal: bytes
    width: int
    height: int
    sha256: str
    size: int

    @property
    def url(self) -> bytes:
        """A data URL with the MIME type of its bytes, all ASCII."""
        return self.literal[1:-1]


def encode_image(
    data: bytes, path: str, max_pixels: int, sha256: str | None = None, image_format: ImageFormat = None
) -> EncodedImage:
    """The bytes of an image file as a data URL of at most `max_pixels`. Bytes that can be sent as they are stay as they are.

    `sha256` is that of the bytes, where it is known. With an `image_format` other formats are encoded again.
    """
    image = open_image(BytesIO(data), path)
    if whole := _as_it_is(image, data, path, max_pixels, sha256, image_format):
        return whole
    width, height = image.size
    source = sha256 or hashlib.sha256(data).hexdigest(), len(data)
    mime = _sendable(image, image_format)
    picture = decoded(image, path)
    if mime and width * height <= max_pixels and not _is_animated(image, path):
        return EncodedImage(_literal(mime, data), width, height, *source)
    size = scaled_size(image.size, max_pixels)
    out, scaled = BytesIO(), picture if size == image.size else picture.resize(size)
    if image_format == "jpeg":
        scaled.save(out, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        return EncodedImage(_literal("image/jpeg", out.getvalue()), *size, *source)
    scaled.save(out, "JPEG" if mime == "image/jpeg" else "PNG", quality=90)
    return EncodedImage(_literal("image/jpeg" if mime == "image/jpeg" else "image/png", out.getvalue()), *size, *source)


def scaled_size(size: tuple[int, int], max_pixels: int) -> tuple[int, int]:
    """Width and height in pixels of a picture that is scaled down to `max_pixels`; smaller ones stay as they are."""
    width, height = size
    scale = min(1.0, (max_pixels / (width * height)) ** 0.5)
    return max(1, int(width * scale)), max(1, int(height * scale))


def _sendable(image: Image.Image, image_format: ImageFormat) -> str | None:
    """The type of an image whose format can be sent; None where it must be encoded in another one."""
    mime = _MIME.get(image.format or "")
    return mime if image_format is None or mime == f"image/{image_format}" else None


def _as_it_is(
    image: Image.Image, data: bytes, path: str, max_pixels: int, sha256: str | None, image_format: ImageFormat
) -> EncodedImage | None:
    """What is sent of an image that need not even be decoded; None where it must be."""
    width, height = image.size
    mime = _sendable(image, image_format)
    if not mime or width * height > max_pixels or _is_animated(image, path) or not _ends_well(data, image.format or ""):
        return None
    return EncodedImage(_literal(mime, data), width, height, sha256 or hashlib.sha256(data).hexdigest(), len(data))


class ImageEncoder:
    """Encodes each image once: the latest are kept, by file, modification time and size. Safe across threads."""

    def __init__(self, max_pixels: int, image_format: ImageFormat = None) -> None:
        if image_format not in (None, "jpeg"):
            raise UsageError(f"unknown image_format {image_format!r}; give jpeg, or leave it out")
        self.max_pixels = max_pixels
        self.image_format = image_format
        self._cache: OrderedDict[tuple[str, int, int], EncodedImage] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ImageEncoder], tuple[int, ImageFormat]]:
        return ImageEncoder, (self.max_pixels, self.image_format)

    def __call__(self, path: str) -> EncodedImage:
        """The encoded image; blocks for as long as reading and scaling take. Raises InputError."""
        key = self._key(path)
        if (entry := self._kept(key)) is not None:
            return entry
        encoded = encode_image(read_image(path), path, self.max_pixels, known_hashes.get(key), self.image_format)
        return self._keep(key, encoded)

    def at_once(self, path: str) -> EncodedImage | None:
        """The same where it takes less time than waking another thread does: None for what must be decoded, or is large."""
        key = self._key(path)
        if (entry := self._kept(key)) is not None or key[2] > _SMALL_BYTES:
            return entry
        data = read_image(path)
        opened = open_image(BytesIO(data), path)
        image = _as_it_is(opened, data, path, self.max_pixels, known_hashes.get(key), self.image_format)
        return image and self._keep(key, image)

    def _key(self, path: str) -> FileVersion:
        try:
            return file_version(path, os.stat(path))
        except OSError:
            read_image(path)
            raise

    def _kept(self, key: FileVersion) -> EncodedImage | None:
        with self._lock:
            if (entry := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
        return entry

    def _keep(self, key: FileVersion, image: EncodedImage) -> EncodedImage:
        remember_hash(key, image.sha256)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = image
                self._bytes += len(image.literal)
            while self._bytes > _CACHE_BYTES and len(self._cache) > 1:
                self._bytes -= len(self._cache.popitem(last=False)[1].literal)
        return image


def _is_animated(image: Image.Image, path: str) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except DAMAGED as error:
        raise InputError(f"image {path} is truncated or damaged ({error})") from None


def _ends_well(data: bytes, format: str) -> bool:
    """Cheap sign of a whole file; when it is absent the image is decoded to find out."""
    if format == "PNG":
        return data[-8:-4] == b"IEND"
    if format == "JPEG":
        return data.endswith(b"\xff\xd9")
    if format == "WEBP":
        return int.from_bytes(data[4:8], "little") + 8 <= len(data)
    return False


def _literal(mime: str, data: bytes) -> bytes:
    from pybase64 import b64encode  # the standard library's takes twenty times as long, and lets no other thread run

    return b"".join((b'"data:', mime.encode(), b";base64,", b64encode(data), b'"'))
