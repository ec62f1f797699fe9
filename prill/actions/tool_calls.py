"""Converts tool calls (`click`, `browser_navigate`, `computer`) to actions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from prill.types import Action, Point

_KINDS = {
    kind: tuple(names.split())
    for kind, names in {
        "click": "click left_click tap click_element click_at click_element_by_index mouse_click",
        "double_click": "double_click dblclick double_tap left_double",
        "triple_click": "triple_click",
        "right_click": "right_click right_single context_click",
        "middle_click": "middle_click",
        "long_press": "long_press long_tap",
        "mouse_down": "mouse_down left_mouse_down",
        "mouse_up": "mouse_up left_mouse_up",
        "hover": "hover mouse_move move move_to hover_at",
        "drag": "drag left_click_drag drag_to drag_and_drop",
        "swipe": "swipe",
        "type": (
            "type input input_text type_text fill typing write_text enter_text type_text_at "
            "form_input"
        ),
        "press": "press key keypress press_key hotkey key_combination keyboard_press send_keys "
        "press_enter keyboard_enter hold_key",
        "select": "select select_option select_dropdown_option",
        "scroll": "scroll scroll_down scroll_up scroll_document scroll_at",
        "goto": "goto go_to go_to_url open_url visit visit_url visit_page navigate navigate_to",
        "search": "search web_search search_google google_search",
        "back": "back go_back navigate_back press_back",
        "forward": "forward go_forward navigate_forward",
        "home": "home press_home navigate_home",
        "open": "open open_app launch_app open_application",
        "new_tab": "new_tab open_tab",
        "close_tab": "close_tab tab_close",
        "focus_tab": "switch_tab tab_focus focus_tab",
        "zoom": "zoom zoom_region",
        "screenshot": "screenshot take_screenshot",
        "command": "bash shell run_command execute_command",
        "upload": "upload upload_file file_upload",
        "wait": "wait sleep noop wait_for",
        "message": "message send_message ask_user call_user send_msg ask_followup_question",
        "answer": "answer final_answer submit_answer send_msg_to_user",
        "stop": "stop done finish finished terminate complete report_infeasible fail infeasible",
    }.items()
}
# Maps a tool's name to its action kind. Tools that are not listed are of kind `other`.
KINDS: Mapping[str, str] = {name: kind for kind, names in _KINDS.items() for name in names}
# Kinds of prill's own that no tool is called by.
_OWN = ("other", "none", "note", "narrative")
_MAX_NAME = 60  # characters of a name in a message
# Servers and libraries put their own names before a tool's: mcp__playwright__browser_click,
# computer.click.
_PREFIX = re.compile(r"\A.*(?:__|[./:])")
_FAMILY = re.compile(r"\A(?:browser|computer|mobile|page|screen|gui|ui|web)_(?=\w)")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ACTION_KEYS = ("action", "action_type")
_VALUE_KEYS = {
    "goto": ("url", "value", "text"),
    "press": ("key", "keys", "text", "value", "key_comb"),
    "scroll": ("direction", "scroll_direction", "value"),
    "swipe": ("direction", "value"),
    "open": ("app_name", "app", "name", "url", "text", "value"),
    "select": ("option", "options", "value", "values", "text", "label"),
    "search": ("query", "q", "text", "value"),
    "upload": ("file", "path", "paths", "files", "value"),
    "type": ("text", "value", "content", "message", "input_text"),
    "answer": ("text", "answer", "message", "content", "response", "result", "value"),
    "stop": ("text", "answer", "message", "content", "response", "result", "reason", "value"),
    "zoom": (),
    "message": ("text", "message", "question", "content", "value"),
    "command": ("command", "text", "value"),
}
_TARGET_KEYS = (
    "element", "target", "selector", "bid", "ref", "element_id", "index", "locator", "label",
    "startElement",
)  # fmt: skip
_START_KEYS = ("start_coordinate", "coordinate", "coordinates", "position", "point", "start")
_END_KEYS = ("end_coordinate", "coordinate2", "end", "to")
_MAX_SIDE = 1e6  # pixels
COMPUTER = "computer_call"  # the item type in OpenAI's Responses API
_NO_VALUE = frozenset(
    {
        "click",
        "double_click",
        "triple_click",
        "right_click",
        "middle_click",
        "long_press",
        "hover",
        "wait",
    }
)


def tool_action(
    name: str, arguments: Mapping[str, object] | str, size: tuple[float, float] | None = None
) -> Action:
    """Converts one tool call to an action, whose `text` is the whole call in readable form.

    `arguments` is a JSON object, or its text as the model wrote it. `size` is the screen size in
    the unit of the coordinates. Without a size, or for points outside the screen, the coordinates
    only stay in the text.
    """
    values = parsed(arguments)
    if values is None:
        return Action(detect_kind(name), f"{name}({arguments})" if arguments else f"{name}()")
    kind = detect_kind(name)
    if kind == "other":
        word = next((text for key in _ACTION_KEYS if isinstance(text := values.get(key), str)), "")
        kind = detect_kind(word)
    start = _point_in(values, ("x", "y"), _START_KEYS, size) or _point_in(
        values, ("start_x", "start_y"), (), size
    )
    end = _point_in(
        values,
        ("end_x", "end_y"),
        ("coordinate",) if "start_coordinate" in values else _END_KEYS,
        size,
    )
    if kind == "drag" and end is None:
        # some formats give only the start of a drag, others only its end
        start = None
    return Action(
        kind,
        f"{name}({', '.join(f'{key}={_json_text(value)}' for key, value in values.items())})",
        target=_first(values, _TARGET_KEYS),
        point=start,
        end_point=end,
        value=None
        if kind in _NO_VALUE
        else _first(values, _VALUE_KEYS.get(kind, ("text", "value"))),
    )


def response_call(
    name: str, arguments: Mapping[str, object] | str, size: tuple[float, float] | None = None
) -> Action:
    """Converts a call in OpenAI's Responses API to an action.

    Args:
        name: The function's name; `COMPUTER` for a `computer_call`, with one of its actions as
            arguments.
        arguments: A JSON object, or its text as the model wrote it.
        size: The screen's width and height in the unit of the coordinates.
    """
    values = parsed(arguments)
    if name != COMPUTER or values is None:
        return tool_action(name, arguments, size)
    type_ = values.get("type")
    given = {key: value for key, value in values.items() if key != "type" and value is not None}
    action = tool_action(type_ if isinstance(type_, str) else COMPUTER, given, size)
    if type_ == "scroll":
        return replace(action, value=scroll_direction(given.get("scroll_x"), given.get("scroll_y")))
    if type_ == "click" and given.get("button") == "right":
        return replace(action, kind="right_click")
    if type_ == "drag" and isinstance(path := given.get("path"), list):
        path = [point for point in path if isinstance(point, dict)]
        ends = (
            [fraction(point.get("x"), point.get("y"), size) for point in (path[0], path[-1])]
            if path
            else [None, None]
        )
        return replace(action, point=ends[0], end_point=ends[1])
    return action


def detect_kind(name: str) -> str:
    """Returns the action kind for a tool's name, ignoring its prefix."""
    word = _CAMEL_CASE.sub("_", _PREFIX.sub("", name.strip())).lower().replace("-", "_")
    return KINDS.get(word) or KINDS.get(_FAMILY.sub("", word), "other")


