"""A judge's questions, answered by people in Chromium: by keys, by mouse, by two at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from prill.emulators.browser.chromium import Chromium
from prill.evaluators.ask import Question
from prill.io.store import encode, read_labels
from prill.types import Answer, EvaluatorInfo, Findings, LabelRecord, Verdict
from tests.e2e.annotate.conftest import at, opened, press
from tests.e2e.annotate.test_hostile import COUNTS, PAYLOADS
from tests.e2e.annotate.test_nothing_lost import runs

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
        assert record == LabelRecord(id="r0", success=True, annotator="me", answers=ANSWERS)
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


async def test_letters_in_an_answer_are_no_keys(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 2), labels, questions=(ORDER,)) as page:
        await page.click("#answer-0-0")
        await page.keyboard.type("sfxu 1234 jkwq?z")
        assert await page.locator("#outcomes [aria-pressed=true]").count() == 0
        assert await page.input_value("#answer-0-0") == "sfxu 1234 jkwq?z"
        assert await page.is_hidden("#help")
        await at(page, 1)
        await press(page, "Escape", "f")
        assert await page.get_attribute("#outcomes .failure", "aria-pressed") == "true"


async def test_an_answer_is_taken_back_by_the_same_key(browser: Chromium, tmp_path: Path) -> None:
    async with opened(browser, runs(tmp_path, 1), tmp_path / "l", questions=(WALL,)) as page:
        chosen = page.locator(".question [aria-pressed=true]")
        await press(page, "q", "1", "1")
        assert await chosen.count() == 0
        await press(page, "0")
        assert await chosen.inner_text() == "Cannot tell\n0"
        await press(page, "2")
        assert await chosen.inner_text() == "No\n2", "one answer replaces the other"


async def test_the_judge_is_hidden_until_all_are_answered(
    browser: Chromium, tmp_path: Path
) -> None:
    answer = Answer(question=PAGES.text, value=77, step=0, reason="SAW IT")
    verdict = Verdict(
        id="r0",
        success=True,
        evaluator=EvaluatorInfo("ask", "1"),
        findings=Findings(answers=(answer,)),
    )
    labels = tmp_path / "l.jsonl"
    labels.write_bytes(encode(LabelRecord(id="r0", success=True, annotator="me")))
    async with opened(
        browser, runs(tmp_path, 2), labels, questions=(PAGES,), verdicts=[verdict]
    ) as page:
        assert await page.inner_text("#counts") == "0 done, 2 left"
        assert await page.inner_text("#label-state") == "Saved, 1 question open"
        assert "77" not in await page.content() and "SAW IT" not in await page.content()
        await press(page, "q")
        await page.keyboard.type("5")
        await press(page, "Control+Enter")
        await at(page, 2)
        assert f"{PAGES.text} 77" in await page.inner_text("#last")
        await press(page, ",")
        await at(page, 1)
        await page.locator("#judges", has_text="SAW IT").wait_for()
        assert f"{PAGES.text} 5" in await page.inner_text(".label-line")


async def test_two_people_see_their_agreement_on_answers(browser: Chromium, tmp_path: Path) -> None:
    ada, bob = tmp_path / "ada.jsonl", tmp_path / "bob.jsonl"
    asked: dict[str, Any] = {"questions": (WALL, PAGES)}
    path = runs(tmp_path, 2)
    async with (
        opened(browser, path, ada, annotator="ada", others=[bob], **asked) as hers,
        opened(browser, path, bob, annotator="bob", others=[ada], **asked) as his,
    ):
        for page, wall, pages in ((hers, "1", "3"), (his, "2", "3")):
            await press(page, "s", "q", wall, "q")
            await page.keyboard.type(pages)
        await asyncio.gather(press(hers, "Control+Enter"), press(his, "Control+Enter"))
        for page, other in ((hers, "bob"), (his, "ada")):
            await at(page, 2)
            table = page.locator("#agreement table")
            await table.filter(has_text=PAGES.text).wait_for()
            assert (await table.inner_text()).replace("\t", " ").split("\n") == [
                "With agree of kappa",
                f"{other} 100 % 1 –",
                WALL.text,
                f"{other} 0 % 1 0.00",
                PAGES.text,
                f"{other} 100 % 1 –",
            ]


async def test_hostile_questions_and_answers_are_text(browser: Chromium, tmp_path: Path) -> None:
    """Questions, labels to choose from, and answers of others come from files."""

    async def parts(folder: Path, text: str) -> Any:
        folder.mkdir()
        questions = (Question(text, (text, f"{text}.")), PAGES)
        theirs = LabelRecord(
            id="r0", success=True, annotator=text, answers={text: text, PAGES.text: 1, "x": text}
        )
        options: dict[str, Any] = {"questions": questions, "earlier": [theirs]}
        async with opened(browser, runs(folder, 2), folder / "l.jsonl", **options) as page:
            found = [await page.evaluate(COUNTS)]
            await press(page, "s", "q", "1", "q")
            await page.keyboard.type("1")
            await press(page, "Control+Enter")
            await at(page, 2)
            await page.locator("#last").wait_for()
            await page.locator("#agreement tbody").nth(2).wait_for()
            found.append(await page.evaluate(COUNTS))
            assert await page.evaluate("window.owned") is None
            return found

    plain = await parts(tmp_path / "plain", "plain words")
    for n, text in enumerate(text for text in PAYLOADS if len(text) < 1000):
        if text.strip():
            assert await parts(tmp_path / str(n), text) == plain, text
