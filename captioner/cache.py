"""An on-disk cache of captions, keyed by the hash of the screenshot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from prill.io.cache import DiskCache, cache_folder
from prill.io.images import file_hash
from prill.models.in_flight import InFlight
from prill.protocols import Captioner
from prill.types import Observation


def image_id(path: str) -> str:
    """`sha256:` and the hash of an image file's content; a file that has not changed is read once.
    Raises InputError.
    """
    try:
        stat = Path(path).stat()
    except (OSError, ValueError):
        return f"sha256:{file_hash(path)}"  # which says what is wrong
    return _image_id(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(1 << 14)
def _image_id(path: str, modified: int, size: int) -> str:
    return f"sha256:{file_hash(path)}"


@dataclass(frozen=True)
class CachedCaptioner:
    """Keeps the captions of another captioner by the content of the image and the captioner's name.

    For captioners that read the screenshot and nothing else. Threads, event loops and processes may
    share the file.

    Args:
        captioner: The captioner.
        path: An SQLite file. None: `captions.sqlite` in prill's cache folder.
    """

    captioner: Captioner
    path: Path | None = None

    @property
    def name(self) -> str:
        """The name of the captioner: the cache changes no caption."""
        return self.captioner.name

    async def __call__(self, observation: Observation) -> str:
        """Gives the kept caption, else that of the captioner, whose errors it raises."""
        if observation.screenshot is None:
            return await self.captioner(observation)
        path = self.path or cache_folder() / "captions.sqlite"
        id = await asyncio.to_thread(image_id, observation.screenshot)
        key = f"{self.name} {id.removeprefix('sha256:')}"
        return await _in_flight.once(
            f"{path} {key}", lambda: self._find_or_make(path, key, observation)
        )

    async def _find_or_make(self, path: Path, key: str, observation: Observation) -> str:
        known = await asyncio.to_thread(_kept(path).get, key, bytes.decode)
        if known is not None:
            return known
        text = await self.captioner(observation)
        await asyncio.to_thread(_kept(path).put, key, text.encode())
        return text


# Kept by the process rather than by captioners: these travel to other processes, open files and
# locks do not.
_kept = cache(DiskCache)
_in_flight = InFlight()
