"""The bar that shows how far a command is."""

from __future__ import annotations

import time
from collections.abc import Callable

from tqdm import tqdm


class Bar(tqdm):  # type: ignore[misc]
    """tqdm's, by a clock that is never set back: with tqdm's own a bar stands still until the old time is reached again."""

    @property
    def _time(self) -> Callable[[], float]:
        return time.monotonic

    @_time.setter
    def _time(self, clock: Callable[[], float]) -> None:
        """tqdm sets its own; it is not taken."""
