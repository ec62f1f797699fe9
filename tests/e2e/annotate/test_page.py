"""The labelling page in the real Chromium, by keyboard alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from PIL import Image

from prill.emulators.browser.chromium import Chromium
from prill.io.store import read_labels, read_trajectories
from prill.types import EvaluatorInfo, LabelRecord, StepLabel, Verdict
from tests.e2e.annotate.conftest import at, opened, press, write
from tests.support.paths import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLES = ROOT / "datasets" / "samples" / "miniwob" / "trajectories.jsonl"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


async def test_samples_labelled_by_keyboard(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, SAMPLES, labels) as page:
        await press(
            page,
            "s",
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
        await press(page, "1", "2", "a", "End", "t", "Home", "ArrowRight", "n", "e")
        await page.keyboard.type("wrong option")
        await press(page, "Control+Enter")
        await at(page, 3)
        await press(page, "Enter")
        assert "first" in await page.inner_text("#alert"), "no outcome chosen yet"
        await press(page, "x", "Enter")
        await at(page, 4)
        assert await page.inner_text("#counts") == "3 done, 79 left"
    ids = [run.id for run in read_trajectories(SAMPLES)][:3]
    assert list(read_labels(labels)) == [
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


async def test_undo_jump_and_change_by_keyboard(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    ids = [run.id for run in read_trajectories(SAMPLES)][:5]
    async with opened(browser, SAMPLES, labels) as page:
        await press(page, "s", "t", "Enter")
        await at(page, 2)
        await press(page, "u", "z")
        await at(page, 1)
        assert labels.read_bytes() == b""
        assert await page.get_attribute("#outcomes .success", "aria-pressed") == "true", (
            "the form is as it was"
        )
        await press(page, "f", "Enter")
        await at(page, 2)
        assert await page.get_attribute("#outcomes .unsure", "aria-pressed") == "true", (
            "the draft has waited"
        )
        await press(page, "g")
        await page.keyboard.type("5")
        await press(page, "Enter")
        await at(page, 5)
        await press(page, "s", "Enter")
        await at(page, 6)
        await press(page, ",")
        await at(page, 5)
        await press(page, "?")
        assert await page.is_visible("#help")
        await press(page, "s", "Escape")
        assert await page.is_hidden("#help")
    assert [(record.id, record.success) for record in read_labels(labels)] == [
        (ids[0], False),
        (ids[4], True),
    ]
    assert next(read_labels(labels)).steps == (StepLabel(0, "towards"),)


async def test_claims_folded_others_after_label(browser: Chromium, tmp_path: Path) -> None:
    id = next(iter(read_trajectories(SAMPLES))).id
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
        assert "I selected" not in body and "next thing to do" not in body
        assert "too late" not in body and "looks done" not in body
        assert "too late" not in await page.content() and "looks done" not in await page.content()
        await press(page, "c")
        assert "I selected" in await page.inner_text("#claims")
        await press(page, "s", "Enter")
        await at(page, 2)
        last_line = await page.text_content("#last") or ""
        assert (
            "anna: ✗ Failure · too late" in last_line
            and "vlm: ✓ Success · score 0.90 · looks done" in last_line
        )
        assert await page.locator("#agreement td").all_inner_texts() == ["anna", "0 %", "1", "0.00"]


async def test_two_people_at_once_see_their_agreement(browser: Chromium, tmp_path: Path) -> None:
    """Each has a file; neither loses a label, and neither sees the other's before their own."""
    ada, bob = tmp_path / "ada.jsonl", tmp_path / "bob.jsonl"
    first = next(iter(read_trajectories(SAMPLES))).id
    async with (
        opened(browser, SAMPLES, ada, annotator="ada", others=[bob]) as hers,
        opened(browser, SAMPLES, bob, annotator="bob", others=[ada]) as his,
    ):
        await press(hers, "s", "e")
        await hers.keyboard.type("she saw it")
        await asyncio.gather(press(hers, "Control+Enter"), press(his, "f", "d"))
        await at(hers, 2)
        assert "she saw it" not in await his.inner_text("body")
        await press(his, "Enter")
        await at(his, 2)
        await his.locator("#last").filter(has_text="she saw it").wait_for()
        for page in (hers, his):
            await page.locator("#agreement td", has_text="0 %").wait_for()
    assert [*read_labels(ada)] == [
        LabelRecord(id=first, success=True, annotator="ada", note="she saw it")
    ]
    assert [*read_labels(bob)] == [
        LabelRecord(id=first, success=False, annotator="bob", side_effects=True)
    ]


