"""Waits until a page has stopped loading and changing, within a time limit."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page, Request


# Seconds: nothing happened for so long; pages that never rest (clocks, adverts) are looked at after
# so long anyway.
QUIET, RESTLESS = 0.1, 3.0
_GLANCE = 0.02
# Requests that are meant to stay open, and those that turned out to be (long polls), are not waited
# for.
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
            # What the page before had asked for is of no interest; the new document may still be
            # coming in.
            self._began = {}

    @property
    def navigating(self) -> bool:
        """Tells whether a navigation was requested and has not begun to arrive."""
        return any(request.is_navigation_request() and _is_main(request) for request in self._began)

    @property
    def busy(self) -> bool:
        """Tells whether something is loading that may soon arrive."""
        return any(time.monotonic() - began < _LONG_POLL for began in self._began.values())


def _is_main(request: Request) -> bool:
    from playwright.async_api import Error

    try:
        return request.frame.parent_frame is None
    except Error:
        # The request of a page that is being opened has no frame yet.
        return True


async def arrived(traffic: Traffic, limit: float) -> bool:
    """Waits for another document that was asked for, until `limit` of the monotonic clock. False:
    it did not come.
    """
    while traffic.navigating and time.monotonic() < limit:
        await asyncio.sleep(_GLANCE)
    return not traffic.navigating


async def until_settled(page: Page, traffic: Traffic, arrival: float) -> bool:
    """Waits until the page has been still for QUIET, for RESTLESS at most; before, up to `arrival`
    for another document.

    Still: the document is complete, nothing in it changes, no animation that will end is running,
    no request is under way. All in seconds. False when another document was asked for and did not
    come.
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
    """Whether the page came to rest within `seconds` seconds, and stays where it is; None: it will
    not say.
    """
    from playwright.async_api import Error

    look = asyncio.ensure_future(page.evaluate(_STILL, [QUIET * 1000, seconds * 1000]))
    end = time.monotonic() + seconds + 1
    try:
        # Chromium holds back what a page has to say while another document is on its way.
        while not look.done() and not traffic.navigating and time.monotonic() < end:
            await asyncio.wait({look}, timeout=_GLANCE)
        if look.done():
            return bool(look.result())
        return False if traffic.navigating else None
    except Error as error:
        # The document was replaced meanwhile, or the page is gone.
        await asyncio.sleep(_GLANCE)
        return None if "crashed" in error.message else False
    finally:
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
