"""The captions tab: every decision is on disk, or the page says that it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog, read_decisions
from prill.emulators.browser.chromium import Chromium
from prill.io.store import encode
from prill.ui.view.captions import CaptionReview
from tests.e2e.view.conftest import at, opened_captions, press
from tests.e2e.view.test_labels import breaks, full_disk

if TYPE_CHECKING:
    from playwright.async_api import Route

pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextmanager
def captions(folder: Path, count: int) -> Iterator[CaptionReview]:
    lines = []
    for i in range(count):
        Image.new("RGB", (20, 10), (i, 100, 200)).save(folder / f"{i:02}.png")
        # As models write it: a text field of a browser makes one kind of line end of both.
        text = f"page {i}\r\nwith two lines"
        lines.append(
            Caption(
                id=image_id(str(folder / f"{i:02}.png")),
                captioner="vlm m",
                image=f"{i:02}.png",
                caption=text,
            )
        )
    (folder / "c.jsonl").write_bytes(b"".join(map(encode, lines)))
    review = CaptionReview(str(folder / "c.jsonl"), str(folder / "d.jsonl"), "anna")
    with closing(review):
        yield review


def decided(folder: Path) -> dict[str, tuple[str | None, str | None]]:
    return {
        line.image: (line.choice, line.caption)
        for line in read_decisions(folder / "d.jsonl").values()
    }


async def test_captions_by_mouse_and_keys(browser: Chromium, tmp_path: Path) -> None:
    random, made, count = Random(1), {}, 20
    with captions(tmp_path, count) as review:
        async with opened_captions(browser, review) as page:
            for i in range(count):
                await at(page, i + 1)
                text, typed = f"page {i}\nwith two lines", random.random() < 0.5
                if typed:
                    await (
                        page.click("#caption-text") if random.random() < 0.5 else press(page, "e")
                    )
                    await press(page, "Control+End")
                    await page.keyboard.type(" and more")
                choice = random.choice(["accept", "accept", "reject"])
                way = random.choice(["mouse", "key"])
                if way == "mouse":
                    await page.click(f"#caption-{choice}")
                elif typed and choice == "accept":
                    await press(page, "Control+Enter")
                else:
                    await press(page, *(["Escape"] if typed else []), choice[0])
                name = "rejected" if choice == "reject" else "mended" if typed else "accepted"
                made[f"{i:02}.png"] = (
                    name,
                    None if choice == "reject" else text + " and more" * typed,
                )
            await (
                page.locator("#caption-counts").filter(has_text=f"{count} done, 0 left").wait_for()
            )
            assert await page.is_hidden("#caption-unsaved")
    assert decided(tmp_path) == made


async def test_caption_left_unsaved_is_said(browser: Chromium, tmp_path: Path) -> None:
    with captions(tmp_path, 3) as review:
        async with opened_captions(browser, review) as page:
            assert await page.is_hidden("#caption-unsaved"), (
                "a text field's own line ends are no change"
            )
            await press(page, "e", "Control+End")
            await page.keyboard.type("!")
            assert await page.inner_text("#caption-state") == "Not saved yet"
            await press(page, "Escape", "ArrowRight")
            await at(page, 2)
            assert "Caption 1 is not saved" in await page.inner_text("#caption-alert")
            assert not decided(tmp_path)
            await page.click("#caption-unsaved")
            await at(page, 1)
            await press(page, "a")
            await at(page, 2)
            await press(page, "z")
            await at(page, 1)
            assert (await page.input_value("#caption-text")).endswith("!"), (
                "what was written is not lost by taking it back"
            )
            assert await page.inner_text("#caption-state") == "Not saved yet"
            await press(page, "a")
            await at(page, 2)
    assert [choice for choice, _ in decided(tmp_path).values()] == ["mended"]


@pytest.mark.parametrize("fault", ["gone", "500", "disk full"])
async def test_failed_caption_is_shown_and_kept(
    browser: Chromium, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with captions(tmp_path, 3) as review:
        async with opened_captions(browser, review) as page:
            if fault == "gone":
                await page.route("**/api/captions/0", lambda route: route.abort())
            elif fault == "500":
                monkeypatch.setattr(CaptionLog, "append", breaks)
            with full_disk() if fault == "disk full" else nullcontext():
                await press(page, "r")
                await (
                    page.locator("#caption-alert:not(.mild)")
                    .filter(has_text="Not saved")
                    .wait_for()
                )
            assert await page.inner_text("#caption-state") == "Not saved yet: reject"
            await press(page, "ArrowRight")
            await at(page, 2)
            assert await page.inner_text("#caption-unsaved") == "1 not saved"
            assert "Caption 1 is not saved" in await page.inner_text("#caption-alert")
            monkeypatch.undo()
            await page.unroute_all()
            await press(page, "ArrowLeft")
            await at(page, 1)
            await press(page, "r")
            await at(page, 2)
            assert await page.is_hidden("#caption-unsaved")
    assert decided(tmp_path) == {"00.png": ("rejected", None)}


async def test_two_caption_pages_never_overwrite(browser: Chromium, tmp_path: Path) -> None:
    with captions(tmp_path, 3) as review:
        async with opened_captions(browser, review) as first:
            second = await first.context.new_page()
            await second.goto(first.url)
            await at(second, 1)
            await press(first, "a")
            await at(first, 2)
            await press(second, "r")
            await (
                second.locator("#caption-alert")
                .filter(has_text="accepted on another page")
                .wait_for()
            )
            assert [choice for choice, _ in decided(tmp_path).values()] == ["accepted"]
            await press(second, "r")
            await at(second, 2)
            await press(first, "z")
            await first.locator("#caption-alert").filter(has_text="Not undone").wait_for()
    assert [choice for choice, _ in decided(tmp_path).values()] == ["rejected"]


async def test_nothing_is_typed_that_a_late_answer_would_overwrite(
    browser: Chromium, tmp_path: Path
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        asked.set()
        await answered.wait()
        await route.continue_()

    with captions(tmp_path, 2) as review:
        async with opened_captions(browser, review) as page:
            await page.route("**/api/captions/*", late)
            await page.reload(wait_until="commit")
            await asyncio.wait_for(asked.wait(), 60)
            assert await page.is_disabled("#caption-text")
            answered.set()
            await page.fill("#caption-text", "typed")  # waits until it may
            await page.locator("#caption-state").filter(has_text="Not saved yet").wait_for()
            assert await page.input_value("#caption-text") == "typed"
            await page.unroute_all(behavior="ignoreErrors")