async def test_blind_page_names_neither_agent_nor_judges(browser: Chromium, tmp_path: Path) -> None:
    """What could sway an annotator is folded, or not there: the agent, ids, metadata, verdicts."""
    record = {
        "id": "failed-run",
        "task": {"goal": "g"},
        "agent": "a known agent",
        "metadata": {"reward": "REWARD"},
        "steps": [],
    }
    path = write(tmp_path / "t.jsonl", record)
    verdict = Verdict(id="failed-run", success=True, evaluator=EvaluatorInfo("a judge", "1"))
    async with opened(
        browser, path, tmp_path / "l.jsonl", verdicts=[verdict], reveal="never"
    ) as page:
        for then in ("before", "after"):
            body = await page.inner_text("body")
            assert "known agent" not in body and "failed-run" not in body, then
            assert "REWARD" not in await page.content(), then
            assert "a judge" not in await page.content(), then
            await press(page, "s", "Enter")
            await page.locator("#alert").filter(has_text="All 1 are labelled").wait_for()


async def test_hostile_text_is_shown_never_run(browser: Chromium, tmp_path: Path) -> None:
    state = {"text": HOSTILE, "caption": HOSTILE, "url": HOSTILE}
    action = {"kind": "click", "text": HOSTILE, "target": HOSTILE, "value": HOSTILE}
    record = {
        "id": HOSTILE,
        "task": {
            "id": HOSTILE,
            "goal": HOSTILE,
            "site": HOSTILE,
            "earlier": [{"id": "e", "task": {"goal": HOSTILE}}],
        },
        "agent": HOSTILE,
        "steps": [{"observation": state, "action": action, "thought": HOSTILE}],
        "final": state,
        "answer": HOSTILE,
        "error": HOSTILE,
    }
    path = write(
        tmp_path / "t.jsonl", record, {"id": "b", "task": {"goal": "next"}}, {"id": HOSTILE}
    )
    anna = LabelRecord(id=HOSTILE, success=True, annotator=HOSTILE, note=HOSTILE)
    verdict = Verdict(
        id=HOSTILE, success=True, reason=HOSTILE, evaluator=EvaluatorInfo(HOSTILE, HOSTILE, HOSTILE)
    )
    async with opened(
        browser, path, tmp_path / "l.jsonl", earlier=[anna], verdicts=[verdict]
    ) as page:
        assert await page.inner_text("#detail h2") == HOSTILE
        await press(page, "c", "g", "Escape", "s", "Enter")
        await at(page, 2)
        await press(page, ",")
        await at(page, 1)
        await page.locator(".judge .reason").filter(has_text=HOSTILE).wait_for()
        await press(page, "p")
        await page.locator("#text pre").filter(has_text=HOSTILE).wait_for()
        assert await page.title() == "prill annotate"
        assert await page.locator("body img[src=x], body script").count() == 0


async def test_action_is_drawn_where_it_was_done(browser: Chromium, tmp_path: Path) -> None:
    Image.new("RGB", (400, 200), "white").save(tmp_path / "s.png")
    swipe = {"kind": "swipe", "point": [0.25, 0.5], "end_point": [0.75, 0.5]}
    steps = [
        {"observation": {"screenshot": "s.png"}, "action": swipe},
        {"observation": {"screenshot": "none.png"}, "action": {"kind": "tap", "point": [0, 0]}},
    ]
    path = write(
        tmp_path / "t.jsonl",
        {"id": "a", "task": {"goal": "g"}, "steps": steps, "final": {"screenshot": "s.png"}},
    )
    async with opened(browser, path, tmp_path / "l.jsonl") as page:
        await page.wait_for_selector("#stage .overlay .swipe")
        picture = await page.locator("#stage img").bounding_box()
        ring = await page.locator("#stage .overlay circle.start").bounding_box()
        assert picture is not None and ring is not None
        assert ring["x"] + ring["width"] / 2 == pytest.approx(
            picture["x"] + picture["width"] / 4, abs=2
        )
        assert ring["y"] + ring["height"] / 2 == pytest.approx(
            picture["y"] + picture["height"] / 2, abs=2
        )
        assert await page.locator("#stage .overlay path.swipe").count() == 1
        await press(page, "ArrowRight")
        await page.wait_for_selector("#stage .absent")
        assert "missing" in await page.inner_text("#stage .absent")
        await press(page, "ArrowRight")
        await page.wait_for_selector("#stage img")
        assert await page.locator("#stage .overlay").count() == 0, (
            "nothing was done in the final state"
        )


async def test_unwritten_label_stays_on_the_page(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    async with opened(browser, SAMPLES, labels) as page:
        labels.rename(tmp_path / "away")
        await press(page, "f", "Enter")
        await page.wait_for_selector("#alert:not([hidden]):not(.mild)")
        assert "Not saved" in await page.inner_text("#alert")
        (tmp_path / "away").rename(labels)
        await press(page, "Enter")
        await at(page, 2)
    assert [record.success for record in read_labels(labels)] == [False]
