"""What an agent sees of a tab as text, and the way back from the number of a line to its element."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import TYPE_CHECKING

from prill.actions.targets import read_target
from prill.emulators.ax_fetch import Reader, Snapshot
from prill.emulators.axtree import Key, Line, lines_of, written
from prill.emulators.browser_actions import Element

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page


class View:
    """The tabs of one episode. Numbers go by first sight: never used twice, the same for the same pages each time."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._numbers: dict[Key, int] = {}
        self._keys: dict[str, Key] = {}
        self._lines: list[Line] = []
        self._snapshot: Snapshot | None = None

    async def session(self, page: Page) -> CDPSession:
        """The page's CDP session."""
        return await self._reader.session(page)

    async def read(self, page: Page, window: tuple[float, float] | None, max_tokens: int | None) -> str:
        """The accessibility tree as it is now; see axtree.py. Waits while the page goes elsewhere."""
        snapshot = await self._read(page)
        self._snapshot, self._lines = snapshot, lines_of(snapshot.nodes, window)
        return written(self._lines, self._number, max_tokens)

    async def picture(self, page: Page) -> bytes:
        """A PNG of the window. Unlike Playwright's own, it waits neither for fonts nor for frames."""
        from playwright.async_api import Error

        session = await self._reader.session(page)
        while True:
            try:
                shot = await session.send("Page.captureScreenshot", {"optimizeForSpeed": True})
                return base64.b64decode(shot["data"])
            except Error as error:
                # A tab that opened just now may not have been drawn yet.
                if "Unable to capture" not in error.message:
                    raise
                await page.bring_to_front()
                await asyncio.sleep(0.05)

    def find(self, target: str) -> Element | None:
        """The element that a target names, by its number or else by role and name; None: it is not there now."""
        named = read_target(target)
        if named.number is not None:
            return self._element(self._keys.get(named.number))
        if named.label is None:
            return None
        label = " ".join(named.label)
        return self._element(next((line.key for line in self._lines if f"{line.text} ".startswith(f"{label} ")), None))

    def _element(self, key: Key | None) -> Element | None:
        snapshot = self._snapshot
        if key is None or snapshot is None or snapshot.documents.get(key.frame) != key.document:
            return None
        return Element(snapshot.sessions[key.frame], key.number, self._element(snapshot.owners.get(key.frame)))

    def _number(self, key: Key) -> int:
        if key not in self._numbers:
            number = self._numbers[key] = len(self._numbers) + 1
            self._keys[str(number)] = key
        return self._numbers[key]

    async def _read(self, page: Page) -> Snapshot:
        from playwright.async_api import Error

        while True:
            try:
                return await self._reader.read(page)
            except Error as error:
                # A frame left or the page went elsewhere in between; one that does so for ever runs into the caller's limit.
                if page.is_closed() or not re.search("frame|context|detached|node", error.message, re.IGNORECASE):
                    raise
                # A frame that went to another site has another process now.
                self._reader = Reader()
                await asyncio.sleep(0.05)
