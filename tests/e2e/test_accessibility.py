"""Every page for everyone: axe finds nothing serious, keys reach everything, no page is wider than
a phone or loses anything on paper.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

import prill
from prill.emulators.browser.chromium import Chromium
from tests.support.chromium import sees
from tests.support.closing import closed
from tests.support.report.pages import served_captions, served_view, write_pages

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGES = ("report", "run", "view", "blind", "asked", "captions")
# What is shown by a click: the selector to click, and of what appears.
DIALOGS = {
    "keys": ("run", ["#show-help"], "#help[open]"),
    "calls of two judges": ("run", [".asked", "#calls-beside"], "#calls.wide"),
    "two runs": ("report", ["[data-beside]"], "#beside article:nth-child(2)"),
    "a screenshot": ("run", [".enlarge"], "#viewer[open]"),
    "the table of the list": ("view", ["#show-table"], "#columns:not([hidden])"),
}


@dataclass
class Purchase:
    """The type of an answer with several fields."""

    item: str
    price: float | None
    paid: bool
    notes: list[str] | None = None


ASKED = prill.JudgeConfig(
    "ask",
    questions=[
        {"question": "Was a login wall met?"},
        {"question": "How many pages were opened?", "answer": "number"},
        {"question": "Where did it end?", "answer": ["cart", "checkout", "elsewhere"]},
        {"question": "What was bought?", "answer": Purchase},
    ],
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def addresses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("pages")
    made = {"report": write_pages(folder).as_uri()}
    made["run"] = f"{made['report']}#t=bread-0"
    async with (
        served_view(folder) as view,
        served_view(folder, output=folder / "blind.jsonl", blind=True) as blind,
        served_view(
            folder, output=folder / "asked.jsonl", blind=True, judge=ASKED, labels=()
        ) as asked,
        served_captions(folder) as captions,
    ):
        served = {"view": view, "blind": blind, "asked": asked}
        yield {**made, "captions": captions} | {
            name: f"{url}#t=bread-0" for name, url in served.items()
        }


@pytest_asyncio.fixture(loop_scope="module")
async def opened(browser: Chromium, addresses: dict[str, str]) -> AsyncIterator[Any]:
    """Opens a page; the test fails when the page's code does, or when it asks another server."""
    async with AsyncExitStack() as stack:

        async def opened(name: str, width: int = 1280, scheme: Any = "light") -> Page:
            context = await browser.context(width, 800)
            stack.push_async_callback(closed, context)
            page = await context.new_page()
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.on("pageerror", lambda error: errors.append(str(error)))
            base = addresses[name].partition("#")[0].rpartition("/")[0]
            page.on("request", lambda one: asks(one.url, base))
            await page.goto(addresses[name])
            await sees(page, SHOWN[name])
            return page

        def asks(url: str, base: str) -> None:
            if not url.startswith((base, "data:")):
                errors.append(url)

        errors: list[str] = []
        yield opened
        assert not errors


SHOWN = dict.fromkeys(("run", "blind", "view"), "#stage img")
SHOWN |= {"asked": "#answer-3-1"}
SHOWN |= {"captions": "#caption-picture[src^=captions]", "report": "#summary .facts"}


async def findings(page: Page) -> list[str]:
    """What axe finds on a page that is serious or critical."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    script = Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    await page.evaluate(script)
    result = await page.evaluate("axe.run()")
    assert len(result["passes"]) > 10
    return [
        f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']]}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light")])
@pytest.mark.parametrize("name", PAGES)
async def test_axe_finds_nothing_serious(opened: Any, name: str, width: int, scheme: str) -> None:
    page = await opened(name, width, scheme)
    assert await findings(page) == []


@pytest.mark.parametrize("what", DIALOGS)
async def test_axe_finds_nothing_serious_in_what_opens(opened: Any, what: str) -> None:
    name, clicks, shown = DIALOGS[what]
    page = await opened(name)
    for selector in clicks:
        first = page.locator(selector).first
        if selector == "#calls-beside":
            await first.select_option(index=1)
        else:
            await first.click()
    await sees(page, shown)
    assert await findings(page) == []


@pytest.mark.parametrize("name", PAGES)
async def test_no_page_is_wider_than_a_phone(opened: Any, name: str) -> None:
    page = await opened(name, 400)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 400
    assert await page.locator("h1").count() == 1


# What a page hides on paper behind a scroll bar, or beyond the edge of the sheet.
CUT = """() => [...document.body.querySelectorAll("*")].filter((node) => {
  const style = getComputedStyle(node), box = node.getBoundingClientRect();
  if (!box.height || node.closest("svg") || node.matches("textarea")) return false;
  const hides = (overflow) => !["visible", "clip"].includes(overflow);
  return hides(style.overflowY) && node.scrollHeight > node.clientHeight + 1
    || hides(style.overflowX) && node.scrollWidth > node.clientWidth + 1 || box.right > innerWidth + 1;
}).map((node) => `${node.tagName}.${node.className}`)"""  # noqa: E501


@pytest.mark.parametrize("name", PAGES)
async def test_paper_shows_all_of_a_page(opened: Any, name: str) -> None:
    page = await opened(name, 718)  # A4 in CSS pixels, with Chromium's margins
    await page.emulate_media(media="print", color_scheme="dark")
    await page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert await page.evaluate(CUT) == []
    light = await page.evaluate("getComputedStyle(document.body).color")
    assert light == "rgb(26, 34, 45)", "paper is white, whatever the screen is"
    if name in ("report", "run"):
        words = await page.inner_text("body")
        assert words.count("It is rye") >= 2 * 7  # each judge on each run
        if name == "report":
            assert await page.locator("#summary details:not([open])").count() == 0


@pytest.mark.parametrize("name", ["run", "view", "blind", "asked", "captions"])
async def test_the_tab_key_reaches_every_control(opened: Any, name: str) -> None:
    page = await opened(name)
    wanted: Sequence[str] = await page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, summary, a[href]")]
          .filter((node) => node.checkVisibility({ visibilityProperty: true }))
          .filter((node) => !node.disabled && !node.closest("dialog"))
          .map((node, i) => { node.dataset.reach = i; return String(i); })"""
    )
    reached = set()
    for _ in range(3 * len(wanted) + 20):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.dataset.reach ?? ''"))
    assert not set(wanted) - reached


async def test_ctrl_p_prints_runs_that_were_not_read(opened: Any) -> None:
    page = await opened("view")
    await page.evaluate(
        """() => {
          window.print = () => {
            document.body.dataset.printed = document.querySelectorAll("#printed .judge").length;
          };
        }"""
    )
    await page.keyboard.press("Control+p")
    await sees(page, "body[data-printed='14']")  # seven runs by two judges
    assert await page.locator("#printed img[src]").count() == 7 * 3
    assert await page.locator("#summary table.verdicts").count() == 1
