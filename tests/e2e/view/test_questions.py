"""A judge's questions, answered by people in Chromium: by keys and by mouse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from msgspec import UNSET

from prill.emulators.browser.chromium import Chromium
from prill.evaluators.questions import Question
from prill.io.store import read_labels
from prill.types import LabelRecord
from tests.e2e.view.conftest import at, opened, press
from tests.e2e.view.test_labels import runs

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Order:
    """What was ordered."""

    item: str
    price: float | None
    paid: bool
    place: Literal["shop", "web"] = "web"


WALL = Question("Was a login wall met?", "yes/no")
PAGES = Question("How many pages were opened?", "number")
WHERE = Question("Where did it end?", ("cart", "checkout", "none"))
ORDER = Question("What was ordered?", Order)
ALL = (WALL, PAGES, WHERE, ORDER)
ANSWERS: dict[str, Any] = {
    WALL.text: True,
    PAGES.text: 1200,
    WHERE.text: None,
    ORDER.text: {"item": "tea", "price": None, "paid": False, "place": "web"},
}


async def by_keys(page: Page) -> None:
    await press(page, "s", "q", "1", "q")
    await page.keyboard.type("1,200")
    await press(page, "Enter", "0", "q")  # to the choices, cannot tell, to the first open field
    await page.keyboard.type("tea")
    await press(page, "Enter", "Enter", "2", "Enter")


async def by_mouse(page: Page) -> None:
    await page.click("#outcomes .success")
    await page.locator(".question", has_text=WALL.text).get_by_text("Yes").click()
    await page.get_by_role("textbox", name=PAGES.text).fill("1,200")
    await page.locator(".question", has_text=WHERE.text).get_by_text("Cannot tell").click()
    await page.get_by_role("textbox", name="item").fill("tea")
    await page.locator("[aria-label=paid]").get_by_text("No").click()
    await page.click("#save")


@pytest.mark.parametrize("answer", [by_keys, by_mouse])
async def test_answers_are_on_disk_before_the_next_run(
    browser: Chromium, tmp_path: Path, answer: Any
) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 3), labels, questions=ALL) as page:
        await answer(page)
        await at(page, 2)
        (record,) = read_labels(labels)
        expected = LabelRecord(id="r0", success=True, annotator="me", answers=ANSWERS)
        assert replace(record, record=UNSET) == expected
        for question in await page.locator(".question [aria-pressed]").all():
            assert await question.get_attribute("aria-pressed") == "false", "the next one is new"
        assert await page.input_value("#answer-1-0") == ""
        await press(page, "z")
        await at(page, 1)
        assert labels.read_bytes() == b""
        await press(page, "Enter")
        await at(page, 2)
        assert [*read_labels(labels)] == [record], "what was undone is still in the form"


async def test_nothing_is_saved_before_all_are_answered(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 2), labels, questions=(WALL, PAGES)) as page:
        await press(page, "s", "Enter")
        await page.locator("#alert", has_text="2 are open").wait_for()
        await press(page, "q", "2", "q")
        await page.keyboard.type("few")
        await press(page, "Control+Enter")
        await page.locator("#alert", has_text="'few', which is not a number").wait_for()
        assert labels.read_bytes() == b""
        assert await page.input_value("#answer-1-0") == "few", "what was typed is still there"
        await page.reload()
        await at(page, 1)
        assert await page.input_value("#answer-1-0") == "few", "also after a reload"
        await page.fill("#answer-1-0", "-2.5")
        await press(page, "Control+Enter")
        await at(page, 2)
    (record,) = read_labels(labels)
    assert record.answers == {WALL.text: False, PAGES.text: -2.5}
