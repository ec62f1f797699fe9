"""The tabs of one episode: the active tab, and events outside the page such as dialogs.

Every dialog is accepted, a prompt with its default text, and a page's question whether to leave
with yes. A new tab becomes the current one. Downloads are stored in a folder, or refused without
one. A file chooser stays open until the next action.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from prill.emulators.browser.settle import Traffic
from prill.models.prompts import shorten

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, FileChooser, Page, Request


# Further tabs are closed at once, to protect the machine from pages that open windows endlessly.
MAX_TABS = 20
MAX_NOTES = 5
_LONGEST = 200
# Seconds; a background tab may hang without consequences.
_TITLE_TIMEOUT = 1.0


class Tabs:
    """The tabs and events of a browser context, from its first page on."""

    def __init__(self, context: BrowserContext, downloads: Path | None) -> None:
        self.context = context
        self.crashed: set[Page] = set()
        self.traffic: dict[Page, Traffic] = {}
        self._downloads = downloads
        # The tabs that were current, the latest one last.
        self._visited: list[Page] = []
        self._failed: dict[Page, str] = {}
        self._notes: list[str] = []
        self.chooser: FileChooser | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = 0
        self._following = True
        context.on("page", self._opened)

    @property
    def pages(self) -> tuple[Page, ...]:
        """All tabs, oldest first."""
        return tuple(page for page in self.context.pages if not page.is_closed())

    async def current(self) -> Page:
        """Returns the current tab, or the one before if it was closed, or else a new one."""
        if self._visited[-1:] and not self._visited[-1].is_closed():
            return self._visited[-1]
        self._visited = [page for page in self._visited if not page.is_closed()]
        await self.focus(self._visited[-1] if self._visited else await self.context.new_page())
        return self._visited[-1]

    async def focus(self, page: Page) -> None:
        """Makes the tab the current one."""
        self._visited.append(page)
        await page.bring_to_front()

    async def titles(self, current: Page) -> str:
        """Formats the line of the tabs: `Tab 0 (current): Cart | Tab 1: Orders`."""
        pages = self.pages
        titles = await asyncio.gather(
            *(_title(page, None if page is current else _TITLE_TIMEOUT) for page in pages)
        )
        return " | ".join(
            f"Tab {index}{' (current)' if page is current else ''}: {title}"
            for index, (page, title) in enumerate(zip(pages, titles, strict=True))
        )

    def address(self, page: Page) -> str:
        """Returns the URL in the address bar; if a page failed to open, the requested URL."""
        return (
            self._failed.get(page, page.url) if page.url.startswith("chrome-error:") else page.url
        )

    def note(self, text: str, *, first: bool = False) -> None:
        """Adds a note to the agent's next observation, as the last or the first one."""
        self._notes.insert(0 if first else len(self._notes), text)

    def notes(self) -> list[str]:
        """Returns and clears the notes since the last call, at most the first few."""
        notes, self._notes = self._notes, []
        return (
            notes
            if len(notes) <= MAX_NOTES
            else [*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES} more like these"]
        )

    async def opened(self, seconds: float) -> None:
        """Waits for tabs that pages have requested, which appear when their servers answer."""
        end = time.monotonic() + seconds
        while self._opening and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self._opening = 0

    async def asked(self, seconds: float) -> FileChooser | None:
        """Waits for a file chooser, and closes it for the page."""
        end = time.monotonic() + seconds
        while self.chooser is None and time.monotonic() < end:
            await asyncio.sleep(0.02)
        chooser, self.chooser = self.chooser, None
        return chooser

    async def handled(self, seconds: float) -> None:
        """Waits until pending downloads and dialogs are handled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def stop(self) -> None:
        """Cancels pending downloads and dialogs, and stops listening to events."""
        self._following = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _opened(self, page: Page) -> None:
        self._opening = max(0, self._opening - 1)
        if not self._following:
            return
        if len(self.context.pages) > MAX_TABS:
            self.note(f"a new tab was closed: there are {MAX_TABS} already")
            return self._do(page.close())
        self.traffic[page] = Traffic(page)
        self._do(self._watch(page))
        page.on("close", self._closed)
        page.on("crash", lambda _: self.crashed.add(page))
        page.on("dialog", lambda dialog: self._do(self._answer(dialog)))
        page.on("download", lambda download: self._do(self._keep(download)))
        page.on("filechooser", self._choose)
        page.on("requestfailed", lambda request: self._failure(page, request))
        self._visited.append(page)

    async def _watch(self, page: Page) -> None:
        # Playwright reports a tab once it exists; its request is known before the click ends.
        session = await self.context.new_cdp_session(page)
        session.on("Page.windowOpen", lambda _: self._ask())
        await session.send("Page.enable")

    def _ask(self) -> None:
        self._opening += 1

    def _choose(self, chooser: FileChooser) -> None:
        self.chooser = chooser

    def _closed(self, page: Page) -> None:
        self.traffic.pop(page, None)
        self._failed.pop(page, None)
        self.crashed.discard(page)

    def _failure(self, page: Page, request: Request) -> None:
        reason = request.failure or "no reason given"
        # Aborted: by the agent's next step, or because the answer was a download.
        if (
            not request.is_navigation_request()
            or request.frame != page.main_frame
            or "ERR_ABORTED" in reason
        ):
            return
        # Chromium retries by itself while it shows the error page.
        if not page.url.startswith("chrome-error:") or self._failed.get(page) != request.url:
            self._failed[page] = request.url
            self.note(f"the page could not be opened: {reason}")

    def _do(self, work: Coroutine[object, object, None]) -> None:
        async def guarded() -> None:
            from playwright.async_api import Error

            # The page may close before its dialog is answered.
            with contextlib.suppress(Error):
                await work

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, dialog: Dialog) -> None:
        message = repr(dialog.message[:_LONGEST])
        if dialog.type == "prompt":
            self.note(
                f"a dialog asked {message} and was answered {dialog.default_value[:_LONGEST]!r}"
            )
            await dialog.accept(dialog.default_value)
        else:
            what = (
                "the page asked whether to leave it"
                if dialog.type == "beforeunload"
                else f"a dialog said {message}"
            )
            self.note(f"{what} and was answered OK")
            await dialog.accept()

    async def _keep(self, download: Download) -> None:
        # The page chooses the name, which must not lead out of the folder.
        name = Path(download.suggested_filename.replace("\\", "/")).name[-_LONGEST:] or "download"
        if self._downloads is None:
            self.note(f"the download of {name!r} was refused")
            return await download.cancel()
        self._downloads.mkdir(parents=True, exist_ok=True)
        await download.save_as(free_path(self._downloads / name))
        self.note(f"downloaded {name!r}")


def free_path(path: Path) -> Path:
    """Returns the path, or the first free one with a number before its suffix."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


async def _title(page: Page, limit: float | None) -> str:
    """Returns the title as one line; empty if the page does not answer in time or navigates."""
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(limit):
            return shorten(" ".join((await page.title()).split()), _LONGEST)
    except (Error, TimeoutError):
        return ""
