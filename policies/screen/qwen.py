"""The grammar of Qwen2.5-VL and Qwen3-VL: `computer_use` and `mobile_use` in `<tool_call>` tags.

Source: QwenLM/Qwen3-VL, cookbooks/utils.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
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
from prill.policies.screen.frames import CoordinateFrame, Size, UnreadableReplyError
from prill.types import Action, Platform, Point

_TOOL = "<tool_call>"
# Qwen3.5 writes each argument in its own tag.
_FUNCTION = re.compile(r"<function=(\w+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=(\w+)>\s*(.*?)\s*</parameter>", re.DOTALL)
_BUTTONS = {
    "back": Action("back"),
    "home": Action("home"),
    "enter": Action("press", value="Enter"),
    "menu": Action("press", value="Menu"),
}
_PHONES: tuple[Platform, ...] = ("android", "ios")


class QwenCalls:
    """The calls of one Qwen generation; `frame` is its coordinate frame."""

    def __init__(self, frame: CoordinateFrame) -> None:
        self.frame = frame

    def read(self, reply: str, size: Size, cursor: Point | None) -> tuple[str, list[Action]]:
        """Returns the prose before the calls, and their actions. Raises UnreadableReplyError."""
        text = after_thinking(reply)
        calls = list(_calls(text))
        if not calls:
            raise UnreadableReplyError(f"no complete call between {_TOOL} and </tool_call>")
        actions: list[Action] = []
        for _, arguments in calls[:MAX_CALLS]:
            action = self._action(arguments, size, cursor)
            cursor = action.end_point or action.point or cursor
            actions.append(action)
        return text_before(text, calls[0][0]).removesuffix(_TOOL).strip(), actions

    def write(self, action: Action, platform: Platform, size: Size) -> str | None:
        """Writes an action as a call that `read` parses back; returns None if it cannot."""
        phone = platform in _PHONES
        arguments = self._phone(action, size) if phone else self._computer(action, size)
        if arguments is None:
            return None
        call = json.dumps(
            {"name": "mobile_use" if phone else "computer_use", "arguments": arguments},
            ensure_ascii=False,
        )
        return f"{_TOOL}\n{call}\n</tool_call>"

    def _action(self, arguments: Mapping[str, Any], size: Size, cursor: Point | None) -> Action:
        name = get_text(arguments, "action")
        text = json.dumps(arguments, ensure_ascii=False)
        point = (
            self.frame.point(arguments["coordinate"], size)
            if arguments.get("coordinate") is not None
            else None
        )
        if name in MOUSE or name in ("click", "long_press"):
            if point is None and (cursor is None or not name.endswith("_click")):
                raise UnreadableReplyError(f"{name} needs a coordinate")
            return Action(MOUSE.get(name, name), text, point=point or cursor)
        if name == "left_click_drag":
            if point is None:
                raise UnreadableReplyError(f"{name} needs a coordinate")
            return Action("drag", text, point=cursor, end_point=point)
        if name == "swipe":
            if point is None:
                raise UnreadableReplyError("swipe needs a coordinate")
            return Action(
                "swipe",
                text,
                point=point,
                end_point=self.frame.point(arguments.get("coordinate2"), size),
            )
        if name in ("scroll", "hscroll"):
            pixels = get_number(arguments, "pixels")  # positive is up
            ways = ("up", "down") if name == "scroll" else ("right", "left")
            return scroll(text, ways[pixels < 0], point)
        if name == "key":
            return Action(
                "press", text, value=list_keys(arguments.get("keys") or arguments.get("text"))
            )
        if name == "type":
            return Action("type", text, value=get_text(arguments, "text", empty=True))
        if name == "system_button":
            return self._button(get_text(arguments, "button"), text)
        if name == "open":
            return Action("open", text, value=get_text(arguments, "text"))
        if name == "wait":
            return Action("wait", text, value=f"{get_number(arguments, 'time', 1.0):g}")
        if name == "answer":
            return Action("answer", text, value=get_text(arguments, "text"))
        if name == "terminate":
            if arguments.get("status") not in ("success", "failure"):
                raise UnreadableReplyError(
                    "the status of terminate must be success or failure; got "
                    f"{str(arguments.get('status'))[:60]}"
                )
            return Action("stop", text)
        raise UnreadableReplyError(f"unknown action {name[:60]!r}")

    def _button(self, name: str, text: str) -> Action:
        if (button := _BUTTONS.get(name.lower())) is None:
            raise UnreadableReplyError(
                f"the buttons of a phone are Back, Home, Menu and Enter; got {name[:60]!r}"
            )
        return Action(button.kind, text, value=button.value)

    def _computer(self, action: Action, size: Size) -> dict[str, Any] | None:
        coordinate = (
            {"coordinate": self.frame.numbers(action.point, size)}
            if action.point is not None
            else {}
        )
        names = {kind: name for name, kind in MOUSE.items()}
        if action.kind in names and coordinate:
            return {"action": names[action.kind], **coordinate}
        if action.kind in ("drag", "swipe") and action.end_point is not None:
            return {
                "action": "left_click_drag",
                "coordinate": self.frame.numbers(action.end_point, size),
            }
        if action.kind == "press" and action.value:
            return {"action": "key", "keys": action.value.split("+")}
        if action.kind == "scroll" and action.value in ("up", "down", "left", "right"):
            across = action.value in ("left", "right")
            amount = 500 if action.value in ("up", "right") else -500
            return {"action": "hscroll" if across else "scroll", "pixels": amount, **coordinate}
        return _common(action)

    def _phone(self, action: Action, size: Size) -> dict[str, Any] | None:
        if action.kind in ("click", "long_press") and action.point is not None:
            return {"action": action.kind, "coordinate": self.frame.numbers(action.point, size)}
        if action.kind == "swipe" and action.point is not None and action.end_point is not None:
            points = [self.frame.numbers(point, size) for point in (action.point, action.end_point)]
            return {"action": "swipe", "coordinate": points[0], "coordinate2": points[1]}
        if action.kind in ("back", "home"):
            return {"action": "system_button", "button": action.kind.title()}
        if action.kind == "press" and (action.value or "").lower() in _BUTTONS:
            return {"action": "system_button", "button": action.value}
        if action.kind == "open" and action.value:
            return {"action": "open", "text": action.value}
        return _common(action)


def _common(action: Action) -> dict[str, Any] | None:
    if action.kind == "type" and action.value is not None:
        return {"action": "type", "text": action.value}
    if action.kind == "wait":
        return {"action": "wait", "time": 1}
    if action.kind == "answer" and action.value:
        return {"action": "answer", "text": action.value}
    if action.is_final:
        failed = "failure" in action.text or "impossible" in action.text.lower()
        return {"action": "terminate", "status": "failure" if failed else "success"}
    return None


def _calls(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the position and arguments of each call: between tags, in a code fence, or bare."""
    for call in _FUNCTION.finditer(text):
        yield call.start(), {name: _value(value) for name, value in _PARAMETER.findall(call[2])}
    if "<function=" in text:
        return
    for begin, _, value in json_values(text):
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                continue
            arguments = item.get("arguments", item)
            if isinstance(arguments, dict) and "action" in arguments:
                yield begin, arguments


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
