"""OpenAI Responses: items as the vendor's own types write them, as lists, lines, and responses that
follow one another.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.datasets.formats import recognise
from prill.datasets.formats.openai_responses import load
from prill.types import Trajectory


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path


def types() -> Any:
    """The package takes long to import, and other tests import this module."""
    return pytest.importorskip(
        "openai.types.responses", reason="openai is not installed: pip install openai"
    )


def picture(width: int, height: int) -> str:
    """A data URL."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


SCREEN = picture(4, 2)
ACTIONS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"type": "click", "button": "left", "x": 1, "y": 1}, ("click", None, (0.25, 0.5), None)),
    ({"type": "click", "button": "right", "x": 2, "y": 0}, ("right_click", None, (0.5, 0.0), None)),
    ({"type": "double_click", "x": 1, "y": 1}, ("double_click", None, (0.25, 0.5), None)),
    (
        {"type": "drag", "path": [{"x": 0, "y": 0}, {"x": 1, "y": 1}, {"x": 4, "y": 2}]},
        ("drag", None, (0.0, 0.0), (1.0, 1.0)),
    ),
    ({"type": "keypress", "keys": ["CTRL", "A"]}, ("press", "CTRL+A", None, None)),
    ({"type": "move", "x": 3, "y": 1}, ("hover", None, (0.75, 0.5), None)),
    (
        {"type": "scroll", "x": 1, "y": 1, "scroll_x": 0, "scroll_y": -300},
        ("scroll", "up", (0.25, 0.5), None),
    ),
    (
        {"type": "scroll", "x": 1, "y": 1, "scroll_x": 9, "scroll_y": 0},
        ("scroll", "right", (0.25, 0.5), None),
    ),
    ({"type": "type", "text": "green tea"}, ("type", "green tea", None, None)),
    ({"type": "wait"}, ("wait", None, None, None)),
]


def call(*actions: dict[str, Any], id: str = "c", **more: Any) -> dict[str, Any]:
    """A call of the computer, as the installed library writes it."""
    base = {
        "id": f"cu_{id}",
        "call_id": id,
        "pending_safety_checks": [],
        "status": "completed",
        "type": "computer_call",
    }
    fields = {**base, **({"actions": list(actions)} if actions else {}), **more}
    written: dict[str, Any] = (
        types().ResponseComputerToolCall.model_validate(fields).model_dump(mode="json")
    )
    return written


def shown(id: str = "c", **more: Any) -> dict[str, Any]:
    written: dict[str, Any] = (
        types()
        .ResponseComputerToolCallOutputItem.model_validate(
            {
                "id": f"out_{id}",
                "call_id": id,
                "status": "completed",
                "type": "computer_call_output",
                "output": {"type": "computer_screenshot", "image_url": SCREEN},
            }
        )
        .model_dump(mode="json")
    )
    return {**written, "output": {**written["output"], **more}}


