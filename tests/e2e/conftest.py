"""A browser for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from tests.support.chromium import started_chromium


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Chromium]:
    """One browser; each context in it has a profile of its own."""
    async with started_chromium() as browser:
        yield browser
