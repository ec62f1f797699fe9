"""Extracts images embedded in records (HTML, TFRecords, data URLs) to files."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from prill.datasets.reading.records import image_in, read_record
from prill.errors import InputError
from prill.io.images import image_size
from prill.io.outputs import part_path
from prill.io.store import BadLine
from prill.types import StrPath, Trajectory

# The largest image that is unpacked: a 4K screen as PNG takes less than 25 MiB even when it does
# not compress.
MAX_BYTES = 32 * 1024 * 1024
_DATA_URL = re.compile(r"data:([\w/+.-]*)((?:;[\w=+.-]+)*),", re.ASCII)
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"RIFF", ".webp"),
)


class ImageFolder:
    """The images of one trajectory, named by their content."""

    def __init__(self, folder: Path, temporary: bool) -> None:
        self._folder, self._temporary = folder, temporary

    def add(self, data: bytes) -> str:
        """Writes an image and returns its absolute path.

        Raises InputError for bytes that are not PNG, JPEG, GIF or WebP.
        """
        suffix = image_suffix(data)
        if suffix is None:
            raise InputError(f"an embedded image is not PNG, JPEG, GIF or WebP ({len(data)} bytes)")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / (hashlib.sha256(data).hexdigest()[:16] + suffix)
        if not path.exists():
            part = part_path(path)  # a process that is killed here leaves no partial image
            part.write_bytes(data)
            part.replace(path)
        return str(path)

    def close(self) -> None:
        """Removes the images of a temporary folder."""
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)


class ImageStore:
    """Makes an image folder for each trajectory: the same one if it is permanent, else a new one.

    A path is never reused for another image.
    """

    def __init__(self, folder: Path, temporary: bool) -> None:
        self._folder, self._temporary, self._count = folder, temporary, 0

    def new(self) -> ImageFolder:
        """Returns the folder for the next trajectory."""
        self._count += 1
        return ImageFolder(
            self._folder / str(self._count) if self._temporary else self._folder, self._temporary
        )


@contextmanager
def image_store(folder: StrPath | None) -> Iterator[ImageStore]:
    """Opens a store in the folder; for None in a temporary one that is removed at the end."""
    if folder is not None:
        yield ImageStore(Path(folder).resolve(), temporary=False)
        return
    with TemporaryDirectory(prefix="prill-images-") as name:
        yield ImageStore(Path(name).resolve(), temporary=True)


def image_suffix(data: bytes) -> str | None:
    """Returns the file suffix for an image's first bytes; None if they are of no known type."""
    return next((suffix for signature, suffix in _SIGNATURES if data.startswith(signature)), None)


class RecordImages:
    """The images that records refer to.

    Temporary ones are removed when the next record begins.
    """

    def __init__(self, store: ImageStore, base: Path | None = None) -> None:
        """`base` is what paths in the records are relative to; None if they may not name files."""
        self._store = store
        self._base = base
        self._folder = store.new()

    def next_record(self) -> None:
        """Removes the temporary images of the previous record."""
        self._folder.close()
        self._folder = self._store.new()

    def file(self, url: str) -> str | None:
        """Returns the image path for a data URL or a relative path; None for a network address.

        Raises InputError for data that is not PNG, JPEG, WebP or GIF, is too large, or names a file
        outside the folder.
        """
        if url[:5].lower() == "data:":
            return self._decoded(url)
        if re.match(r"(?!file:)[a-z][a-z0-9+.-]+://", url, re.IGNORECASE):
            return None
        if self._base is None:
            raise InputError(f"image {_brief(url)} is neither a data URL nor an http(s) URL")
        if "\0" in url:
            raise InputError(f"image path {_brief(url)} contains a null character")
        return image_in(self._base, url)

    def _decoded(self, url: str) -> str:
        head = _DATA_URL.match(url)
        if head is None or ";base64" not in head[2].lower():
            raise InputError(f"image {_brief(url)} is not a base64 data URL")
        size = (len(url) - head.end()) * 3 // 4
        if size > MAX_BYTES + 2:
            raise InputError(
                f"an image of {size >> 20} MiB, more than {MAX_BYTES >> 20} MiB, which is the limit"
            )
        try:
            data = base64.b64decode(url[head.end() :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"image {_brief(url)} is damaged: {error}") from None
        return self._folder.add(data)


# A run's position, the folder that its image paths are relative to (None: it may not name files),
# and the function that makes its trajectory.
Run = tuple[str, Path | None, Callable[[RecordImages], Trajectory]]


def read_runs(
    runs: Iterable[Run | BadLine], images: StrPath | None
) -> Iterator[Trajectory | BadLine]:
    """Yields the trajectories of runs; a broken run, or an error in a file, is a BadLine. Without a
    folder for images, they are in a temporary one and removed when the next run is requested.
    """
    with image_store(images) as store:
        for run in runs:
            if isinstance(run, BadLine):
                yield run
                continue
            place, base, make = run
            unpacked = RecordImages(store, base)
            yield read_record(place, partial(make, unpacked))
            unpacked.next_record()


def image_size_or_none(path: str) -> tuple[float, float] | None:
    """Returns width and height in pixels; None if the file is missing or not a usable image."""
    try:
        width, height = image_size(path)
    except InputError:
        return None
    return float(width), float(height)


def _brief(url: str) -> str:
    return repr(url if len(url) <= 60 else f"{url[:57]}…")
