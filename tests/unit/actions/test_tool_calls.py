"""Calls of tools as agents write them, read into actions."""

from __future__ import annotations

import pytest

from prill.actions.tool_calls import detect_kind, screen_size, tool_action
from prill.types import Action


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("left_click", "click"),
        ("mcp__playwright__browser_click", "click"),
        ("browser.navigateBack", "back"),
        ("functions.goToUrl", "goto"),
        ("Type-Text", "type"),
        ("web_search", "search"),
        ("final_answer", "answer"),
        ("run_tests", "other"),
        ("", "other"),
    ],
)
def test_names_become_kinds_despite_prefix(name: str, kind: str) -> None:
    assert detect_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "fill",
            '{"selector": "#q", "text": "tea"}',
            Action("type", 'fill(selector="#q", text="tea")', "#q", value="tea"),
        ),
        ("goto", {"url": "http://a"}, Action("goto", 'goto(url="http://a")', value="http://a")),
        (
            "key",
            {"keys": ["ctrl", "c"]},
            Action("press", 'key(keys=["ctrl", "c"])', value="ctrl+c"),
        ),
        ("click", {"index": 0}, Action("click", "click(index=0)", "0")),
        (
            "done",
            {"success": True, "text": "It is 3."},
            Action("stop", 'done(success=true, text="It is 3.")', value="It is 3."),
        ),
        ("ls", "", Action("other", "ls()")),
        ("click", '{"x": 1', Action("click", 'click({"x": 1)')),
        ("click", "[1, 2]", Action("click", "click([1, 2])")),
    ],
)
def test_arguments_become_action_parts(
    name: str, arguments: dict[str, object] | str, expected: Action
) -> None:
    assert tool_action(name, arguments) == expected


def test_action_argument_names_the_kind() -> None:
    action = tool_action("computer", {"action": "left_click", "coordinate": [50, 20]}, (100, 200))
    assert (action.kind, action.point) == ("click", (0.5, 0.1))


@pytest.mark.parametrize(
    "arguments",
    [
        {"start_coordinate": [10, 20], "coordinate": [50, 100]},
        {"start_x": 10, "start_y": 20, "end_x": 50, "end_y": 100},
        {"coordinate": [10, 20], "coordinate2": [50, 100]},
    ],
)
def test_drag_has_a_start_and_an_end(arguments: dict[str, object]) -> None:
    action = tool_action("drag", arguments, (100, 200))
    assert (action.point, action.end_point) == ((0.1, 0.1), (0.5, 0.5))


def test_screen_size_as_a_tool_states() -> None:
    tools = [
        {"type": "function", "function": {"name": "f"}},
        {"type": "computer", "display_width_px": 800, "display_height_px": 600},
    ]
    assert screen_size(tools) == (800.0, 600.0)
    assert screen_size([{"display_width": 0, "display_height": 5}, "x"]) is None
