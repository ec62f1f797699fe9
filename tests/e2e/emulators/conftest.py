"""Pages and a browser for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from tests.support.chromium import started_chromium
from tests.support.emulators.pages import Site, serving


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The local pages."""
    with serving() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    """One browser for the tests of a file; each has a profile of its own."""
    async with started_chromium() as browser:
        yield browser
