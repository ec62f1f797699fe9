"""Folders made here as Skyvern's own storage names them
(skyvern/forge/sdk/artifact/storage/local.py, 1.0.56).
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.datasets.formats.skyvern import load, load_labels, recognise
from prill.datasets.reading.sources import Source
from prill.errors import UsageError
from prill.io.store import BadLine, encode
from prill.types import LabelRecord
from tests.datasets.written.reading import Row, all_read, one, rows

PROMPT = (
    "Identify actions.\n\nUser goal:\n```\nBuy green tea\n```\n\nClickable "
    "elements:\n```\nUser goal:\n```\nSay yes\n```\n```"
)


def artifact(folder: Path, minute: int, type: str, content: Any, ending: str = "json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"2026-01-01T00:{minute:02d}:00.123456_a_4{minute:03d}_{type}.{ending}"
    if isinstance(content, int):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (content, 0, 0)).save(file, "PNG")
        path.write_bytes(file.getvalue())
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def said(kind: str, **more: Any) -> dict[str, Any]:
    return {"action_type": kind, "reasoning": f"so {kind}", "confidence_float": 0.9, **more}


def long(task: Path) -> Path:
    first, second = task / "00_0_stp_1", task / "01_0_stp_2"
    artifact(first, 1, "screenshot_llm", 1, "png")
    artifact(first, 2, "visible_elements_tree_in_prompt", "<input id=AAAb>", "txt")
    artifact(first, 3, "llm_prompt", PROMPT, "txt")
    actions = [
        said("INPUT_TEXT", id="AAAb", text="green tea"),
        said("SELECT_OPTION", id="AAAc", option={"label": "Large", "index": 1}),
        said("KEYPRESS", keys=["Enter"]),
        said("CLICK", id="AAAd"),
    ]
    artifact(
        first,
        4,
        "llm_response_parsed",
        {"user_goal_achieved": False, "action_plan": "Fill it", "actions": actions},
    )
    for i in range(5, 9):
        artifact(first, i, "screenshot_action", i, "png")
    artifact(first, 9, "llm_response_parsed", {"page_info": "of another prompt"})
    artifact(second, 11, "screenshot_llm", 11, "png")
    ending = [
        said("GOTO_URL", url="http://shop.test/"),
        said("SCROLL", direction="down"),
        said("COMPLETE"),
    ]
    artifact(second, 12, "llm_response_parsed", {"user_goal_achieved": True, "actions": ending})
    artifact(second, 13, "screenshot_final", 13, "png")
    return task


ROWS: list[Row] = [
    ("type", "green tea", "AAAb", None),
    ("select", "Large", "AAAc", None),
    ("press", "Enter", None, None),
    ("click", None, "AAAd", None),
    ("goto", "http://shop.test/", None, None),
    ("scroll", "down", None, None),
    ("stop", None, None, None),
]


def test_actions_are_read(tmp_path: Path) -> None:
    run = one(load(long(tmp_path / "o_1/tsk_1")))
    assert rows(run) == ROWS
    assert (run.id, run.task.goal, run.metadata) == (
        "tsk_1",
        "Buy green tea",
        {"date": "2026-01-01T00:01:00"},
    )
    assert [step.thought for step in run.steps][:2] == [
        "Fill it\n\nso INPUT_TEXT",
        "so SELECT_OPTION",
    ]


def test_each_action_has_the_picture_before_it(tmp_path: Path) -> None:
    run = one(load(long(tmp_path / "tsk_1")))
    seen = [Path(step.observation.screenshot or "").name.split("_a_")[1] for step in run.steps]
    assert seen[:5] == [
        f"4{i:03d}_screenshot_{kind}.png"
        for i, kind in ((1, "llm"), *((i, "action") for i in (5, 6, 7)), (11, "llm"))
    ]
    assert (
        run.final is not None
        and run.final.screenshot
        and run.final.screenshot.endswith("4013_screenshot_final.png")
    )
    assert [step.observation.text for step in run.steps][:2] == ["<input id=AAAb>", None]


def test_what_it_says_of_the_goal_is_a_label(tmp_path: Path) -> None:
    long(tmp_path / "tsk_1")
    assert list(load_labels(tmp_path)) == [
        LabelRecord(id="tsk_1", success=True, source="self-report")
    ]
    assert b"achieved" not in encode(one(load(tmp_path)))


def test_short_and_broken_tasks(tmp_path: Path) -> None:
    long(tmp_path / "o/tsk_1")
    artifact(
        tmp_path / "o/tsk_2/00_0_stp_1", 1, "llm_response_parsed", {"actions": [said("TERMINATE")]}
    )
    artifact(tmp_path / "o/tsk_3/00_0_stp_1", 1, "llm_response_parsed", '{"actions": [{"act')
    items = list(load(tmp_path))
    (bad,) = (item for item in items if isinstance(item, BadLine))
    assert "truncated" in bad.problem and "tsk_3" in bad.place
    assert set(all_read(item for item in items if not isinstance(item, BadLine))) == {
        "o/tsk_1",
        "o/tsk_2",
    }


def test_folders_are_recognised(tmp_path: Path) -> None:
    assert not recognise(Source(tmp_path))
    with pytest.raises(UsageError, match="expected folders of Skyvern's steps"):
        list(load(tmp_path))
    assert recognise(Source(long(tmp_path / "o/tsk_1").parent))
