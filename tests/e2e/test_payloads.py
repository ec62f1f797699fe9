"""Whatever stands in any field of any record, it is text on every page: nothing runs, nothing is
asked of another server, and the page consists of the same elements as with plain words.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption
from prill.emulators.browser.chromium import Chromium
from prill.evaluators.questions import Question
from prill.io.store import BadLine, encode, encode_trajectory
from prill.models.transcripts import Call, Transcript, TranscriptLog, transcript_folder
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Verdict,
)
from prill.ui.report.entries import Retry, read_judges
from prill.ui.report.page import write_report
from prill.ui.serving import serving
from prill.ui.view.captions import CaptionReview
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.session import LabelSession
from prill.ui.view.site import ViewSite
from tests.support.chromium import sees
from tests.support.closing import closed
from tests.support.filled import filled
from tests.support.payloads import COUNTS, PAYLOADS

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")
CITED = [f"[S1] {text} [S1]" for text in PAYLOADS if len(text) < 1000]
ALL_AT_ONCE = f"[S1] {''.join(CITED[2:7])} [S1]"
HANDLERS = """() => [...document.querySelectorAll("*")].flatMap((node) => [...node.attributes]
  .filter((one) => /^on|^(srcdoc|action|formaction|ping|data)$/.test(one.name)
    || (/^(href|src)$/.test(one.name) && /^\\s*(javascript|http|data:text)/i.test(one.value)))
  .map((one) => `${node.tagName} ${one.name}=${one.value}`))"""


def records(folder: Path, text: str, name: str) -> list[Trajectory]:
    """Two runs of one task by one agent, all of whose words are the text."""
    Image.new("RGB", (64, 48), "navy").save(folder / name, "PNG")
    shot = str(folder / name)
    state = filled(Observation, text, screenshot=shot)
    steps = tuple(
        filled(Step, text, observation=one, action=filled(Action, text, kind=kind))
        for one, kind in ((state, "click"), (replace(state, screenshot=f"{shot}x"), "answer"))
    )
    turn = Trajectory(id="turn", task=filled(Task, text, earlier=()), answer=text)
    return [
        Trajectory(
            id=f"{n} {text}",
            task=filled(Task, text, earlier=(turn,)),
            agent=text,
            steps=steps,
            final=state,
            answer=text,
            error=text,
            metadata={text: text, "attempt": n, "seed": text},
        )
        for n in range(2)
    ]


def verdicts(items: list[Trajectory], text: str) -> list[Verdict]:
    info = EvaluatorInfo(name=text, version=text, model=text)
    return [
        filled(
            Verdict,
            text,
            id=item.id,
            success=n == 0,
            score=0.5,
            unscored=None,
            evaluator=info,
            record=UNSET,
        )
        for n, item in enumerate(items)
    ]


def write(folder: Path, text: str) -> tuple[list[Trajectory], Path]:
    """Writes runs, verdicts with transcripts, and labels, in files whose names are the text."""
    stem = text[:60].replace("/", "∕").replace("\0", "")
    folder.mkdir()
    items = records(folder, text, f"{stem}.png")
    for n, item in enumerate(items):
        (folder / f"{n} {stem}.jsonl").write_bytes(encode_trajectory(item, folder))
    made = verdicts(items, text)
    said = folder / f"v {stem}.jsonl"
    said.write_bytes(b"".join(map(encode, made)))
    with TranscriptLog(transcript_folder(said)) as log:
        for one in made:
            log.append(Transcript(one.id, one.key, (filled(Call, text),)))
    labels = [filled(LabelRecord, text, id=one.id, success=n == 1) for n, one in enumerate(items)]
    (folder / "labels.jsonl").write_bytes(b"".join(map(encode, labels)))
    return items, said


class Window:
    """A window, and whatever it asked for or complained about."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.trouble: list[str] = []
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("dialog", lambda dialog: self.trouble.append(dialog.message))
        page.on("request", lambda one: self.asks(one.url, base))

    def asks(self, url: str, base: str) -> None:
        if not url.startswith((base, "data:")):
            self.trouble.append(url)

    async def parts(self) -> Any:
        assert await self.page.evaluate("window.owned") is None
        assert await self.page.evaluate(HANDLERS) == []
        assert not self.trouble
        return await self.page.evaluate(COUNTS)

    async def walk(self) -> list[Any]:
        """Opens all that a report or view can open, and counts its elements each time."""
        found, page = [], self.page
        await page.keyboard.press("t")
        await sees(page, "#judges .asked")
        await page.keyboard.press("s")
        await sees(page, "#summary table.verdicts")
        await page.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        found.append(await self.parts())
        await page.locator("[data-beside]").first.click()
        await sees(page, "#beside article:nth-child(2) .card")
        found.append(await self.parts())
        await page.keyboard.press("Escape")
        await page.keyboard.press("t")
        await sees(page, "#judges .asked")
        await page.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        found.append(await self.parts())
        await page.locator("#judges .asked").first.click()
        await sees(page, "#calls pre")
        found.append(await self.parts())
        await page.keyboard.press("Escape")
        for key in ("w", "j", "Enter"):
            await page.keyboard.press(key)
        await sees(page, "#viewer[open]")
        found.append(await self.parts())
        await page.keyboard.press("Escape")
        await page.evaluate("dispatchEvent(new Event('beforeprint'))")
        found.append(await self.parts())
        return found


