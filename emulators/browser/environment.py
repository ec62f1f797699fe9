"""The browser environment: any page, observed and driven as in WebArena (arXiv 2307.13854).

An observation is a screenshot of the window and the text of the current tab: a line with the titles
of all tabs, a line for each event outside the page
(`! a dialog said 'Saved' and was answered OK`) and for an action that was not carried out
(`! click [17]: no such element`), an empty line, and the accessibility tree (axtree.py). An element
keeps its number until its page navigates. Numbers are unique within an episode, and the same pages
give the same numbers each time. See actions.py for actions, tabs.py for tabs and dialogs, settle.py
for waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from msgspec import Meta, UnsetType

from prill.actions.elements import read_target
from prill.emulators.browser.actions import (
    Typing,
    ask_for_file,
    element_at,
    perform,
    pixels,
    spot_in_window,
)
from prill.emulators.browser.chromium import Chromium, Profile, browser_failures
from prill.emulators.browser.settle import arrived, until_settled
from prill.emulators.browser.tabs import Tabs, free_path
from prill.emulators.browser.view import PageView
from prill.emulators.screenshots import keep_screenshot
from prill.errors import EnvironmentFailedError, UsageError
from prill.io.lines import valid_unicode
from prill.models.prompts import shorten
from prill.types import Action, Observation, Point, Task

if TYPE_CHECKING:
    from playwright.async_api import JSHandle, Page


# Time limit in seconds for writing a trace or a network record.
_WRITING = 30.0
START_SEPARATOR = " |AND| "
_BLANK = "about:blank"
# A blinking caret would make two screenshots of the same state differ.
_NO_CARET = """(() => { const sheet = new CSSStyleSheet(); sheet.replaceSync("* { caret-color: transparent !important }");
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]; })()"""  # noqa: E501
# Counts changes of the document, so that text and picture show the same instant.
_WATCH = """() => { const seen = { changes: 0 };
seen.observer = new MutationObserver(() => { seen.changes++; });
seen.observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
return seen; }"""  # noqa: E501
_CHANGED = "(seen) => { seen.observer.disconnect(); return seen.changes > 0; }"
_LOOKS, _GLANCE = 3, 2.0
# Seconds: fields suggest entries some 0.3 s after the last key; file choosers open sooner.
_SUGGESTIONS, _CHOOSER = 0.5, 0.5
_MAX_FILES = 20
_NO_HOST = ("about", "blob", "chrome", "data", "file", "javascript", "mailto", "view-source")


VIEWPORT = Meta(
    description="Window size in CSS pixels, at a device pixel ratio of 1 (default: from the "
    "policy's paper, else 1280x720)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """Options for displaying pages and waiting for them. Times are in seconds. An episode that
    exceeds a limit ends with an EnvironmentFailedError.

    After an action, the environment waits until the page is stable; with `pause`, it waits that
    many seconds instead (WebArena: 2). The start page may have any scheme.
    """

    viewport: Annotated[tuple[int, int], VIEWPORT] = (1280, 720)
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
    quiet: Annotated[
        float, Meta(gt=0, description="Seconds without a change after which a page is idle.")
    ] = 0.1
    patience: Annotated[
        float,
        Meta(gt=0, description="Maximum number of seconds to wait for a page to become idle."),
    ] = 3.0
    typing: Annotated[Typing, "typing replaces what a field holds, or appends to it"] = "replace"
    failures: Annotated[
        bool, "tell in the text which actions were not carried out, and pages that still load"
    ] = True
    webarena_text: Annotated[
        bool, "leave out of the text what WebArena's lacks: the hints of hints.py"
    ] = False
    http_login_env: Annotated[
        str | None,
        "environment variable with user:password for HTTP authentication at the first start page",
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
    ] = ("http", "https")


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
        self._files: dict[str, Path] = {}

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
            UsageError: The folder of files, or the variable with the HTTP login, does not exist.
            EnvironmentFailedError: A start page cannot be reached, its server reports an error, or
                the browser failed.
        """
        await self.finish()
        self._files = _files(task.files)
        profile = await self._prepare(task)
        profile = replace(profile, downloads=self._spec.downloads is not None, reduced_motion=True)
        if self._spec.http_login_env is not None:
            start = self._real_url((task.start_url or "").split(START_SEPARATOR)[0])
            profile = replace(profile, http_login=_http_login(self._spec.http_login_env, start))
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
            await self._settle(tabs, tabs.pages[0], patience=2 * self._spec.patience)
            return await self._observe(tabs)

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Acts, and returns the current tab. An action that cannot be carried out is told in its
        text.
        """
        tabs, page = self._tabs, self.page
        assert tabs is not None
        with browser_failures(f"after {action.kind}"):
            self._check(tabs, page)
            travels = action.kind in ("goto", "back", "forward")
            async with asyncio.timeout(
                self._spec.answer_timeout + (self._spec.navigation_timeout if travels else 0.0)
            ):
                why = await self._act(tabs, page, action)
            if why is not None and self._spec.failures:
                tabs.note(f"{_label(action)}: {why}", first=True)
            types = action.kind == "type" and not (action.value or "").endswith("\n")
            quiet = max(self._spec.quiet, _SUGGESTIONS) if types else self._spec.quiet
            await self._settle(tabs, quiet=quiet)
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

    async def _act(self, tabs: Tabs, page: Page, action: Action) -> str | None:
        """Acts; returns why the action was not carried out, or None."""
        from playwright.async_api import Error, TimeoutError

        limit = self._spec.navigation_timeout * 1000
        chooser, tabs.chooser = tabs.chooser, None
        try:
            match action.kind:
                case "goto" if action.value:
                    await self._goto(tabs, page, action.value)
                case "back" | "forward":
                    session = await self._view.session(page)
                    history = await session.send("Page.getNavigationHistory")
                    last = 0 if action.kind == "back" else len(history["entries"]) - 1
                    if history["currentIndex"] == last:
                        return "there is no such page"
                    go = page.go_back if action.kind == "back" else page.go_forward
                    await go(wait_until="commit", timeout=limit)
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
                    if tab is None:
                        return "no such tab"
                    await tabs.focus(tab)
                case "wait":
                    await asyncio.sleep(1)
                case "type" if chooser and (action.value or "").strip() in self._files:
                    await chooser.set_files(self._files[(action.value or "").strip()])
                case "upload":
                    return await self._upload(tabs, page, action)
                case _:
                    element = None if action.target is None else self._view.find(action.target)
                    session = await self._view.session(page)
                    return await perform(page, session, action, element, self._spec.typing)
        except TimeoutError:
            tabs.note(f"no response within {self._spec.navigation_timeout:g} s")
            await (await self._view.session(page)).send("Page.stopLoading")
        except Error as error:
            # During an action, a page may close, navigate or turn into a download.
            if not (page.is_closed() and tabs.pages) and not re.search(
                r"net::ERR_|interrupted by|Download is", error.message
            ):
                raise
        return None

    async def _upload(self, tabs: Tabs, page: Page, action: Action) -> str | None:
        file = self._files.get((action.value or "").strip())
        if file is None:
            return "no such file"
        element = None if action.target is None else self._view.find(action.target)
        session = await self._view.session(page)
        why = await perform(page, session, replace(action, kind="click"), element)
        chooser = await tabs.asked(_CHOOSER)
        if chooser is None and element is not None:
            await ask_for_file(element)
            chooser = await tabs.asked(_CHOOSER)
        if chooser is None:
            return why or "it asks for no file"
        await chooser.set_files(file)
        return None

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

    async def _settle(
        self,
        tabs: Tabs,
        front: Page | None = None,
        *,
        quiet: float | None = None,
        patience: float | None = None,
    ) -> None:
        """Waits until the current tab, or the one to be put in front, is stable."""
        spec = self._spec
        quiet, patience = quiet or spec.quiet, patience or spec.patience
        arrival = spec.navigation_timeout
        async with asyncio.timeout(
            3 * (arrival + (spec.pause or 0.0) + 2 * patience) + spec.answer_timeout
        ):
            if front is not None:
                await tabs.focus(front)
            # A page may open a tab, also with a delay, which then becomes the current one.
            for _ in range(3):
                await tabs.opened(arrival)
                page = self._page = await tabs.current()
                await self._rest(tabs, page, quiet, patience)
                await tabs.handled(patience)
                if await tabs.current() is page:
                    break
            self._page = await tabs.current()

    async def _rest(self, tabs: Tabs, page: Page, quiet: float, patience: float) -> None:
        arrival, traffic = self._spec.navigation_timeout, tabs.traffic[page]
        if self._spec.pause is None:
            state = await until_settled(page, traffic, arrival, quiet, patience)
        else:
            await asyncio.sleep(self._spec.pause)
            came = await arrived(traffic, time.monotonic() + arrival)
            state = "settled" if came else "absent"
        if state == "absent":
            tabs.note(f"another page did not come within {arrival:g} s")
            await (await self._view.session(page)).send("Page.stopLoading")
        elif state == "loading" and self._spec.failures:
            tabs.note("the page is still loading")

    async def _observe(self, tabs: Tabs) -> Observation:
        page = self.page
        self._check(tabs, page)
        spec = self._spec
        async with asyncio.timeout(spec.answer_timeout):
            end = time.monotonic() + spec.answer_timeout / 4
            for _ in range(_LOOKS):
                watch = await _watch(page)
                titles = await tabs.titles(page)
                tree = await self._view.read(
                    page, self._window, spec.max_tokens, as_webarena=spec.webarena_text
                )
                png = await self._view.picture(page)
                if watch is None or time.monotonic() > end or not await _changed(watch):
                    break
        if tabs.chooser is not None:
            how = (
                "type its name, or upload [id] [file]"
                if self._files
                else "there are none to choose from"
            )
            tabs.note(f"a file was asked for; {how}")
        if self._files:
            listed = ", ".join(repr(name) for name in list(self._files)[:_MAX_FILES])
            tabs.note(f"files to upload: {shorten(listed, 1000)}", first=True)
        # A page's script can create an unpaired surrogate, which records and requests cannot hold.
        text = valid_unicode("\n".join([titles, *(f"! {note}" for note in tabs.notes()), "", tree]))
        picture = await asyncio.to_thread(keep_screenshot, png, self._images)
        return Observation(screenshot=picture, text=text, url=self._public_url(tabs.address(page)))

    def _check(self, tabs: Tabs, page: Page) -> None:
        if page in tabs.crashed:
            raise EnvironmentFailedError("the page crashed")


async def _watch(page: Page) -> JSHandle | None:
    from playwright.async_api import Error

    with contextlib.suppress(Error, TimeoutError):  # the page navigates
        async with asyncio.timeout(_GLANCE):
            return await page.evaluate_handle(_WATCH)
    return None


async def _changed(watch: JSHandle) -> bool:
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(_GLANCE):
            return bool(await watch.evaluate(_CHANGED))
    except (Error, TimeoutError):  # another document came
        return True


def _label(action: Action) -> str:
    """Returns a short form of an action in one line: `click [17]`."""
    if action.kind == "other" and action.text:
        return repr(shorten(action.text, 100))
    named = read_target(action.target) if action.target else None
    what = named.number or action.target if named else action.value
    return " ".join(f"{action.kind} [{shorten(what, 100)}]".split()) if what else action.kind


def _files(folder: str | UnsetType) -> dict[str, Path]:
    """Returns the files that an agent may upload, by their path in the folder."""
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise UsageError(f"{folder}: no such folder; it should contain the task's files")
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files}


def _http_login(variable: str, start: str) -> tuple[str, str, str]:
    user, colon, password = os.environ.get(variable, "").partition(":")
    if not colon:
        raise UsageError(f"{variable} is not set to user:password", parameters=("http_login_env",))
    parts = urlsplit(start)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", user, password


def _with_scheme(address: str) -> str:
    scheme, colon, rest = address.partition(":")
    return (
        address
        if colon and (rest.startswith("//") or scheme.lower() in _NO_HOST)
        else f"http://{address}"
    )
