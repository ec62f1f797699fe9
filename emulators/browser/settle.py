"""Waits until a page has stopped loading and changing, within a time limit."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from playwright.async_api import Page, Request


State = Literal["still", "changing", "loading"]
Settled = Literal["settled", "loading", "absent"]
_GLANCE = 0.02
# Requests that stay open by design, and long polls, are not waited for.
_OPEN_ENDED = ("eventsource", "websocket", "media", "ping")
_POLLS, _LONG_POLL = ("fetch", "xhr"), 2.0
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
    const state = document.readyState !== "complete" ? "loading" : now - changed < quiet ? "changing" : "still";
    requestAnimationFrame(() => done(state));
    setTimeout(() => done(state), 200);
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
        return any(
            request.resource_type not in _POLLS or time.monotonic() - began < _LONG_POLL
            for request, began in self._began.items()
        )


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


async def until_settled(
    page: Page, traffic: Traffic, arrival: float, quiet: float, patience: float
) -> Settled:
    """Waits until the page has been stable for `quiet` seconds, at most `patience` seconds; first
    waits up to `arrival` seconds for a requested document.

    A page is stable if the document is complete and unchanged, no finite animation runs, and no
    request is pending. A page that is complete but keeps changing counts as settled in the end.
    """
    limit, rest = time.monotonic() + arrival, time.monotonic() + patience
    state: State | None = None
    while not page.is_closed():
        if traffic.navigating:
            if not await arrived(traffic, limit):
                return "absent"
            rest = time.monotonic() + patience
        seconds = rest - time.monotonic()
        if seconds <= 0:
            return "loading" if state == "loading" or traffic.busy else "settled"
        state = await _state(page, traffic, quiet, seconds)
        if state is None or (state == "still" and not traffic.busy):
            break
    return "settled"


async def _state(page: Page, traffic: Traffic, quiet: float, seconds: float) -> State | None:
    """Returns the page's state once it is still, navigates, or `seconds` are over; None: no
    answer.
    """
    from playwright.async_api import Error

    look = asyncio.ensure_future(page.evaluate(_STILL, [quiet * 1000, seconds * 1000]))
    end = time.monotonic() + seconds + 1
    try:
        # Chromium delays a page's answers while another document is loading.
        while not look.done() and not traffic.navigating and time.monotonic() < end:
            await asyncio.wait({look}, timeout=_GLANCE)
        if look.done():
            return cast("State", look.result())
        return "changing" if traffic.navigating else None
    except Error as error:
        # The document was replaced, or the page was closed.
        await asyncio.sleep(_GLANCE)
        return None if "crashed" in error.message else "changing"
    finally:
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
