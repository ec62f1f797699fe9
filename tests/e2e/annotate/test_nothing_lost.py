"""Every decision is on disk, or the page says that it is not: by mouse, keys and both, whatever
happens to page and server.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog, read_decisions
from prill.emulators.browser.chromium import Chromium
from prill.io.store import encode, read_labels
from prill.types import LabelRecord
from prill.ui.view.captions import CaptionSite, open_site
from prill.ui.view.label_log import LabelLog
from tests.e2e.annotate.conftest import at, idle, opened, opened_captions, press, write

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNS, STEPS = 30, 3
CHOICES = {"success": "s", "failure": "f", "not_executable": "x", "unsure": "u"}
LABELS = {"towards": "t", "not_sure": "n", "reached": "r", "away": "a"}
# What the page shows of the decision, and what it says about the disk.
SHOWN = """() => ({
  number: parseInt(document.getElementById("about").textContent.match(/\\d+/)[0]),
  choice: document.querySelector("#outcomes [aria-pressed=true]")?.value ?? null,
  steps: [...document.querySelectorAll("#film .own")].map((mark) => mark.title),
  note: document.getElementById("note").value.trim(),
  state: document.getElementById("label-state").textContent,
  unsaved: document.getElementById("unsaved").hidden ? 0 : parseInt(document.getElementById("unsaved").textContent),
})"""  # noqa: E501
TITLES = {
    "towards": "Towards goal",
    "not_sure": "Not sure",
    "reached": "Goal reached",
    "away": "Away from goal",
}


def runs(folder: Path, count: int = RUNS) -> Path:
    Image.new("RGB", (40, 30), "#4477aa").save(folder / "s.png")
    step = {
        "observation": {"screenshot": "s.png", "text": "a page"},
        "action": {"kind": "click"},
        "thought": "next",
    }
    records = [
        {"id": f"r{i}", "task": {"goal": f"goal {i}"}, "steps": [step] * STEPS, "answer": "42"}
        for i in range(count)
    ]
    return write(folder / "t.jsonl", *records)


def on_disk(labels: Path) -> dict[str, tuple[str, dict[int, str], str]]:
    records = read_labels(labels) if labels.stat().st_size else ()
    return {record.id: decision(record) for record in records}


def decision(record: LabelRecord) -> tuple[str, dict[int, str], str]:
    choice = (
        record.undecided if record.success is None else "success" if record.success else "failure"
    )
    return (
        choice or "",
        {label.index: label.label for label in record.steps or ()},
        record.note or "",
    )


async def label_by_mixture(page: Page, random: Random) -> tuple[str, dict[int, str], str]:
    """One decision made with the mouse, with keys, or with both, and saved in one of the ways that
    the page names.
    """
    choice, steps, note = random.choice(list(CHOICES)), {}, ""

    async def choose() -> None:
        if random.random() < 0.5:
            await page.click(f"#outcomes .{choice}")
        else:
            await leave_note()
            await press(page, CHOICES[choice])

    async def label_a_step() -> None:
        step, value = random.randrange(STEPS), random.choice(list(LABELS))
        await page.click(f"#card-{step} .jump")
        if steps.get(step) == value:
            return
        steps[step] = value
        if random.random() < 0.5:
            await page.click(f"#step-labels .{value}")
        else:
            await press(page, LABELS[value])

    async def write_note() -> None:
        nonlocal note
        if note:
            return
        note = f"note {random.randrange(100)}"
        if random.random() < 0.5:
            await page.click("#note")
        else:
            await leave_note()
            await press(page, "e")
        await page.keyboard.type(note)

    async def leave_note() -> None:
        if await page.evaluate("document.activeElement.id") == "note":
            await press(page, "Escape")

    async def unfold() -> None:
        for _ in range(2):
            await page.click("#origin > summary")

    async def look_at_a_step() -> None:
        await page.click(f"#card-{random.randrange(STEPS)} .jump")

    acts = [
        choose,
        *random.sample(
            [label_a_step, label_a_step, write_note, unfold, look_at_a_step], random.randrange(5)
        ),
    ]
    random.shuffle(acts)
    for act in acts:
        await act()
    typing = await page.evaluate("document.activeElement.id") == "note"
    way = random.choice(["click", "Control+Enter"] if typing else ["click", "Enter", "Enter"])
    await (page.click("#save") if way == "click" else press(page, way))
    return choice, steps, note


@pytest.mark.parametrize("seed", range(2))
async def test_runs_labelled_by_mouse_and_keys(
    browser: Chromium, tmp_path: Path, seed: int
) -> None:
    random, labels, made = Random(seed), tmp_path / "l.jsonl", {}
    async with opened(browser, runs(tmp_path), labels) as page:
        for i in range(RUNS):
            await at(page, i + 1)
            made[f"r{i}"] = await label_by_mixture(page, random)
        await page.locator("#counts").filter(has_text=f"{RUNS} done, 0 left").wait_for()
        assert await page.is_hidden("#unsaved")
    assert on_disk(labels) == made


@pytest.mark.parametrize(
    "last",
    [
        "#outcomes .success",
        "#step-labels .towards",
        "#card-1 .jump",
        "#origin > summary",
        "#text > summary",
        "#stage strong",
        "#show-help",
        "#detail h2",
    ],
)
async def test_enter_saves_after_any_click(browser: Chromium, tmp_path: Path, last: str) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 2), labels) as page:
        await press(page, "e")
        await page.keyboard.type("why")
        await page.click("#outcomes .success")
        await page.click(last)
        if last == "#show-help":
            await page.click("#help button")
        await press(page, "Enter")
        await at(page, 2)
    assert [(choice, note) for choice, _, note in on_disk(labels).values()] == [("success", "why")]


async def test_enter_presses_what_tab_has_reached(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 2), labels) as page:
        await press(page, "s")
        await page.focus("#outcomes .failure")
        await press(page, "Enter")
        assert not on_disk(labels), (
            "the success that was chosen before is not what the key points at"
        )
        assert await page.get_attribute("#outcomes .failure", "aria-pressed") == "true"
        await press(page, "Enter")
        await at(page, 2)
    assert on_disk(labels) == {"r0": ("failure", {}, "")}


@pytest.mark.parametrize("alert", [True, False])
@pytest.mark.parametrize("width", [1280, 400])
async def test_second_click_hits_the_same_control(
    browser: Chromium, tmp_path: Path, width: int, alert: bool
) -> None:
    """Nothing moves between the clicks of a double click, whatever the first one says or takes
    away.
    """
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 1200), labels, width) as page:
        if alert:
            await press(page, "Enter")
            await page.locator("#alert").filter(has_text="first").wait_for()
        await page.locator("#outcomes .success").evaluate(
            "(node) => node.scrollIntoView({ block: 'center' })"
        )
        before = await page.locator("#outcomes .success").bounding_box()
        await page.dblclick("#outcomes .success")
        assert (
            await page.locator("#outcomes [aria-pressed=true]").get_attribute("value") == "success"
        )
        assert await page.locator("#outcomes .success").bounding_box() == before


async def test_random_events_never_lie_about_disk(browser: Chromium, tmp_path: Path) -> None:
    """After each of 150 events the page shows what is on disk, or says that it does not."""
    random, labels, count = Random(7), tmp_path / "l.jsonl", 6
    buttons = [
        *(f"#outcomes .{name}" for name in CHOICES),
        *(f"#step-labels .{name}" for name in LABELS),
        "#save",
        "#undo",
    ]
    buttons += [
        "#card-0 .jump",
        "#card-2 .jump",
        "#origin > summary",
        "#unsaved",
        "#last .jump",
    ]
    keys = [
        *CHOICES.values(),
        *LABELS.values(),
        "Enter",
        "Enter",
        "Enter",
        "z",
        ",",
        ".",
        "ArrowLeft",
        "ArrowRight",
    ]
    keys += ["Tab", " ", "Control+Enter", "Escape", "e", "p", "c"]
    async with opened(browser, runs(tmp_path, count), labels) as page:
        for _ in range(150):
            target = random.choice(buttons)
            if random.random() < 0.5:
                await press(page, random.choice(keys))
            elif await page.is_visible(target) and await page.is_enabled(target):
                await page.click(target)
            if await page.locator("dialog[open]").count():
                await press(page, "Escape")
            await idle(page)
            shown = await page.evaluate(SHOWN)
            saved = on_disk(labels).get(f"r{shown['number'] - 1}", (None, {}, ""))
            titles = [TITLES.get(saved[1].get(i, ""), "") for i in range(STEPS)]
            same = (shown["choice"], shown["steps"][:STEPS], shown["note"]) == (
                saved[0],
                titles,
                saved[2],
            )
            said = "Saved" if saved[0] and same else "No label yet" if same else "Not saved yet"
            assert shown["state"].startswith(said), (shown, saved)
            assert same or shown["unsaved"]


async def test_leaving_a_label_unsaved_is_said(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 3), labels) as page:
        await page.click("#outcomes .failure")
        assert await page.inner_text("#label-state") == "Not saved yet"
        await press(page, ".")
        await at(page, 2)
        assert "Trajectory 1 is not saved" in await page.inner_text("#alert")
        await press(page, "s", "Enter")
        await at(page, 3)
        assert await page.inner_text("#unsaved") == "1 not saved"
        await press(page, "g")
        assert "not saved" in await page.locator(".line").first.inner_text()
        await press(page, "Escape", "u", "Enter")
        await at(page, 1)
        assert on_disk(labels).keys() == {"r1", "r2"}
        await press(page, "Enter")
        await page.locator("#unsaved").wait_for(state="hidden")
    assert on_disk(labels).keys() == {"r0", "r1", "r2"}


async def test_reload_and_back_keep_the_unsaved(browser: Chromium, tmp_path: Path) -> None:
    labels, asked = tmp_path / "l.jsonl", []
    async with opened(browser, runs(tmp_path, 3), labels) as page:

        async def leave(dialog: Any) -> None:
            asked.append(dialog.type)
            await dialog.accept()

        page.on("dialog", leave)
        await page.click("#outcomes .success")
        await press(page, "Enter")
        await at(page, 2)
        await page.click("#outcomes .failure")
        await press(page, "e")
        await page.keyboard.type("half a no")
        await page.reload()
        await at(page, 2)
        assert asked == ["beforeunload"]
        assert await page.inner_text("#unsaved") == "1 not saved"
        assert await page.input_value("#note") == "half a no"
        await page.goto("about:blank")
        await page.go_back()
        await at(page, 2)
        assert asked == ["beforeunload"] * 2
        assert await page.get_attribute("#outcomes .failure", "aria-pressed") == "true"
        await press(page, "z")
        await at(page, 1)
        assert on_disk(labels) == {}, "what was saved before the reload can still be taken back"
        await press(page, "Enter")
        await at(page, 2)
        await press(page, "Enter")
        await at(page, 3)
    assert on_disk(labels) == {"r0": ("success", {}, ""), "r1": ("failure", {}, "half a no")}


async def test_words_typed_while_saving_are_kept(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 2), labels) as page:
        go_on = asyncio.Event()

        async def late(route: Any) -> None:
            await go_on.wait()
            await route.continue_()

        await page.route("**/api/labels/0", late)
        await page.click("#outcomes .success")
        await page.click("#save")
        await page.click("#note")
        await page.keyboard.type("one more thing")
        assert await page.inner_text("#label-state") == "Not saved yet"
        go_on.set()
        await page.locator("#alert").filter(has_text="later changes").wait_for()
        await press(page, "Control+Enter")
        await at(page, 2)
    assert on_disk(labels) == {"r0": ("success", {}, "one more thing")}


async def test_two_pages_never_overwrite_unseen(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 3), labels) as first:
        second = await first.context.new_page()
        await second.goto(first.url)
        await at(second, 1)
        # Chosen before: a page without a choice of its own takes over what another has saved.
        await press(second, "f")
        await press(first, "s", "Enter")
        await at(first, 2)
        await press(second, "Enter")
        await (
            second.locator("#alert").filter(has_text="saved as success on another page").wait_for()
        )
        assert "Not saved" in await second.inner_text("#alert")
        assert on_disk(labels)["r0"][0] == "success"
        assert await second.inner_text("#label-state") == "Not saved yet"
        await press(second, "Enter")
        await at(second, 2)
        assert on_disk(labels)["r0"][0] == "failure", "replaced knowingly"
        await press(first, "z")
        await first.locator("#alert").filter(has_text="Not undone").wait_for()
        assert on_disk(labels)["r0"][0] == "failure", (
            "what the other page has saved is not taken back from here"
        )
        await press(second, "z")
        await at(second, 1)
        assert on_disk(labels)["r0"][0] == "success"


@pytest.mark.parametrize("fault", ["gone", "500", "stale", "disk full", "garbage"])
async def test_failed_save_is_shown_and_kept(
    browser: Chromium, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, runs(tmp_path, 2), labels) as page:

        async def answer(route: Any) -> None:
            if fault == "gone":
                await route.abort()
            elif fault == "stale":
                await route.fulfill(status=403, body="open the address that prill annotate printed")
            else:
                await route.fulfill(status=200, body="<html>a proxy's page")

        if fault == "500":
            monkeypatch.setattr(LabelLog, "put", _breaks)
        elif fault != "disk full":
            await page.route("**/api/labels/0", answer)
        with full_disk() if fault == "disk full" else nullcontext():
            await page.click("#outcomes .failure")
            await press(page, "Enter")
            await page.locator("#alert:not(.mild)").filter(has_text="Not saved").wait_for()
        assert await page.inner_text("#label-state") == "Not saved yet"
        assert await page.inner_text("#unsaved") == "1 not saved"
        assert labels.read_bytes() == b""
        monkeypatch.undo()
        await page.unroute_all()
        await press(page, "Enter")
        await at(page, 2)
    assert on_disk(labels) == {"r0": ("failure", {}, "")}


def _breaks(log: object, record: object) -> None:
    raise RuntimeError("a fault of the program")


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@asynccontextmanager
async def command(
    trajectories: Path, labels: Path
) -> AsyncIterator[tuple[subprocess.Popen[bytes], str]]:
    """`prill annotate` as a process of its own, and its address."""
    argv = [
        sys.executable,
        "-m",
        "prill",
        "annotate",
        str(trajectories),
        "-o",
        str(labels),
        "--annotator",
        "me",
        "--json",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process, json.loads(await asyncio.to_thread(process.stdout.readline))["url"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_killed_server_loses_no_saved_label(browser: Chromium, tmp_path: Path) -> None:
    labels, random, made = tmp_path / "l.jsonl", Random(3), {}
    path = runs(tmp_path, 9)
    for first in (0, 4):
        async with command(path, labels) as (process, url):
            context = await browser.context(1280, 800)
            page = await context.new_page()
            await page.goto(url)
            for i in range(first, first + 4):
                await at(page, i + 1)
                made[f"r{i}"] = await label_by_mixture(page, random)
            await at(page, first + 5)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            await page.click("#outcomes .success")
            await press(page, "Enter")
            await page.locator("#alert:not(.mild)").filter(has_text="does not answer").wait_for()
            assert await page.inner_text("#unsaved") == "1 not saved"
            await context.close()
    assert on_disk(labels) == made


# Captions


def captions(folder: Path, count: int) -> CaptionSite:
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
    return open_site(str(folder / "c.jsonl"), str(folder / "d.jsonl"), "anna")[0]


def decided(folder: Path) -> dict[str, tuple[str | None, str | None]]:
    return {
        line.image: (line.choice, line.caption)
        for line in read_decisions(folder / "d.jsonl").values()
    }


@pytest.mark.parametrize("seed", range(2))
async def test_captions_by_mouse_and_keys(browser: Chromium, tmp_path: Path, seed: int) -> None:
    random, made, count = Random(seed), {}, 20
    site = captions(tmp_path, count)
    with site.log:
        async with opened_captions(browser, site) as page:
            for i in range(count):
                await at(page, i + 1)
                text, typed = f"page {i}\nwith two lines", random.random() < 0.5
                if typed:
                    await (page.click("#caption") if random.random() < 0.5 else press(page, "e"))
                    await press(page, "Control+End")
                    await page.keyboard.type(" and more")
                choice = random.choice(["accept", "accept", "reject"])
                way = random.choice(["mouse", "key"])
                if way == "mouse":
                    await page.click(f"#{choice}")
                elif typed and choice == "accept":
                    await press(page, "Control+Enter")
                else:
                    await press(page, *(["Escape"] if typed else []), choice[0])
                name = "rejected" if choice == "reject" else "mended" if typed else "accepted"
                made[f"{i:02}.png"] = (
                    name,
                    None if choice == "reject" else text + " and more" * typed,
                )
            await page.locator("#counts").filter(has_text=f"{count} done, 0 left").wait_for()
            assert await page.is_hidden("#unsaved")
    assert decided(tmp_path) == made


async def test_keys_work_after_a_click_on_captions(browser: Chromium, tmp_path: Path) -> None:
    site = captions(tmp_path, 4)
    with site.log:
        async with opened_captions(browser, site) as page:
            await page.click("#caption")
            await page.click("#reject")
            await at(page, 2)
            await press(page, "Enter", "Space")
            assert len(decided(tmp_path)) == 1, (
                "the button that was clicked does not take keys for the next caption"
            )
            await press(page, "a")
            await at(page, 3)
            await page.click("#undo")
            await at(page, 2)
            await press(page, "r")
            await at(page, 3)
    assert [choice for choice, _ in decided(tmp_path).values()] == ["rejected", "rejected"]


async def test_caption_left_unsaved_is_said(browser: Chromium, tmp_path: Path) -> None:
    site = captions(tmp_path, 3)
    with site.log:
        async with opened_captions(browser, site) as page:
            assert await page.is_hidden("#unsaved"), "a text field's own line ends are no change"
            await press(page, "e", "Control+End")
            await page.keyboard.type("!")
            assert await page.inner_text("#state") == "Not saved yet"
            await press(page, "Escape", "ArrowRight")
            await at(page, 2)
            assert "Caption 1 is not saved" in await page.inner_text("#alert")
            assert not decided(tmp_path)
            await page.click("#unsaved")
            await at(page, 1)
            await press(page, "a")
            await at(page, 2)
            await press(page, "z")
            await at(page, 1)
            assert (await page.input_value("#caption")).endswith("!"), (
                "what was written is not lost by taking it back"
            )
            assert await page.inner_text("#state") == "Not saved yet"
            await press(page, "a")
            await at(page, 2)
    assert [choice for choice, _ in decided(tmp_path).values()] == ["mended"]


@pytest.mark.parametrize("fault", ["gone", "500", "disk full"])
async def test_failed_caption_is_shown_and_kept(
    browser: Chromium, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = captions(tmp_path, 3)
    with site.log:
        async with opened_captions(browser, site) as page:
            if fault == "gone":
                await page.route("**/api/cards/0", lambda route: route.abort())
            elif fault == "500":
                monkeypatch.setattr(CaptionLog, "append", _breaks)
            with full_disk() if fault == "disk full" else nullcontext():
                await press(page, "r")
                await page.locator("#alert:not(.mild)").filter(has_text="Not saved").wait_for()
            assert await page.inner_text("#state") == "Not saved yet: reject"
            await press(page, "ArrowRight")
            await at(page, 2)
            assert await page.inner_text("#unsaved") == "1 not saved"
            assert "Caption 1 is not saved" in await page.inner_text("#alert")
            monkeypatch.undo()
            await page.unroute_all()
            await press(page, "ArrowLeft")
            await at(page, 1)
            await press(page, "r")
            await at(page, 2)
            assert await page.is_hidden("#unsaved")
    assert decided(tmp_path) == {"00.png": ("rejected", None)}


async def test_two_caption_pages_never_overwrite(browser: Chromium, tmp_path: Path) -> None:
    site = captions(tmp_path, 3)
    with site.log:
        async with opened_captions(browser, site) as first:
            second = await first.context.new_page()
            await second.goto(first.url)
            await at(second, 1)
            await press(first, "a")
            await at(first, 2)
            await press(second, "r")
            await second.locator("#alert").filter(has_text="accepted on another page").wait_for()
            assert [choice for choice, _ in decided(tmp_path).values()] == ["accepted"]
            await press(second, "r")
            await at(second, 2)
            await press(first, "z")
            await first.locator("#alert").filter(has_text="Not undone").wait_for()
    assert [choice for choice, _ in decided(tmp_path).values()] == ["rejected"]
