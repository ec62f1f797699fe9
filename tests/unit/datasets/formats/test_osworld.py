"""OSWorld result folders made up here, and the recorded rows where they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.datasets.formats.osworld import load, load_labels
from prill.types import LabelRecord, Trajectory

Recording = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Path]


def row(number: int, action: Any, **more: Any) -> dict[str, Any]:
    return {
        "step_num": number,
        "action_timestamp": "20260101@120000",
        "action": action,
        "response": f"thought {number}",
        "reward": 0.75,
        "done": False,
        "info": {"secret": 0.75},
        "screenshot_file": f"step_{number}_x.png",
        **more,
    }


def run(
    base: Path,
    rows: list[Any],
    result: str | None = "1.0\n",
    goal: str | None = "Close it",
    shots: bool = True,
) -> Path:
    """The example folder m/os/ex1 in results/, with OSWorld's task file above."""
    folder = base / "results" / "m" / "os" / "ex1"
    folder.mkdir(parents=True)
    (folder / "traj.jsonl").write_text(
        "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)
    )
    for row in rows:
        if shots and isinstance(row, dict) and "screenshot_file" in row:
            Image.new("RGB", (200, 100)).save(folder / row["screenshot_file"])
    if result is not None:
        (folder / "result.txt").write_text(result)
    if goal is not None:
        tasks = base / "evaluation_examples" / "examples" / "os"
        tasks.mkdir(parents=True)
        (tasks / "ex1.json").write_text(
            json.dumps({"id": "ex1", "instruction": goal, "evaluator": {"expected": "secret"}})
        )
    return base / "results"


def one(source: Path) -> Trajectory:
    (trajectory,) = load(source)
    assert isinstance(trajectory, Trajectory), trajectory
    return trajectory


def test_run_pictures_follow_their_action(tmp_path: Path) -> None:
    rows = [row(1, "pyautogui.click(50, 50)"), row(2, "DONE")]
    source = run(tmp_path, rows)
    (source / "m" / "args.json").write_text('{"model": "gpt", "api_key": "secret"}')
    trajectory = one(source)
    assert (trajectory.id, trajectory.task.id, trajectory.task.site, trajectory.task.platform) == (
        "m/os/ex1",
        "ex1",
        "os",
        "desktop",
    )
    assert (trajectory.task.goal, trajectory.agent) == ("Close it", "gpt")
    assert trajectory.metadata == {"date": "2026-01-01T12:00:00", "claimed_success": True}
    assert [(s.action.kind, s.action.point, s.thought) for s in trajectory.steps] == [
        ("click", (0.25, 0.5), "thought 1"),
        ("stop", None, "thought 2"),
    ]
    folder = (source / "m" / "os" / "ex1").resolve()
    assert [o.screenshot for o in trajectory.observations] == [
        None,
        str(folder / "step_1_x.png"),
        str(folder / "step_2_x.png"),
    ]
    assert not [word for word in ("secret", "0.75", "1.0") if word in repr(trajectory)]


@pytest.mark.parametrize(
    ("action", "kind", "value"),
    [
        ({"action_type": "CLICK", "parameters": {"x": 1, "y": 2}}, "click", None),
        ({"action_type": "TYPING", "parameters": {"text": "tea"}}, "type", "tea"),
        ({"action_type": "DONE"}, "stop", None),
        ({"name": "computer", "command": "pyautogui.press('a')"}, "press", "a"),
        ({"what": 1}, "other", None),
        (None, "other", None),
    ],
)
def test_actions_may_be_objects(tmp_path: Path, action: Any, kind: str, value: str | None) -> None:
    parsed = one(run(tmp_path, [row(1, action)])).steps[0].action
    assert (parsed.kind, parsed.value) == (kind, value)


@pytest.mark.parametrize(
    ("text", "success", "note"),
    [("1.0\n", True, None), ("0", False, None), ("0.4", False, "reward 0.4"), ("True", True, None)],
)
def test_result_is_an_oracle_label(
    tmp_path: Path, text: str, success: bool, note: str | None
) -> None:
    source = run(tmp_path, [row(1, "WAIT")], result=text)
    assert list(load_labels(source)) == [
        LabelRecord(id="m/os/ex1", success=success, source="oracle", note=note)
    ]


@pytest.mark.parametrize("below", ["", "m", "m/os", "m/os/ex1"])
def test_ids_have_domain_and_example(tmp_path: Path, below: str) -> None:
    source = run(tmp_path, [row(1, "WAIT")]) / below
    trajectory = one(source)
    assert trajectory.id == ("m/os/ex1" if not below else "os/ex1")
    assert [label.id for label in load_labels(source)] == [trajectory.id]
    assert trajectory.task.goal == "Close it"


def test_row_files_are_read_as_well(recording: Recording) -> None:
    steps = [
        {"i": 0, "thought": "t", "action": "pyautogui.click(960, 540)"},
        {"i": 1, "thought": None, "action": "DONE"},
    ]
    runs = [
        {
            "id": "osworld/m/e",
            "platform": "x",
            "domain": "os",
            "agent": "m",
            "goal": "g",
            "steps": steps,
            "done_action": True,
        }
    ]
    folder = recording(runs, [{"id": "osworld/m/e", "oracle_reward": None}])
    trajectory = one(folder)
    assert (trajectory.task.id, trajectory.task.site, trajectory.steps[0].action.point) == (
        "e",
        "os",
        (0.5, 0.5),
    )
    assert list(load_labels(folder)) == [
        LabelRecord(id="osworld/m/e", success=None, source="oracle")
    ]


@pytest.mark.labelled
def test_real_recordings_read_whole(real: Callable[[str], Path]) -> None:
    folder = real("osworld_text")
    items = [item for item in load(folder) if isinstance(item, Trajectory)]
    assert len(items) == 450
    kinds = Counter(s.action.kind for t in items for s in t.steps)
    assert kinds["other"] < 100
    assert all(s.action.point for t in items for s in t.steps if s.action.kind in ("click", "drag"))
    labels = [label for label in load_labels(folder) if isinstance(label, LabelRecord)]
    assert Counter((label.success, label.note is None) for label in labels) == {
        (True, True): 183,
        (False, True): 259,
        (False, False): 5,
        (None, True): 3,
    }
