"""The page for many runs in the real Chromium: found, read, compared, labelled by mouse and keys,
while its files grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, read_decisions
from prill.emulators.browser.chromium import Chromium
from prill.io.store import encode, read_labels
from prill.types import LabelRecord, StepLabel
from tests.e2e.view.conftest import command
from tests.support.chromium import PATIENCE, address, eventually
from tests.support.closing import closed
from tests.unit.view.test_view import lines, run, verdict

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

pytestmark = pytest.mark.asyncio(loop_scope="module")
VIEW = ("view", "t.jsonl", "--verdicts", "v.jsonl")


def write(folder: Path, ids: str = "abcdefgh") -> None:
    """Runs of two agents with one picture, of which the first four are judged."""
    Image.new("RGB", (320, 240), "navy").save(folder / "page.png")
    runs = [{**run(id), "agent": f"agent {number % 2}"} for number, id in enumerate(ids)]
    runs[1]["task"]["goal"] = runs[0]["task"]["goal"]
    (folder / "t.jsonl").write_bytes(lines(runs))
    (folder / "v.jsonl").write_bytes(
        lines(verdict(id, id != "b", f"step [S1] shows receipt no{id}") for id in ids[:4])
    )


@asynccontextmanager
async def shown(
    browser: Chromium, url: str, width: int = 1400, dark: bool = False
) -> AsyncIterator[Page]:
    """The page with its rows; fails when its code does, or when it asks another server."""
    context = await browser.context(width, 900)
    try:
        page = await context.new_page()
        if dark:
            await page.emulate_media(color_scheme="dark")
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        base = url.partition("#")[0]
        page.on("request", lambda one: one.url.startswith(base) or errors.append(one.url))
        await page.goto(url)
        await page.locator(".line").first.wait_for(state="attached")
        yield page
        assert not errors
    finally:
        await closed(context)


async def says(page: Page, place: str, text: str) -> None:
    """Waits until a part of the page has a text."""
    await page.locator(place).filter(has_text=text).first.wait_for(timeout=1000 * PATIENCE)


async def test_found_by_words_sorted_and_sent_as_a_link(browser: Chromium, tmp_path: Path) -> None:
    write(tmp_path)
    async with command(tmp_path, *VIEW) as (_, url), shown(browser, url) as page:
        await says(page, "#found", "8 trajectories")
        await page.keyboard.press("/")
        await page.keyboard.type("receipt noc")
        await says(page, "#found", "1 of 8")
        await page.keyboard.press("Escape")
        await says(page, "#detail h2", "Buy bread c")
        await page.keyboard.press("w")  # as a table
        await page.locator(".line .more.reason", has_text="receipt noc").wait_for()
        await page.uncheck("#columns input[value=site]")
        async with shown(browser, await address(page)) as other:  # the link opens the same
            await says(other, "#found", "1 of 8")
            await other.locator(".line .more.reason", has_text="receipt noc").wait_for()
            assert not await other.is_checked("#columns input[value=site]")
        await page.click("#clear")
        await page.get_by_role("button", name="Sort by agent").click()
        first = page.locator(".line").first
        await eventually(lambda: first.get_attribute("data-id"), "a")
        await page.get_by_role("button", name="Sort by agent").click()
        await eventually(lambda: first.get_attribute("data-id"), "b")
        await page.keyboard.press("s")
        await says(page, "#summary", "8")
        await page.locator("#summary table.verdicts").wait_for()


async def test_a_run_under_way_is_followed(browser: Chromium, tmp_path: Path) -> None:
    write(tmp_path)
    async with command(tmp_path, *VIEW) as (_, url), shown(browser, url) as page:
        await says(page, "#progress", "vlm: 4 of 8")
        await page.locator("#row-4").click()
        await says(page, "#judges", "No verdict")
        with (tmp_path / "v.jsonl").open("ab") as v, (tmp_path / "t.jsonl").open("ab") as t:
            v.write(lines([verdict("e", False, "late"), verdict("f", None)]))
            t.write(lines([run("i")]))
        await says(page, "#progress", "vlm: 6 of 9")
        await says(page, "#progress", "unscored: refusal 1")
        await says(page, "#judges", "late")  # the run that is open says so at once
        await says(page, "#total", "9")


@pytest.mark.parametrize(
    ("target", "place", "words"),
    [("#outcomes .failure", "#label-state", "Saved"), ("#row-4", "#detail h2", "Buy bread e")],
)
async def test_no_click_is_lost_to_what_arrives_meanwhile(
    browser: Chromium, tmp_path: Path, target: str, place: str, words: str
) -> None:
    write(tmp_path)
    held, pressed = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        """Has news arrive between press and release."""
        while not (await (answer := await route.fetch()).json())["rows"]:
            await asyncio.sleep(0.1)
        held.set()
        await pressed.wait()
        await route.fulfill(response=answer)

    options = ("--annotator", "ada", "-o", "l.jsonl")
    async with command(tmp_path, *VIEW, *options) as (_, url), shown(browser, url) as page:
        await says(page, "#label-state", "No label yet")
        await page.route("**/api/state*", late)
        with (tmp_path / "v.jsonl").open("ab") as log:
            log.write(lines([verdict("a", False, "news")]))
        await asyncio.wait_for(held.wait(), PATIENCE)
        await page.hover(target)
        await page.mouse.down()
        async with page.expect_response("**/api/state*"):
            pressed.set()
        await page.evaluate("fetch('api/runs/0').then((answer) => answer.text())")
        await page.mouse.up()
        await says(page, place, words)
        await page.unroute_all(behavior="ignoreErrors")  # a request may be under way


async def test_a_late_answer_does_not_hide_a_later_label(browser: Chromium, tmp_path: Path) -> None:
    """A run read before a label was saved, and answered after it."""
    write(tmp_path)
    read, saved = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        if read.is_set():
            await route.continue_()
            return
        answer = await route.fetch()
        read.set()
        await saved.wait()
        await route.fulfill(response=answer)

    options = ("--annotator", "ada", "-o", "l.jsonl")
    async with command(tmp_path, *VIEW, *options) as (_, url), shown(browser, url) as page:
        await says(page, "#label-state", "No label yet")
        await page.route("**/api/runs/0", late)
        await page.keyboard.press("2")
        await asyncio.wait_for(read.wait(), PATIENCE)
        await page.keyboard.press("e")
        await page.keyboard.type("no bread")
        await page.keyboard.press("Control+Enter")
        await says(page, "#label-state", "Saved")
        for _ in range(3):  # the first may be older than the label
            async with page.expect_response("**/api/state*"):
                pass
        saved.set()
        await says(page, ".label-line", "no bread")
        await page.unroute_all(behavior="ignoreErrors")


async def test_reasons_cite_steps_and_runs_stand_side_by_side(
    browser: Chromium, tmp_path: Path
) -> None:
    write(tmp_path)
    async with command(tmp_path, *VIEW) as (_, url), shown(browser, url) as page:
        await page.locator(".reason button.jump", has_text="step 1").click()
        assert "t=a" in await address(page)
        await page.locator("summary", has_text="1 other run with this goal").click()
        await page.locator(".others button").click()
        await page.locator("#beside article").nth(1).wait_for()
        words = await page.inner_text("#beside")
        assert "agent 0" in words and "agent 1" in words and "receipt nob" in words
        await page.locator("#beside").get_by_role("button", name="Close").click()


@pytest.mark.parametrize("by", ["keys", "mouse"])
async def test_labels_are_on_disk_at_once(browser: Chromium, tmp_path: Path, by: str) -> None:
    """A kill -9 right after the page says so loses nothing, and the next sitting goes on."""
    write(tmp_path)
    words = ("--annotator", "ada", "-o", "l.jsonl")
    async with command(tmp_path, *VIEW, *words) as (process, url), shown(browser, url) as page:
        await says(page, "#label-state", "No label yet")
        if by == "keys":
            await page.keyboard.press("2")
        else:
            await page.locator("#outcomes .failure").click()
        await says(page, "#label-state", "Saved")
        if by == "keys":
            await page.keyboard.press("8")
            await page.keyboard.press("9")
        else:
            await page.click("#step-labels .away")
            await page.click("#side-effects")
        await page.locator("#step-labels .away[aria-pressed=true]").wait_for()
        if by == "keys":
            await page.keyboard.press("e")
            await page.keyboard.type("no bread")
            await page.keyboard.press("Control+Enter")
        else:
            await page.fill("#note", "no bread")
            await page.click("#detail h2")
        await says(page, ".label-line", "no bread")
        process.kill()
        await process.wait()
    [record] = read_labels(tmp_path / "l.jsonl")
    assert replace(record, record=UNSET) == LabelRecord(
        id="a",
        success=False,
        annotator="ada",
        note="no bread",
        steps=(StepLabel(index=0, label="away"),),
        side_effects=True,
    )
    async with command(tmp_path, *VIEW, *words) as (_, url), shown(browser, url) as page:
        await says(page, "#progress", "ada: 1 of 8 labelled")
        await page.locator("#outcomes .failure[aria-pressed=true]").wait_for()
        await page.keyboard.press("j")
        await says(page, "#label-state", "No label yet")
        await page.keyboard.press("1")
        await says(page, "#progress", "ada: 2 of 8 labelled")
        await page.keyboard.press("z")
        await says(page, "#progress", "ada: 1 of 8 labelled")


async def test_blind_until_decided(browser: Chromium, tmp_path: Path) -> None:
    write(tmp_path)
    words = ("--annotator", "ada", "-o", "l.jsonl", "--blind")
    async with command(tmp_path, *VIEW, *words) as (_, url), shown(browser, url) as page:
        await says(page, "#label-state", "No label yet")
        assert "receipt" not in await page.inner_text("body")
        await page.keyboard.press("1")
        await says(page, "#label-state", "Not saved yet")
        assert "receipt" not in await page.inner_text("body"), "chosen is not yet decided"
        await page.keyboard.press("Enter")
        await says(page, "#last", "receipt noa")
        await says(page, "#label-state", "No label yet")
        assert "receipt nob" not in await page.inner_text("body")
        await page.locator("#last .jump").click()
        await says(page, "#judges", "receipt noa")


@pytest.mark.parametrize("more", [(), ("--blind",)])
async def test_a_line_that_cannot_be_read_takes_no_label(
    browser: Chromium, tmp_path: Path, more: tuple[str, ...]
) -> None:
    write(tmp_path, "ab")
    runs = (tmp_path / "t.jsonl").read_bytes()
    (tmp_path / "t.jsonl").write_bytes(b'{"id": "broken"}\n' + runs)
    words = ("--annotator", "ada", "-o", "l.jsonl", *more)
    async with command(tmp_path, *VIEW, *words) as (_, url), shown(browser, url) as page:
        if more:  # the page begins with the first run that can be labelled
            await says(page, "#label-state", "No label yet")
        await page.locator("#row-0").click()
        await says(page, "#detail .notice", "missing field")
        assert await page.locator(".label-panel").count() == 0
        await page.keyboard.press("1")
        await page.locator("#row-1").click()
        await says(page, "#label-state", "No label yet")


async def test_typed_words_of_each_tab_survive_a_visit_to_the_other(
    browser: Chromium, tmp_path: Path
) -> None:
    write(tmp_path)
    shot = image_id(str(tmp_path / "page.png"))
    caption = Caption(id=shot, captioner="vlm", image="page.png", caption="A blue page.")
    (tmp_path / "captions.jsonl").write_bytes(encode(caption))
    words = ("--captions", "captions.jsonl", "--annotator", "ada", "-o", "l.jsonl", "--blind")
    async with command(tmp_path, *VIEW, *words) as (_, url), shown(browser, url) as page:
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))  # leave anyway
        await page.locator("#browse:not([aria-busy]) #outcomes").wait_for()
        await page.keyboard.press("s")  # success, not saved
        await says(page, "#unsaved", "1 not saved")
        await page.click("#show-captions")
        await says(page, "#caption-about", "Caption 1 of 1")
        await page.fill("#caption-text", "A navy page.")
        await says(page, "#caption-unsaved", "1 not saved")
        await page.reload()
        await page.click("#show-browse")
        await page.locator("#outcomes .success[aria-pressed=true]").wait_for()
        await says(page, "#unsaved", "1 not saved")
        await page.click("#show-captions")
        await says(page, "#caption-unsaved", "1 not saved")
        assert await page.input_value("#caption-text") == "A navy page."
        await page.click("#caption-accept")
        await says(page, "#caption-alert", "Every caption has a decision. End prill view")
        (decision,) = read_decisions(tmp_path / "decisions.jsonl").values()
        assert (decision.choice, decision.captioner) == ("mended", "ada")
    assert not (tmp_path / "l.jsonl").read_bytes()
