"""Headless Chromium driven by Playwright: one shared process, one context per episode."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prill.errors import EnvironmentFailedError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright


NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
QUIET = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--force-color-profile=srgb", "--font-render-hinting=none",
)  # fmt: skip
# Seconds; a working browser starts in under one second, and opens or closes a context faster.
START_TIMEOUT, CALL_TIMEOUT, END_TIMEOUT = 60.0, 20.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The initial state of a browser context.

    `storage_state` is a file of cookies and local storage as Playwright writes it; `geolocation` is
    latitude and longitude in degrees, and pages may then read it; `har` is where the network
    traffic is recorded once the context closes; `http_login` are origin, user and password of HTTP
    authentication.
    """

    storage_state: Path | None = None
    geolocation: tuple[float, float] | None = None
    har: Path | None = None
    http_login: tuple[str, str, str] | None = field(default=None, repr=False)
    locale: str | None = None
    timezone: str | None = None
    downloads: bool = True
    reduced_motion: bool = False


@contextlib.contextmanager
def browser_failures(when: str) -> Iterator[None]:
    """Turns Playwright's errors and timeouts into EnvironmentFailedError."""
    try:
        from playwright.async_api import Error
    except ImportError:
        raise MissingExtraError("playwright", "web") from None
    try:
        yield
    except TimeoutError:
        raise EnvironmentFailedError(f"the page does not respond {when}") from None
    except Error as error:
        raise EnvironmentFailedError(
            f"the browser failed {when}: {error.message.splitlines()[0]}"
        ) from error


# Playwright's browsers below their folder (playwright.dev/python/docs/browsers).
_INSTALLED = ("chrome-linux*/chrome", "chrome-mac*/*.app/Contents/MacOS/*")


def chromium_path() -> str:
    """Finds the executable: the environment variable PRILL_CHROMIUM, the newest that `playwright
    install chromium` has installed, or the first of NAMES on the PATH.

    Raises UsageError.
    """
    if path := os.environ.get("PRILL_CHROMIUM"):
        if not os.access(path, os.X_OK):
            raise UsageError(f"PRILL_CHROMIUM={path} is not an executable file")
        return path
    cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / cache / "ms-playwright"
    revisions = sorted(Path(folder).glob("chromium-[0-9]*"), key=lambda path: int(path.name[9:]))
    for revision in reversed(revisions):
        for form in _INSTALLED:
            for executable in revision.glob(form):
                return str(executable)
    for name in NAMES:
        if (found := shutil.which(name)) and not _starts_a_snap(Path(found)):
            return found
    raise UsageError(
        "no Chromium found; run: playwright install --with-deps chromium (or apt-get install "
        "chromium), or set PRILL_CHROMIUM to the executable"
    )


def _starts_a_snap(path: Path) -> bool:
    """Returns whether a program is Ubuntu's wrapper, which only works where snaps are installed."""
    with path.open("rb") as file:
        return b"/snap/bin/" in file.read(4096) and not Path("/snap/bin/chromium").exists()


