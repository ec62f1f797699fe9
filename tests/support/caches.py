"""Separate cache folders for tests."""

from __future__ import annotations

from pathlib import Path

from prill.io.cache import cache_folder


def own_cache(folder: Path) -> str:
    """Returns a new cache folder in `folder`. Only the embedded model's weights are shared between
    tests, because creating them takes seconds of CPU time.
    """
    cache, weights = folder / "cache", cache_folder() / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    cache.mkdir()
    (cache / "weights").symlink_to(weights)
    return str(cache)
