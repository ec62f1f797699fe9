"""Chromium for tests of pages. Tests are skipped with a reason if it is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from prill.emulators.browser.chromium import Chromium, chromium_path
from prill.errors import UsageError


def need_chromium(*modules: str) -> None:
    """Skips a test, or the file that calls this, if Chromium, playwright or one of these modules is
    missing.
    """
    for module in ("playwright", *modules):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed", allow_module_level=True)
    try:
        chromium_path()
    except UsageError as error:
        pytest.skip(str(error), allow_module_level=True)


@asynccontextmanager
async def started_chromium() -> AsyncIterator[Chromium]:
    """Yields a browser that is closed at the end."""
    need_chromium()
    browser = Chromium()
    try:
        yield browser
    finally:
        await browser.close()
