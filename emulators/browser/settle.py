"""Waits until a page has stopped loading and changing, within a time limit."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page, Request


# Seconds without any activity; and the longest wait for pages that never become idle (clocks,
# adverts).
QUIET, RESTLESS = 0.1, 3.0
_GLANCE = 0.02
# Requests that stay open by design, and long polls, are not waited for.
_OPEN_ENDED = ("eventsource", "websocket", "media", "ping")
_LONG_POLL = 2.0
_STILL = """([quiet, limit]) => new Promise((done) => {
  const started = performance.now();
  let changed = started;
  const observer = new MutationObserver(() => { changed = performance.now(); });
  observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  const moves = (a) => a.playState === "running" && Number.isFinite(a.effect?.getComputedTiming().endTime);
  (function look() {
    const now = performance.now();
    if (document.readyState !== "complete" || document.getAnimations().some(moves)) changed = now;
    if (now - changed < quiet && now - started < limit) return setTimeout(look, 20);
    observer.disconnect();
    requestAnimationFrame(() => done(now - started < limit));
    setTimeout(() => done(false), 200);
  })();
})"""  # noqa: E501


class Traffic:
    """The pending requests of one page."""

    def __init__(self, page: Page) -> None:
        self._began: dict[Request, float] = {}
        page.on("request", self._start)
        page.on("requestfinished", self._end)
        page.on("requestfailed", self._end)
        page.on("framenavigated", lambda frame: self._arrived(frame is page.main_frame))

    def _start(self, request: Request) -> None:
        if request.resource_type not in _OPEN_ENDED:
            self._began[request] = time.monotonic()

    def _end(self, request: Request) -> None:
        self._began.pop(request, None)

    def _arrived(self, main: bool) -> None:
        if main:
            # Requests of the previous page no longer matter; the new document may still be loading.
            self._began = {}

    @property
    def navigating(self) -> bool:
        """Whether a navigation was requested and no response has arrived yet."""
        return any(request.is_navigation_request() and _is_main(request) for request in self._began)

    @property
    def busy(self) -> bool:
        """Whether a request is pending that may finish soon."""
        return any(time.monotonic() - began < _LONG_POLL for began in self._began.values())


def _is_main(request: Request) -> bool:
    from playwright.async_api import Error

    try:
        return request.frame.parent_frame is None
    except Error:
        # The request of a new page has no frame yet.
        return True


async def arrived(traffic: Traffic, limit: float) -> bool:
    """Waits for a requested document until the monotonic `limit`. Returns whether it arrived."""
    while traffic.navigating and time.monotonic() < limit:
        await asyncio.sleep(_GLANCE)
    return not traffic.navigating


async def until_settled(page: Page, traffic: Traffic, arrival: float) -> bool:
    """Waits until the page has been stable for QUIET seconds, at most RESTLESS seconds; first waits
    up to `arrival` seconds for a requested document.

    A page is stable if the document is complete and unchanged, no finite animation runs, and no
    request is pending. Returns False if a requested document did not arrive.
    """
    limit, rest = time.monotonic() + arrival, time.monotonic() + RESTLESS
    while not page.is_closed():
        if traffic.navigating:
            if not await arrived(traffic, limit):
                return False
            rest = time.monotonic() + RESTLESS
        seconds = rest - time.monotonic()
        if seconds <= 0:
            break
        still = await _still(page, traffic, seconds)
        if still is None or (still and not traffic.busy):
            break
    return True


async def _still(page: Page, traffic: Traffic, seconds: float) -> bool | None:
    """Whether the page became stable within `seconds`, without navigating; None: no answer."""
    from playwright.async_api import Error

    look = asyncio.ensure_future(page.evaluate(_STILL, [QUIET * 1000, seconds * 1000]))
    end = time.monotonic() + seconds + 1
    try:
        # Chromium delays a page's answers while another document is loading.
        while not look.done() and not traffic.navigating and time.monotonic() < end:
            await asyncio.wait({look}, timeout=_GLANCE)
        if look.done():
            return bool(look.result())
        return False if traffic.navigating else None
    except Error as error:
        # The document was replaced, or the page was closed.
        await asyncio.sleep(_GLANCE)
        return None if "crashed" in error.message else False
    finally:
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
