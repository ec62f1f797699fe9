"""Message lists: logs of anthropic 2.13.0 (tests/support/datasets/written/make_anthropic.py),
replies as its types write them, results as its API takes them, and chat completions.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats import recognise
from prill.datasets.formats.messages import load
from prill.io.store import BadLine
from prill.types import Trajectory
from tests.support.datasets.written.reading import WRITTEN, Row, rows

from .test_openai_responses import only, picture, write


def types() -> Any:
    """The package takes long to import, and other tests import this module."""
    return pytest.importorskip(
        "anthropic.types.beta", reason="anthropic is not installed: pip install anthropic"
    )


SCREEN, PART = picture(4, 2), picture(2, 2)
USER = {"role": "user", "content": "Buy green tea"}
COMPUTER = {
    "type": "computer_20251124",
    "name": "computer",
    "display_width_px": 4,
    "display_height_px": 2,
}
# What `computer` is called with, and what becomes of it (kind, value, point, end point).
ACTIONS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"action": "left_click", "coordinate": [1, 1]}, ("click", None, (0.25, 0.5), None)),
    (
        {"action": "left_click", "coordinate": [1, 1], "text": "shift"},
        ("click", None, (0.25, 0.5), None),
    ),
    ({"action": "right_click", "coordinate": [2, 0]}, ("right_click", None, (0.5, 0.0), None)),
    ({"action": "middle_click", "coordinate": [2, 0]}, ("middle_click", None, (0.5, 0.0), None)),
    ({"action": "double_click", "coordinate": [1, 1]}, ("double_click", None, (0.25, 0.5), None)),
    ({"action": "triple_click", "coordinate": [1, 1]}, ("triple_click", None, (0.25, 0.5), None)),
    ({"action": "mouse_move", "coordinate": [3, 1]}, ("hover", None, (0.75, 0.5), None)),
    (
        {"action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [4, 2]},
        ("drag", None, (0.0, 0.0), (1.0, 1.0)),
    ),
    ({"action": "left_mouse_down"}, ("mouse_down", None, None, None)),
    ({"action": "left_mouse_up"}, ("mouse_up", None, None, None)),
    ({"action": "key", "text": "ctrl+s"}, ("press", "ctrl+s", None, None)),
    ({"action": "hold_key", "text": "shift", "duration": 1}, ("press", "shift", None, None)),
    ({"action": "type", "text": "green tea"}, ("type", "green tea", None, None)),
    (
        {"action": "scroll", "coordinate": [1, 1], "scroll_direction": "down", "scroll_amount": 3},
        ("scroll", "down", (0.25, 0.5), None),
    ),
    ({"action": "wait", "duration": 2}, ("wait", None, None, None)),
]


def reply(*blocks: dict[str, Any]) -> dict[str, Any]:
    """What the API answers, as the installed library writes it."""
    usage = {"input_tokens": 5, "output_tokens": 2}
    fields = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": blocks,
        "usage": usage,
    }
    made = types().BetaMessage.model_validate(
        {**fields, "stop_reason": "tool_use", "stop_sequence": None}
    )
    written: dict[str, Any] = made.model_dump(mode="json", exclude_none=True, by_alias=True)
    return written


def says(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def uses(id: str, name: str, input: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input, **more}


def result(id: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": id, "content": list(content)}],
    }


def image(url: str = SCREEN) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]},
    }


def done(trajectory: Trajectory) -> list[tuple[Any, ...]]:
    return [
        (s.action.kind, s.action.value, s.action.point, s.action.end_point)
        for s in trajectory.steps
    ]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("form", ["list", "lines", "object", "batch"])
def test_every_action_of_the_computer_is_read(form: str, sized: bool, tmp_path: Path) -> None:
    """With the size that the tool states, or that of the pictures."""
    look = [
        reply(says("I look."), uses("look", "computer", {"action": "screenshot"})),
        result("look", image()),
    ]
    acts = [reply(uses(str(i), "computer", input)) for i, (input, _) in enumerate(ACTIONS)]
    if form == "batch":
        acts = [reply(uses("0", "computer_batch", {"actions": [input for input, _ in ACTIONS]}))]
    messages = [
        USER,
        *look,
        *acts,
        result(str(len(acts) - 1), says("done"), image()),
        reply(says("Bought.")),
    ]
    tools = {"tools": [COMPUTER]} if sized else {}
    path = tmp_path / "run.json"
    if form == "lines":
        path = write(tmp_path / "run.jsonl", *messages)
    elif form == "list":
        path.write_text(json.dumps(messages))
    else:
        path.write_text(
            json.dumps({"system": "You are", "messages": messages, "model": "claude", **tools})
        )
    trajectory = only(load(path, images=tmp_path / "images"))
    assert done(trajectory)[:-1] == [wanted for _, wanted in ACTIONS]
    assert (trajectory.id, trajectory.task.goal, trajectory.answer) == (
        "run",
        "Buy green tea",
        "Bought.",
    )
    assert trajectory.task.platform == "desktop"
    assert (trajectory.steps[0].thought, trajectory.steps[-1].observation.text) == (
        "I look.",
        "done",
    )
    assert [bool(s.observation.screenshot) for s in trajectory.steps] == [
        True,
        *[False] * (len(ACTIONS) - 1),
        True,
    ]
    assert recognise(path) == ["messages"] == recognise(tmp_path)


def test_tool_sets_name_places_and_elements(tmp_path: Path) -> None:
    at = {"type": "coordinate", "x": 1, "y": 1}
    calls = [
        ("navigate", {"url": "http://shop/"}, ("goto", "http://shop/", None, None, None)),
        ("left_click", {"target": {"type": "ref", "ref": "ref_7"}}, ("click", None, None, None, "ref_7")),  # noqa: E501
        ("left_click", {"target": at}, ("click", None, (0.25, 0.5), None, None)),
        ("left_click_drag", {"from": {**at, "x": 0, "y": 0}, "target": at}, ("drag", None, (0.0, 0.0), (0.25, 0.5), None)),  # noqa: E501
        ("form_input", {"target": {"type": "ref", "ref": "ref_9"}, "value": "tea"}, ("type", "tea", None, None, "ref_9")),  # noqa: E501
        ("scroll", {"target": at, "scroll_direction": "up"}, ("scroll", "up", (0.25, 0.5), None, None)),  # noqa: E501
        ("switch_tab", {"tab_id": "t2"}, ("focus_tab", None, None, None, None)),
    ]  # fmt: skip
    messages = [
        USER,
        reply(uses("look", "screenshot", {}, toolset_name="browser")),
        result("look", image()),
        *(
            reply(uses(str(i), name, input, toolset_name="browser"))
            for i, (name, input, _) in enumerate(calls)
        ),
    ]
    trajectory = only(load(write(tmp_path / "run.jsonl", *messages), images=tmp_path / "images"))
    got = [
        (*row, step.action.target)
        for row, step in zip(done(trajectory), trajectory.steps, strict=True)
    ]
    assert got == [wanted for _, _, wanted in calls]
    assert trajectory.task.platform == "web"


RUNNER: list[Row] = [
    ("click", None, None, (0.5, 0.25)),
    ("type", "green tea", None, None),
    ("press", "Return", None, None),
    ("scroll", "down", None, (0.5, 0.5)),
    ("double_click", None, None, (0.25, 0.75)),
    ("answer", "I bought green tea.", None, None),
]


@pytest.mark.parametrize("name", ["long.jsonl", "whole.jsonl", "messages.json"])
def test_logs_of_the_tool_runner_are_read(name: str, tmp_path: Path) -> None:
    """Requests that continue a thread, those that repeat the conversation, and the last of them."""
    run = only(load(WRITTEN / "anthropic" / name, images=tmp_path))
    assert rows(run) == (RUNNER if name.endswith("l") else RUNNER[:-1])
    assert (run.task.goal, run.task.platform, run.error) == ("Buy green tea", "desktop", None)
    assert run.answer == (RUNNER[-1][1] if name.endswith("l") else None)
    first = run.steps[0]
    assert first.thought == "Look\n\nThe field is there.\n\nClick"
    assert first.observation.text == "did screenshot" and first.observation.screenshot


def test_threads_in_turn_and_requests_sent_again(tmp_path: Path) -> None:
    def turn(said: str, id: str, after: str | None, text: str | None) -> dict[str, Any]:
        thread = {"type": "continue", "previous_message_id": after} if after else {"type": "create"}
        held = {"messages": [{"role": "user", "content": said}], "thread": thread}
        lost = {"type": "error", "error": {"message": "overloaded"}}
        return {"request": held, "response": {**reply(says(text)), "id": id} if text else lost}

    turns = [
        turn("Buy tea", "a1", None, "Which?"),
        turn("Sell tea", "b1", None, "To whom?"),
        turn("Green", "a2", "a1", None),
        turn("Ann", "b2", "b1", "Sold."),
        turn("Green", "a3", "a1", "Bought."),
        turn("Thanks", "c2", "gone", "Welcome."),
    ]
    path = write(tmp_path / "log.jsonl", *turns)
    runs = {run.id: run for run in load(path) if isinstance(run, Trajectory)}
    assert {id: (run.task.goal, run.answer, run.error) for id, run in runs.items()} == {
        "log": ("Buy tea", "Bought.", None),
        "log#2": ("Sell tea", "Sold.", None),
        "log#3": ("Thanks", "Welcome.", None),
    }


def test_a_zoom_shows_a_part_and_moves_no_place(tmp_path: Path) -> None:
    """The picture of the whole screen stays, and places are on it; without one, the part is what
    was seen.
    """
    click = uses("c", "computer", {"action": "left_click", "coordinate": [1, 1]})
    zoom = uses("z", "computer", {"action": "zoom", "region": [0, 0, 2, 2]})
    look = [reply(uses("s", "computer", {"action": "screenshot"})), result("s", image())]
    runs = [
        [USER, *look, reply(zoom), result("z", image(PART)), reply(click)],
        [USER, reply(zoom), result("z", image(PART)), reply(click)],
    ]
    path = write(tmp_path / "runs.jsonl", *({"messages": run} for run in runs))
    whole, part = [
        item for item in load(path, images=tmp_path / "images") if isinstance(item, Trajectory)
    ]
    assert (whole.id, part.id) == ("runs", "runs#2")
    seen = [
        Path(step.observation.screenshot or "").read_bytes()
        for run in (whole, part)
        for step in run.steps
    ]
    assert seen == [base64.b64decode(url.partition(",")[2]) for url in (SCREEN, PART)]
    assert (whole.steps[0].action.point, part.steps[0].action.point) == ((0.25, 0.5), None)


def test_a_run_folder_is_read(tmp_path: Path) -> None:
    """As claude-quickstarts writes it: pictures by path, and the task and the model in
    meta.json.
    """
    folder = tmp_path / "runs" / "20261126-104701-abc"
    (folder / "images").mkdir(parents=True)
    (folder / "images/000.jpg").write_bytes(base64.b64decode(SCREEN.partition(",")[2]))
    (folder / "meta.json").write_text(
        json.dumps({"model": "claude", "task": "Buy tea", "started": "20261126-104701"})
    )
    shot = reply(uses("a", "computer", {"action": "screenshot"}))
    write(
        folder / "transcript.jsonl",
        USER,
        {"role": "assistant", "content": shot["content"]},
        result("a", {"type": "image", "path": "images/000.jpg"}),
        {"role": "assistant", "content": [says("It is bought.")]},
    )
    for source in (tmp_path / "runs", folder, folder / "transcript.jsonl"):
        trajectory = only(load(source))
        assert (trajectory.id, trajectory.agent, trajectory.answer) == (
            folder.name,
            "claude",
            "It is bought.",
        )
        assert trajectory.metadata == {"date": "2026-11-26T10:47:01"}
        assert trajectory.steps[0].observation.screenshot == str(folder / "images/000.jpg")
        assert recognise(source) == ["messages"]


def test_tools_of_the_api_and_thoughts_are_read(tmp_path: Path) -> None:
    found = {
        "type": "web_search_result",
        "title": "Green tea",
        "url": "http://x/",
        "encrypted_content": "x",
        "page_age": None,
    }
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "tea"}}
    blocks = [
        {"type": "thinking", "thinking": "Search first.", "signature": "x"},
        search,
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [found]},
        says("Found."),
    ]
    trajectory = only(load(write(tmp_path / "run.jsonl", USER, reply(*blocks))))
    first, last = trajectory.steps
    assert (first.action.kind, first.action.value, first.thought) == (
        "search",
        "tea",
        "Search first.",
    )
    assert (last.observation.text, last.action.kind, trajectory.answer) == (
        "Green tea",
        "answer",
        "Found.",
    )


def test_requests_that_repeat_the_conversation_are_one_run(tmp_path: Path) -> None:
    call = reply(uses("a", "navigate", {"url": "http://shop/"}))
    first, second = (
        [USER],
        [USER, {"role": "assistant", "content": call["content"]}, result("a", says("A shop"))],
    )
    other = [{"role": "user", "content": "Sell tea"}]
    rows = [
        {"request": {"messages": first, "model": "claude"}, "response": call},
        {"request": {"messages": second, "model": "claude"}, "response": reply(says("Bought."))},
        {"request": {"messages": other}, "response": reply(says("Sold."))},
    ]
    path = write(tmp_path / "calls.jsonl", *rows)
    runs = [item for item in load(path) if isinstance(item, Trajectory)]
    assert [(run.task.goal, len(run.steps), run.answer) for run in runs] == [
        ("Buy green tea", 2, "Bought."),
        ("Sell tea", 1, "Sold."),
    ]
    assert recognise(path) == ["messages"]


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    """A run is there before the next line is read; a broken line costs itself."""
    path = tmp_path / "runs.jsonl"
    with path.open("w") as file:
        for name in "abc":
            file.write(json.dumps({"id": name, "messages": [USER]}) + "\n")
        file.flush()
        items = load(path)
        assert getattr(next(items), "id", None) == "a"
        # behind what a buffer holds
        for i in range(2000):
            file.write(json.dumps({"messages": [{**USER, "content": f"Buy tea {i}"}]}) + "\n")
        file.write('{"messages": [\n' + json.dumps({"id": "last", "messages": [USER]}))
    *_, bad, last = items
    assert isinstance(bad, BadLine) and bad.place == f"{path}:2004"
    assert isinstance(last, Trajectory) and last.id == "last"
