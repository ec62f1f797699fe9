"""The grammar of UI-TARS: `Thought: …` and `Action: click(start_box='(x,y)')`.

Source: bytedance/UI-TARS, codes/ui_tars.
"""

from __future__ import annotations

import re

from prill.actions.keys import key_names
from prill.policies.screen.calls import MAX_CALLS, after_thinking, scroll, single_quoted
from prill.policies.screen.frames import CoordinateFrame, Size, UnreadableReplyError
from prill.types import Action, Platform, Point

_ACTION = re.compile(r"^[ \t>*`-]*Action:[ \t*`]*", re.MULTILINE)
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_ARGUMENT = re.compile(
    r"""\s*(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*(?:,|\Z)""", re.DOTALL
)
_NUMBER = r"(-?\d{1,6}(?:\.\d{1,6})?)"
_PLACE = re.compile(
    rf"[\[(]?\s*{_NUMBER}\s*[,\s]\s*{_NUMBER}(?:\s*,\s*{_NUMBER}\s*,\s*{_NUMBER})?\s*[\])]?"
)
_TOKENS = re.compile(r"<\|?/?(?:box_start|box_end|point|bbox)\|?>")
_ESCAPED = {"n": "\n", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
_CLICKS = {
    "click": "click", "left_single": "click", "left_double": "double_click",
    "right_single": "right_click", "long_press": "long_press", "hover": "hover",
}  # fmt: skip
_NAMES = {
    "click": "click",
    "double_click": "left_double",
    "right_click": "right_single",
    "long_press": "long_press",
}


class UITarsCalls:
    """The calls of UI-TARS.

    Its coordinates (`frame`) are thousandths before version 1.5, and pixels of the resized picture
    since 1.5.
    """

    def __init__(self, frame: CoordinateFrame) -> None:
        self.frame = frame

    def read(self, reply: str, size: Size, cursor: Point | None) -> tuple[str, list[Action]]:
        """Returns the thought, and the actions after `Action:`. Raises UnreadableReplyError."""
        text = after_thinking(reply)
        parts = _ACTION.split(text)
        if len(parts) < 2:
            raise UnreadableReplyError("no line starts with Action:")
        thought = re.sub(r"\A\s*Thought:\s*", "", parts[0]).strip()
        # A second "Action:" repeats the first, or is a hallucinated turn.
        calls = [
            call
            for call in re.split(r"\n\s*\n", parts[1].strip().strip("`").strip())
            if call.strip()
        ]
        if not calls:
            raise UnreadableReplyError("nothing follows Action:")
        actions = [
            action for call in calls[:MAX_CALLS] for action in self._actions(call.strip(), size)
        ]
        return thought, actions

    def write(self, action: Action, platform: Platform, size: Size) -> str | None:
        """Writes an action as a call that `read` parses back; returns None if it cannot."""
        call = self._call(action, platform, size)
        return None if call is None else f"Action: {call}"

    def _actions(self, text: str, size: Size) -> list[Action]:
        call = _CALL.fullmatch(text)
        if call is None:
            raise UnreadableReplyError(
                f"expected a call such as click(start_box='(x,y)'), got {text[:60]!r}"
            )
        name, arguments = call[1], _arguments(call[2])
        if name in _CLICKS:
            return [
                Action(
                    _CLICKS[name], text, point=self._point(arguments, ("start_box", "point"), size)
                )
            ]
        if name in ("drag", "select") or (name == "scroll" and "end_box" in arguments):
            start = self._point(arguments, ("start_box", "start_point", "point"), size)
            end = self._point(arguments, ("end_box", "end_point"), size)
            return [
                Action("swipe" if name == "scroll" else "drag", text, point=start, end_point=end)
            ]
        if name == "scroll":
            there = any(key in arguments for key in ("start_box", "point"))
            return [
                scroll(
                    text,
                    arguments.get("direction", ""),
                    self._point(arguments, ("start_box", "point"), size) if there else None,
                )
            ]
        if name in ("hotkey", "press"):
            keys = (arguments.get("key") or arguments.get("hotkey") or "").split()
            if not keys:
                raise UnreadableReplyError(f"{name} names no key")
            return [Action("press", text, value="+".join(map(key_names, keys)))]
        if name == "type":
            if "content" not in arguments:
                raise UnreadableReplyError("type needs content")
            return [Action("type", text, value=arguments["content"])]
        if name == "open_app":
            return [Action("open", text, value=arguments.get("app_name", ""))]
        if name == "finished":
            content = arguments.get("content", "").strip()
            return [Action("answer", text, value=content) if content else Action("stop", text)]
        # call_user requests a person's help, which is not available, so the episode ends without a
        # claim of success.
        fixed = {"press_home": "home", "press_back": "back", "wait": "wait", "call_user": "stop"}
        if name not in fixed:
            raise UnreadableReplyError(f"unknown action {name[:60]!r}")
        return [Action(fixed[name], text, value="5" if name == "wait" else None)]

    def _point(self, arguments: dict[str, str], names: tuple[str, ...], size: Size) -> Point:
        text = next((arguments[name] for name in names if name in arguments), None)
        if text is None:
            raise UnreadableReplyError(f"{names[0]} is missing")
        match = _PLACE.fullmatch(_TOKENS.sub("", text).strip())
        if match is None:
            raise UnreadableReplyError(f"a position must be (x,y); got {text[:60]!r}")
        numbers = [float(group) for group in match.groups() if group is not None]
        if len(numbers) == 4:
            numbers = [(numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2]
        return self.frame.point(numbers, size)

    def _call(self, action: Action, platform: Platform, size: Size) -> str | None:
        phone = platform in ("android", "ios")
        start = None if action.point is None else self._box(action.point, size)
        if (
            action.kind in _NAMES
            and start
            and (action.kind in ("click", "long_press")) >= phone
            and (phone or action.kind != "long_press")
        ):
            return f"{_NAMES[action.kind]}(start_box='{start}')"
        if action.kind in ("drag", "swipe") and start and action.end_point is not None:
            name = "scroll" if phone else "drag"
            return f"{name}(start_box='{start}', end_box='{self._box(action.end_point, size)}')"
        if (
            action.kind == "scroll"
            and not phone
            and action.value in ("up", "down", "left", "right")
        ):
            return (
                f"scroll(start_box='{start or self._box((0.5, 0.5), size)}', "
                f"direction='{action.value}')"
            )
        if action.kind == "type" and action.value is not None:
            return f"type(content={single_quoted(action.value)})"
        if action.kind == "press" and action.value and not phone:
            return f"hotkey(key='{' '.join(part.lower() for part in action.value.split('+'))}')"
        if action.kind == "wait":
            return "wait()"
        if action.kind in ("home", "back") and phone:
            return f"press_{action.kind}()"
        if action.is_final:
            return (
                f"finished(content={single_quoted(action.value)})" if action.value else "finished()"
            )
        return None

    def _box(self, point: Point, size: Size) -> str:
        return "({},{})".format(*self.frame.numbers(point, size))


def _arguments(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        if (argument := _ARGUMENT.match(text, at)) is None:
            raise UnreadableReplyError(
                f"arguments must be name='value'; got {text[at : at + 60]!r}"
            )
        found[argument[1]] = re.sub(
            r"\\(.)",
            lambda c: _ESCAPED.get(c[1], c[0]),
            argument[2] if argument[2] is not None else argument[3],
        )
        at = argument.end()
    return found
