"""An on-disk cache of captions, keyed by the hash of the screenshot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prill.io.cache import DiskCache, cache_folder
from prill.io.images import file_hash
from prill.models.in_flight import InFlight
from prill.protocols import Captioner
from prill.types import Observation


def image_id(path: str) -> str:
    """Returns `sha256:` and the hash of an image file's content.

    An unchanged file is read only once. Raises InputError if it cannot be read.
    """
    return f"sha256:{file_hash(path)}"


@dataclass(frozen=True)
class CachedCaptioner:
    """Caches the captions of another captioner by image content and captioner name.

    Use it only for captioners that read nothing but the screenshot. Threads, event loops and
    processes may share the file.

    Args:
        captioner: The captioner.
        path: An SQLite file. None: `captions.sqlite` in prill's cache folder.
    """

    captioner: Captioner
    path: Path | None = None

    @property
    def name(self) -> str:
        """The name of the wrapped captioner; the cache does not change captions."""
        return self.captioner.name

    async def __call__(self, observation: Observation) -> str:
        """Returns the cached caption, or calls the captioner and raises its errors."""
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


# One cache per process and file. Captioners are pickled for other processes; open files and locks
# cannot be.
_kept = cache(DiskCache)
_in_flight = InFlight()