def unknown_kind(kind: str) -> str | None:
    """Returns what to say of an action kind that nothing here knows, with the nearest one, or None.

    Kinds are open: an unknown one is no error.
    """
    if kind in _KINDS or kind in _OWN:
        return None
    from prill.config.registry import nearest

    kind = kind[:_MAX_NAME]
    same = detect_kind(kind)
    meant = nearest(kind, _KINDS) if same == "other" else f" (did you mean {same!r}?)"
    return f"unknown action kind {kind!r}{meant}"


def scroll_direction(x: object, y: object) -> str:
    """Returns the direction of a wheel scroll; `x` is to the right and `y` down, in pixels."""
    across, down = (delta if isinstance(delta, int | float) else 0 for delta in (x, y))
    if abs(across) > abs(down):
        return "right" if across > 0 else "left"
    return "up" if down < 0 else "down"  # without a distance, as Harbor's harness scrolls


def screen_size(tools: Iterable[object]) -> tuple[float, float] | None:
    """Returns the screen's width and height from the tools' definitions, or None.

    The size is read from `display_width` or `display_width_px`, and the matching heights.
    """
    for tool in tools:
        if not isinstance(tool, Mapping):
            continue
        for table in (tool, tool.get("function"), tool.get("parameters")):
            if not isinstance(table, Mapping):
                continue
            width = table.get("display_width_px", table.get("display_width"))
            height = table.get("display_height_px", table.get("display_height"))
            if all(
                isinstance(side, int | float) and 0 < side <= _MAX_SIDE for side in (width, height)
            ):
                return float(width), float(height)
    return None


def fraction(x: object, y: object, size: tuple[float, float] | None) -> Point | None:
    """Returns a point as fractions of the screen.

    Returns None if a coordinate is not a number, the point lies outside the screen, or the size is
    unknown.
    """
    if size is None or not isinstance(x, int | float) or not isinstance(y, int | float):
        return None
    try:
        point = (x / size[0], y / size[1])
    except OverflowError:  # an integer too large for a float
        return None
    return point if all(0.0 <= c <= 1.0 for c in point) else None


def parsed(arguments: Mapping[str, object] | str) -> Mapping[str, object] | None:
    """Parses the arguments of a call, which models write as text; None if the text is not a JSON
    object.
    """
    if not isinstance(arguments, str):
        return arguments
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _first(values: Mapping[str, object], keys: Iterable[str]) -> str | None:
    for key in keys:
        value = values.get(key)
        if isinstance(value, bool) or value is None or value == "":
            continue
        if isinstance(value, list):
            return "+".join(map(str, value)) if key == "keys" else ", ".join(map(str, value))
        if isinstance(value, str | int | float):
            return str(value)
    return None


def _point_in(
    values: Mapping[str, object],
    names: tuple[str, str],
    pairs: Iterable[str],
    size: tuple[float, float] | None,
) -> Point | None:
    if names[0] in values:
        return fraction(values[names[0]], values.get(names[1]), size)
    for key in pairs:
        pair = values.get(key)
        if isinstance(pair, list) and len(pair) == 2:
            return fraction(pair[0], pair[1], size)
    return None


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
