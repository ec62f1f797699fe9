"""A Chromium for tests of pages; they are skipped, with the reason, where there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from prill.emulators.browser.chromium import Chromium, chromium_path
from prill.errors import UsageError


@asynccontextmanager
async def started_chromium() -> AsyncIterator[Chromium]:
    """A browser that is closed at the end."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    try:
        chromium_path()
    except UsageError as error:
        pytest.skip(str(error))
    browser = Chromium()
    try:
        yield browser
    finally:
        await browser.close()
