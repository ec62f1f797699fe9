"""Captions kept on disk, so that no screenshot is read twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prill.cache import DiskCache, InFlight, cache_folder
from prill.models.images import file_hash
from prill.protocols import Captioner
from prill.types import Observation


@dataclass(frozen=True)
class CachedCaptioner:
    """A captioner whose captions are kept by the content of the image and the captioner's name.

    For captioners that read the screenshot and nothing else. Threads, event loops and processes may share the SQLite file
    `path`; None: `captions.sqlite` in prill's cache folder.
    """

    captioner: Captioner
    path: Path | None = None

    @property
    def name(self) -> str:
        """The name of the captioner: the cache changes no caption."""
        return self.captioner.name

    async def __call__(self, observation: Observation) -> str:
        """The kept caption, or a new one; a caption that is being made is waited for. Raises what the captioner raises."""
        if observation.screenshot is None:
            return await self.captioner(observation)
        path = self.path or cache_folder() / "captions.sqlite"
        key = f"{self.name} {await asyncio.to_thread(file_hash, observation.screenshot)}"
        return await _in_flight.once(f"{path} {key}", lambda: self._find_or_make(path, key, observation))

    async def _find_or_make(self, path: Path, key: str, observation: Observation) -> str:
        known = await asyncio.to_thread(_kept(path).get, key)
        if known is not None:
            return known.decode()
        text = await self.captioner(observation)
        await asyncio.to_thread(_kept(path).put, key, text.encode())
        return text


# Kept by the process rather than by captioners: these travel to other processes, open files and locks do not.
_kept = cache(DiskCache)
_in_flight = InFlight()
