"""Cache folders of a test's own."""

from __future__ import annotations

from pathlib import Path

from prill.io.cache import cache_folder


def own_cache(folder: Path) -> str:
    """A new cache folder in `folder`; only the embedded model's weights are those that all tests
    share, as making them takes seconds of the processor."""
    cache, weights = folder / "cache", cache_folder() / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    cache.mkdir()
    (cache / "weights").symlink_to(weights)
    return str(cache)
