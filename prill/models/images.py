"""Screenshots made ready for a model: checked, scaled down to a pixel budget, encoded once."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

from msgspec import Meta

from prill.errors import InputError, UsageError

if TYPE_CHECKING:
    from PIL import Image


# Twice an 8K display; above that a file is a mistake or an attack, and decoding it would take gigabytes.
MAX_PIXELS = 64_000_000
# As much as those take without any compression.
MAX_BYTES = 4 * MAX_PIXELS
# What is read. Pillow knows forty formats more, and starts other programs for some: Ghostscript for EPS.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# What Pillow raises for damaged files of these formats.
DAMAGED = (OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, struct.error)
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
_Version = tuple[str, int, int]  # a file as it was at a moment: path, modification time (ns), size
# A verdict's key, the choice of frames and the transcript go by the same hash, which takes as long as encoding the picture.
_hashes: dict[_Version, str] = {}
_MOST_HASHES = 20_000
_YOUNG = 2_000_000_000  # nanoseconds: file systems note times to within 2 s at worst


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


def open_image_file(path: str | os.PathLike[str]) -> BufferedReader:
    """An image file, open. Raises InputError when it is missing, cannot be read, has more than MAX_BYTES or is no file at all:
    for what comes through a pipe one would wait for ever.
    """
    try:
        file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    except (FileNotFoundError, ValueError):
        raise InputError(f"image {path} is missing") from None
    except OSError as error:
        raise InputError(f"image {path} cannot be read: {error.strerror}") from None
    size = os.fstat(file.fileno()).st_size
    if size > MAX_BYTES:
        file.close()
        raise InputError(f"image {path} has {size >> 20} MB; the limit is {MAX_BYTES >> 20}: scale it down")
    return file


def _open_at_once(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "it is no file")
    return file


def read_image(path: str) -> bytes:
    """The bytes of an image file. Raises InputError as `open_image_file` does."""
    with open_image_file(path) as file:
        return file.read()


def open_checked(path: str) -> Image.Image:
    """The image as RGB. Raises InputError when it is missing, no image, truncated, or over MAX_PIXELS."""
    with open_image_file(path) as file:
        return _decoded(open_image(file, path), path)


def image_size(path: str) -> tuple[int, int]:
    """Width and height in pixels, from the file's header. Raises InputError."""
    with open_image_file(path) as file:
        return open_image(file, path).size


def file_hash(path: str) -> str:
    """sha256 of an image file, which is read once as long as it stays as it is. Raises InputError when it cannot be read."""
    with suppress(OSError, ValueError):  # opening it says what is wrong
        if known := _hashes.get(_version(path, os.stat(path))):
            return known
    with open_image_file(path) as file:
        return _remembered(_version(path, os.fstat(file.fileno())), hashlib.sha256(file.read()).hexdigest())


def _version(path: str, status: os.stat_result) -> _Version:
    return path, status.st_mtime_ns, status.st_size


def _remembered(version: _Version, digest: str) -> str:
    """The hash; kept unless the file is so young that it could still be rewritten without a trace in its time and size."""
    if time.time_ns() - version[1] > _YOUNG:
        if len(_hashes) >= _MOST_HASHES:
            _hashes.clear()
        _hashes[version] = digest
    return digest


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
    picture = _decoded(image, path)
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
        encoded = encode_image(read_image(path), path, self.max_pixels, _hashes.get(key), self.image_format)
        return self._keep(key, encoded)

    def at_once(self, path: str) -> EncodedImage | None:
        """The same where it takes less time than waking another thread does: None for what must be decoded, or is large."""
        key = self._key(path)
        if (entry := self._kept(key)) is not None or key[2] > _SMALL_BYTES:
            return entry
        data = read_image(path)
        opened = open_image(BytesIO(data), path)
        image = _as_it_is(opened, data, path, self.max_pixels, _hashes.get(key), self.image_format)
        return image and self._keep(key, image)

    def _key(self, path: str) -> _Version:
        try:
            return _version(path, os.stat(path))
        except OSError:
            read_image(path)
            raise

    def _kept(self, key: _Version) -> EncodedImage | None:
        with self._lock:
            if (entry := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
        return entry

    def _keep(self, key: _Version, image: EncodedImage) -> EncodedImage:
        _remembered(key, image.sha256)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = image
                self._bytes += len(image.literal)
            while self._bytes > _CACHE_BYTES and len(self._cache) > 1:
                self._bytes -= len(self._cache.popitem(last=False)[1].literal)
        return image


def open_image(file: BinaryIO, path: str) -> Image.Image:
    """The image of an open file, its header read. Raises InputError for what is none of FORMATS, and over MAX_PIXELS."""
    import warnings

    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        what = f"is not an image, or is damaged (read are {', '.join(FORMATS)})" if file.seek(0, os.SEEK_END) else "is empty"
        raise InputError(f"image {path} {what}") from None
    except (Image.DecompressionBombError, *DAMAGED) as error:
        raise InputError(f"image {path} is truncated, or cannot be used: {error}") from None
    if image.width * image.height > MAX_PIXELS:
        size = f"{image.width}x{image.height} ({image.width * image.height / 1e6:.0f} megapixels)"
        raise InputError(f"image {path} is {size}; the limit is {MAX_PIXELS / 1e6:.0f}: scale it down")
    return image


def _decoded(image: Image.Image, path: str) -> Image.Image:
    try:
        return image.convert("RGB")
    except DAMAGED as error:
        raise InputError(f"image {path} is truncated or damaged ({error})") from None


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
