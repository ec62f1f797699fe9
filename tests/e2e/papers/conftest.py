"""A browser for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from prill.emulators.browser.chromium import Chromium


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    """One browser; each test has a profile of its own."""
    browser = Chromium()
    yield browser
    await browser.close()
