"""ATIF documents made up here, in the fields of versions 1.0 to 1.8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from prill.datasets.formats.atif import load
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


def test_notes_of_the_writer_stay_out(tmp_path: Path) -> None:
    assert "reward" not in repr(one(write(tmp_path / "t.json", document())))


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
