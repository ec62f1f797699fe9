"""A page of Playwright that is recorded behaves as before, and each call is a step: both APIs, a
real Chromium.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import prill
from prill import Trajectory, read_trajectories
from prill.emulators.browser.chromium import chromium_path
from prill.io.images import image_size
from tests.support.chromium import need_chromium

need_chromium()

FORM = """<title>Shop</title><input aria-label="Search" style="position:absolute;left:40px;top:80px;
width:200px;height:40px"><select aria-label="Size"><option>S<option>L</select>
<input type="checkbox" aria-label="Gift"><button onclick="document.title = 'Bought'">Buy</button>
<p style="margin-top:2000px">The end <a href="#">Far</a></p>"""
ROWS = [
    ("goto", None, f"data:text/html,{FORM}"),
    ("type", "'Search'", "tea"),
    ("type", "input >> nth=0", "!"),
    ("press", "'Search'", "Enter"),
    ("select", "'Size'", "L"),
    ("click", "input >> nth=1", None),
    ("hover", "button 'Buy'", None),
    ("click", "#none", None),
    ("click", "button 'Buy'", None),
    ("scroll", None, "down"),
    ("click", None, None),
    ("goto", None, "about:blank"),
    ("back", None, None),
    ("forward", None, None),
    ("answer", None, "Bought."),
]


async def drive(page: Any, wait: Callable[[Any], Awaitable[Any]]) -> None:
    """What an agent does with a page; `wait` is told how to get at what a call gives."""
    await wait(page.goto(f"data:text/html,{FORM}"))
    await wait(page.get_by_label("Search").fill("tea"))
    await wait(page.locator("input").first.press_sequentially("!"))
    await wait(page.get_by_label("Search").press("Enter"))
    await wait(page.get_by_label("Size").select_option(label="L"))
    await wait(page.locator("input").nth(1).check())
    await wait(page.get_by_role("button", name="Buy").hover())
    with pytest.raises(Exception, match="Timeout 100ms exceeded"):
        await wait(page.click("#none", timeout=100))
    await wait(page.get_by_role("button", name="Buy").click())
    assert await wait(page.title()) == "Bought"
    await wait(page.mouse.wheel(0, 100))
    await wait(page.mouse.click(640, 360))
    await wait(page.goto("about:blank"))
    await wait(page.go_back())
    await wait(page.go_forward())


def check(folder: Path, failures: int) -> None:
    assert failures == 0
    [trajectory] = read_trajectories(folder / "trajectories.jsonl")
    rows = [(step.action.kind, step.action.target, step.action.value) for step in trajectory.steps]
    assert rows == ROWS
    check_evidence(trajectory)


def check_evidence(trajectory: Trajectory) -> None:
    steps = trajectory.steps
    assert steps[1].action.point == pytest.approx((140 / 1280, 100 / 720), abs=0.01)
    assert steps[10].action.point == (0.5, 0.5)
    assert steps[7].action.point is None  # it never was there
    texts = [step.observation.text or "" for step in steps]
    assert 'textbox "Search": tea!' in texts[3]
    assert texts[8].startswith("Page.click: Timeout 100ms exceeded.")
    assert steps[0].observation.url == steps[-1].observation.url == "about:blank"
    for step in steps:
        assert image_size(step.observation.screenshot or "") == (1280, 720)
    assert trajectory.metadata["claimed_success"] is True
    assert trajectory.answer == "Bought."


@pytest.mark.asyncio
async def test_async_page(tmp_path: Path) -> None:
    from playwright.async_api import Page, async_playwright, expect

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox"]
        )
        async with prill.record(tmp_path, "Buy tea") as run:
            page = run.page(await browser.new_page())
            assert isinstance(page, Page)

            async def wait(given: Any) -> Any:
                return await given

            await drive(page, wait)
            await expect(page.locator("body")).to_be_visible()
            run.answer("Bought.", success=True)
        await browser.close()
    check(tmp_path, run.failures)


def test_sync_page(tmp_path: Path) -> None:
    from playwright.sync_api import Page, expect, sync_playwright

    async def wait(given: Any) -> Any:
        return given

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        with prill.record(tmp_path, "Buy tea") as run:
            page = run.page(browser.new_page())
            assert isinstance(page, Page)
            with pytest.raises(StopIteration):  # nothing in it is awaited
                drive(page, wait).send(None)
            expect(page.locator("body")).to_be_visible()
            run.answer("Bought.", success=True)
        browser.close()
    check(tmp_path, run.failures)


@pytest.mark.asyncio
async def test_closed_page_was_seen_before(tmp_path: Path) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox"]
        )
        async with prill.record(tmp_path, "g") as run:
            page = run.page(await browser.new_page())
            await page.goto("data:text/html,<h1>Tea</h1>")
            await page.close()
        await browser.close()
    assert run.failures == 0
    [trajectory] = read_trajectories(tmp_path / "trajectories.jsonl")
    assert trajectory.final is not None
    assert trajectory.final.text == '- heading "Tea" [level=1]'


@pytest.mark.asyncio
async def test_cancelled_call_is_cancelled_and_its_step_kept(tmp_path: Path) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox"]
        )
        with pytest.raises(TimeoutError):
            async with prill.record(tmp_path, "g") as run:
                page = run.page(await browser.new_page())
                async with asyncio.timeout(3):
                    await page.click("#none")
        await browser.close()
    [trajectory] = read_trajectories(tmp_path / "trajectories.jsonl")
    assert [step.action.kind for step in trajectory.steps] == ["click"]
    assert trajectory.error == "the run ended with TimeoutError"
