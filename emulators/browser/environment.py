"""The browser environment: any page, observed and driven as in WebArena (arXiv 2307.13854).

An observation is a screenshot of the window and the text of the current tab: a line with the titles
of all tabs, a line for each event outside the page
(`! a dialog said 'Saved' and was answered OK`), an empty line, and the accessibility tree
(axtree.py). An element keeps its number until its page navigates. Numbers are unique within an
episode, and the same pages give the same numbers each time. See actions.py for actions, tabs.py for
tabs and dialogs, settle.py for waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from prill.emulators.browser.actions import element_at, perform, pixels, spot_in_window
from prill.emulators.browser.chromium import Chromium, Profile, browser_failures
from prill.emulators.browser.settle import RESTLESS, arrived, until_settled
from prill.emulators.browser.tabs import Tabs, free_path
from prill.emulators.browser.view import PageView
from prill.emulators.screenshots import keep_screenshot
from prill.errors import EnvironmentFailedError, UsageError
from prill.io.lines import valid_unicode
from prill.types import Action, Observation, Point, Task

if TYPE_CHECKING:
    from playwright.async_api import Page


# Time limit in seconds for writing a trace or a network record.
_WRITING = 30.0
START_SEPARATOR = " |AND| "
_BLANK = "about:blank"
# A blinking caret would make two screenshots of the same state differ.
_NO_CARET = """(() => { const sheet = new CSSStyleSheet(); sheet.replaceSync("* { caret-color: transparent !important }");
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]; })()"""  # noqa: E501
_NO_HOST = ("about", "blob", "chrome", "data", "file", "javascript", "mailto", "view-source")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """Options for displaying pages and waiting for them. Times are in seconds. An episode that
    exceeds a limit ends with an EnvironmentFailedError.

    After an action, the environment waits until the page is stable; with `pause`, it waits that
    many seconds instead (WebArena: 2). The start page may have any scheme.
    """

    viewport: Annotated[
        tuple[int, int],
        Meta(description="Window size in CSS pixels, at a device pixel ratio of 1."),
    ] = (1280, 720)
    whole_page: Annotated[
        bool, Meta(description="Include the parts of the page outside the viewport in the text.")
    ] = False
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Maximum length of the text in tokens of four characters "
            "(WebArena's prompts: 1920)."
        ),
    ] = None
    pause: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Seconds to wait after an action. None: until the page is idle."),
    ] = None
    navigation_timeout: Annotated[
        float, Meta(gt=0, description="Maximum number of seconds for a navigation.")
    ] = 30.0
    answer_timeout: Annotated[
        float,
        Meta(gt=0, description="Maximum number of seconds for any other request to the page."),
    ] = 20.0
    downloads: Annotated[Path | None, "folder for downloads; none: they are refused"] = None
    traces: Annotated[Path | None, "folder for Playwright's traces; none: no trace is kept"] = None
    schemes: Annotated[
        tuple[str, ...], Meta(description="URL schemes that the agent may open.")
    ] = (
        "http",
        "https",
    )


class BrowserEnvironment:
    """An environment for tasks that start at `task.start_url`. Addresses separated by " |AND| "
    open one tab each; without an address, the tab is blank.

    Args:
        images: The folder for screenshots.
        spec: The options.
        browser: A shared browser, which stays open at the end. None: an own browser.
    """

    def __init__(
        self, images: Path, spec: PageSpec = PageSpec(), *, browser: Chromium | None = None
    ) -> None:
        self._images = images
        self._spec = spec
        self._browser = browser or Chromium()
        self._owns_browser = browser is None
        self._window = (
            None if spec.whole_page else (float(spec.viewport[0]), float(spec.viewport[1]))
        )
        self._tabs: Tabs | None = None
        self._page: Page | None = None
        self._trace: Path | None = None
        self._tracing: str | None = None
        self._har: Path | None = None
        self._view = PageView()

    @property
    def page(self) -> Page:
        """The agent's current tab, for oracles. Raises UsageError if no episode is open."""
        if self._page is None:
            raise UsageError("no episode is open; call reset first")
        return self._page

    @property
    def pages(self) -> tuple[Page, ...]:
        """All tabs, oldest first."""
        return () if self._tabs is None else self._tabs.pages

    @property
    def har(self) -> Path | None:
        """The last episode's network record, if its profile requests one; `finish` writes it."""
        return self._har

    @property
    def trace(self) -> Path | None:
        """Playwright's trace of the last episode, if traces are on; `finish` writes it."""
        return self._trace

    async def reset(self, task: Task) -> Observation:
        """Opens the task's start pages in a new profile, with the first one in front.

        Raises:
            EnvironmentFailedError: A start page cannot be reached, its server reports an error, or
                the browser failed.
        """
        await self.finish()
        profile = await self._prepare(task)
        profile = replace(profile, downloads=self._spec.downloads is not None, reduced_motion=True)
        self._har, self._trace, self._tracing = profile.har, None, None
        with browser_failures("at the start"):
            context = await self._browser.context(*self._spec.viewport, profile=profile)
            tabs = self._tabs = Tabs(context, self._spec.downloads)
            async with asyncio.timeout(self._spec.answer_timeout):
                await context.add_init_script(_NO_CARET)
                if self._spec.traces is not None:
                    await context.tracing.start(screenshots=True, snapshots=True)
                    self._tracing = re.sub(r"[^\w.-]+", "-", task.id)[-100:] or "episode"
            for url in (task.start_url or _BLANK).split(START_SEPARATOR):
                async with asyncio.timeout(
                    self._spec.navigation_timeout + self._spec.answer_timeout
                ):
                    await self._open(tabs, url)
            await self._settle(tabs, tabs.pages[0])
            return await self._observe(tabs)

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Acts, and returns the current tab. Actions on missing elements change nothing."""
        tabs, page = self._tabs, self.page
        assert tabs is not None
        with browser_failures(f"after {action.kind}"):
            self._check(tabs, page)
            travels = action.kind in ("goto", "back", "forward")
            async with asyncio.timeout(
                self._spec.answer_timeout + (self._spec.navigation_timeout if travels else 0.0)
            ):
                await self._act(tabs, page, action)
            await self._settle(tabs)
            return await self._observe(tabs), action.is_final

    async def locate(self, action: Action) -> Action:
        """Adds the element's line to the action, and the middle of the element if it is visible."""
        tabs, page = self._tabs, self.page
        assert tabs is not None
        with browser_failures(f"before {action.kind}"):
            self._check(tabs, page)
            async with asyncio.timeout(self._spec.answer_timeout):
                if action.point is not None:
                    return (
                        action if action.target else await self._named(page, action, action.point)
                    )
                element = None if action.target is None else self._view.find(action.target)
                spot = None if element is None else await spot_in_window(page, element)
        if action.target is None or spot is None:
            return action
        x, y = (
            round(min(1.0, coordinate / side), 4)
            for coordinate, side in zip(spot, self._spec.viewport, strict=True)
        )
        return replace(action, point=(x, y), target=self._view.line(action.target) or action.target)

    async def _named(self, page: Page, action: Action, point: Point) -> Action:
        element = await element_at(await self._view.session(page), pixels(page, point))
        return (
            action if element is None else replace(action, target=self._view.line_around(element))
        )

    async def finish(self) -> None:
        """Ends the episode: closes its tabs, and writes trace and network record. Safe to call
        twice.
        """
        if (tabs := self._tabs) is None:
            return
        from playwright.async_api import Error

        await tabs.stop()
        # An episode is valid without its trace, and other episodes may use this browser.
        with contextlib.suppress(Error, TimeoutError, OSError):
            async with asyncio.timeout(_WRITING):
                if self._spec.traces is not None and self._tracing is not None:
                    trace, self._tracing = (
                        free_path(self._spec.traces / f"{self._tracing}.zip"),
                        None,
                    )
                    await tabs.context.tracing.stop(path=trace)
                    self._trace = trace
        try:
            async with asyncio.timeout(
                self._spec.answer_timeout if self._har is None else _WRITING
            ):
                await tabs.context.close()
        except (Error, TimeoutError):
            # A browser that cannot close tabs is not usable for the next episode.
            await self._browser.end(tabs.context.browser)
        self._tabs, self._page, self._view = None, None, PageView()

    async def close(self) -> None:
        """Ends the episode, and the browser unless it is shared."""
        await self.finish()
        if self._owns_browser:
            await self._browser.close()

    async def _prepare(self, task: Task) -> Profile:
        """Returns the profile of an episode (cookies, location, network record)."""
        return Profile()

    def _real_url(self, url: str) -> str:
        """Returns the address of the host that serves an address of the agent or the task."""
        return url

    def _public_url(self, url: str) -> str:
        """Returns the address that observations show for an address of the browser."""
        return url

    async def _open(self, tabs: Tabs, url: str) -> None:
        from playwright.async_api import Error

        page = await tabs.context.new_page()
        try:
            answer = await page.goto(
                self._real_url(url),
                wait_until="commit",
                timeout=self._spec.navigation_timeout * 1000,
            )
        except Error as error:
            why = error.message.splitlines()[0].removeprefix("Page.goto: ")
            raise EnvironmentFailedError(
                f"the start page {url} cannot be opened: {why}; check that the site is running"
            ) from error
        if answer is not None and answer.status >= 500:
            raise EnvironmentFailedError(
                f"the start page {url} cannot be opened: its server responded with status "
                f"{answer.status}"
            )

    async def _act(self, tabs: Tabs, page: Page, action: Action) -> None:
        from playwright.async_api import Error, TimeoutError

        limit = self._spec.navigation_timeout * 1000
        try:
            match action.kind:
                case "goto" if action.value:
                    await self._goto(tabs, page, action.value)
                case "back":
                    await page.go_back(wait_until="commit", timeout=limit)
                case "forward":
                    await page.go_forward(wait_until="commit", timeout=limit)
                case "new_tab":
                    await tabs.focus(await tabs.context.new_page())
                case "close_tab":
                    await page.close()
                    # A user's browser would select another tab, but WebArena's agents expect this
                    # one.
                    if tabs.pages:
                        await tabs.focus(tabs.pages[-1])
                case "focus_tab" if action.value:
                    tab = {str(index): tab for index, tab in enumerate(tabs.pages)}.get(
                        action.value.strip()
                    )
                    if tab is not None:
                        await tabs.focus(tab)
                case "wait":
                    await asyncio.sleep(1)
                case _:
                    element = None if action.target is None else self._view.find(action.target)
                    await perform(page, await self._view.session(page), action, element)
        except TimeoutError:
            tabs.note(f"no response within {self._spec.navigation_timeout:g} s")
            await (await self._view.session(page)).send("Page.stopLoading")
        except Error as error:
            # During an action, a page may close, navigate or turn into a download.
            if not (page.is_closed() and tabs.pages) and not re.search(
                r"net::ERR_|interrupted by|Download is", error.message
            ):
                raise

    async def _goto(self, tabs: Tabs, page: Page, address: str) -> None:
        from playwright.async_api import Error

        url = self._real_url(_with_scheme(address.strip()))
        if url != _BLANK and url.partition(":")[0].lower() not in self._spec.schemes:
            return tabs.note(
                f"going to {address[:200]!r} was refused: only {' and '.join(self._spec.schemes)} "
                "addresses are open"
            )
        try:
            await page.goto(url, wait_until="commit", timeout=self._spec.navigation_timeout * 1000)
        except Error as error:
            if "invalid URL" not in error.message:
                raise
            tabs.note(f"{address[:200]!r} is not a valid address")

    async def _settle(self, tabs: Tabs, front: Page | None = None) -> None:
        """Waits until the current tab, or the one to be put in front, is stable."""
        patience = self._spec.navigation_timeout
        async with asyncio.timeout(
            3 * (patience + (self._spec.pause or 0.0) + 2 * RESTLESS) + self._spec.answer_timeout
        ):
            if front is not None:
                await tabs.focus(front)
            # A page may open a tab, also with a delay, which then becomes the current one.
            for _ in range(3):
                await tabs.opened(patience)
                page = self._page = await tabs.current()
                await self._rest(tabs, page)
                await tabs.handled(RESTLESS)
                if await tabs.current() is page:
                    break
            self._page = await tabs.current()

    async def _rest(self, tabs: Tabs, page: Page) -> None:
        patience = self._spec.navigation_timeout
        if self._spec.pause is None:
            came = await until_settled(page, tabs.traffic[page], patience)
        else:
            await asyncio.sleep(self._spec.pause)
            came = await arrived(tabs.traffic[page], time.monotonic() + patience)
        if not came:
            tabs.note(f"another page did not come within {patience:g} s")
            await (await self._view.session(page)).send("Page.stopLoading")

    async def _observe(self, tabs: Tabs) -> Observation:
        page = self.page
        self._check(tabs, page)
        async with asyncio.timeout(self._spec.answer_timeout):
            titles = await tabs.titles(page)
            tree = await self._view.read(page, self._window, self._spec.max_tokens)
            png = await self._view.picture(page)
        # A page's script can create an unpaired surrogate, which records and requests cannot hold.
        text = valid_unicode("\n".join([titles, *(f"! {note}" for note in tabs.notes()), "", tree]))
        picture = await asyncio.to_thread(keep_screenshot, png, self._images)
        return Observation(screenshot=picture, text=text, url=self._public_url(tabs.address(page)))

    def _check(self, tabs: Tabs, page: Page) -> None:
        if page in tabs.crashed:
            raise EnvironmentFailedError("the page crashed")


def _with_scheme(address: str) -> str:
    scheme, colon, rest = address.partition(":")
    return (
        address
        if colon and (rest.startswith("//") or scheme.lower() in _NO_HOST)
        else f"http://{address}"
    )
