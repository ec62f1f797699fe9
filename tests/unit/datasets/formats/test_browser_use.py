"""Histories that browser-use 0.13.14 and 0.1.48 wrote:
tests/support/datasets/written/make_browser_use*.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from prill.datasets.formats.browser_use import load, load_labels
from prill.io.store import encode
from prill.types import LabelRecord
from tests.support.datasets.written.reading import WRITTEN, Row, one, rows

FILES = WRITTEN / "browser_use"
LONG: list[Row] = [
    ("goto", "URL", None, None),
    ("type", "green tea", "[1] input 'Search'", (0.23, 0.21)),
    ("wait", None, None, None),
    ("select", "Large", "[2] select 'Size'", (0.16, 0.33)),
    ("scroll", "down", None, None),
    ("scroll", "up", None, None),
    ("press", "Tab", None, None),
    ("scroll", "down", None, None),
    ("other", None, None, None),
    ("scroll", "up", None, None),
    ("click", None, "[4] button 'Buy'", (0.55, 0.21)),
    ("stop", "Bought green tea.", None, None),
]
OLD: list[Row] = [
    ("search", "tea", None, None),
    ("wait", None, None, None),
    ("goto", "http://shop.test/", None, None),
    ("click", None, "[7] button 'Buy'", (0.44, 0.25)),
    ("focus_tab", "1", None, None),
    ("scroll", "up", None, None),
    ("stop", "Bought.", None, None),
]


def without_url(found: list[Row]) -> list[Row]:
    """The port of the server that showed the pages differs."""
    return [
        (kind, "URL" if value and value.startswith("http://127.0.0.1") else value, *more)
        for kind, value, *more in found
    ]


def edited(folder: Path, change: Any, name: str = "short.json") -> Path:
    """A copy of a file, its history handed to `change`."""
    history = json.loads((FILES / name).read_bytes())
    change(history["history"])
    path = folder / name
    path.write_text(json.dumps(history))
    return path


def test_actions_of_today_are_read() -> None:
    run = one(load(FILES / "long.json"))
    assert without_url(rows(run)) == LONG
    assert (run.task.goal, run.answer, run.task.platform) == (
        "Buy green tea, the large one",
        "Bought green tea.",
        "web",
    )


def test_actions_of_old_versions_are_read() -> None:
    run = one(load(FILES / "old.json"))
    assert rows(run) == OLD, "the action after the page changed was not carried out"
    assert (run.task.goal, run.answer, run.metadata["date"]) == (
        "",
        "Bought.",
        "2023-11-14T22:13:21Z",
    )
    assert run.steps[0].thought == "Unknown\n\nstep 1\n\nsearch"


def test_only_first_action_has_the_picture() -> None:
    run = one(load(FILES / "long.json"))
    first, second = run.steps[1:3]
    assert first.observation.screenshot == str(FILES / "screenshots/step_2.png")
    assert first.thought and first.thought.startswith("fill the form\n\nSuccess - so far")
    assert (second.observation.screenshot, second.observation.text, second.thought) == (
        None,
        "Typed 'green tea'",
        None,
    )
    old = one(load(FILES / "old.json"))
    assert old.steps[0].observation.screenshot and not old.steps[1].observation.screenshot


def test_page_that_the_agent_saw_is_text() -> None:
    text = one(load(FILES / "long.json")).steps[1].observation.text or ""
    assert "aria-label=Search" in text and "Navigated to" in text
    assert "user_request" not in text and "step_info" not in text


def test_a_run_that_broke_off_says_why() -> None:
    run = one(load(FILES / "broken.json"))
    assert (run.error, run.answer, len(run.steps)) == ("the model is gone", None, 1)
    assert run.final is not None and run.final.text and "aria-label=Search" in run.final.text


def test_verdicts_are_labels_only(tmp_path: Path) -> None:
    def judge(history: list[dict[str, Any]]) -> None:
        judgement = {"verdict": False, "reasoning": "not named", "failure_reason": "UNLIKELY"}
        history[-1]["result"][-1]["judgement"] = judgement

    path = edited(tmp_path, judge)
    assert list(load_labels(path)) == [
        LabelRecord(id="short", success=True, source="self-report"),
        LabelRecord(id="short", success=False, source="llm-judge", note="UNLIKELY"),
    ]
    line = encode(one(load(path)))
    for word in (b"UNLIKELY", b"not named", b"success", b"Task completed"):
        assert word not in line
    assert {
        label.id: label.success for label in load_labels(FILES) if isinstance(label, LabelRecord)
    } == {"long": False, "old": True, "short": True}


def test_middle_of_an_element_counts_unscrolled(tmp_path: Path) -> None:
    shutil.copytree(FILES / "screenshots", tmp_path / "screenshots")

    def no_click(history: list[dict[str, Any]]) -> None:
        history[9]["result"][0]["metadata"] = None

    def scrolled(history: list[dict[str, Any]]) -> None:
        no_click(history)
        history[9]["state_message"] = history[9]["state_message"].replace(
            "<page_info>0.0 pages", "<page_info>0.4 pages"
        )

    points = [
        one(load(edited(tmp_path, change, "long.json"))).steps[10].action.point
        for change in (no_click, scrolled)
    ]
    assert points == [(350 / 640, 100 / 480), None]
