"""Temporary folders that record their owner, so that leftovers of killed runs can be removed, and
files for in-memory screenshots, kept as long as an observation refers to them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from prill.locks import lock_file, lock_if_free, releasing

if TYPE_CHECKING:
    from PIL import Image

    Source = str | os.PathLike[str] | bytes | Image.Image


class TempFolder:
    """A folder in the system's temporary folder, deleted by `close`; its name begins with
    `prefix`.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # The lock file is locked before it is renamed, so that it is locked exactly as long as the
        # owner lives.
        self._lock = lock_file(self.path / "lock.new", mode=0o600)
        (self.path / "lock.new").rename(self.path / "lock")

    def close(self) -> None:
        """Deletes the folder with its content; only once."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.abandon()

    def abandon(self) -> None:
        """Leaves the folder to a later clean-up."""
        os.close(self._lock)


def abandoned(prefix: str) -> list[Path]:
    """Returns folders whose owners may be dead; `taken_over` verifies it."""
    return [lock.parent for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/lock")]


@contextmanager
def taken_over(folder: Path) -> Iterator[bool]:
    """Yields whether the owner is dead and this process may clean up; if so, locks the folder."""
    try:
        lock = lock_if_free(folder / "lock", os.O_RDWR)
    except OSError:
        lock = None
    with releasing(lock) as is_free:
        yield is_free


def remove_abandoned(prefix: str) -> None:
    """Deletes the folders whose owners are dead."""
    for folder in abandoned(prefix):
        with taken_over(folder) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)


_PREFIX = "prill-images-"
_ENDINGS = {
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"GIF8": ".gif",
    b"RIFF": ".webp",
    b"BM": ".bmp",
}


class MemoryImage:
    """A temporary image file, deleted with the last reference to this object or with the process.

    Its name is the hash of its bytes, so records of equal images are equal in all processes. A
    forked child can read its parent's files as long as the parent keeps them. Pickling includes the
    bytes.
    """

    __slots__ = ("__weakref__", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        # at exit, the whole folder is deleted
        weakref.finalize(self, _remove, path, os.getpid()).atexit = False

    def read(self) -> bytes | str:
        """Returns the bytes, or the path if the file was deleted by another program."""
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except OSError:
            return self.path


_lock = threading.Lock()
_numbers = count()
_folder: TempFolder | None = None
_by_digest: weakref.WeakValueDictionary[str, MemoryImage] = weakref.WeakValueDictionary()
_by_path: weakref.WeakValueDictionary[str, MemoryImage] = weakref.WeakValueDictionary()


def image_file(source: Source) -> tuple[str, MemoryImage | None]:
    """Returns the path of a screenshot, and the owner of its file for bytes or a PIL image.

    Bytes are not checked here, but when the image is used. Raises TypeError for other types, and
    ValueError for a PIL image that cannot be encoded.
    """
    if isinstance(source, str):
        return source, _by_path.get(source)
    if isinstance(source, os.PathLike):
        return image_file(os.fsdecode(source))
    image = _kept(source if isinstance(source, bytes) else _png(source))
    return image.path, image


def in_memory(path: str) -> bool:
    """Returns whether the path is that of an in-memory image, whose file will be deleted."""
    return path in _by_path


def image_name(data: bytes) -> str:
    """Returns a file name for an encoded image: 16 digits of its SHA-256, and the extension of its
    format.
    """
    return _digest(data)[:16] + next(
        (ending for start, ending in _ENDINGS.items() if data.startswith(start)), ".bin"
    )


def _png(picture: object) -> bytes:
    """Encodes a picture as PNG at the lowest compression level; higher levels are several times
    slower.
    """
    import io

    from PIL import Image

    if not isinstance(picture, Image.Image):
        kind = type(picture).__name__
        raise TypeError(
            f"a screenshot is a path, the bytes of an encoded image or a PIL image, not {kind}"
        )
    out = io.BytesIO()
    try:
        plain = (
            picture
            if picture.mode in ("1", "I;16", "L", "LA", "P", "RGB", "RGBA")
            else picture.convert("RGB")
        )
        plain.save(out, "PNG", compress_level=1)
    except (OSError, SyntaxError, SystemError) as error:
        raise ValueError(f"the screenshot cannot be encoded: {error}") from error
    return out.getvalue()


def _kept(data: bytes) -> MemoryImage:
    digest = _digest(data)
    with _lock:
        if (image := _by_digest.get(digest)) is None:
            # Each file has its own folder, so that deleting it cannot affect a later file of the
            # same name.
            path = os.path.join(_own_folder(), str(next(_numbers)), image_name(data))
            try:
                os.mkdir(os.path.dirname(path))
                with open(path, "wb") as file:
                    file.write(data)
            except OSError:
                _remove(path, os.getpid())  # a full disk leaves an incomplete file
                raise
            image = _by_digest[digest] = _by_path[path] = MemoryImage(path)
    return image


def _own_folder() -> str:
    """Returns this process's folder; the first call also deletes folders of killed processes."""
    global _folder
    # Operating systems delete old temporary folders, even during a long run.
    if _folder is None or not _folder.path.exists():
        import atexit

        remove_abandoned(_PREFIX)
        _folder = TempFolder(_PREFIX)
        atexit.register(_close, _folder, os.getpid())
    return str(_folder.path)


def _close(folder: TempFolder, owner: int) -> None:
    if os.getpid() == owner:
        folder.close()


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        import contextlib

        with contextlib.suppress(OSError):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))


def _begin_again() -> None:
    """Resets the state in a forked child, because folder and lock belong to the parent."""
    global _lock, _folder, _by_digest
    _lock, _folder, _by_digest = threading.Lock(), None, weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_begin_again)


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
