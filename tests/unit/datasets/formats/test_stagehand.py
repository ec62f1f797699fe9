"""Trajectories made here by the types that Stagehand states, as its harness stores them
(packages/core/lib/v3/verifier).
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

import prill
from prill.datasets.formats.stagehand import load, load_labels
from prill.evaluators.criteria import read_rubrics
from prill.io.store import encode
from prill.testing import ScriptedModel
from prill.types import LabelRecord
from tests.support.datasets.written.reading import Row, all_read, one, rows

RUBRIC = {
    "items": [
        {"criterion": "Tea", "description": "Green tea is in the cart", "maxPoints": 3},
        {"criterion": "Size", "maxPoints": 1, "condition": "there is a choice"},
    ]
}


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (200, 100)).save(file, "PNG")
    return file.getvalue()


def step(i: int, name: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    probe = {
        "url": f"http://shop.test/{i}",
        "screenshotPath": f"screenshots/probe/{i}.png",
        "ariaTree": f"[{i}] button: Buy",
    }
    evidence = {"modalities": [{"type": "text", "content": f"did {name}"}]}
    return {
        "index": i,
        "actionName": name,
        "actionArgs": args,
        "reasoning": f"because {i}",
        "agentEvidence": evidence,
        "probeEvidence": probe,
        "toolOutput": {"ok": True, "result": {}},
        "startedAt": "2026-01-01T00:00:00.000Z",
        **more,
    }


def written(folder: Path, *steps: dict[str, Any], **more: Any) -> Path:
    task = {"id": "tea_1", "instruction": "Buy green tea", "initUrl": "http://shop.test/"}
    run = {
        "task": {**task, "precomputedRubric": RUBRIC, "expectedAnswer": "EXPECTED"},
        "steps": steps,
        "finalAnswer": "Bought.",
        "status": "complete",
        "usage": {"input_tokens": 100, "output_tokens": 50},
        "timing": {},
        **more,
    }
    (folder / "screenshots/probe").mkdir(parents=True)
    for i in range(1, len(steps) + 1):
        (folder / f"screenshots/probe/{i}.png").write_bytes(picture())
    (folder / "trajectory.json").write_text(json.dumps(run))
    (folder / "task_data.json").write_text(
        json.dumps({"task": task, "result": {"outcomeSuccess": True}})
    )
    (folder / "scores").mkdir()
    score = {
        "outcomeSuccess": False,
        "processScore": 0.75,
        "perCriterion": [],
        "evidenceInsufficient": [],
    }
    (folder / "scores/result.json").write_text(json.dumps(score))
    return folder


LONG = [
    ("goto", {"url": "http://shop.test/tea"}),
    ("act", {"action": "type 'green tea' into the search field"}),
    ("act", {"action": "click the Buy button"}),
    ("click", {"describe": "the Buy button", "coordinates": [50, 25]}),
    (
        "dragAndDrop",
        {"describe": "a card", "startCoordinates": [0, 0], "endCoordinates": [200, 100]},
    ),
    ("keys", {"method": "press", "value": "Enter"}),
    ("scroll", {"direction": "down"}),
    ("navback", {}),
    ("extract", {"instruction": "the price"}),
    ("done", {"reasoning": "all is done", "taskComplete": True, "output": "Bought."}),
]
ROWS: list[Row] = [
    ("goto", "http://shop.test/tea", None, None),
    ("type", "green tea", None, None),
    ("click", None, None, None),
    ("click", None, "the Buy button", (0.25, 0.25)),
    ("drag", None, "a card", (0.0, 0.0)),
    ("press", "Enter", None, None),
    ("scroll", "down", None, None),
    ("back", None, None, None),
    ("other", None, None, None),
    ("stop", "Bought.", None, None),
]


def long(folder: Path) -> Path:
    return written(folder, *(step(i, name, args) for i, (name, args) in enumerate(LONG, 1)))


def test_actions_are_read(tmp_path: Path) -> None:
    run = one(load(long(tmp_path / "runs/tea/1")))
    assert rows(run) == ROWS
    assert run.steps[4].action.end_point == (1.0, 1.0)
    assert (run.id, run.task.id, run.task.goal, run.answer) == (
        "1",
        "tea_1",
        "Buy green tea",
        "Bought.",
    )
    assert run.metadata == {
        "status": "complete",
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "date": "2026-01-01T00:00:00Z",
    }


def test_a_probe_is_the_next_observation(tmp_path: Path) -> None:
    folder = long(tmp_path / "a")
    run = one(load(folder))
    first, second = run.steps[:2]
    assert (first.observation.screenshot, first.observation.url) == (None, "http://shop.test/")
    assert second.observation.screenshot == str((folder / "screenshots/probe/1.png").resolve())
    assert (second.observation.url, second.observation.text) == (
        "http://shop.test/1",
        "did goto\n[1] button: Buy",
    )
    assert run.final is not None and run.final.url == f"http://shop.test/{len(LONG)}"
    assert first.thought == "because 1"


def test_the_agents_picture_stands_in(tmp_path: Path) -> None:
    image = {
        "type": "image",
        "bytesBase64": base64.b64encode(picture()).decode(),
        "mediaType": "image/png",
    }
    more = {
        "agentEvidence": {"modalities": [image]},
        "probeEvidence": {},
        "toolOutput": {"ok": False, "error": "no such"},
    }
    run = one(
        load(written(tmp_path / "a", step(1, "click", {"x": 1}, **more)), images=tmp_path / "i")
    )
    assert run.final is not None and run.final.screenshot and run.final.text == "no such"


def test_a_short_run_and_one_that_broke_off(tmp_path: Path) -> None:
    written(tmp_path / "runs/short", step(1, "goto", {"url": "http://x"}))
    written(
        tmp_path / "runs/broken",
        step(1, "goto", {"url": "http://x"}),
        status="error",
        terminationReason="step_budget",
    )
    runs = all_read(load(tmp_path))
    assert {id: run.error for id, run in runs.items()} == {
        "runs/short": None,
        "runs/broken": "step_budget",
    }


def test_verdicts_are_labels_only(tmp_path: Path) -> None:
    folder = long(tmp_path / "a")
    (label,) = load_labels(folder)
    note = "process score 0.75; expected answer: EXPECTED"
    assert label == LabelRecord(
        id="a", success=False, source="llm-judge", annotator="result", note=note
    )
    line = encode(one(load(folder)))
    for word in (b"EXPECTED", b"0.75", b"taskComplete", b"is in the cart", b"outcomeSuccess"):
        assert word not in line


async def test_convert_writes_the_rubrics_that_the_judge_reads(tmp_path: Path) -> None:
    """Two runs of a task have one rubric; the judge takes the file, and asks for no criteria."""
    for name in ("one", "two"):
        long(tmp_path / "runs" / name)
    done = prill.convert(prill.ConvertConfig(source=tmp_path / "runs", output=tmp_path / "out"))
    assert (done.rubrics, done.to_dict()["rubrics"]) == (1, 1) and "1 rubrics" in str(done)
    file = tmp_path / "out/rubrics.jsonl"
    (rubric,) = read_rubrics(file).values()
    assert [(one.text, one.weight) for one in rubric.criteria] == [
        ("Tea: Green tea is in the cart", 3),
        ("If there is a choice: Size", 1),
    ]
    judge = prill.judge("rubric", model=ScriptedModel([]), rubrics=str(file))
    (run, *_) = prill.read_trajectories(tmp_path / "out/trajectories.jsonl")
    assert judge._supplied(run) == rubric
