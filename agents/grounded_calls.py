"""The operations of CogAgent-9B-20241220, which are written as calls: `CLICK(box=[[87,440,163,484]], element_info='OK')`."""

from __future__ import annotations

import re

from prill.actions.webarena import key_names
from prill.agents.grounded import operation_of, thousandths
from prill.types import Action, Point

# Strings may hold brackets and, since nothing forces the model to escape them, quotation marks of their own kind.
_CALL = re.compile(r"([A-Z_]+)\s*\((.*?)\)[ \t.]*(?=\n|<<|\Z)", re.DOTALL)
_TEXT = re.compile(r"""(\w+)\s*=\s*(['"])(.*?)\2(?=\s*(?:,\s*\w+\s*=|\Z))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}
_ADDRESS = re.compile(r"https?://\S+|(?:[\w-]+\.)+[a-z]{2,}(?:/\S*)?")
# The content goes one way and the finger the other.
_FINGER = {"LEFT": "right", "RIGHT": "left", "UP": "down", "DOWN": "up"}
_BUTTONS = {"home": "home", "back": "back"}


def read_cogagent_9b(reply: str) -> Action:
    """The action of a reply of CogAgent-9B; boxes are thousandths, and their middle is the place.

    Kind `other`, with the operation or the reply as text, for what cannot be read and for what no environment here does:
    double and right clicks, the model's clipboard, starting a program by name.
    """
    call = _CALL.search(operation_of(reply))
    if call is None:
        return Action("other", reply.strip())
    operation, name = call[0], call[1]
    said = {match[1]: _ESCAPE.sub(lambda c: _ESCAPED.get(c[1], c[1]), match[3]) for match in _TEXT.finditer(call[2])}
    point = _place(call[2])
    if name in ("CLICK", "HOVER"):
        return Action("other", operation) if point is None else Action(name.lower(), operation, point=point)
    if name == "TYPE" and "text" in said:
        return Action("type", operation, point=point, value=said["text"])
    if name.startswith("SCROLL_"):
        return _scrolled(name.removeprefix("SCROLL_"), operation, point)
    if name in ("KEY_PRESS", "GESTURE"):
        return _pressed(said.get("key") or said.get("gesture") or "", operation)
    if name == "LAUNCH" and _ADDRESS.fullmatch(address := said.get("url") or said.get("app") or ""):
        return Action("goto", operation, value=address if "://" in address else f"https://{address}")
    return Action("stop", operation) if name == "END" else Action("other", operation)


def _place(arguments: str) -> Point | None:
    try:
        return thousandths(arguments)
    except ValueError:
        return None


def _scrolled(way: str, operation: str, point: Point | None) -> Action:
    if way in ("UP", "DOWN"):
        return Action("scroll", operation, point=point, value=way.lower())
    return Action("swipe", operation, value=_FINGER[way]) if way in _FINGER else Action("other", operation)


def _pressed(keys: str, operation: str) -> Action:
    if (button := _BUTTONS.get(keys.lower())) is not None:
        return Action(button, operation)
    return (
        Action("press", operation, value=key_names(re.sub(r"(?<=\w)-(?=.)", "+", keys))) if keys else Action("other", operation)
    )
