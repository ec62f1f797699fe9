"""A browser, or quick commands, for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from tests.support.chromium import started_chromium
from tests.support.warm import warm_commands


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Chromium]:
    """One browser; each context in it has a profile of its own."""
    async with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    """A folder with `prill` and `python`, which start quickly."""
    with warm_commands() as folder:
        yield folder
