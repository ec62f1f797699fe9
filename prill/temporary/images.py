"""Files for in-memory screenshots, kept as long as an observation refers to them."""

from __future__ import annotations

import os
import threading
import weakref
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

    from prill.temporary.folders import TempFolder

    Source = str | os.PathLike[str] | bytes | Image.Image

_PREFIX = "prill-images-"
_ENDINGS = {
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"GIF8": ".gif",
    b"RIFF": ".webp",
    b"BM": ".bmp",
}


class MemoryImage:
    """A file that is removed with the last reference to this object, or with the process.

    Its name is the hash of its bytes, so that records of equal images are equal whichever process
    made them. A forked child sees the files of its parent while the parent keeps them; what is
    pickled carries the bytes.
    """

    __slots__ = ("__weakref__", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        # then the whole folder goes
        weakref.finalize(self, _remove, path, os.getpid()).atexit = False

    def read(self) -> bytes | str:
        """The bytes, or the path where somebody has removed the file."""
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
    """The path of a screenshot, and what keeps its file when it came as bytes or as a PIL image.

    Bytes are not looked at: whoever uses the image finds out whether they are one. Raises TypeError
    for anything else, and ValueError for a PIL image that cannot be encoded.
    """
    if isinstance(source, str):
        return source, _by_path.get(source)
    if isinstance(source, os.PathLike):
        return image_file(os.fsdecode(source))
    image = _kept(source if isinstance(source, bytes) else _png(source))
    return image.path, image


def in_memory(path: str) -> bool:
    """Whether this is the file of an image that was handed over in memory: it will be removed."""
    return path in _by_path


def image_name(data: bytes) -> str:
    """A file name made from an encoded image: 16 digits of its SHA-256, and the ending of its
    format.
    """
    return _digest(data)[:16] + next(
        (ending for start, ending in _ENDINGS.items() if data.startswith(start)), ".bin"
    )


def _png(picture: object) -> bytes:
    """Without loss. The lightest compression: the others take several times as long."""
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
            # Each file has a folder of its own: removing one can never meet the next of the same
            # name.
            path = os.path.join(_own_folder(), str(next(_numbers)), image_name(data))
            try:
                os.mkdir(os.path.dirname(path))
                with open(path, "wb") as file:
                    file.write(data)
            except OSError:
                _remove(path, os.getpid())  # a full disk leaves half a file
                raise
            image = _by_digest[digest] = _by_path[path] = MemoryImage(path)
    return image


def _own_folder() -> str:
    """This process's folder; the first call also clears up after processes that were killed."""
    global _folder
    # Systems clear old folders for temporary files away, also from under a long run.
    if _folder is None or not _folder.path.exists():
        import atexit

        from prill.temporary.folders import TempFolder, remove_abandoned

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
    """In a forked child: the folder and the lock are the parent's."""
    global _lock, _folder, _by_digest
    _lock, _folder, _by_digest = threading.Lock(), None, weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_begin_again)


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
