"""Replies of screen models in the formats that their vendors document, with the corresponding
action, and invalid replies.

All are invented. A screenshot is 1280 by 720; Qwen2.5-VL and UI-TARS-1.5 then use coordinates of
1288 by 728 pixels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Place = tuple[float, float] | None


class Wanted(NamedTuple):
    kind: str
    point: Place = None
    end_point: Place = None
    value: str | None = None


CLICK, DRAG = (0.5, 0.25), (0.75, 0.5)
FRAMES = {
    "qwen3-vl": (1000, 1000),
    "qwen2.5-vl": (1288, 728),
    "ui-tars-1.5": (1288, 728),
    "ui-tars-1.0": (1000, 1000),
}


def at(grammar: str, point: tuple[float, float]) -> list[int]:
    width, height = FRAMES.get(grammar, (1280, 720))
    return [round(point[0] * width), round(point[1] * height)]


def qwen(grammar: str) -> list[tuple[dict[str, Any], Wanted]]:
    here, there = at(grammar, CLICK), at(grammar, DRAG)
    return [
        ({"action": "left_click", "coordinate": here}, Wanted("click", CLICK)),
        ({"action": "double_click", "coordinate": here}, Wanted("double_click", CLICK)),
        ({"action": "right_click", "coordinate": here}, Wanted("right_click", CLICK)),
        ({"action": "mouse_move", "coordinate": here}, Wanted("hover", CLICK)),
        ({"action": "left_click_drag", "coordinate": there}, Wanted("drag", None, DRAG)),
        (
            {"action": "scroll", "coordinate": here, "pixels": -300},
            Wanted("scroll", CLICK, None, "down"),
        ),
        ({"action": "scroll", "pixels": 120}, Wanted("scroll", None, None, "up")),
        ({"action": "key", "keys": ["ctrl", "a"]}, Wanted("press", value="Control+a")),
        (
            {"action": "type", "text": "rain boots: größe 40"},
            Wanted("type", value="rain boots: größe 40"),
        ),
        ({"action": "wait", "time": 2}, Wanted("wait", value="2")),
        ({"action": "answer", "text": "It costs {40}."}, Wanted("answer", value="It costs {40}.")),
        ({"action": "terminate", "status": "success"}, Wanted("stop")),
        ({"action": "click", "coordinate": here}, Wanted("click", CLICK)),
        ({"action": "long_press", "coordinate": here, "time": 1}, Wanted("long_press", CLICK)),
        (
            {"action": "swipe", "coordinate": here, "coordinate2": there},
            Wanted("swipe", CLICK, DRAG),
        ),
        ({"action": "system_button", "button": "Back"}, Wanted("back")),
        ({"action": "system_button", "button": "Enter"}, Wanted("press", value="Enter")),
        ({"action": "open", "text": "Clock"}, Wanted("open", value="Clock")),
    ]


def tagged(call: dict[str, Any]) -> str:
    name = (
        "mobile_use"
        if call["action"] in ("click", "long_press", "swipe", "system_button", "open")
        else "computer_use"
    )
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': call}, ensure_ascii=False)}\n</tool_call>"  # noqa: E501


def parameters(call: dict[str, Any]) -> str:
    inner = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"  # noqa: E501
        for key, value in call.items()
    )
    return f"<tool_call>\n<function=computer_use>\n{inner}</function>\n</tool_call>"


QWEN_STYLES: tuple[Callable[[dict[str, Any]], str], ...] = (
    tagged,
    lambda call: "I will do that next.\n" + tagged(call),
    lambda call: (
        '<think>\nMaybe {"action": "wait"}?\n</think>\n\n'
        + tagged(call).removesuffix("\n</tool_call>")
    ),
    parameters,
    lambda call: (
        "Thought: do it.\nAction: "
        f"next.\n```json\n{json.dumps({'name': 'computer_use', 'arguments': call}, indent=2)}\n```"
    ),
)


def ui_tars(grammar: str) -> list[tuple[str, Wanted]]:
    (x, y), (x2, y2) = at(grammar, CLICK), at(grammar, DRAG)
    return [
        (f"click(start_box='({x},{y})')", Wanted("click", CLICK)),
        (f"click(start_box='<|box_start|>({x},{y})<|box_end|>')", Wanted("click", CLICK)),
        (f"click(point='<point>{x} {y}</point>')", Wanted("click", CLICK)),
        (f"click(start_box='[{x - 4}, {y - 4}, {x + 4}, {y + 4}]')", Wanted("click", CLICK)),
        (f"left_double(start_box='({x}, {y})')", Wanted("double_click", CLICK)),
        (f"right_single(start_box='({x},{y})')", Wanted("right_click", CLICK)),
        (f"drag(start_box='({x},{y})', end_box='({x2},{y2})')", Wanted("drag", CLICK, DRAG)),
        (
            f"drag(start_point='<point>{x} {y}</point>', end_point='<point>{x2} {y2}</point>')",
            Wanted("drag", CLICK, DRAG),
        ),
        (f"scroll(start_box='({x},{y})', direction='down')", Wanted("scroll", CLICK, None, "down")),
        (f"scroll(start_box='({x},{y})', end_box='({x2},{y2})')", Wanted("swipe", CLICK, DRAG)),
        ("hotkey(key='ctrl c')", Wanted("press", value="Control+c")),
        ("type(content='rain boots\\n')", Wanted("type", value="rain boots\n")),
        (
            "type(content='it\\'s (5, 6), isn\\'t it?')",
            Wanted("type", value="it's (5, 6), isn't it?"),
        ),
        (f"long_press(start_box='({x},{y})')", Wanted("long_press", CLICK)),
        ("press_home()", Wanted("home")),
        ("press_back()", Wanted("back")),
        ("open_app(app_name='Clock')", Wanted("open", value="Clock")),
        ("wait()", Wanted("wait", value="5")),
        ("finished()", Wanted("stop")),
        ("finished(content='40 euros')", Wanted("answer", value="40 euros")),
    ]


UI_TARS_STYLES: tuple[Callable[[str], str], ...] = (
    lambda call: f"Thought: I see it, so I do it.\nAction: {call}",
    lambda call: f"Action: {call}",
    lambda call: f"<think>hm</think>Thought: The button.\nIt is blue.\n\nAction:{call}\n",
)


def openai() -> list[tuple[dict[str, Any], Wanted]]:
    (x, y), (x2, y2) = at("openai", CLICK), at("openai", DRAG)
    return [
        ({"type": "click", "button": "left", "x": x, "y": y}, Wanted("click", CLICK)),
        (
            {"type": "click", "button": "right", "x": x, "y": y, "keys": None},
            Wanted("right_click", CLICK),
        ),
        ({"type": "click", "button": "back", "x": 0, "y": 0}, Wanted("back")),
        ({"type": "double_click", "x": x, "y": y}, Wanted("double_click", CLICK)),
        ({"type": "move", "x": x, "y": y}, Wanted("hover", CLICK)),
        (
            {"type": "drag", "path": [{"x": x, "y": y}, {"x": 9, "y": 9}, {"x": x2, "y": y2}]},
            Wanted("drag", CLICK, DRAG),
        ),
        (
            {"type": "scroll", "x": x, "y": y, "scroll_x": 0, "scroll_y": 400},
            Wanted("scroll", CLICK, None, "down"),
        ),
        (
            {"type": "scroll", "x": x, "y": y, "scroll_x": -90, "scroll_y": 0},
            Wanted("scroll", CLICK, None, "left"),
        ),
        ({"type": "type", "text": "Lima"}, Wanted("type", value="Lima")),
        ({"type": "keypress", "keys": ["CTRL", "A"]}, Wanted("press", value="Control+A")),
        ({"type": "wait"}, Wanted("wait", value="1")),
    ]


OPENAI_STYLES: tuple[Callable[[dict[str, Any]], str], ...] = (
    lambda call: json.dumps({"type": "computer_call", "actions": [call]}),
    lambda call: json.dumps(
        {
            "id": "cu_1",
            "type": "computer_call",
            "call_id": "c",
            "action": call,
            "pending_safety_checks": [],
            "status": "completed",
        }
    ),
    lambda call: "Next:\n```json\n" + json.dumps({"actions": [call]}, indent=1) + "\n```",
    lambda call: json.dumps(
        {
            "output": [
                {"type": "message", "content": [{"type": "output_text", "text": "Next"}]},
                {"type": "computer_call", "actions": [call]},
            ]
        }
    ),
)


def anthropic() -> list[tuple[dict[str, Any], Wanted]]:
    here, there = at("anthropic", CLICK), at("anthropic", DRAG)
    return [
        ({"action": "left_click", "coordinate": here}, Wanted("click", CLICK)),
        ({"action": "right_click", "coordinate": here}, Wanted("right_click", CLICK)),
        ({"action": "triple_click", "coordinate": here}, Wanted("triple_click", CLICK)),
        ({"action": "mouse_move", "coordinate": here}, Wanted("hover", CLICK)),
        (
            {"action": "left_click_drag", "start_coordinate": here, "coordinate": there},
            Wanted("drag", CLICK, DRAG),
        ),
        ({"action": "key", "text": "ctrl+a"}, Wanted("press", value="Control+a")),
        ({"action": "key", "text": "Tab", "repeat": 2}, Wanted("press", value="Tab x 2")),
        ({"action": "type", "text": "Lima, Peru"}, Wanted("type", value="Lima, Peru")),
        (
            {
                "action": "scroll",
                "coordinate": here,
                "scroll_direction": "down",
                "scroll_amount": 3,
            },
            Wanted("scroll", CLICK, None, "down"),
        ),
        ({"action": "wait", "duration": 2}, Wanted("wait", value="2")),
        ({"action": "screenshot"}, Wanted("wait", value="1")),
    ]


ANTHROPIC_STYLES: tuple[Callable[[dict[str, Any]], str], ...] = (
    lambda call: json.dumps({"type": "tool_use", "id": "t", "name": "computer", "input": call}),
    lambda call: json.dumps(
        [
            {"type": "text", "text": "Next"},
            {"type": "tool_use", "id": "t", "name": "computer", "input": call},
        ]
    ),
    lambda call: json.dumps(
        {
            "type": "tool_use",
            "name": call["action"],
            "toolset_name": "computer",
            "input": {k: v for k, v in call.items() if k != "action"},
        }
    ),
    lambda call: "I press it.\n" + json.dumps({"name": "computer", "input": call}),
)


def readable() -> Iterator[tuple[str, str, Wanted]]:
    """Yields the grammar, the reply, and its action."""
    for grammar in ("qwen3-vl", "qwen2.5-vl"):
        for call, wanted in qwen(grammar):
            yield from ((grammar, style(call), wanted) for style in QWEN_STYLES)
    for grammar in ("ui-tars-1.5", "ui-tars-1.0"):
        for text, wanted in ui_tars(grammar):
            yield from ((grammar, style(text), wanted) for style in UI_TARS_STYLES)
    for call, wanted in openai():
        yield from (("openai", style(call), wanted) for style in OPENAI_STYLES)
    for call, wanted in anthropic():
        yield from (("anthropic", style(call), wanted) for style in ANTHROPIC_STYLES)
    yield (
        "openai",
        json.dumps({"type": "message", "content": "It costs 40."}),
        Wanted("answer", value="It costs 40."),
    )
    yield (
        "anthropic",
        json.dumps([{"type": "text", "text": "It costs 40."}]),
        Wanted("answer", value="It costs 40."),
    )


BROKEN_QWEN = (
    {"action": "left_click", "coordinate": [640]},
    {"action": "left_click", "coordinate": [5000, 40]},
    {"action": "left_click", "coordinate": [-3, 40]},
    {"action": "left_click", "coordinate": "640, 40"},
    {"action": "left_click", "coordinate": [True, 4]},
    {"action": "left_click"},
    {"action": "left_click", "coordinate": [[1, 2]]},
    {"action": "mouse_move"},
    {"action": "left_click_drag"},
    {"action": "swipe", "coordinate": [1, 2]},
    {"action": "scroll"},
    {"action": "scroll", "pixels": "300"},
    {"action": "key"},
    {"action": "key", "keys": []},
    {"action": "key", "keys": [1]},
    {"action": "type"},
    {"action": "type", "text": 5},
    {"action": "answer", "text": ""},
    {"action": "terminate"},
    {"action": "terminate", "status": "maybe"},
    {"action": "system_button", "button": "Power"},
    {"action": "dance"},
    {"action": None},
    {"action": ["left_click"]},
    {"action": "wait", "time": "soon"},
)
BROKEN_TEXT = (
    "",
    "I will click on Save.",
    '<tool_call>{"name":"computer_use","argum',
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": '
    "[644, 18",
    "<tool_call></tool_call>",
    '{"name": "computer_use"}',
    "[1, 2, 3]",
    "<think>I could click.",
    "<tool_call><function=computer_use><parameter=action>left_click</parameter>",
    "<tool_call><function=computer_use><parameter=action>left_click</parameter></function></tool_call>",
    "<tool_call><function=computer_use><parameter=action>left_click</parameter><parameter=coordinate>[5]</parameter></function>",
    "<tool_call><function=computer_use></function></tool_call>",
    '```json\n{"action": "left_click", "coordinate": [1, 2]\n```',
    "{'action': 'left_click', 'coordinate': [1, 2]}",
    '{"action": "left_click", "coordinate": {"x": 1, "y": 2}}',
    "left_click(640, 182)",
    "I am sorry, I cannot help with that.",
    "<|im_start|>assistant",
)
BROKEN_UI_TARS = (
    "Thought: I see it.", "Action:", "Action: click(250,500)", "Action: click(start_box='(250,)')",
    "Action: click(start_box='(250,500)'", "Action: click()", "Action: click(start_box='here')",
    "Action: click(start_box='(9000,500)')", "Action: click(start_box='(-1,500)')",
    "Action: click(box='(250,500)')", "Action: scroll(start_box='(250,500)', direction='sideways')",
    "Action: scroll(start_box='(250,500)')", "Action: drag(start_box='(250,500)')",
    "Action: hotkey(key='')", "Action: type()", "Action: type(content=rain)", "Action: dance()",
    "Action: finish", "click(start_box='(250,500)')", "Action: click(start_box='(1e9,5)')",
    "Action: left_double()", "Action: drag(start_box='(1,2)', end_box='(3,)')",
    "Action: long_press(start_box='')", "Thought: a\nAction: type(content='rain",
    "Action: click(start_box='(1,2)', end_box)",
    "Thought: I click.\nACTION click(start_box='(1,2)')",
)  # fmt: skip
BROKEN_OPENAI = (
    '{"type": "computer_call", "actions": []}',
    '{"type": "computer_call", "actions": [{"type": "click", "button": "left", "x": 320}]}',
    '{"type": "computer_call", "actions": [{"type": "click", "button": "left", "x": "320", "y": '
    "5}]}",
    '{"type": "computer_call", "actions": [{"type": "click", "button": "nose", "x": 1, "y": 5}]}',
    '{"type": "computer_call", "actions": [{"type": "tap", "x": 1, "y": 5}]}',
    '{"type": "computer_call", "actions": ["click"]}',
    '{"type": "computer_call", "actions": [{"type": "drag", "path": [{"x": 1, "y": 2}]}]}',
    '{"type": "computer_call", "actions": [{"type": "drag", "path": "1 2"}]}',
    '{"type": "computer_call", "actions": [{"type": "keypress", "keys": []}]}',
    '{"type": "computer_call", "actions": [{"type": "type"}]}',
    '{"type": "computer_call", "actions": [{"type": "scroll", "x": 1, "y": 1, "scroll_y": "a"}]}',
    '{"type": "computer_call", "actions": [{"type": "click", "x": 1281, "y": 5}]}',
    '{"type": "computer_call", "actions": [{"type": "click"',
    '{"type": "computer_call", "actions": [{"type": "move"}]}',
    '{"type": "computer_call", "actions": [null]}',
    '{"type": "computer_call", "action": {"type": "double_click", "x": -1, "y": 5}}',
    '{"type": "function_call", "name": "search", "arguments": "{}"}',
)
BROKEN_ANTHROPIC = (
    '{"type": "tool_use", "name": "computer", "input": {}}',
    '{"type": "tool_use", "name": "computer", "input": []}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "left_click", "coordinate": '
    '"960,180"}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "left_click", "coordinate": '
    "[1500, 90]}}",
    '{"type": "tool_use", "name": "computer", "input": {"action": "left_click", "coordinate": [1, '
    "2, 3]}}",
    '{"type": "tool_use", "name": "computer", "input": {"action": "left_click"}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "left_click_drag", '
    '"start_coordinate": [1, 2]}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "scroll", "coordinate": [1, 2]}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "scroll", "scroll_direction": '
    '"in"}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "key"}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "type", "text": null}}',
    '{"type": "tool_use", "name": "bash", "input": {"command": "ls"}}',
    '{"type": "tool_use", "name": "computer", "inp',
    '{"type": "tool_use", "name": "mouse_move", "toolset_name": "computer", "input": {}}',
    '{"type": "tool_use", "name": "wait", "toolset_name": "computer", "input": {"duration": '
    '"long"}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": ["left_click"]}}',
    '{"type": "tool_use", "name": "computer", "input": {"action": "fly", "coordinate": [1, 2]}}',
)


def unreadable() -> Iterator[tuple[str, str]]:
    """Yields the grammar and the reply."""
    for grammar in ("qwen3-vl", "qwen2.5-vl"):
        yield from (
            (grammar, tagged({"action": "x"}).replace('{"action": "x"}', json.dumps(call)))
            for call in BROKEN_QWEN
        )
        yield from ((grammar, text) for text in BROKEN_TEXT)
    yield from (("ui-tars-1.5", text) for text in BROKEN_UI_TARS)
    # Prose states neither the next action nor that the task is done.
    yield from (
        (grammar, text)
        for grammar in ("openai", "anthropic")
        for text in ("I will click on Save.", "I cannot do that.")
    )
    yield from (("openai", text) for text in BROKEN_OPENAI)
    yield from (("anthropic", text) for text in BROKEN_ANTHROPIC)
