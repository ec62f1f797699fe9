"""Two judges' calls, and two runs, side by side: by mouse and by keys, in report and view."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.test_accessibility import addresses, opened
from tests.support.chromium import eventually, sees

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["addresses", "opened"]


@pytest.mark.parametrize("name", ["run", "view"])
@pytest.mark.parametrize("by", ["keys", "mouse"])
async def test_two_judges_calls_side_by_side(opened: Any, name: str, by: str) -> None:
    page = await opened(name)
    await sees(page, ".asked")
    if by == "keys":
        await page.locator(".asked").first.focus()
        await page.keyboard.press("Enter")
        await sees(page, "#calls-beside")
        await page.locator("#calls-beside").focus()
        await page.keyboard.press("ArrowDown")
    else:
        await page.locator(".asked").first.click()
        await page.locator("#calls-beside").select_option(label="rubric")
    for side in (1, 2):  # each is read by itself
        await sees(page, f"#calls.wide article:nth-child({side}) pre:nth-of-type(4)")
    first, second = await page.locator("#calls article").all_inner_texts()
    for words, judge in ((first, "vlm"), (second, "rubric")):
        assert f"You are {judge}. Judge the run." in words and f"Verdict of {judge}: True" in words
        assert "1,200 tokens in, 80 out" in words and "2 attempts" in words
    assert "1,280 tokens · 2 images · $0.0038" in first and "$0.0038 · 2 attempts" in first
    await page.keyboard.press("Escape")
    await eventually(page.locator("#calls[open]").count, 0)


@pytest.mark.parametrize("name", ["report", "view"])
async def test_what_changed_is_seen_side_by_side(opened: Any, name: str) -> None:
    page = await opened(name)
    await page.keyboard.press("s")
    await sees(page, "#summary [data-beside]")
    words = await page.inner_text("#summary")
    assert "From before to after" in words and "to success, 0 to failure" in words
    await page.locator("[data-beside]").first.click()
    await sees(page, "#beside article:nth-child(2) .card")
    one, other = await page.locator("#beside article").all_inner_texts()
    assert "hours-0" in one and "hours-1" in other
    # A cited step is shown in the run that it stands in, and calls are that run's.
    await page.locator("#beside article:nth-child(2) .reason [data-step]").first.click()
    assert await page.locator("#beside[open]").count()
    await page.locator("#beside article:nth-child(2) .asked").first.click()
    await sees(page, "#calls pre")
    assert "Goal of hours-1" in await page.inner_text("#calls")
