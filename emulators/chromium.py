"""The system's Chromium, headless, driven by Playwright. One process is shared; every episode gets a context of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

from prill.errors import EnvironmentFailure, MissingExtra, UsageError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)


def chromium_path() -> str:
    """The executable: the environment variable PRILL_CHROMIUM, else the first of NAMES on the PATH. Raises UsageError."""
    if chosen := os.environ.get("PRILL_CHROMIUM"):
        if not os.access(chosen, os.X_OK):
            raise UsageError(f"PRILL_CHROMIUM={chosen} is not an executable file")
        return chosen
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise UsageError("no Chromium found; run: apt-get install chromium, or set PRILL_CHROMIUM to the executable")


class Chromium:
    """A browser that starts when the first context is asked for, and starts again if it has died."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._starting = asyncio.Lock()

    async def context(self, width: int, height: int, scale: float = 1.0) -> BrowserContext:
        """A fresh profile with a window of `width` x `height` CSS pixels, drawn with `scale` device pixels each."""
        try:
            from playwright.async_api import Error
        except ImportError:
            raise MissingExtra("playwright", "web") from None
        try:
            browser = await self._started()
            return await browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=scale)
        except Error as error:
            raise EnvironmentFailure(f"Chromium does not start: {error.message.splitlines()[0]}") from error

    async def _started(self) -> Browser:
        from playwright.async_api import async_playwright

        async with self._starting:
            if self._playwright is None:
                self._playwright = await async_playwright().start()
            if self._browser is None or not self._browser.is_connected():
                # Chromium refuses to run as root with its sandbox; everybody else keeps it.
                flags = [*QUIET, "--no-sandbox"] if os.geteuid() == 0 else list(QUIET)
                self._browser = await self._playwright.chromium.launch(executable_path=chromium_path(), args=flags)
            return self._browser

    async def close(self) -> None:
        """Ends the browser; safe to call twice."""
        browser, self._browser = self._browser, None
        playwright, self._playwright = self._playwright, None
        if browser is not None:
            await browser.close()
        if playwright is not None:
            await playwright.stop()
