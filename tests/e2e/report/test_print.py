"""The report on paper: every entry is there, whole."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.types import Action, EvaluatorInfo, LabelRecord, Observation, Step, Verdict
from prill.ui.report.entries import Judge
from prill.ui.report.page import write_report
from tests.support.chromium import eventually, started_chromium
from tests.support.closing import closed
from tests.support.report.judges import picture, trajectory

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDS, JUDGES = "abcdefghijkl", 5
PAPER = 718  # CSS pixels: A4 with Chromium's margins
# Whatever has more inside than it shows, and what stands beyond the paper's edge.
CUT = """() => [...document.body.querySelectorAll("*")].filter((node) => {
  const style = getComputedStyle(node), box = node.getBoundingClientRect();
  if (!box.height || node.closest("svg")) return false;
  const hides = (overflow) => overflow !== "visible" && overflow !== "clip";
  return hides(style.overflowY) && node.scrollHeight > node.clientHeight + 1
    || hides(style.overflowX) && node.scrollWidth > node.clientWidth + 1 || box.right > innerWidth + 1;
}).map((node) => `${node.tagName}.${node.className} in ${node.parentElement.className}`)"""  # noqa: E501


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with started_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium: Chromium, tmp_path: Path) -> AsyncIterator[Page]:
    """A report of twelve trajectories by five judges with long reasons, as wide as paper."""
    steps = [
        Step(
            Observation(
                screenshot=picture(tmp_path / "i", f"{n}.png"), url="http://shop/" + "long/" * 40
            ),
            Action("click"),
            "T" * 300,
        )
        for n in range(3)
    ]
    infos = [
        EvaluatorInfo(
            f"judge {n} with a name that is not short", "1", "some/model-with-a-long-name"
        )
        for n in range(JUDGES)
    ]
    said = [
        Judge(
            info.name,
            info,
            {
                id: Verdict(
                    id=id,
                    success=(n + k) % 2 == 0,
                    score=0.5,
                    reason=f"{'Because of this. ' * 60}END-{id}-{n}",
                    evaluator=info,
                )
                for k, id in enumerate(IDS)
            },
        )
        for n, info in enumerate(infos)
    ]
    labels = [LabelRecord(id=id, success=id < "g", note=f"NOTE-{id}") for id in IDS]
    items = [trajectory(id, steps, answer=f"{'word ' * 300}ANSWER-{id}") for id in IDS]
    write_report(tmp_path / "r.html", items, said, labels)
    context = await chromium.context(PAPER, 1000)
    shown = await context.new_page()
    await shown.goto((tmp_path / "r.html").as_uri())
    yield shown
    await closed(context)


async def on_paper(page: Page) -> str:
    await page.emulate_media(media="print")
    await page.evaluate("dispatchEvent(new Event('beforeprint'))")
    return await page.inner_text("body")


def sheets(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


async def test_every_entry_is_printed_whole(page: Page) -> None:
    words = await on_paper(page)
    for id in IDS:
        assert f"ANSWER-{id}" in words and f"NOTE-{id}" in words
        assert all(f"END-{id}-{n}" in words for n in range(JUDGES))
    assert "Confusion" in words or "accuracy" in words.lower(), "the summary comes first"
    assert await page.evaluate(CUT) == []
    await page.evaluate("dispatchEvent(new Event('afterprint'))")
    await page.emulate_media(media="screen")
    await eventually(page.locator("#printed > *").count, 0)


async def test_filtered_entries_alone_are_printed(page: Page) -> None:
    await page.keyboard.press("/")
    await page.keyboard.type("ccc")
    await page.keyboard.press("Enter")
    words = await on_paper(page)
    assert "ANSWER-c" in words and not [id for id in IDS if id != "c" and f"ANSWER-{id}" in words]


async def test_what_is_not_printed_is_said(page: Page, tmp_path: Path) -> None:
    write_report(tmp_path / "many.html", (trajectory(f"n{i}") for i in range(503)))
    await page.goto((tmp_path / "many.html").as_uri())
    words = await on_paper(page)
    assert await page.locator("#printed article").count() == 500
    assert "3 more trajectories are not printed" in words


async def test_pdf_has_pages_for_all_entries(page: Page) -> None:
    everything = await page.pdf()
    await page.keyboard.press("/")
    await page.keyboard.type("ccc")
    await page.keyboard.press("Enter")
    one = await page.pdf()
    # Of each entry, five reasons of a thousand letters, an answer of fifteen hundred and three
    # steps: half a sheet at least.
    assert sheets(one) >= 1 and sheets(everything) - sheets(one) >= len(IDS) / 2
    await eventually(page.locator("#printed > *").count, 0)


async def test_paper_is_light_in_dark_mode(page: Page) -> None:
    await page.emulate_media(media="print", color_scheme="dark")
    colour = await page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--ink')"
    )
    await page.emulate_media(media="screen", color_scheme="light")
    assert colour == await page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--ink')"
    )


async def test_cut_reasons_unfold_on_the_screen(page: Page) -> None:
    await page.set_viewport_size({"width": 1280, "height": 900})
    await page.keyboard.press("t")
    reason = page.locator(".judge .reason").first
    cut = "(node) => node.scrollHeight > node.clientHeight + 1"
    assert await reason.evaluate(cut)
    await page.locator(".judge button.more").first.click()
    assert not await reason.evaluate(cut)
    await page.locator(".judge button.more").first.click()
    assert await reason.evaluate(cut)
