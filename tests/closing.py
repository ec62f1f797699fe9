"""Pages and windows of a browser, closed by tests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

_LONGEST = 60.0  # seconds


async def closed(window: Any) -> None:
    """Closes a page or a context of Playwright. One that does not answer within a minute is left to
    the end of its browser: now and then Chromium never does, and a run of all tests would wait for
    ever.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST):
            await window.close()
