"""The grammars of OpenAI's and Anthropic's computer-use tools, as JSON in a reply.

Sources: openai-python, types/responses/response_computer_tool_call.py; anthropic-sdk-python,
types/beta/beta_tool_computer_use_*; both vendors' guides to computer use. Coordinates are pixels of
the picture that was sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prill.policies.screen.calls import (
    MAX_CALLS,
    MOUSE,
    after_thinking,
    get_number,
    get_text,
    json_values,
    list_keys,
    scroll,
    text_before,
)
from prill.policies.screen.frames import PIXELS, Size, UnreadableReplyError
from prill.types import Action, Platform, Point

_OPENAI_BUTTONS = {
    "left": "click",
    "right": "right_click",
    "wheel": "middle_click",
    "back": "back",
    "forward": "forward",
}
_NOTHING_DONE = ("screenshot", "cursor_position", "zoom")


class OpenAICalls:
    """OpenAI's `computer_call` items: a list of actions, or one action in the preview."""

    frame = PIXELS

    def read(self, reply: str, size: Size, cursor: Point | None) -> tuple[str, list[Action]]:
        """Returns the prose before the call, and its actions in order; a message without a call is
        the answer. Raises UnreadableReplyError.
        """
        text = after_thinking(reply)
        values = [(begin, item) for begin, _, value in json_values(text) for item in _items(value)]
        messages = [_message(item) for _, item in values if item.get("type") == "message"]
        calls = [(begin, item) for begin, item in values if item.get("type") != "message"]
        if not calls and messages:
            return "", [Action("answer", messages[-1], value=messages[-1])]
        actions: list[Action] = []
        for _, item in calls:
            given = item.get("actions", item.get("action", item))
            for call in given if isinstance(given, list) else [given]:
                if not isinstance(call, dict):
                    raise UnreadableReplyError(f"an action must be an object; got {str(call)[:60]}")
                actions.append(_openai_action(call, size))
        if not actions:
            raise UnreadableReplyError(
                "the reply has no computer_call with an action, and no message"
            )
        return "\n".join(messages) or text_before(text, calls[0][0]), actions[:MAX_CALLS]

    def write(self, action: Action, platform: Platform, size: Size) -> str | None:
        """Writes an action as a call that `read` parses back; returns None if it cannot."""
        if action.is_final:
            return json.dumps(
                {"type": "message", "content": action.value or "Done."}, ensure_ascii=False
            )
        call = _openai_call(action, size)
        return (
            None
            if call is None
            else json.dumps({"type": "computer_call", "actions": [call]}, ensure_ascii=False)
        )


class AnthropicCalls:
    """Anthropic's `tool_use` blocks: one tool `computer` with an action, or one per action."""

    frame = PIXELS

    def read(self, reply: str, size: Size, cursor: Point | None) -> tuple[str, list[Action]]:
        """Returns the text before the first tool, and the actions in order; a lone text block is
        the answer. Raises UnreadableReplyError.
        """
        text = after_thinking(reply)
        values = [(begin, item) for begin, _, value in json_values(text) for item in _items(value)]
        message = "\n".join(
            str(item["text"]) for _, item in values if item.get("type") == "text" and "text" in item
        )
        calls = [(begin, item) for begin, item in values if item.get("type") != "text"]
        actions: list[Action] = []
        for _, item in calls[:MAX_CALLS]:
            action = _anthropic_action(item, size, cursor)
            cursor = action.end_point or action.point or cursor
            actions.append(action)
        if not actions:
            if not message:
                raise UnreadableReplyError("the reply has no tool_use, and no text block")
            return "", [Action("answer", message, value=message)]
        return message or text_before(text, calls[0][0]), actions

    def write(self, action: Action, platform: Platform, size: Size) -> str | None:
        """Writes an action as a call that `read` parses back; returns None if it cannot."""
        if action.is_final:
            return json.dumps({"type": "text", "text": action.value or "Done."}, ensure_ascii=False)
        arguments = _anthropic_call(action, size)
        if arguments is None:
            return None
        return json.dumps(
            {"type": "tool_use", "name": "computer", "input": arguments}, ensure_ascii=False
        )


