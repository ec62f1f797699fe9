"""MiniWoB++ in headless Chromium, without Selenium or network, and reproducible by seed.

An observation is a screenshot of the 160 x 210 task area, at twice that size, and the page as text:
a line for each visible element, `role "name" #place state`; elements that must be scrolled to are
marked `offscreen`. The yellow instruction is in the screenshot but not in the text, since it is the
goal. Seeds go to the page's random generator unchanged, as in gymnasium-miniwob. BrowserGym maps
them first, so its seed 3 is another episode.

The page's clock stops while the agent thinks, and advances by `settle` at each action (see
clock.js). The same actions therefore give the same states and screenshots. The one exception uses
the browser's real clock: dragging a selection past the edge of a box scrolls the box.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import mimetypes
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.emulators.browser.chromium import CALL_TIMEOUT, Chromium, Profile, browser_failures
from prill.emulators.browser.view import capture_png
from prill.emulators.miniwob.page import HEIGHT, WIDTH, let_go, located, page_script, perform
from prill.emulators.screenshots import keep_screenshot
from prill.emulators.settings import (
    EnvironmentConfig,
    Playing,
    Setting,
    TimeoutOption,
    broken_label,
)
from prill.emulators.task_source import Names, join_names, task_names
from prill.errors import UsageError
from prill.types import Action, LabelRecord, Observation, Task, Trajectory

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Page, Route


SCALE = 2
# The window size affects the pages' layout of dialogs and menus; this is nearly the size in the
# original Selenium harness.
WINDOW = (332, 214)
ORIGIN = "http://miniwob.invalid/"
# Flights and dates are generated in local time.
PROFILE = Profile(locale="en-US", timezone="UTC", downloads=False)
# The START cover appears when an episode ends, and would hide the final state.
STYLE = """#sync-task-cover { display: none !important; }
*, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; }"""  # noqa: E501
# One hour, so that long episodes do not time out.
START = """async ([seed, hidden]) => {
  prillPage.show(hidden);
  await prillClock.advance(1000);
  Math.seedrandom(seed);
  core.EPISODE_MAX_TIME = 3600000;
  if (window.jQuery) jQuery.fx.off = true;
  core.startEpisodeReal();
  const said = core.getUtterance();
  return said.utterance || said;
}"""
LOOK = (
    "async ([ms, hidden]) => {{ await prillClock.advance(ms); await prillDrawn(); return [{}, "
    "scrollX, scrollY]; }}"
)
READ = {"lines": "prillPage.read()", "html": "prillHtml.read(hidden, false)"}
READ_BOXES = "prillHtml.read(hidden, true)"
OUTCOME = "() => [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]"
TextOption = Annotated[
    Literal["lines", "html"] | None,
    Meta(
        description="Text form of the page: lines, or html.js's HTML (default: the one that the "
        "policy reads, else lines)."
    ),
]
HiddenOption = Annotated[bool, Meta(description="Include hidden elements in the text.")]
SettleOption = Annotated[
    float, Meta(ge=0, description="Seconds of page time after the start and after each action.")
]
EndOption = Annotated[
    bool | None,
    Meta(
        description="End the episode as soon as the page gives its reward (default: yes, except "
        "with the scripted policy)."
    ),
]
BoxesOption = Annotated[
    bool | None,
    Meta(
        description="Add the position of each element to the HTML, as data-wob_box (default: as "
        "in the policy's paper, else no)."
    ),
]
_PICTURE = re.compile(rb"""url\(["']?([\w./-]+\.(?:png|gif|jpg|svg))["']?\)""")


class MiniWoB:
    """MiniWoB++ with its oracle. Screenshots are named by content.

    Without `announce_end`, the agent has to act `stop` itself, and the first reward counts.
    `settle` is in the page's own time (0.5 s as in structured reflection, arXiv 2310.08740).
    `timeout` is a hundred times the usual duration of a reset or step, so only a page or browser
    that hangs exceeds it.

    Args:
        images: The folder for screenshots.
        browser: A shared browser, which stays open at the end. None: an own browser.
    """

    def __init__(
        self,
        images: Path,
        *,
        browser: Chromium | None = None,
        announce_end: EndOption = True,
        settle: SettleOption = 0.5,
        text: TextOption = "lines",
        hidden: HiddenOption = False,
        boxes: BoxesOption = False,
        timeout: TimeoutOption = 30.0,
    ) -> None:
        self._images = images
        self._browser = browser or Chromium()
        self._owns_browser = browser is None
        self._announce_end = announce_end is not False
        self._settle = settle
        self._look = LOOK.format(READ_BOXES if boxes and text == "html" else READ[text or "lines"])
        self._hidden = hidden
        self._timeout = timeout
        self._pages = _pages()
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._session: CDPSession | None = None
        self._site = ""
        self._untouched: tuple[str, int] | None = None
        self._held = False

    @staticmethod
    def tasks() -> tuple[str, ...]:
        """Lists the names of all tasks (130 in miniwob 1.1)."""
        return tuple(sorted(page.stem for page in (_pages() / "miniwob").glob("*.html")))

    async def task(self, name: str, seed: int) -> Task:
        """Makes the task with the page's goal for a seed.

        Args:
            name: The task's name.
            seed: The seed of its content.
        """
        async with self._bounded():
            goal = await self._load(name, seed)
        self._untouched = (name, seed)
        where = f"miniwob/{name}"
        return Task(
            id=f"{where}?seed={seed}", goal=goal, platform="web", site=name, start_url=where
        )

    async def reset(self, task: Task) -> Observation:
        """Reloads the page and starts the episode of `task.id` (`miniwob/<name>?seed=<number>`)."""
        match = re.fullmatch(r"miniwob/([\w-]+)\?seed=(\d+)", task.id)
        if match is None:
            raise UsageError(f"task id {task.id!r}: expected miniwob/<name>?seed=<number>")
        episode, ready = (match[1], int(match[2])), self._untouched
        self._untouched = None
        async with self._bounded():
            if self._page is None or ready != episode:
                await self._load(*episode)
            return await self._observe()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Acts, and returns the page. Actions on missing elements change nothing."""
        page = self._open_page()
        async with self._bounded():
            self._held = self._held or action.kind == "hold"
            if pointer := await perform(page, action):
                # An element that the action moved under the pointer shows its hover style now, not
                # at a random later time.
                await page.mouse.move(*pointer)
            observation = await self._observe()
            done = bool((await page.evaluate(OUTCOME))[0])
        return observation, action.is_final or (done and self._announce_end)

    async def locate(self, action: Action) -> Action:
        """Adds the element's point on the screenshot to the action."""
        page = self._open_page()
        async with self._bounded():
            return await located(page, action)

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Labels an episode: a raw reward above 0, without the discount for time, is a success.
        This is the convention of the MiniWoB++ papers.

        Args:
            trajectory: The episode that was just played.

        Returns:
            The label. An episode that the page never rewarded is a failure; one that ended with an
            error is undecided.
        """
        if trajectory.error is not None:
            return broken_label(trajectory)
        page = self._open_page()
        async with self._bounded():
            done, raw = await page.evaluate(OUTCOME)
        note = f"raw reward {raw:g}" if done else f"not submitted: raw reward {raw:g}"
        return LabelRecord(
            id=trajectory.id, success=bool(done and raw > 0), source="oracle", note=note
        )

    async def close(self) -> None:
        """Closes the page, and the browser unless it is shared."""
        await self._leave()
        if self._owns_browser:
            await self._browser.close()

    @contextlib.asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """A context with a time limit; after a failure, the next episode gets a new profile."""
        went_well = False
        try:
            with browser_failures("in MiniWoB++"):
                async with asyncio.timeout(self._timeout):
                    yield
            went_well = True
        finally:
            if not went_well:
                await self._leave()

    async def _leave(self) -> None:
        context, self._context, self._page = self._context, None, None
        self._untouched = None
        if context is not None:
            from playwright.async_api import Error

            # A crashed browser has closed its pages already.
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(CALL_TIMEOUT):
                    await context.close()

    def _open_page(self) -> Page:
        if self._page is None:
            raise UsageError("no episode is open; call reset first")
        return self._page

    async def _load(self, name: str, seed: int) -> str:
        """Starts the episode and returns its goal."""
        if not (self._pages / "miniwob" / f"{name}.html").is_file():
            raise UsageError(
                f"MiniWoB++ has no task {name!r}; the tasks are the pages in "
                f"{self._pages / 'miniwob'}"
            )
        page = await self._clean_page()
        self._untouched = None
        self._site = name
        await page.goto(f"{ORIGIN}miniwob/{name}.html", timeout=1000 * self._timeout)
        await page.add_style_tag(content=STYLE)
        return str(await page.evaluate(START, [seed, self._hidden]))

    async def _clean_page(self) -> Page:
        """Returns the page, created if needed, without any state of an earlier episode."""
        if self._page is not None and self._context is not None:
            await self._context.clear_cookies()
            # The pointer is moved away, since the next page would show a hover style under it.
            await self._page.mouse.move(-1, -1)
            if self._held:
                await let_go(self._page)
                self._held = False
            return self._page
        self._context = await self._browser.context(*WINDOW, scale=SCALE, profile=PROFILE)
        await self._context.add_init_script(page_script())
        await self._context.route("**/*", self._serve)
        # Other connections, such as web sockets, find no network.
        await self._context.set_offline(True)
        page = await self._context.new_page()
        self._session = await self._context.new_cdp_session(page)
        # The same window size as above, since this CDP session takes the screenshots and has its
        # own settings.
        window = {
            "width": WINDOW[0],
            "height": WINDOW[1],
            "deviceScaleFactor": SCALE,
            "mobile": False,
        }
        await self._session.send("Emulation.setDeviceMetricsOverride", window)
        self._page = page
        return page

    async def _serve(self, route: Route) -> None:
        """Answers every request of the page from the wheel, so that nothing reaches a network."""
        path = (self._pages / route.request.url.removeprefix(ORIGIN).split("?")[0]).resolve()
        if path.is_relative_to(self._pages) and path.is_file():
            # The files do not declare their encoding, which unicode-test needs.
            await route.fulfill(
                body=_content(path),
                content_type=f"{mimetypes.guess_type(path.name)[0]}; charset=utf-8",
            )
        else:
            await route.fulfill(status=404)

    async def _observe(self) -> Observation:
        page = self._open_page()
        assert self._session is not None
        text, x, y = await page.evaluate(self._look, [1000 * self._settle, self._hidden])
        clip = {"x": x, "y": y, "width": WIDTH, "height": HEIGHT, "scale": 1}
        # Half the work of Playwright's screenshot(), which first handles frames, carets and
        # animations.
        picture = await capture_png(page, self._session, {"format": "png", "clip": clip})
        shot = await asyncio.to_thread(keep_screenshot, picture, self._images)
        return Observation(screenshot=shot, text=text, url=f"miniwob/{self._site}")


@cache
def _content(path: Path) -> bytes:
    """Reads a file with the images of its styles inlined: on hover they would have no size."""
    data = path.read_bytes()
    return (
        _PICTURE.sub(lambda link: _inline_picture(path.parent, link), data)
        if path.suffix in (".css", ".html")
        else data
    )


def _inline_picture(folder: Path, link: re.Match[bytes]) -> bytes:
    picture = folder / link[1].decode()
    if not picture.is_file():
        return link[0]
    kind = mimetypes.guess_type(picture.name)[0] or ""
    return b"url(data:%s;base64,%s)" % (kind.encode(), base64.b64encode(picture.read_bytes()))


def _pages() -> Path:
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            "the MiniWoB++ pages are not installed; run: pip install --no-deps miniwob"
        )
    return (Path(spec.submodule_search_locations[0]) / "html").resolve()


@dataclass(frozen=True, kw_only=True)
class MiniWobConfig(EnvironmentConfig):
    """MiniWoB++ in the system's Chromium: `MiniWobConfig(tasks=["click-link", "enter-text"])`."""

    name: ClassVar[str] = "miniwob"
    usual_policy: ClassVar[str | None] = "scripted"
    _identifying: ClassVar[frozenset[str]] = frozenset(
        {"tasks", "text", "hidden", "settle", "announce_end"}
    )

    tasks: Annotated[
        Names,
        Meta(
            description="Tasks of MiniWoB++, or all (with the scripted policy: all that it can "
            "solve)."
        ),
    ] = None
    text: TextOption = None
    hidden: HiddenOption = False
    settle: SettleOption = 0.5
    announce_end: EndOption = None
    boxes: BoxesOption = None
    timeout: TimeoutOption = 30.0

    def check(self) -> None:
        """Converts the task names to one text."""
        object.__setattr__(self, "tasks", join_names(self.tasks))

    def setting(self, run: Playing) -> Setting[Any]:
        """Creates a browser, and a page for each worker."""
        browser = Chromium()
        # If the page ended its episodes, the scripted agent would act `stop` exactly in those that
        # were not submitted.
        settings = {
            "announce_end": not run.scripted if self.announce_end is None else self.announce_end,
            "settle": self.settle,
            "text": self.text or run.page_text or "lines",
            "hidden": self.hidden,
        }
        options: dict[str, Any] = {**settings, "boxes": bool(self.boxes), "timeout": self.timeout}
        environments: list[Any] = [
            MiniWoB(run.images, browser=browser, **options) for _ in range(run.copies)
        ]
        tasks = task_names(self.tasks, MiniWoB.tasks()) if self.tasks or not run.listed else []
        # Boxes that are off, explicitly or by default, give the same episode ids.
        more = (self if self.boxes else self.copy_with(boxes=None)).more()
        return Setting(
            environments, tasks, MiniWoB.task, MiniWoB.grade, {**settings, **more}, browser.close
        )

    def scripts(self) -> None:
        """Returns None: the scripted policy has its own solutions."""
        return None
