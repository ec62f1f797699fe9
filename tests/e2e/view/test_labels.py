"""Every decision is on disk, or the page says that it is not: by mouse, keys and both, whatever
happens to page and server.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import UNSET
from PIL import Image

from prill.emulators.browser.chromium import Chromium
from prill.io.store import iter_trajectories, read_labels, write_trajectories
from prill.types import EvaluatorInfo, LabelRecord, StepLabel, Verdict
from prill.ui.view.label_log import LabelLog
from tests.e2e.view.conftest import at, command, idle, opened, press, write
from tests.support.paths import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLES = ROOT / "datasets" / "samples" / "miniwob" / "trajectories.jsonl"
STEPS = 3
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


def runs(folder: Path, count: int) -> Path:
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


async def test_samples_labelled_by_keyboard(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    chosen = [run for run in iter_trajectories(SAMPLES) if len(run.steps) == 3]
    write_trajectories(tmp_path / "t.jsonl", chosen)
    async with opened(browser, tmp_path / "t.jsonl", labels) as page:
        await press(
            page,
            "s",
            "Home",
            "t",
            "ArrowRight",
            "r",
            "ArrowLeft",
            "ArrowRight",
            "ArrowRight",
            "a",
            "a",
            "e",
        )
        await page.keyboard.type("fits, sets nothing else")
        await press(page, "Escape", "Enter")
        await at(page, 2)
        await press(page, "1", "2", "Home", "a", "End", "t", "Home", "ArrowRight", "n", "e")
        await page.keyboard.type("wrong option")
        await press(page, "Control+Enter")
        await at(page, 3)
        await press(page, "Enter")
        assert "first" in await page.inner_text("#alert"), "no outcome chosen yet"
        await press(page, "x", "Enter")
        await at(page, 4)
        assert await page.inner_text("#counts") == f"3 done, {len(chosen) - 3} left"
    ids = [run.id for run in chosen[:3]]
    assert [replace(label, record=UNSET) for label in read_labels(labels)] == [
        LabelRecord(
            id=ids[0],
            success=True,
            annotator="me",
            note="fits, sets nothing else",
            steps=(StepLabel(0, "towards"), StepLabel(1, "reached")),
        ),
        LabelRecord(
            id=ids[1],
            success=False,
            annotator="me",
            note="wrong option",
            steps=(StepLabel(0, "away"), StepLabel(1, "not_sure")),
        ),
        LabelRecord(id=ids[2], success=None, annotator="me", undecided="not_executable"),
    ]


async def test_claims_folded_others_after_label(browser: Chromium, tmp_path: Path) -> None:
    id = next(iter(iter_trajectories(SAMPLES))).id
    anna = LabelRecord(id=id, success=False, annotator="anna", note="too late")
    verdict = Verdict(
        id=id,
        success=True,
        score=0.9,
        reason="looks done",
        evaluator=EvaluatorInfo("vlm", "1", "m"),
    )
    async with opened(
        browser, SAMPLES, tmp_path / "l.jsonl", earlier=[anna], verdicts=[verdict]
    ) as page:
        body = await page.inner_text("body")
        assert "Done: Buy the ticket" not in body and "next thing to do" not in body
        assert id not in body, "the source is folded, too"
        assert "too late" not in body and "looks done" not in body
        assert "too late" not in await page.content() and "looks done" not in await page.content()
        await press(page, "c")
        assert "Done: Buy the ticket" in await page.inner_text("#claims")
        await press(page, "s", "Enter")
        await at(page, 2)
        last_line = await page.text_content("#last") or ""
        assert (
            "anna: ✗ Failure · too late" in last_line
            and "vlm: ✓ Success · score 0.90 · looks done" in last_line
        )


@pytest.mark.parametrize(
    "last",
    ["#outcomes .success", "#card-1 .jump", "#origin > summary", "#stage strong", "#show-help"],
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


async def test_random_events_never_lie_about_disk(browser: Chromium, tmp_path: Path) -> None:
    """After each of 150 events the page shows what is on disk, or says that it does not."""
    random, labels, count = Random(7), tmp_path / "l.jsonl", 6
    buttons = [
        *(f"#outcomes .{name}" for name in CHOICES),
        *(f"#step-labels .{name}" for name in LABELS),
        "#save",
        "#undo",
    ]
    buttons += ["#card-0 .jump", "#card-2 .jump", "#origin > summary", "#unsaved", "#last .jump"]
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
                await route.fulfill(status=403, body="open the address that the command printed")
            else:
                await route.fulfill(status=200, body="<html>a proxy's page")

        if fault == "500":
            monkeypatch.setattr(LabelLog, "put", breaks)
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


def breaks(log: object, record: object) -> None:
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


async def test_killed_server_loses_no_saved_label(browser: Chromium, tmp_path: Path) -> None:
    labels, made = tmp_path / "l.jsonl", {}
    path = runs(tmp_path, 5)
    for first in (0, 2):
        words = ("annotate", path.name, "-o", labels.name, "--annotator", "me")
        async with command(tmp_path, *words) as (process, url):
            context = await browser.context(1280, 800)
            page = await context.new_page()
            await page.goto(url)
            for i, choice in ((first, "success"), (first + 1, "failure")):
                await at(page, i + 1)
                await press(page, CHOICES[choice], "Enter")
                made[f"r{i}"] = choice, {}, ""
            await at(page, first + 3)
            process.kill()
            await process.wait()
            await page.click("#outcomes .success")
            await press(page, "Enter")
            await page.locator("#alert:not(.mild)").filter(has_text="does not answer").wait_for()
            assert await page.inner_text("#unsaved") == "1 not saved"
            await context.close()
    assert on_disk(labels) == made
