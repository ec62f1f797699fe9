"""The report on paper: every entry that is found is there, whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.types import Action, LabelRecord, Observation, Step
from prill.ui.report.entries import Judge
from prill.ui.report.page import write_report
from tests.support.chromium import eventually
from tests.support.closing import closed
from tests.support.report.judges import FIRST, picture, trajectory, verdict

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDS = "abcdef"


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Chromium, tmp_path: Path) -> AsyncIterator[Page]:
    """A report with long answers, and long reasons of five judges."""
    said = {
        id: replace(verdict(id, True), reason=f"{'Because of this. ' * 90}END-{id}") for id in IDS
    }
    judges = [Judge(f"judge {n}", FIRST, said) for n in range(5)]
    labels = [LabelRecord(id=id, success=id < "d", note=f"NOTE-{id}") for id in IDS]
    steps = [Step(Observation(screenshot=picture(tmp_path / "i", "s.png")), Action("click"))]
    items = [trajectory(id, steps, answer=f"{'word ' * 300}ANSWER-{id}") for id in IDS]
    write_report(tmp_path / "r.html", items, judges, labels)
    context = await browser.context(1280, 900)
    shown = await context.new_page()
    await shown.goto((tmp_path / "r.html").as_uri())
    yield shown
    await closed(context)


async def on_paper(page: Page) -> str:
    await page.emulate_media(media="print")
    await page.evaluate("dispatchEvent(new Event('beforeprint'))")
    return await page.inner_text("body")


async def test_what_is_found_is_printed_whole(page: Page) -> None:
    words = await on_paper(page)
    assert "accuracy" in words.lower(), "the summary comes first"
    assert all(f"{name}-{id}" in words for id in IDS for name in ("END", "NOTE", "ANSWER"))
    await page.evaluate("dispatchEvent(new Event('afterprint'))")
    await page.emulate_media(media="screen")
    await eventually(page.locator("#printed > *").count, 0)
    await page.keyboard.press("/")
    await page.keyboard.type("ccc")
    await page.keyboard.press("Enter")
    words = await on_paper(page)
    assert [id for id in IDS if f"ANSWER-{id}" in words] == ["c"]


async def test_what_is_not_printed_is_said(page: Page, tmp_path: Path) -> None:
    write_report(tmp_path / "many.html", (trajectory(f"n{i}") for i in range(503)))
    await page.goto((tmp_path / "many.html").as_uri())
    words = await on_paper(page)
    assert await page.locator("#printed article").count() == 500
    assert "3 more trajectories are not printed" in words


async def test_cut_reasons_unfold_on_the_screen(page: Page) -> None:
    await page.keyboard.press("t")
    reason = page.locator(".judge .reason").first
    cut = "(node) => node.scrollHeight > node.clientHeight + 1"
    assert await reason.evaluate(cut)
    await page.locator(".judge button.more").first.click()
    assert not await reason.evaluate(cut)
    await page.locator(".judge button.more").first.click()
    assert await reason.evaluate(cut)
