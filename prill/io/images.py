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


# Twice the pixels of an 8K display. Larger files are mistakes or attacks, and decoding them would
# take gigabytes of memory.
MAX_PIXELS = 64_000_000
# The uncompressed size of MAX_PIXELS.
MAX_BYTES = 4 * MAX_PIXELS
# Supported formats. Pillow supports forty others, and runs external programs for some: Ghostscript
# for EPS.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# Exceptions that Pillow raises for damaged files of these formats.
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
Version = tuple[str, int, int]  # identifies a version of a file: path, modification time (ns), size
# Hashes are cached because a verdict's key, the frame selection and the transcript all need them,
# and hashing takes as long as encoding the image.
_hashes: dict[Version, str] = {}
_MAX_HASHES = 20_000
_YOUNG = 2_000_000_000  # nanoseconds: file systems' timestamps have a resolution of 2 s or better


def open_image_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Opens an image file.

    Raises InputError if it is missing, cannot be read, has more than MAX_BYTES, or is not a regular
    file. (Reading from a pipe could block forever.)
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
            f"image {path} has {size >> 20} MB, more than {MAX_BYTES >> 20} MB; scale it down"
        )
    return file


def _open_at_once(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "it is not a file")
    return file


def read_image(path: str) -> bytes:
    """Returns the bytes of an image file. Raises InputError as `open_image_file` does."""
    with open_image_file(path) as file:
        return file.read()


def open_checked(path: str) -> Image.Image:
    """Returns the image as RGB.

    Raises InputError if it is missing, not an image, truncated, or larger than MAX_PIXELS.
    """
    with open_image_file(path) as file:
        return decoded(open_image(file, path), path)


def image_size(path: str) -> tuple[int, int]:
    """Returns width and height in pixels, from the file's header. Raises InputError."""
    with open_image_file(path) as file:
        return open_image(file, path).size


def file_hash(path: str) -> str:
    """Returns the SHA-256 of an image file, cached until the file changes.

    Raises InputError if it cannot be read.
    """
    with suppress(OSError, ValueError):  # opening the file reports the error
        if known := _hashes.get(file_version(path, os.stat(path))):
            return known
    with open_image_file(path) as file:
        return remember_hash(
            file_version(path, os.fstat(file.fileno())), hashlib.sha256(file.read()).hexdigest()
        )


def file_version(path: str, status: os.stat_result) -> Version:
    """Returns the version of a file, from its status."""
    return path, status.st_mtime_ns, status.st_size


def known_hash(version: Version) -> str | None:
    """Returns the cached hash of a file version, or None."""
    return _hashes.get(version)


def remember_hash(version: Version, digest: str) -> str:
    """Returns the hash and caches it.

    It is not cached if the file is so new that a rewrite might not change its time and size.
    """
    if time.time_ns() - version[1] > _YOUNG:
        if len(_hashes) >= _MAX_HASHES:
            _hashes.clear()
        _hashes[version] = digest
    return digest


def open_image(file: BinaryIO, path: str) -> Image.Image:
    """Returns the image of an open file after reading its header.

    Raises InputError for formats other than FORMATS, and for images larger than MAX_PIXELS.
    """
    import warnings

    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        what = (
            f"is not an image, or is damaged (supported formats: {', '.join(FORMATS)})"
            if file.seek(0, os.SEEK_END)
            else "is empty"
        )
        raise InputError(f"image {path} {what}") from None
    except (Image.DecompressionBombError, *DAMAGED) as error:
        raise InputError(f"image {path} is truncated, or cannot be used: {error}") from None
    if image.width * image.height > MAX_PIXELS:
        size = f"{image.width}x{image.height} ({image.width * image.height / 1e6:.0f} megapixels)"
        raise InputError(
            f"image {path} is {size}, more than {MAX_PIXELS / 1000000.0:.0f} megapixels; "
            "scale it down"
        )
    return image


def decoded(image: Image.Image, path: str) -> Image.Image:
    """Returns the decoded image as RGB. Raises InputError for a damaged file."""
    try:
        return image.convert("RGB")
    except DAMAGED as error:
        raise InputError(f"image {path} is truncated or damaged ({error})") from None