class Chromium:
    """A browser that starts with the first context, and restarts after a crash.

    Args:
        arguments: Further command-line arguments, such as `--proxy-server=…`.
    """

    def __init__(self, *, arguments: tuple[str, ...] = ()) -> None:
        self._arguments = arguments
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._start: asyncio.Task[Browser] | None = None
        self._unwanted: set[asyncio.Task[None]] = set()

    async def context(
        self, width: int, height: int, scale: float = 1.0, *, profile: Profile | None = None
    ) -> BrowserContext:
        """Opens a context with a fresh profile.

        Args:
            width: The window's width, in CSS pixels.
            height: The window's height, in CSS pixels.
            scale: Device pixels for each CSS pixel.
            profile: The initial state, such as cookies and location. None: an empty profile.

        Raises:
            UsageError: The file of cookies cannot be read.
            EnvironmentFailedError: Chromium does not start.
            MissingExtraError: Playwright is not installed.
        """
        try:
            from playwright.async_api import Error
        except ImportError:
            raise MissingExtraError("playwright", "web") from None
        profile = profile or Profile()
        if profile.storage_state is not None and not profile.storage_state.is_file():
            raise UsageError(
                f"{profile.storage_state}: no such file; it should contain the cookies"
            )
        try:
            async with asyncio.timeout(START_TIMEOUT):
                browser = await self._started()
        except TimeoutError:
            await self.close()
            raise EnvironmentFailedError("Chromium did not start in time and was killed") from None
        except Error as error:
            await self.close()
            raise EnvironmentFailedError(
                f"Chromium does not start: {error.message.splitlines()[0]}"
            ) from error
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await self._wanted(_new_context(browser, width, height, scale, profile))
        except TimeoutError:
            await self.end(browser)
            raise EnvironmentFailedError("Chromium did not respond and was killed") from None
        except Error as error:
            if "storage state" in error.message:
                raise UsageError(
                    f"the cookies in {profile.storage_state} were rejected: {error.message}"
                ) from None
            # If Playwright's own process has died, the browser still appears connected.
            await self.end(browser)
            raise EnvironmentFailedError(
                f"Chromium cannot create a profile: {error.message.splitlines()[0]}"
            ) from error
        except ValueError:
            raise UsageError(
                f"{profile.storage_state} is not in Playwright's storage state format"
            ) from None

    async def _started(self) -> Browser:
        if self._browser is not None and self._browser.is_connected():
            return self._browser
        if self._start is None or self._start.done():
            self._start = asyncio.create_task(self._launched())
            # The caller was cancelled, so errors are ignored.
            self._start.add_done_callback(lambda start: start.cancelled() or start.exception())
        # Cancelling a start would leave processes running.
        return await asyncio.shield(self._start)

    async def _launched(self) -> Browser:
        from playwright.async_api import async_playwright

        if self._playwright is None:
            self._playwright = await async_playwright().start()
        # Chromium refuses to run as root with its sandbox; other users keep the sandbox.
        flags = [*QUIET, *self._arguments, *(("--no-sandbox",) if os.geteuid() == 0 else ())]
        self._browser = await self._playwright.chromium.launch(
            executable_path=chromium_path(), args=flags
        )
        return self._browser

    async def _wanted(self, making: Coroutine[None, None, BrowserContext]) -> BrowserContext:
        """Returns the new context; if the caller is cancelled first, closes it once it exists."""
        made = asyncio.create_task(making)
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            closing = asyncio.create_task(_close(made))
            self._unwanted.add(closing)
            closing.add_done_callback(self._unwanted.discard)
            raise

    async def end(self, browser: Browser | None) -> None:
        """Ends a browser that does not answer.

        Args:
            browser: The browser. A newer browser, started for other users of this object, is not
                affected.
        """
        if browser is self._browser:
            await self.close()

    async def close(self) -> None:
        """Ends the browser, by force if it does not answer; safe to call twice."""
        start, self._start = self._start, None
        if start is not None and not start.done():
            await asyncio.wait({start}, timeout=END_TIMEOUT)
        browser, self._browser = self._browser, None
        playwright, self._playwright = self._playwright, None
        if playwright is None:
            return
        from playwright.async_api import Error

        if browser is not None:
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(END_TIMEOUT):
                    await browser.close()
        # Ending Playwright's own process kills the remaining browser processes.
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(END_TIMEOUT):
                await playwright.stop()


async def _close(made: asyncio.Task[BrowserContext]) -> None:
    from playwright.async_api import Error

    # A context that was not created needs no closing, and the browser may have ended.
    with contextlib.suppress(Error, ValueError):
        await (await made).close()


async def _new_context(
    browser: Browser, width: int, height: int, scale: float, profile: Profile
) -> BrowserContext:
    location, login = profile.geolocation, profile.http_login
    return await browser.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=scale,
        storage_state=profile.storage_state,
        geolocation=None
        if location is None
        else {"latitude": location[0], "longitude": location[1]},
        permissions=None if location is None else ["geolocation"],
        record_har_path=profile.har,
        record_har_content=None if profile.har is None else "embed",
        http_credentials=None
        if login is None
        else {"origin": login[0], "username": login[1], "password": login[2]},
        locale=profile.locale,
        timezone_id=profile.timezone,
        accept_downloads=profile.downloads,
        reduced_motion="reduce" if profile.reduced_motion else None,
    )
