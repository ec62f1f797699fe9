"""Captions looked through by a person, by keyboard, in the real Chromium."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from prill.ui.serving import serving
from tests.support.chromium import started_chromium
from tests.unit.annotate.test_captions import HOSTILE, decided, opened, write

if TYPE_CHECKING:
    from playwright.async_api import Route


async def test_captions_decided_by_keyboard(tmp_path: Path) -> None:
    write(tmp_path)
    site, log = opened(tmp_path)
    with closing(log):
        async with started_chromium() as browser, serving(site) as url:
            context = await browser.context(1280, 800)
            page = await context.new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            await page.goto(url)

            async def at(number: int) -> None:
                await page.locator("#about").filter(has_text=f"Caption {number} of 3").wait_for()

            await at(1)
            assert await page.input_value("#caption") == HOSTILE
            await page.locator("#picture[src='pictures/0']").wait_for()
            await page.keyboard.press("r")
            await at(2)
            await page.keyboard.press("a")
            await at(3)
            await page.keyboard.press("z")
            await at(2)
            await page.keyboard.press("e")
            await page.keyboard.press("End")
            await page.keyboard.type(", ra")
            assert await page.inner_text("#accept") == "Accept edited a"
            await page.keyboard.press("Control+Enter")
            await at(3)
            await page.keyboard.press("a")
            await page.locator("#counts").filter(has_text="3 done, 0 left").wait_for()
            assert await page.title() == "prill view: captions" and not errors
    assert decided(tmp_path) == {
        "red.png": ("rejected", None),
        "green.png": ("mended", "a green page, ra"),
        "blue.png": ("accepted", "a blue page"),
    }


async def test_nothing_is_typed_that_a_late_answer_would_overwrite(tmp_path: Path) -> None:
    write(tmp_path)
    site, log = opened(tmp_path)
    asked, answered = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        asked.set()
        await answered.wait()
        await route.continue_()

    with closing(log):
        async with started_chromium() as browser, serving(site) as url:
            page = await (await browser.context(1280, 800)).new_page()
            await page.route("**/api/cards/*", late)
            await page.goto(url)
            await asyncio.wait_for(asked.wait(), 60)
            assert await page.is_disabled("#caption")
            answered.set()
            await page.fill("#caption", "typed")  # waits until it may
            await page.locator("#state").filter(has_text="Not saved yet").wait_for()
            assert await page.input_value("#caption") == "typed"
