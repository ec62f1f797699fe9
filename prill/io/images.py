"""Opens, checks and hashes image files. `prill.models.request` encodes them for models."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
from contextlib import suppress
from io import BufferedReader
from typing import TYPE_CHECKING, BinaryIO

from prill.errors import InputError

if TYPE_CHECKING:
    from PIL import Image


# Twice an 8K display; above that a file is a mistake or an attack, and decoding it would take
# gigabytes.
MAX_PIXELS = 64_000_000
# As much as those take without any compression.
MAX_BYTES = 4 * MAX_PIXELS
# What is read. Pillow knows forty formats more, and starts other programs for some: Ghostscript for
# EPS.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# What Pillow raises for damaged files of these formats.
DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    struct.error,
)
Version = tuple[str, int, int]  # a file as it was at a moment: path, modification time (ns), size
# A verdict's key, the choice of frames and the transcript go by the same hash, which takes as long
# as encoding the picture.
_hashes: dict[Version, str] = {}
_MAX_HASHES = 20_000
_YOUNG = 2_000_000_000  # nanoseconds: file systems note times to within 2 s at worst


def open_image_file(path: str | os.PathLike[str]) -> BufferedReader:
    """An image file, open. Raises InputError when it is missing, cannot be read, has more than
    MAX_BYTES or is no file at all: for what comes through a pipe one would wait for ever.
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
        raise InputError(
            f"image {path} has {size >> 20} MB; the limit is {MAX_BYTES >> 20}: scale it down"
        )
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
    """The image as RGB. Raises InputError when it is missing, no image, truncated, or over
    MAX_PIXELS.
    """
    with open_image_file(path) as file:
        return decoded(open_image(file, path), path)


def image_size(path: str) -> tuple[int, int]:
    """Width and height in pixels, from the file's header. Raises InputError."""
    with open_image_file(path) as file:
        return open_image(file, path).size


def file_hash(path: str) -> str:
    """sha256 of an image file, which is read once as long as it stays as it is. Raises InputError
    when it cannot be read.
    """
    with suppress(OSError, ValueError):  # opening it says what is wrong
        if known := _hashes.get(file_version(path, os.stat(path))):
            return known
    with open_image_file(path) as file:
        return remember_hash(
            file_version(path, os.fstat(file.fileno())), hashlib.sha256(file.read()).hexdigest()
        )


def file_version(path: str, status: os.stat_result) -> Version:
    """The version of a file, by its status."""
    return path, status.st_mtime_ns, status.st_size


def known_hash(version: Version) -> str | None:
    """The hash of a file that is as it was when it was read."""
    return _hashes.get(version)


def remember_hash(version: Version, digest: str) -> str:
    """The hash; kept unless the file is so young that it could still be rewritten without a trace
    in its time and size.
    """
    if time.time_ns() - version[1] > _YOUNG:
        if len(_hashes) >= _MAX_HASHES:
            _hashes.clear()
        _hashes[version] = digest
    return digest


def open_image(file: BinaryIO, path: str) -> Image.Image:
    """The image of an open file, its header read. Raises InputError for what is none of FORMATS,
    and over MAX_PIXELS.
    """
    import warnings

    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        what = (
            f"is not an image, or is damaged (read are {', '.join(FORMATS)})"
            if file.seek(0, os.SEEK_END)
            else "is empty"
        )
        raise InputError(f"image {path} {what}") from None
    except (Image.DecompressionBombError, *DAMAGED) as error:
        raise InputError(f"image {path} is truncated, or cannot be used: {error}") from None
    if image.width * image.height > MAX_PIXELS:
        size = f"{image.width}x{image.height} ({image.width * image.height / 1e6:.0f} megapixels)"
        raise InputError(
            f"image {path} is {size}; the limit is {MAX_PIXELS / 1e6:.0f}: scale it down"
        )
    return image


def decoded(image: Image.Image, path: str) -> Image.Image:
    """The whole image as RGB. Raises InputError for a damaged file."""
    try:
        return image.convert("RGB")
    except DAMAGED as error:
        raise InputError(f"image {path} is truncated or damaged ({error})") from None
