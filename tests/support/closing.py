"""Closes pages and contexts of a browser in tests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

_LONGEST = 60.0  # seconds


async def closed(window: Any) -> None:
    """Closes a page or a context of Playwright. Chromium sometimes never answers; after a minute
    the page is left to the end of its browser, so that the test run does not hang.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST):
            await window.close()
