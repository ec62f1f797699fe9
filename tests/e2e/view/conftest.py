"""The page of `prill view` in the real Chromium."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.emulators.browser.chromium import Chromium
from prill.ui.serving import serving
from prill.ui.view.captions import CaptionReview
from prill.ui.view.library import Library
from prill.ui.view.site import ViewSite
from tests.support.closing import closed
from tests.support.labelling import labelling
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Page


@asynccontextmanager
async def window(browser: Chromium, url: str, width: int = 1280) -> AsyncIterator[Page]:
    """The page at an address with its first card; fails when the page's own code does."""
    context = await browser.context(width, 800)
    try:
        page = await context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(url)
        await at(page, 1)
        yield page
        assert not errors
    finally:
        await closed(context)


@asynccontextmanager
async def opened(
    browser: Chromium, trajectories: Path, labels: Path, width: int = 1280, **options: Any
) -> AsyncIterator[Page]:
    """The page for labels with its first run."""
    with labelling(trajectories, labels, **options) as site:
        async with site.following(), serving(site) as url, window(browser, url, width) as page:
            yield page


@asynccontextmanager
async def opened_captions(browser: Chromium, review: CaptionReview) -> AsyncIterator[Page]:
    """The page for captions alone, with its first card."""
    with closing(Library(())) as library:
        site = ViewSite(library, captions=review)
        async with serving(site) as url, window(browser, url) as page:
            yield page


@asynccontextmanager
async def command(folder: Path, *words: str) -> AsyncIterator[tuple[Any, str]]:
    """The command as a process of its own, and the page's address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prill", *words, "--json"),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(await process.stdout.readline())["url"]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()


async def at(page: Page, number: int) -> None:
    """Waits until trajectory or caption `number` is shown, and the page takes keys again."""
    # Not wait_for_function: it evaluates strings, which the page's policy forbids.
    place = page.locator("#about, #caption-about")
    await place.filter(has_text=re.compile(rf"^(Caption )?{number} of ")).wait_for()
    await idle(page)


async def idle(page: Page) -> None:
    """Waits until the page has done what it was told."""
    await page.locator("main:not([aria-busy]):not([hidden])").wait_for()


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


def write(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