def said(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    fields = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    written: dict[str, Any] = (
        types().ResponseOutputMessage.model_validate(fields).model_dump(mode="json")
    )
    return written


def thought(text: str) -> dict[str, Any]:
    fields = {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}
    written: dict[str, Any] = (
        types().ResponseReasoningItem.model_validate(fields).model_dump(mode="json")
    )
    return written


def response(
    id: str, *output: dict[str, Any], before: str | None = None, **more: Any
) -> dict[str, Any]:
    """A response, as the installed library writes it."""
    fields = {
        "id": id,
        "object": "response",
        "created_at": 1_780_000_000,
        "model": "gpt-5.4",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [{"type": "computer"}],
        "previous_response_id": before,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 2,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
        **more,
    }
    written: dict[str, Any] = types().Response.model_validate(fields).model_dump(mode="json")
    return written


def only(items: Any) -> Trajectory:
    (trajectory,) = items
    assert isinstance(trajectory, Trajectory), trajectory
    return trajectory


USER = {"role": "user", "content": [{"type": "input_text", "text": "Buy green tea"}]}


@pytest.mark.parametrize("form", ["list", "lines", "run", "one action"])
def test_every_action_is_read(form: str, tmp_path: Path) -> None:
    """The list of today and the single action of the preview; a screenshot shows the screen and is
    no step.
    """
    look = [call({"type": "screenshot"}, id="look"), shown("look")]
    if form == "one action":
        acts = [call(action=action, id=str(i)) for i, (action, _) in enumerate(ACTIONS)]
    else:
        acts = [call(*(action for action, _ in ACTIONS))]
    items = [
        USER,
        *look,
        thought("I shop."),
        *acts,
        shown(acts[-1]["call_id"], current_url="http://shop/"),
        said("Bought."),
    ]
    path = tmp_path / "run.json"
    if form == "lines":
        path = write(tmp_path / "run.jsonl", *items)
    else:
        path.write_text(
            json.dumps({"input": "Buy green tea", "output": items[1:]} if form == "run" else items)
        )
    trajectory = only(load(path, images=tmp_path / "images"))
    steps = trajectory.steps
    assert (trajectory.id, trajectory.task.goal, trajectory.answer) == (
        "run",
        "Buy green tea",
        "Bought.",
    )
    assert trajectory.task.platform == "web"
    done = [(s.action.kind, s.action.value, s.action.point, s.action.end_point) for s in steps[:-1]]
    assert done == [wanted for _, wanted in ACTIONS]
    assert [bool(s.observation.screenshot) for s in steps] == [
        True,
        *[False] * (len(ACTIONS) - 1),
        True,
    ]
    assert (steps[0].thought, steps[-1].action.kind, steps[-1].observation.url) == (
        "I shop.",
        "answer",
        "http://shop/",
    )
    assert recognise(path) == ["openai-responses"] == recognise(tmp_path)


def test_responses_are_joined_by_the_one_before(tmp_path: Path) -> None:
    """In any order, each way through them is a run; what was asked stands next to the response, or
    in a pair with it.
    """
    first = {
        **response("r1", call({"type": "click", "button": "left", "x": 1, "y": 1})),
        "input": "Buy green tea",
    }
    second = {
        "request": {"input": [shown()], "previous_response_id": "r1", "model": "gpt-5.4"},
        "response": response(
            "r2", said("Searching."), call({"type": "type", "text": "tea"}, id="d"), before="r1"
        ),
    }
    third = {**response("r3", said("Bought."), before="r2"), "input": [shown("d")]}
    other = {**response("r4", said("I cannot."), before="r1"), "input": [shown()]}
    path = write(tmp_path / "runs.jsonl", third, other, first, second)
    runs = {t.id: t for t in load(path, images=tmp_path / "images") if isinstance(t, Trajectory)}
    assert {id: [s.action.kind for s in t.steps] for id, t in runs.items()} == {
        "r3": ["click", "type", "answer"],
        "r4": ["click", "answer"],
    }
    run = runs["r3"]
    assert (run.task.goal, run.answer, run.agent, run.steps[1].thought) == (
        "Buy green tea",
        "Bought.",
        "gpt-5.4",
        "Searching.",
    )
    assert all(step.observation.screenshot for step in run.steps[1:])
    assert run.metadata == {
        "prompt_tokens": 30,
        "completion_tokens": 6,
        "date": "2026-05-28T20:26:40Z",
        "response_id": "r3",
    }
    assert recognise(path) == ["openai-responses"]


def test_functions_and_built_in_tools_are_read(tmp_path: Path) -> None:
    def made(kind: str, **fields: Any) -> dict[str, Any]:
        written: dict[str, Any] = (
            getattr(types(), kind)
            .model_validate({"status": "completed", **fields})
            .model_dump(mode="json")
        )
        return written

    navigate = made(
        "ResponseFunctionToolCall",
        type="function_call",
        name="navigate",
        arguments='{"url": "http://x/"}',
        call_id="f",
    )
    search = made(
        "ResponseFunctionWebSearch",
        id="ws",
        type="web_search_call",
        action={"type": "search", "query": "tea"},
    )
    result = {"type": "function_call_output", "call_id": "f", "output": "A page about tea"}
    path = tmp_path / "run.json"
    path.write_text(json.dumps([USER, navigate, result, search, said("Found.")]))
    steps = only(load(path)).steps
    assert [(s.action.kind, s.action.value) for s in steps] == [
        ("goto", "http://x/"),
        ("search", "tea"),
        ("answer", "Found."),
    ]
    assert steps[1].observation.text == "A page about tea"
