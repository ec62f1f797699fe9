"""MiniWoB++ in headless Chromium, from the pages of the `miniwob` wheel: no Selenium, no network, the same episode for a seed.

An observation is a picture of the 160 x 210 task area, at twice that size, and the page as text: a line for each
visible element, `role "name" #place state`; what has to be scrolled to is marked `offscreen`. The yellow instruction
is in the picture but not in the text, for it is the goal. Seeds go to the page's generator as they are, as in
gymnasium-miniwob (BrowserGym maps them first, so its seed 3 is another episode).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prill.emulators.chromium import Chromium
from prill.emulators.page import HEIGHT, WIDTH, browser_failures, page_script, perform, save_picture
from prill.errors import UsageError
from prill.types import Action, LabelRecord, Observation, Task, Trajectory

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Request, Route

SCALE = 2
# The pages lay out dialogs and menus by the window; this is the size the original Selenium harness gives it, nearly.
WINDOW = (332, 214)
ORIGIN = "http://miniwob.invalid/"
TIMEOUT = 10_000
# The cover that says START appears when an episode ends and would hide what the agent left.
STYLE = "#sync-task-cover { display: none !important; }"
# An hour, so that a slow agent neither runs out of time nor loses reward to the clock.
START = """(seed) => {
  Math.seedrandom(seed);
  core.EPISODE_MAX_TIME = 3600000;
  if (window.jQuery) jQuery.fx.off = true;
  core.startEpisodeReal();
}"""
GOAL = "() => { const said = core.getUtterance(); return said.utterance || said; }"
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
OUTCOME = "() => [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]"


class MiniWoB:
    """An environment and its oracle. Screenshots are written below `images`, named by content.

    With `announce_end` an episode ends when the page gives its reward; without it the agent has to say `stop` itself,
    and the first reward stands. `settle` is the time in seconds to let pages react after an action, for the few
    that use timers (0.35 for use-autocomplete); animations are off, so most need none.
    """

    def __init__(
        self, images: Path, *, browser: Chromium | None = None, announce_end: bool = True, settle: float = 0.0
    ) -> None:
        self._images = images
        self._browser = browser or Chromium()
        self._owns_browser = browser is None
        self._announce_end = announce_end
        self._settle = settle
        self._pages = _pages()
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._loading: set[Request] = set()
        self._site = ""
        self._untouched: tuple[str, int] | None = None

    async def task(self, name: str, seed: int) -> Task:
        """The task with the goal that the page gives for this seed."""
        with browser_failures():
            page = await self._load(name, seed)
            goal = str(await page.evaluate(GOAL))
        self._untouched = (name, seed)
        where = f"miniwob/{name}"
        return Task(id=f"{where}?seed={seed}", goal=goal, platform="web", site=name, start_url=where)

    async def reset(self, task: Task) -> Observation:
        """A new browser profile, and the episode that `task.id` names (`miniwob/<name>?seed=<number>`)."""
        match = re.fullmatch(r"miniwob/([\w-]+)\?seed=(\d+)", task.id)
        if match is None:
            raise UsageError(f"task id {task.id!r}: expected miniwob/<name>?seed=<number>")
        episode, ready = (match[1], int(match[2])), self._untouched
        self._untouched = None
        with browser_failures():
            if self._page is None or ready != episode:
                await self._load(*episode)
            return await self._observe()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """The page after the action. An action on something that is not there leaves the page as it was."""
        page = self._open_page()
        with browser_failures():
            await perform(page, action, partial(self._drawn, page))
            observation = await self._observe()
            done = bool((await page.evaluate(OUTCOME))[0])
        return observation, action.is_final or (done and self._announce_end)

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Success is a raw reward above 0, the convention of the MiniWoB++ papers, without the discount for time.

        An episode that the page never rewarded was not submitted: a failure. One that broke off is undecided (None).
        """
        if trajectory.error is not None:
            return LabelRecord(id=trajectory.id, success=None, source="oracle", note="the episode broke off")
        with browser_failures():
            done, raw = await self._open_page().evaluate(OUTCOME)
        note = f"raw reward {raw:g}" if done else f"not submitted: raw reward {raw:g}"
        return LabelRecord(id=trajectory.id, success=bool(done and raw > 0), source="oracle", note=note)

    async def close(self) -> None:
        """Closes the page, and the browser unless it was given."""
        await self._leave()
        if self._owns_browser:
            await self._browser.close()

    async def _leave(self) -> None:
        context, self._context, self._page = self._context, None, None
        if context is not None:
            from playwright.async_api import Error

            # A browser that has died has closed its pages already.
            with contextlib.suppress(Error):
                await context.close()

    def _open_page(self) -> Page:
        if self._page is None:
            raise UsageError("no episode is open: call reset first")
        return self._page

    async def _load(self, name: str, seed: int) -> Page:
        if not (self._pages / "miniwob" / f"{name}.html").is_file():
            raise UsageError(f"MiniWoB++ has no task {name!r}; the tasks are the pages in {self._pages / 'miniwob'}")
        await self._leave()
        self._untouched = None
        self._loading.clear()
        self._context = await self._browser.context(*WINDOW, scale=SCALE)
        self._context.set_default_timeout(TIMEOUT)
        await self._context.route("**/*", self._serve)
        page = self._page = await self._context.new_page()
        page.on("request", self._began)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)
        await page.goto(f"{ORIGIN}miniwob/{name}.html")
        await page.add_style_tag(content=STYLE)
        await page.evaluate(page_script())
        await page.evaluate(START, seed)
        await page.wait_for_function("() => WOB_TASK_READY")
        self._site = name
        return page

    def _began(self, request: Request) -> None:
        if request.url.startswith(ORIGIN):
            self._loading.add(request)

    def _ended(self, request: Request) -> None:
        self._loading.discard(request)

    async def _serve(self, route: Route) -> None:
        """Answers every request of the page from the wheel, so that nothing reaches a network."""
        path = (self._pages / route.request.url.removeprefix(ORIGIN).split("?")[0]).resolve()
        if path.is_relative_to(self._pages) and path.is_file():
            await route.fulfill(path=path)
        else:
            await route.fulfill(status=404)

    async def _observe(self) -> Observation:
        page = self._open_page()
        await asyncio.sleep(self._settle)
        await self._drawn(page)
        text = str(await page.evaluate("() => prillPage.read()"))
        png = await page.screenshot(
            clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT}, animations="disabled", caret="hide", type="png"
        )
        shot = await asyncio.to_thread(save_picture, png, self._images)
        return Observation(screenshot=shot, text=text, url=f"miniwob/{self._site}")

    async def _drawn(self, page: Page) -> None:
        """Returns when the page has drawn its state and loaded the pictures for it."""
        await page.evaluate(FRAMES)
        while self._loading:
            await asyncio.sleep(0.005)
            await page.evaluate(FRAMES)


def _pages() -> Path:
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the MiniWoB++ pages are not installed; run: pip install --no-deps miniwob")
    return (Path(spec.submodule_search_locations[0]) / "html").resolve()
