"""Actions of desktop agents written as pyautogui code, and OSWorld's own words DONE, FAIL and WAIT."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace

from prill.datasets.rows import sound
from prill.datasets.tool_calls import fraction
from prill.types import Action

_WORDS = {"DONE": "stop", "FAIL": "stop", "WAIT": "wait"}
_KINDS = {
    "click": "click",
    "leftClick": "click",
    "middleClick": "click",
    "doubleClick": "double_click",
    "tripleClick": "triple_click",
    "rightClick": "right_click",
    "write": "type",
    "typewrite": "type",
    "press": "press",
    "keyDown": "press",
    "hotkey": "press",
    "scroll": "scroll",
    "hscroll": "scroll",
    "moveTo": "hover",
    "dragTo": "drag",
    "copy": "copy",  # pyperclip: becomes typing when it is pasted
    "sleep": "wait",
}
# Of several calls in one step, the one that says most about it gives the kind.
_WEIGHTS = ("drag", "type", "select", "double_click", "triple_click", "right_click", "click", "scroll", "press", "hover")
# Some recorders spoil the quotation of copied text; what is between the brackets is then the text.
_COPY = "pyperclip.copy("
_PASTE = re.compile(r"\)[ \t]*\n[ \t]*pyautogui\.hotkey\('(?:ctrl|command)', 'v'\)")


def parse_pyautogui(code: str, size: tuple[float, float]) -> Action:
    """One action, with `text` as it was written; kind `other` when no call in it is known.

    `size` is the screen's width and height in the unit of the coordinates. Several calls are one action: the place is where
    it begins, the value all that was typed, else the keys of the first press.
    """
    text = code.strip()
    if word := _WORDS.get(text.partition("\n")[0].strip()):
        return Action(word, text)
    done = list(_merged(text, size))
    if not done:
        return Action("other", text)
    kind = next((kind for kind in _WEIGHTS if any(action.kind == kind for action in done)), done[0].kind)
    chief = next(action for action in done if action.kind == kind)
    values = [action.value for action in done if action.kind == kind and action.value]
    return Action(
        kind,
        text,
        point=next((action.point for action in done if action.point), None),
        end_point=chief.end_point,
        value="".join(values) if kind == "type" else next(iter(values), None),
    )


def _merged(text: str, size: tuple[float, float]) -> Iterator[Action]:
    """The actions of the code: a move and a drag are one, a copy and a paste are one."""
    last: Action | None = None
    for action in _actions(text, size):
        if last is not None and last.kind == "hover" and action.kind == "drag":
            last = replace(action, point=last.point)
            continue
        if last is not None and last.kind == "copy" and action.kind == "press" and action.value in ("ctrl+v", "command+v"):
            last = replace(last, kind="type")
            continue
        if last is not None and last.kind != "copy":
            yield last
        last = action
    if last is not None and last.kind != "copy":
        yield last


def _actions(text: str, size: tuple[float, float]) -> Iterator[Action]:
    if (tree := _tree(text)) is not None:
        yield from _calls(tree, size)
        return
    *pasted, rest = _PASTE.split(text)
    for part in pasted:
        before, found, copied = part.partition(_COPY)
        yield from _by_line(before, size)
        yield Action("type", value=copied.strip().strip("'\"")) if found else Action("press", value="ctrl+v")
    yield from _by_line(rest, size)


def _by_line(text: str, size: tuple[float, float]) -> Iterator[Action]:
    """The actions of those lines that are code."""
    for line in text.splitlines():
        if (tree := _tree(line.strip())) is not None:
            yield from _calls(tree, size)


def _calls(tree: ast.Module, size: tuple[float, float]) -> Iterator[Action]:
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            action = _action(node.value, size)
            if action is not None:
                yield action


def _tree(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # doubtful escapes in an agent's code are none of the user's business
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _action(call: ast.Call, size: tuple[float, float]) -> Action | None:
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return None
    if call.func.value.id not in ("pyautogui", "pyperclip", "time"):
        return None
    name = call.func.attr
    if name not in _KINDS:
        return None
    args = [_plain(arg) for arg in call.args]
    named = {keyword.arg: _plain(keyword.value) for keyword in call.keywords}
    kind = _KINDS[name]
    if name in ("copy", "write", "typewrite", "press", "keyDown", "hotkey"):
        value = _text(name, args, named)
        return Action(kind, value=None if value is None else sound(value))
    if name == "sleep":
        return Action(kind)
    first = 1 if kind == "scroll" else 0  # a scroll's distance comes before its place
    x, y = (named.get(key, args[i] if i < len(args) else None) for i, key in ((first, "x"), (first + 1, "y")))
    point = fraction(x, y, size)
    if kind == "drag":
        return Action(kind, end_point=point)
    if kind == "scroll":
        return Action(kind, point=point, value=_direction(name, named.get("clicks", args[0] if args else None)))
    if kind == "click":
        kind = {2: "double_click", 3: "triple_click"}.get(_count(named.get("clicks", args[2] if len(args) > 2 else 1)), kind)
        kind = "right_click" if named.get("button") == "right" else kind
    return Action(kind, point=point)


def _text(name: str, args: list[object], named: dict[str | None, object]) -> str | None:
    if name == "hotkey":
        keys = args[0] if len(args) == 1 and isinstance(args[0], list) else args
        return "+".join(map(str, keys)) or None
    given = args[0] if args else next((named[key] for key in ("message", "text", "keys", "key") if key in named), None)
    if isinstance(given, list):
        return ("" if name in ("write", "typewrite") else ", ").join(map(str, given))
    return None if given is None else str(given)


def _direction(name: str, distance: object) -> str | None:
    if not isinstance(distance, int | float) or distance == 0:
        return None
    return (("left", "right") if name == "hscroll" else ("down", "up"))[distance > 0]


def _count(clicks: object) -> int:
    return clicks if isinstance(clicks, int) else 1


def _plain(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
