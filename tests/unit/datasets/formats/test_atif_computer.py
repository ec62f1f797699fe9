"""ATIF as Harbor's computer-use harness writes it: every type of action, every frame of
coordinates, every way to end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.datasets.formats.atif import load
from prill.types import Action, Trajectory

# The fields of the writer's record of an action, all of which it writes, null where they do not
# apply.
FIELDS = (
    *(
        "type",
        "x",
        "y",
        "end_x",
        "end_y",
        "text",
        "keys",
        "url",
        "scroll_x",
        "scroll_y",
        "button",
        "result",
        "source",
    ),
    *(
        "model_x",
        "model_y",
        "zoom_region",
        "modifier",
        "duration",
        "duration_seconds",
        "press_enter",
    ),
    *("clear_before_typing", "command", "timeout_sec"),
)


def action(type_: str, **given: Any) -> dict[str, Any]:
    return {**dict.fromkeys(FIELDS), "type": type_, "source": "native_prescaled", **given}


def step(
    episode: int,
    arguments: dict[str, Any] | None,
    message: str = "",
    text: str = "",
    final: bool = False,
) -> dict[str, Any]:
    calls, call_id = [], None
    if arguments is not None:
        call_id = f"call_{episode}_1"
        calls.append(
            {"tool_call_id": call_id, "function_name": "computer_action", "arguments": arguments}
        )
    if final:
        result = None if arguments is None else arguments["result"]
        name = f"call_{episode}_task_complete"
        calls.append(
            {
                "tool_call_id": name,
                "function_name": "mark_task_complete",
                "arguments": {"result": result},
            }
        )
    picture = {
        "type": "image",
        "source": {"media_type": "image/webp", "path": f"screenshot_ep{episode}.webp"},
    }
    results = [{"source_call_id": call_id, "content": [{"type": "text", "text": text}, picture]}]
    return {
        "source": "agent",
        "message": message,
        "tool_calls": calls or None,
        "observation": {"results": results},
    }


def written(
    folder: Path, *steps: dict[str, Any], sizes: dict[int, tuple[int, int]] | None = None
) -> Trajectory:
    start = {
        "source": "agent",
        "message": "",
        "tool_calls": [
            {
                "tool_call_id": "call_start_url_navigation",
                "function_name": "computer_action",
                "arguments": {"type": "navigate", "url": "https://shop.example"},
            }
        ],
        "observation": {
            "results": [{"source_call_id": "call_start_url_navigation", "content": "Navigated"}]
        },
    }
    document = {
        "schema_version": "ATIF-v1.6",
        "session_id": "s",
        "agent": {"name": "computer-1", "version": "1.0.0", "model_name": "m"},
        "steps": [start, {"source": "user", "message": "Buy tea"}, *steps],
    }
    for episode in range(len(steps)):
        Image.new("RGB", (sizes or {}).get(episode, (1000, 500))).save(
            folder / f"screenshot_ep{episode}.webp"
        )
    (folder / "trajectory.json").write_text(json.dumps(document))
    (run,) = load(folder)
    assert isinstance(run, Trajectory), run
    return run


def read(folder: Path, arguments: dict[str, Any]) -> Action:
    return (
        written(folder, step(0, action("wait")), step(1, arguments), step(2, action("wait")))
        .steps[2]
        .action
    )


CLICK = {"x": 250, "y": 100}
TABLE: list[tuple[dict[str, Any], tuple[str, object, object, object]]] = [
    (action("click", **CLICK), ("click", None, (0.25, 0.2), None)),
    (
        action("click", button="middle", modifier="shift", **CLICK),
        ("click", None, (0.25, 0.2), None),
    ),
    (action("click", button="right", **CLICK), ("right_click", None, (0.25, 0.2), None)),
    (action("double_click", **CLICK), ("double_click", None, (0.25, 0.2), None)),
    (action("triple_click", **CLICK), ("triple_click", None, (0.25, 0.2), None)),
    (action("right_click", **CLICK), ("right_click", None, (0.25, 0.2), None)),
    (action("mouse_down", **CLICK), ("mouse_down", None, (0.25, 0.2), None)),
    (action("mouse_up", **CLICK), ("mouse_up", None, (0.25, 0.2), None)),
    (action("mouse_move", **CLICK), ("hover", None, (0.25, 0.2), None)),
    (action("type", text="tea"), ("type", "tea", None, None)),
    (action("type_text_at", text="tea", **CLICK), ("type", "tea\n", (0.25, 0.2), None)),
    (
        action("type_text_at", text="tea", press_enter=False, **CLICK),
        ("type", "tea", (0.25, 0.2), None),
    ),
    (action("keypress", keys=["ctrl", "a"]), ("press", "ctrl+a", None, None)),
    (action("keypress", keys=["Control+A"]), ("press", "Control+A", None, None)),
    (action("key", keys=["Enter"]), ("press", "Enter", None, None)),
    (action("hold_key", keys=["shift"], duration=1.0), ("press", "shift", None, None)),
    (action("drag", end_x=500, end_y=250, **CLICK), ("drag", None, (0.25, 0.2), (0.5, 0.5))),
    (action("scroll", scroll_x=0, scroll_y=300, **CLICK), ("scroll", "down", (0.25, 0.2), None)),
    (action("scroll", scroll_x=0, scroll_y=-300, **CLICK), ("scroll", "up", (0.25, 0.2), None)),
    (action("scroll", scroll_x=-200, scroll_y=0, **CLICK), ("scroll", "left", (0.25, 0.2), None)),
    (action("scroll", scroll_x=200, **CLICK), ("scroll", "right", (0.25, 0.2), None)),
    (action("scroll"), ("scroll", "down", None, None)),
    (action("navigate", url="https://a.example"), ("goto", "https://a.example", None, None)),
    (action("go_back"), ("back", None, None, None)),
    (action("go_forward"), ("forward", None, None, None)),
    (action("wait"), ("wait", None, None, None)),
    (action("sleep", duration_seconds=5.0), ("wait", None, None, None)),
    (action("zoom", zoom_region=[0, 0, 10, 10]), ("zoom", None, None, None)),
    (action("bash", command="ls"), ("command", "ls", None, None)),
    # In the middle of a run an end is a word to the harness, which asks whether the agent is sure.
    (action("done", result="Bought."), ("message", "Bought.", None, None)),
]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    TABLE,
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_every_type_has_its_kind_place_and_value(
    arguments: dict[str, Any], expected: tuple[str, object, object, object], tmp_path: Path
) -> None:
    made = read(tmp_path, arguments)
    assert (made.kind, made.value, made.point, made.end_point) == expected
    assert made.text.startswith(f"{arguments['type']}(")
    assert "null" not in made.text and "native_prescaled" not in made.text


@pytest.mark.parametrize(
    ("given", "point", "end"),
    [
        ({"source": "anthropic_scaled", "model_x": 200, "model_y": 80}, (0.25, 0.2), (0.5, 0.5)),
        ({"source": "normalized_completion", "model_x": 0, "model_y": 999}, (0.0, 1.0), (0.5, 0.5)),
        ({"source": "normalized_completion"}, (250 / 999, 100 / 999), (500 / 999, 250 / 999)),
    ],
    ids=[
        "scaled by the model's picture",
        "from a grid, carried out",
        "on the grid, not carried out",
    ],
)
def test_frames_of_coordinates(
    given: dict[str, Any], point: object, end: object, tmp_path: Path
) -> None:
    made = read(tmp_path, action("drag", **CLICK, end_x=500, end_y=250, **given))
    assert (made.point, made.end_point) == (point, end)


def test_place_on_a_zoomed_picture_is_of_its_region(tmp_path: Path) -> None:
    zoom = step(0, action("zoom", zoom_region=[200, 100, 400, 200]))
    run = written(
        tmp_path,
        zoom,
        step(1, action("click", x=300, y=125)),
        step(2, action("click", x=300, y=125)),
        step(3, zoom["tool_calls"][0]["arguments"]),
        step(4, action("click", x=10, y=10)),
        sizes={0: (200, 100), 3: (200, 100)},
    )
    points = [made.action.point for made in run.steps[2:]]
    assert points == [(0.5, 0.25), (0.3, 0.25), None, None]


@pytest.mark.parametrize("type_", ["done", "answer", "terminate"])
def test_end_with_a_result_is_the_answer(type_: str, tmp_path: Path) -> None:
    last = action(type_, result="It costs $3.")
    asked = step(0, action("done", result="It costs $4."), text="Are you sure?", final=True)
    run = written(
        tmp_path,
        asked,
        step(
            1, last, message="Analysis: it is there", text="Terminal action committed", final=True
        ),
    )
    assert [made.action.kind for made in run.steps] == [
        "goto",
        "message",
        "answer" if type_ == "answer" else "stop",
    ]
    assert run.answer == run.steps[-1].action.value == "It costs $3."
    assert run.steps[-1].thought == "Analysis: it is there"
    assert run.final is not None and str(run.final.screenshot).endswith("screenshot_ep1.webp")


def test_run_has_goal_start_platform_and_agent(tmp_path: Path) -> None:
    run = written(
        tmp_path, step(0, action("click", **CLICK), message="Analysis: a shop\nPlan: click")
    )
    assert (run.task.goal, run.task.start_url, run.task.platform, run.agent) == (
        "Buy tea",
        "https://shop.example",
        "web",
        "computer-1 (m)",
    )
    assert run.steps[1].thought == "Analysis: a shop\nPlan: click"
    assert run.steps[0].action.value == "https://shop.example"