async def walked(browser: Chromium, url: str, shown: str | None = None) -> list[Any]:
    """Walks through a report or view, or waits until the only part of another page is shown."""
    context = await browser.context(1280, 800)
    try:
        page = await context.new_page()
        window = Window(page, url.partition("#")[0].rpartition("/")[0])
        await page.goto(url)
        if shown is None:
            return await window.walk()
        await sees(page, shown)
        return [await window.parts()]
    finally:
        await closed(context)


async def report_parts(browser: Chromium, folder: Path, text: str) -> list[Any]:
    items, said = write(folder, text)
    write_report(
        folder / "r.html",
        [*items, BadLine("bad", text, text, b"")],
        read_judges([said]),
        [
            filled(LabelRecord, text, id=one.id, success=n == 1, record=None)
            for n, one in enumerate(items)
        ],
        retries={one.id: filled(Retry, text, ended=None, answer=True) for one in items},
        files={one.id: f"{n} {text}" for n, one in enumerate(items)},
        title=text,
    )
    return await walked(browser, (folder / "r.html").as_uri())


async def view_parts(browser: Chromium, folder: Path, text: str) -> list[Any]:
    items, said = write(folder, text)
    files = sorted(path for path in folder.glob("[01] *.jsonl"))
    retries = {one.id: filled(Retry, text, ended=None, answer=True) for one in items}
    questions = (Question(text, (text, "other")), Question("How many?", "number"))
    with (
        closing(
            Library(files, [said], [folder / "labels.jsonl"], retries=retries, annotator="me")
        ) as library,
        LabelLog(folder / "own.jsonl", "me") as log,
    ):
        for _ in library.refresh():  # all is read before the page asks
            pass
        library.begin_labels(log)
        site = ViewSite(library, LabelSession(library, log, questions=questions), title=text)
        async with site.following(), serving(site) as url:
            return await walked(browser, url)


async def captions_parts(browser: Chromium, folder: Path, text: str) -> list[Any]:
    folder.mkdir()
    name = f"{text[:60].replace('/', '∕').replace(chr(0), '')}.png"
    Image.new("RGB", (64, 48), "navy").save(folder / name, "PNG")
    shot = image_id(str(folder / name))
    caption = filled(Caption, text, id=shot, image=name, choice=None, unscored="timeout")
    (folder / "c.jsonl").write_bytes(encode(caption))
    name = text.replace("\0", "")
    review = CaptionReview(str(folder / "c.jsonl"), str(folder / "d.jsonl"), name)
    with closing(review), closing(Library(())) as library:
        async with serving(ViewSite(library, captions=review, title=text)) as url:
            return await walked(browser, url, "#caption-picture[src^=captions]")


@pytest.mark.parametrize("parts", [report_parts, view_parts, captions_parts])
@pytest.mark.parametrize(
    "texts", [[ALL_AT_ONCE], pytest.param(CITED[1:], marks=pytest.mark.slow)], ids=["one", "all"]
)
async def test_no_field_of_a_record_is_more_than_text(
    browser: Chromium, tmp_path: Path, parts: Any, texts: list[str]
) -> None:
    plain = await parts(browser, tmp_path / "plain", CITED[0])
    for n, text in enumerate(texts):
        assert await parts(browser, tmp_path / str(n), text) == plain, text
