"""Tool calls of agents (`click`, `browser_navigate`, `computer` with an `action` argument) read into actions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import msgspec

from prill.types import Action, Point

_KINDS = {
    kind: tuple(names.split())
    for kind, names in {
        "click": "click left_click tap click_element click_at click_element_by_index mouse_click",
        "double_click": "double_click dblclick double_tap left_double",
        "triple_click": "triple_click",
        "right_click": "right_click right_single context_click",
        "long_press": "long_press long_tap",
        "hover": "hover mouse_move move move_to hover_at",
        "drag": "drag left_click_drag drag_to drag_and_drop",
        "swipe": "swipe",
        "type": "type input input_text type_text fill typing write_text enter_text type_text_at",
        "press": "press key keypress press_key hotkey key_combination keyboard_press send_keys press_enter keyboard_enter",
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
        "upload": "upload upload_file file_upload",
        "wait": "wait sleep noop wait_for",
        "message": "message send_message ask_user call_user send_msg ask_followup_question",
        "answer": "answer final_answer submit_answer send_msg_to_user",
        "stop": "stop done finish finished terminate complete report_infeasible fail infeasible",
    }.items()
}
KINDS: Mapping[str, str] = {name: kind for kind, names in _KINDS.items() for name in names}


"""The kind of action that a tool's name stands for; what is not named here is kind `other`."""


# Servers and libraries put their own names before a tool's: mcp__playwright__browser_click, computer.click.
_PREFIX = re.compile(r"\A.*(?:__|[./:])")
_FAMILY = re.compile(r"\A(?:browser|computer|mobile|page|screen|gui|ui|web)_(?=\w)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = ("action", "action_type")
_VALUES = {
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
    "message": ("text", "message", "question", "content", "value"),
}
_TARGETS = ("element", "target", "selector", "bid", "ref", "element_id", "index", "locator", "label", "startElement")
_STARTS = ("start_coordinate", "coordinate", "coordinates", "position", "point", "start")
_ENDS = ("end_coordinate", "coordinate2", "end", "to")
_NO_VALUE = frozenset({"click", "double_click", "triple_click", "right_click", "long_press", "hover", "wait"})


def tool_action(name: str, arguments: Mapping[str, object] | str, size: tuple[float, float] | None = None) -> Action:
    """The action of one call; `text` is the whole call in a readable form.

    `arguments` is a JSON object, or its text as the model wrote it. `size` is that of the screen in the unit of the
    coordinates; without it, and outside it, places stay in the text.
    """
    given = _object(arguments)
    if given is None:
        return Action(kind_of(name), f"{name}({arguments})" if arguments else f"{name}()")
    kind = kind_of(name)
    if kind == "other":
        said = next((word for key in _WORDS if isinstance(word := given.get(key), str)), "")
        kind = kind_of(said)
    start = _point(given, ("x", "y"), _STARTS, size) or _point(given, ("start_x", "start_y"), (), size)
    end = _point(given, ("end_x", "end_y"), ("coordinate",) if "start_coordinate" in given else _ENDS, size)
    if kind == "drag" and end is None:
        start = None  # one place alone is where a drag begins or where it ends, depending on who wrote it
    return Action(
        kind,
        f"{name}({', '.join(f'{key}={_shown(value)}' for key, value in given.items())})",
        target=_first(given, _TARGETS),
        point=start,
        end_point=end,
        value=None if kind in _NO_VALUE else _first(given, _VALUES.get(kind, ("text", "value"))),
    )


def kind_of(name: str) -> str:
    """The kind of action that a tool's name stands for, whatever is written before it."""
    word = _CAMEL.sub("_", _PREFIX.sub("", name.strip())).lower().replace("-", "_")
    return KINDS.get(word) or KINDS.get(_FAMILY.sub("", word), "other")


def screen_size(tools: Iterable[object]) -> tuple[float, float] | None:
    """The screen's width and height where one of the tools' definitions states it (`display_width`, `display_width_px`)."""
    for tool in tools:
        if not isinstance(tool, Mapping):
            continue
        for place in (tool, tool.get("function"), tool.get("parameters")):
            if not isinstance(place, Mapping):
                continue
            width = place.get("display_width_px", place.get("display_width"))
            height = place.get("display_height_px", place.get("display_height"))
            if isinstance(width, int | float) and isinstance(height, int | float) and width > 0 and height > 0:
                return float(width), float(height)
    return None


def fraction(x: object, y: object, size: tuple[float, float] | None) -> Point | None:
    """A place as fractions of the screen; None when it is no number, lies outside, or the size is unknown."""
    if size is None or not isinstance(x, int | float) or not isinstance(y, int | float):
        return None
    try:
        point = (x / size[0], y / size[1])
    except OverflowError:  # an integer beyond all floats
        return None
    return point if all(0.0 <= c <= 1.0 for c in point) else None


def _object(arguments: Mapping[str, object] | str) -> Mapping[str, object] | None:
    if not isinstance(arguments, str):
        return arguments
    try:
        found = msgspec.json.decode(arguments or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _first(given: Mapping[str, object], keys: Iterable[str]) -> str | None:
    for key in keys:
        value = given.get(key)
        if isinstance(value, bool) or value is None or value == "":
            continue
        if isinstance(value, list):
            return "+".join(map(str, value)) if key == "keys" else ", ".join(map(str, value))
        if isinstance(value, str | int | float):
            return str(value)
    return None


def _point(
    given: Mapping[str, object], names: tuple[str, str], pairs: Iterable[str], size: tuple[float, float] | None
) -> Point | None:
    if names[0] in given:
        return fraction(given[names[0]], given.get(names[1]), size)
    for key in pairs:
        pair = given.get(key)
        if isinstance(pair, list) and len(pair) == 2:
            return fraction(pair[0], pair[1], size)
    return None


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
