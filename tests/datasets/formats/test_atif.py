"""ATIF documents made up here, in the fields of versions 1.0 to 1.8."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.cli import main
from prill.datasets.formats.atif import load
from prill.errors import UsageError
from prill.io.store import BadLine, read_trajectories
from prill.types import Trajectory


def document(**more: Any) -> dict[str, Any]:
    picture = {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "s1",
        "agent": {
            "name": "browser",
            "version": "1.0",
            "model_name": "m",
            "tool_definitions": [{"name": "f"}],
        },
        "notes": "reward 1.0, solved",
        "steps": [
            {"step_id": 1, "source": "system", "message": "You are an agent"},
            {"step_id": 2, "source": "user", "message": "Buy tea"},
            {
                "step_id": 3,
                "source": "agent",
                "message": "I open the shop",
                "reasoning_content": "A shop sells tea",
                "tool_calls": [
                    {
                        "tool_call_id": "c1",
                        "function_name": "browser_navigate",
                        "arguments": {"url": "http://shop"},
                    }
                ],
                "observation": {
                    "results": [
                        {
                            "source_call_id": "c1",
                            "content": [{"type": "text", "text": "A shop"}, picture],
                        }
                    ]
                },
                "metrics": {
                    "prompt_tokens": 10,
                    "completion_tokens": 2,
                    "cost_usd": 0.5,
                    "extra": {},
                },
            },
            {
                "step_id": 4,
                "source": "agent",
                "message": "Bought.",
                "metrics": {"prompt_tokens": 20},
                "extra": {"reward": 1.0},
            },
        ],
        "extra": {"reward": 1.0},
        **more,
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    (path.parent / "images").mkdir(exist_ok=True)
    Image.new("RGB", (4, 4)).save(path.parent / "images" / "a.png")
    return path


def one(path: Path) -> Trajectory:
    (trajectory,) = load(path)
    assert isinstance(trajectory, Trajectory), trajectory
    return trajectory


def test_document_becomes_a_trajectory(tmp_path: Path) -> None:
    trajectory = one(write(tmp_path / "t.json", document()))
    assert (trajectory.id, trajectory.task.goal, trajectory.agent, trajectory.answer) == (
        "s1",
        "Buy tea",
        "browser (m)",
        "Bought.",
    )
    first, last = trajectory.steps
    assert (first.action.kind, first.action.value) == ("goto", "http://shop")
    assert first.thought == "A shop sells tea\n\nI open the shop"
    assert (last.action.kind, last.observation.text) == ("answer", "A shop")
    assert last.observation.screenshot == str(tmp_path.resolve() / "images" / "a.png")
    assert trajectory.metadata == {"prompt_tokens": 30, "completion_tokens": 2, "cost_usd": 0.5}


def test_date_of_first_step_in_utc(tmp_path: Path) -> None:
    steps = [
        {
            "step_id": 1,
            "timestamp": "2026-01-01T12:00:00.5+01:00",
            "source": "user",
            "message": "Go",
        },
        {"step_id": 2, "timestamp": "2026-01-01T12:00:09Z", "source": "agent", "message": "Done."},
    ]
    assert (
        one(write(tmp_path / "a.json", document(steps=steps))).metadata["date"]
        == "2026-01-01T11:00:00Z"
    )


def test_notes_of_the_writer_stay_out(tmp_path: Path) -> None:
    assert "reward" not in repr(one(write(tmp_path / "t.json", document())))


def test_stated_totals_go_before_sums(tmp_path: Path) -> None:
    totals = {"total_prompt_tokens": 99, "total_cost_usd": 0.0}
    trajectory = one(write(tmp_path / "t.json", document(final_metrics=totals)))
    assert trajectory.metadata == {"prompt_tokens": 99, "completion_tokens": 2, "cost_usd": 0.0}


def test_places_become_fractions_of_screen(tmp_path: Path) -> None:
    agent = {
        "name": "a",
        "version": "1",
        "tool_definitions": [{"display_width": 200, "display_height": 100}],
    }
    call = {"tool_call_id": "c", "function_name": "click", "arguments": {"x": 50, "y": 50}}
    steps = [
        {"step_id": 1, "source": "user", "message": "Go"},
        {"step_id": 2, "source": "agent", "message": "", "tool_calls": [call]},
    ]
    assert one(write(tmp_path / "a.json", document(agent=agent, steps=steps))).steps[
        0
    ].action.point == (0.25, 0.5)
    unknown = {"name": "a", "version": "1"}
    assert (
        one(write(tmp_path / "b.json", document(agent=unknown, steps=steps))).steps[0].action.point
        is None
    )


def test_folder_passes_other_files_over(tmp_path: Path) -> None:
    write(tmp_path / "run1" / "trajectory.json", document())
    write(tmp_path / "run2" / "trajectory.json", document())
    write(tmp_path / "run3" / "trajectory.json", document(session_id=None, trajectory_id="own"))
    write(tmp_path / "run1" / "result.json", {"reward": 1.0})
    write(tmp_path / "run4" / "trajectory.json", document(session_id=None))
    items = list(load(tmp_path))
    assert [item.id for item in items] == ["s1", "s1#2", "own", "run4/trajectory"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"schema_version": "ATIF-v1.6", "agent": {"na', "truncated"),
        (
            document(steps=[{"step_id": 1, "source": "robot", "message": "x"}]),
            r"steps\[0\]\.source",
        ),
        (document(steps=[{"step_id": 1, "source": "agent", "message": "x"}]), "no goal"),
        (document(schema_version="ATIF-v1.6 reward", agent="x"), r"\$\.agent"),
        (
            document(
                steps=[
                    {
                        "source": "user",
                        "message": [{"type": "image", "source": {"path": "../../../../etc/hosts"}}],
                    },
                ]
            ),
            "leaves the folder",
        ),
    ],
)
def test_broken_document_named_others_read(tmp_path: Path, content: Any, problem: str) -> None:
    write(tmp_path / "a.json", content)
    write(tmp_path / "b.json", document())
    bad, good = load(tmp_path)
    assert isinstance(bad, BadLine)
    assert bad.message.startswith(str(tmp_path / "a.json"))
    assert re.search(problem, bad.problem)
    assert good.id == "s1"


def test_other_format_is_a_broken_record(tmp_path: Path) -> None:
    (bad,) = load(write(tmp_path / "a.json", document(schema_version="other")))
    assert isinstance(bad, BadLine)
    assert "expected ATIF" in bad.problem


def test_no_documents_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.json", {"reward": 1})
    for source in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError):
            list(load(source))


def test_converted_folder_stands_alone(tmp_path: Path) -> None:
    write(tmp_path / "in" / "t.json", document())
    assert main(["convert", "atif", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    (trajectory,) = read_trajectories(tmp_path / "out" / "trajectories.jsonl")
    assert isinstance(trajectory, Trajectory)
    assert (tmp_path / "out" / "images") == Path(
        str(trajectory.steps[1].observation.screenshot)
    ).parent
    assert not (tmp_path / "out" / "labels.jsonl").exists()
