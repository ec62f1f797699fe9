"""`prill convert`: a foreign folder becomes one that prill reads back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.cli import main
from prill.io.store import iter_trajectories, read_labels
from prill.types import Trajectory

Recording = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Path]


def shop(recording: Recording) -> Path:
    """Two steps and the end share one picture; another has the same bytes under another name."""
    steps = [
        {"action": "click('1')", "caption": "A shop", "screenshot": "images/a.JPG"},
        {"action": "click('2')", "screenshot": "images/b.jpg"},
        {"action": None, "screenshot": "images/a.JPG"},
    ]
    run = {
        "id": "r1",
        "benchmark": "shop",
        "agent": "x",
        "task_id": "shop.7",
        "goal": "Buy tea",
        "steps": steps,
    }
    folder = recording(
        [run],
        [
            {
                "id": "r1",
                "human": [{"annotator": "A", "success": "Successful"}],
                "oracle_reward": 1.0,
            }
        ],
    )
    (folder / "images").mkdir()
    for name in ("a.JPG", "b.jpg"):
        (folder / "images" / name).write_bytes(b"the same picture")
    return folder


def test_converted_folder_reads_back(recording: Recording, tmp_path: Path) -> None:
    source, out = shop(recording), tmp_path / "deep" / "out"
    assert main(["convert", "agentrewardbench-webjudge", str(source), "-o", str(out)]) == 0
    for path in sorted(source.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (trajectory,) = iter_trajectories(out / "trajectories.jsonl")
    assert isinstance(trajectory, Trajectory)
    shots = [o.screenshot for o in trajectory.observations]
    assert [Path(str(shot)).read_bytes() for shot in shots] == [b"the same picture"] * 3
    assert len(list((out / "images").iterdir())) == 1
    assert [
        (label.id, label.source, label.success) for label in read_labels(out / "labels.jsonl")
    ] == [("r1", "human", True), ("r1", "oracle", True)]
    assert sorted(path.name for path in out.iterdir()) == [
        "images",
        "labels.jsonl",
        "trajectories.jsonl",
    ]


def test_nothing_is_overwritten(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.jsonl").write_text("mine", encoding="utf-8")
    assert (
        main(["convert", "agentrewardbench-webjudge", str(shop(recording)), "-o", str(tmp_path)])
        == 2
    )
    assert "already exists" in capsys.readouterr().err
    assert (tmp_path / "labels.jsonl").read_text(encoding="utf-8") == "mine"


def test_missing_image_costs_its_trajectory(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = shop(recording), tmp_path / "out"
    (source / "images" / "b.jpg").unlink()
    with gzip.open(source / "trajectories.jsonl.gz", "at", encoding="utf-8") as file:
        file.write(
            json.dumps(
                {
                    "id": "r2",
                    "benchmark": "shop",
                    "agent": "x",
                    "task_id": "8",
                    "goal": "g",
                    "steps": [],
                }
            )
            + "\n"
        )
        file.write('{"id": "r3"}\n')
    assert main(["convert", "agentrewardbench-webjudge", str(source), "-o", str(out)]) == 3
    messages = capsys.readouterr().err
    assert "b.jpg is missing" in messages
    assert "trajectories.jsonl.gz:3: " in messages
    assert [item.id for item in iter_trajectories(out / "trajectories.jsonl")] == ["r2"]


def bare(id: str) -> dict[str, Any]:
    return {"id": id, "benchmark": "shop", "agent": "x", "task_id": "8", "goal": "g", "steps": []}


@pytest.mark.parametrize("there", [None, "out", "out/images"])
def test_failed_conversion_leaves_no_folder(
    there: str | None, recording: Recording, tmp_path: Path
) -> None:
    """Nothing of what it made stays, and all of what was there."""
    source = shop(recording)
    (source / "images/b.jpg").unlink()  # the first picture is copied before the second is missed
    before = [tmp_path / there] if there else []
    for folder in before:
        folder.mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    left = sorted(tmp_path.iterdir())
    assert (
        main(
            [
                "convert",
                "agentrewardbench-webjudge",
                str(source),
                "-o",
                str(tmp_path / ((there and "out") or "new/out")),
            ]
        )
        == 2
    )
    assert (
        main(
            [
                "convert",
                "osworld",
                str(tmp_path / "none"),
                "-o",
                str(tmp_path / ((there and "out") or "new/out")),
            ]
        )
        == 2
    )
    assert sorted(tmp_path.iterdir()) == left and all(folder.is_dir() for folder in before)


def test_recording_without_labels_converts(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = recording([bare("r1")], [])
    (source / "labels.jsonl.gz").unlink()
    assert (
        main(["convert", "agentrewardbench-webjudge", str(source), "-o", str(tmp_path / "out")])
        == 3
    )
    assert "all labels: " in capsys.readouterr().err
    assert [item.id for item in iter_trajectories(tmp_path / "out" / "trajectories.jsonl")] == [
        "r1"
    ]


@pytest.mark.labelled
@pytest.mark.parametrize(
    ("form", "name", "count"),
    [("agentrewardbench-webjudge", "arb_webjudge", 619), ("androidworld", "androidworld", 97)],
)
def test_real_recordings_lose_no_rows(
    real: Callable[[str], Path], tmp_path: Path, form: str, name: str, count: int
) -> None:
    assert main(["convert", form, str(real(name)), "-o", str(tmp_path)]) == 0
    items = list(iter_trajectories(tmp_path / "trajectories.jsonl"))
    assert (len(items), all(isinstance(item, Trajectory) for item in items)) == (count, True)


# A record of each format, with actions that its reader knows, and others; how the unknown ones are
# called.
UNKNOWN: dict[str, tuple[str, object, str]] = {
    "online-mind2web": (
        "rows.jsonl",
        {
            "task_id": "1",
            "task": "Go",
            "action_history": ["click at (1, 2)", "teleport: home", {"action": "warp", "to": 3}],
        },
        "2 of 3 actions were not recognised and have kind other: teleport 1, warp 1",
    ),
    "atif": (
        "t.json",
        {
            "schema_version": "ATIF-v1.6",
            "session_id": "s",
            "agent": {"name": "a", "version": "1"},
            "steps": [
                {"source": "user", "message": "Go"},
                {
                    "source": "agent",
                    "message": "",
                    "tool_calls": [
                        {"function_name": "click", "arguments": {"index": 1}},
                        {
                            "function_name": "computer_action",
                            "arguments": {"type": "levitate", "x": 1},
                        },
                        {"function_name": "warp\u001b[31m", "arguments": {}},
                    ],
                },
            ],
        },
        "2 of 3 actions were not recognised and have kind other: levitate 1, warp 1",
    ),
    "osworld": (
        "chrome/x/traj.jsonl",
        {"step_num": 1, "action": "pyautogui.teleport(1, 2)", "instruction": "Go"},
        "1 of 1 actions was not recognised and have kind other: pyautogui.teleport",
    ),
    "androidworld": (
        "trajectories.jsonl",
        {
            "id": "a",
            "task": "t",
            "goal": "Go",
            "steps": [{"action": 'Reason: x Action: {"action_type": "teleport"}', "ui": []}],
        },
        "1 of 1 actions was not recognised and have kind other: teleport",
    ),
    "agentrewardbench-webjudge": (
        "trajectories.jsonl",
        {
            "id": "r",
            "benchmark": "shop",
            "agent": "x",
            "task_id": "shop.7",
            "goal": "Buy",
            "steps": [{"action": "click('1')"}, {"action": "teleport('2')"}, {"action": None}],
        },
        "1 of 2 actions was not recognised and have kind other: teleport",
    ),
}


@pytest.mark.parametrize("format_", UNKNOWN)
def test_unknown_actions_are_counted_by_name(
    format_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, record, words = UNKNOWN[format_]
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    assert main(["convert", format_, str(tmp_path / "in"), "-o", str(tmp_path / "out")]) in (0, 3)
    assert words in capsys.readouterr().err


OWN = """
from prill.types import LabelRecord, Task, Trajectory

def load(folder, *, site: str = "none"):
    yield Trajectory(id="a", task=Task(goal="Go", site=site))

def load_labels(folder):
    yield LabelRecord(id="a", success=True)
"""


def test_a_format_of_ones_own_from_python_and_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its parameters are options, its labels come along, and both doors write the same."""
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path}/own.py:load"
    result = prill.convert(
        prill.ConvertConfig(
            format=prill.FormatConfig(name, site="shop"),
            source=tmp_path,
            output=tmp_path / "python",
        )
    )
    assert (result.report.trajectories, result.report.labels) == (1, 1)
    assert (
        main(["convert", name, str(tmp_path), "-o", str(tmp_path / "command"), "--site", "shop"])
        == 0
    )
    for file in ("trajectories.jsonl", "labels.jsonl"):
        assert (tmp_path / "python" / file).read_bytes() == (
            tmp_path / "command" / file
        ).read_bytes()
    assert b'"site":"shop"' in (tmp_path / "python" / "trajectories.jsonl").read_bytes()
    assert (
        main(["convert", name, str(tmp_path), "-o", str(tmp_path / "no"), "--sight", "shop"]) == 2
    )
    assert "--sight: unknown option (did you mean '--site'?)" in capsys.readouterr().err
