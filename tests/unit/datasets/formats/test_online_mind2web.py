"""Online-Mind2Web results made up here in both layouts, and the recorded ones where they are."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.datasets.formats.online_mind2web import load, load_labels, parse_action
from prill.types import LabelRecord, Point, Trajectory


def result(id: str = "t1", **more: Any) -> dict[str, Any]:
    return {
        "task_id": id,
        "task": "Buy tea",
        "action_history": ["<button> Search -> CLICK", "<input> Query -> TYPE: tea"],
        "thoughts": ["I search", ""],
        "final_result_response": "Bought.",
        **more,
    }


def folder(base: Path, agent: str, record: Any, shots: int = 0, id: str = "t1") -> Path:
    """<agent>/<id>/result.json with pictures of 200 x 100."""
    place = base / agent / id
    (place / "trajectory").mkdir(parents=True)
    (place / "result.json").write_text(record if isinstance(record, str) else json.dumps(record))
    for i in range(shots):
        Image.new("RGB", (200, 100)).save(place / "trajectory" / f"{i}_full_screenshot.png")
    return base


def one(source: Path) -> Trajectory:
    (trajectory,) = load(source)
    assert isinstance(trajectory, Trajectory), trajectory
    return trajectory


def test_folder_becomes_a_trajectory(tmp_path: Path) -> None:
    trajectory = one(folder(tmp_path, "SeeAct", result(), shots=3))
    assert (trajectory.id, trajectory.task.id, trajectory.task.goal, trajectory.agent) == (
        "SeeAct/t1",
        "t1",
        "Buy tea",
        "SeeAct",
    )
    assert (trajectory.task.platform, trajectory.answer, trajectory.metadata) == (
        "web",
        "Bought.",
        {},
    )
    assert [
        (s.action.kind, s.action.target, s.action.value, s.thought) for s in trajectory.steps
    ] == [("click", "<button> Search", None, "I search"), ("type", "<input> Query", "tea", None)]
    names = [Path(str(o.screenshot)).name for o in trajectory.observations]
    assert names == ["0_full_screenshot.png", "1_full_screenshot.png", "2_full_screenshot.png"]


@pytest.mark.parametrize(
    ("shots", "pictured", "metadata"), [(1, 1, {}), (2, 2, {}), (5, 3, {"screenshots_left_out": 2})]
)
def test_pictures_too_few_or_too_many(
    tmp_path: Path, shots: int, pictured: int, metadata: dict[str, int]
) -> None:
    trajectory = one(folder(tmp_path, "a", result(), shots=shots))
    assert (
        sum(o.screenshot is not None for o in trajectory.observations),
        trajectory.metadata,
    ) == (pictured, metadata)
    if shots == 5:
        assert Path(str(trajectory.observations[-1].screenshot)).name == "4_full_screenshot.png"


@pytest.mark.parametrize("name", ["runs.json", "runs.jsonl", "runs.jsonl.gz"])
def test_rows_in_one_file_are_read(tmp_path: Path, name: str) -> None:
    rows = [
        result("t1", action_history=["Click at (50, 50)"], result_status="success"),
        result("t2", result_status="error_max_turns"),
    ]
    text = (
        json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(r) + "\n" for r in rows)
    )
    (tmp_path / name).write_bytes(
        gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    )
    for source in (tmp_path, tmp_path / name):
        items = [item for item in load(source) if isinstance(item, Trajectory)]
        assert [(t.id, t.metadata) for t in items] == [
            ("runs/t1", {"truncated": False}),
            ("runs/t2", {"truncated": True}),
        ]


@pytest.mark.parametrize(
    ("text", "kind", "target", "value", "point"),
    [
        ('<a href="x -> y"> Next -> CLICK', "click", '<a href="x -> y"> Next', None, None),
        ("<input> Query -> TYPE: a -> B", "type", "<input> Query", "a -> B", None),
        ("<select> Size -> SELECT: Large", "select", "<select> Size", "Large", None),
        ("Click at (50, 25)", "click", None, None, (0.25, 0.25)),
        ("Click at (1.2.3, 25)", "click", None, None, None),
        ("Click at (500, 25)", "click", None, None, None),
        ('Type "green tea"', "type", None, "green tea", None),
        ("Press ENTER", "press", None, "ENTER", None),
        ("Navigate to https://a.example/", "goto", None, "https://a.example/", None),
        ("Navigate back", "back", None, None, None),
        ("Scroll (delta_x=0, delta_y=-400)", "scroll", None, "up", None),
        ("Select picker p1 -> Select option(s) [21]", "select", "picker p1", "21", None),
        ("Hover at (50, 25)", "hover", None, None, (0.25, 0.25)),
        ("Slider (horizontal) set to 3", "other", None, None, None),
        ("", "other", None, None, None),
    ],
)
def test_action_strings_are_parsed(
    text: str, kind: str, target: str | None, value: str | None, point: Point | None
) -> None:
    action = parse_action(text, (200.0, 100.0))
    assert (action.kind, action.target, action.value, action.point, action.text) == (
        kind,
        target,
        value,
        point,
        text,
    )


def test_action_drag_has_two_places() -> None:
    action = parse_action("Drag from (50, 50) to (100, 100)", (200.0, 100.0))
    assert (action.point, action.end_point) == ((0.25, 0.5), (0.5, 1.0))


def test_action_places_need_their_picture(tmp_path: Path) -> None:
    record = result(action_history=["Click at (50, 25)", "Click at (50, 25)"])
    trajectory = one(folder(tmp_path, "a", record, shots=1))
    assert [s.action.point for s in trajectory.steps] == [(0.25, 0.25), None]


def test_labels_of_a_model_judge(tmp_path: Path) -> None:
    rows = [
        result("t1", judge={"score": 100, "reasoning": "SECRET"}),
        result("t2", judge={"score": 0}),
        result("t3", judge={"score": 50}),
        result("t4", predicted_label=1, human_label="SECRET"),
    ]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert not [
        word for word in ("SECRET", "judge", "label", "score") if word in repr(list(load(tmp_path)))
    ]
    assert list(load_labels(tmp_path)) == [
        LabelRecord(id="runs/t1", success=True, source="llm-judge", note="score 100"),
        LabelRecord(id="runs/t2", success=False, source="llm-judge", note="score 0"),
        LabelRecord(id="runs/t3", success=None, source="llm-judge", note="score 50"),
        LabelRecord(id="runs/t4", success=True, source="llm-judge"),
    ]


def test_labels_of_people_join_by_agent(tmp_path: Path) -> None:
    for id in ("t1", "t2", "t3"):
        folder(tmp_path, "SeeAct", result(id), id=id)
    labels = [
        {"task_id": f"t{i + 1}", "SeeAct_human_label": str(i), "Operator_human_label": "1"}
        for i in range(3)
    ]
    (tmp_path / "human_label.json").write_text(json.dumps(labels))
    expected = [
        LabelRecord(id="SeeAct/t1", success=False),
        LabelRecord(id="SeeAct/t2", success=True),
        LabelRecord(id="SeeAct/t3", success=None, undecided="not_executable"),
    ]
    assert list(load_labels(tmp_path)) == expected
    assert list(load_labels(tmp_path / "SeeAct")) == expected
    assert {item.id for item in load(tmp_path)} == {label.id for label in expected}


@pytest.mark.labelled
def test_real_recordings_read_whole(real: Callable[[str], Path]) -> None:
    source = real("om2w")
    items = [item for item in load(source) if isinstance(item, Trajectory)]
    assert set(Counter(t.agent for t in items).values()) == {300}
    kinds = Counter(s.action.kind for t in items for s in t.steps)
    assert (sum(kinds.values()), kinds["other"]) == (6145, 14)
    assert sum(t.metadata.get("truncated") is True for t in items) == 37
    labels = [label for label in load_labels(source) if isinstance(label, LabelRecord)]
    assert Counter((label.source, label.success) for label in labels) == {
        ("llm-judge", True): 291,
        ("llm-judge", False): 9,
    }