def _items(value: Any) -> list[dict[str, Any]]:
    """Returns the items of a list, of a response's `output` or `content`, or the value itself."""
    if isinstance(value, dict):
        for name in ("output", "content"):
            if isinstance(value.get(name), list) and value.get("type") != "message":
                return _items(value[name])
        return [value]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _message(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _openai_action(call: Mapping[str, Any], size: Size) -> Action:
    name, text = get_text(call, "type"), json.dumps(call, ensure_ascii=False)

    def point() -> Point:
        return PIXELS.point([call.get("x"), call.get("y")], size)

    if name == "click":
        if (kind := _OPENAI_BUTTONS.get(call.get("button", "left"))) is None:
            raise UnreadableReplyError(f"unknown mouse button {str(call.get('button'))[:60]}")
        return (
            Action(kind, text) if kind in ("back", "forward") else Action(kind, text, point=point())
        )
    if name in ("double_click", "move"):
        return Action("hover" if name == "move" else name, text, point=point())
    if name == "drag":
        path = call.get("path")
        if (
            not isinstance(path, list)
            or len(path) < 2
            or not all(isinstance(place, dict) for place in path)
        ):
            raise UnreadableReplyError("a drag needs a path of two positions or more")
        start, end = (
            PIXELS.point([place.get("x"), place.get("y")], size) for place in (path[0], path[-1])
        )
        return Action("drag", text, point=start, end_point=end)
    if name == "keypress":
        return Action("press", text, value=list_keys(call.get("keys")))
    if name == "scroll":
        across, down = get_number(call, "scroll_x", 0), get_number(call, "scroll_y", 0)
        way = (
            ("right" if across > 0 else "left")
            if abs(across) > abs(down)
            else ("down" if down > 0 else "up")
        )
        return scroll(text, way, point())
    if name == "type":
        return Action("type", text, value=get_text(call, "text", empty=True))
    if name in ("wait", "screenshot"):
        return Action("wait", text, value="1")
    raise UnreadableReplyError(f"unknown action {name[:60]!r}")


def _openai_call(action: Action, size: Size) -> dict[str, Any] | None:
    position = (
        {}
        if action.point is None
        else dict(zip("xy", PIXELS.numbers(action.point, size), strict=True))
    )
    buttons = {kind: button for button, kind in _OPENAI_BUTTONS.items()}
    if action.kind in ("click", "right_click", "middle_click") and position:
        return {"type": "click", "button": buttons[action.kind], **position}
    if action.kind in ("double_click", "hover") and position:
        return {"type": "move" if action.kind == "hover" else "double_click", **position}
    if action.kind in ("drag", "swipe") and position and action.end_point is not None:
        end = dict(zip("xy", PIXELS.numbers(action.end_point, size), strict=True))
        return {"type": "drag", "path": [position, end]}
    if action.kind in ("back", "forward"):
        return {"type": "click", "button": action.kind}
    if action.kind == "press" and action.value:
        return {"type": "keypress", "keys": action.value.split("+")}
    if action.kind == "type" and action.value is not None:
        return {"type": "type", "text": action.value}
    if action.kind == "scroll" and action.value in ("up", "down", "left", "right"):
        amount = 500 if action.value in ("down", "right") else -500
        across = action.value in ("left", "right")
        middle = position or dict(zip("xy", PIXELS.numbers((0.5, 0.5), size), strict=True))
        return {
            "type": "scroll",
            **middle,
            "scroll_x": amount * across,
            "scroll_y": amount * (not across),
        }
    return {"type": "wait"} if action.kind == "wait" else None


def _anthropic_action(block: Mapping[str, Any], size: Size, cursor: Point | None) -> Action:
    arguments = block.get("input") if "input" in block else block
    if not isinstance(arguments, Mapping):
        raise UnreadableReplyError(
            f"the input of a tool must be an object; got {str(arguments)[:60]}"
        )
    tool = block.get("name")
    name = get_text(arguments, "action") if tool in ("computer", None) else str(tool)
    text = json.dumps({"action": name, **arguments}, ensure_ascii=False)
    given = arguments.get("coordinate")
    point = None if given is None else PIXELS.point(given, size)
    if name in MOUSE:
        if point is None and (cursor is None or name == "mouse_move"):
            raise UnreadableReplyError(f"{name} needs a coordinate")
        return Action(MOUSE[name], text, point=point or cursor)
    if name == "left_click_drag":
        start = arguments.get("start_coordinate")
        if point is None:
            raise UnreadableReplyError(f"{name} needs a coordinate")
        return Action(
            "drag",
            text,
            point=cursor if start is None else PIXELS.point(start, size),
            end_point=point,
        )
    if name == "key":
        keys, times = list_keys(arguments.get("text")), get_number(arguments, "repeat", 1)
        return Action("press", text, value=keys if times <= 1 else f"{keys} x {times:g}")
    if name == "type":
        return Action("type", text, value=get_text(arguments, "text", empty=True))
    if name == "scroll":
        return scroll(text, get_text(arguments, "scroll_direction"), point)
    if name in ("wait", *_NOTHING_DONE):
        return Action("wait", text, value=f"{get_number(arguments, 'duration', 1):g}")
    raise UnreadableReplyError(f"unknown action {name[:60]!r}")


def _anthropic_call(action: Action, size: Size) -> dict[str, Any] | None:
    position = {} if action.point is None else {"coordinate": PIXELS.numbers(action.point, size)}
    names = {kind: name for name, kind in MOUSE.items()}
    if action.kind in names and position:
        return {"action": names[action.kind], **position}
    if (
        action.kind in ("drag", "swipe")
        and action.point is not None
        and action.end_point is not None
    ):
        start, end = (PIXELS.numbers(point, size) for point in (action.point, action.end_point))
        return {"action": "left_click_drag", "start_coordinate": start, "coordinate": end}
    if action.kind == "press" and action.value:
        return {"action": "key", "text": action.value}
    if action.kind == "type" and action.value is not None:
        return {"action": "type", "text": action.value}
    if action.kind == "scroll" and action.value in ("up", "down", "left", "right"):
        return {
            "action": "scroll",
            **position,
            "scroll_direction": action.value,
            "scroll_amount": 5,
        }
    return {"action": "wait", "duration": 1} if action.kind == "wait" else None
