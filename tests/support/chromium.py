"""Chromium for tests of pages, and waiting for what they show. Tests are skipped with a reason if
it is missing.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from prill.emulators.browser.chromium import Chromium, chromium_path
from prill.errors import UsageError

if TYPE_CHECKING:
    from playwright.async_api import Page

PATIENCE = 60.0  # seconds; a page that does what it should takes a fraction of one


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


async def sees(page: Page, selector: str) -> None:
    """Waits until the page has such a part, shown or not."""
    await page.locator(selector).first.wait_for(state="attached", timeout=1000 * PATIENCE)


async def eventually(read: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Waits until what `read` returns is what is wanted. What follows an action asynchronously is
    read this way: a link, an answer of the server, an event that the browser sends on.
    """
    end = time.monotonic() + PATIENCE
    while (found := await read()) != wanted:
        assert time.monotonic() < end, f"{found!r}, never {wanted!r}"
        await asyncio.sleep(0.02)


async def address(page: Page) -> str:
    """The page's own address. `page.url` may still be the one before the last action."""
    return str(await page.evaluate("location.href"))
