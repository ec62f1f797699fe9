"""Parses elements in actions: `target`, such as `[12] link 'Cart' focused: True`, and a bare id, as
in `click [17]` or `fill('a12', 'tea')`, which it resolves from the page text.

The page text has one line per element, in the format of WebArena's accessibility trees, BrowserGym
and prill: `[17] link 'Cart' focused: True`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from prill.types import Action

_ID = r"[A-Za-z]{0,16}\d{1,16}"
_BRACKETED = re.compile(rf"\s*([A-Za-z_]+)\s*\[\s*({_ID})\s*\]")
_CALLED = re.compile(
    rf"\s*([A-Za-z_]+)\s*\(\s*((?:bid|from_bid|element|element_id|index|ref)\s*=\s*)?(['\"]?)({_ID})\3\s*([,)])"
)
# Verbs whose first argument is an element. (The argument of `stop [5]` is an answer, that of
# `tab_focus(2)` a tab.)
_VERBS = {
    "check", "clear", "click", "click_element", "dblclick", "double_click", "drag_and_drop", "fill",
    "focus", "hover", "input_text", "long_press", "right_click", "select", "select_option", "tap",
    "type", "type_text", "uncheck", "upload_file",
}  # fmt: skip
_NAMED = re.compile(
    r"""(?:\[[^\]\n]*\][ \t]*)?(?P<role>[^\s'"\[\]]+)[ \t]+(?P<name>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""  # noqa: E501
)
# Roles whose text names the enclosing element.
_CONTENT = ("StaticText", "text", "img", "image")
_PHONE_ID = re.compile(r" id: (\S+)")
_MAX_CHARS = 120
_MAX_LINES = 50


def find_element(text: str, page_text: str) -> str | None:
    """Returns an element's role and name as in the page text, such as `link 'Cart'`.

    A name of more than 120 characters is truncated. An element without a name is named after the
    text and images inside it, or else by its role alone. Returns None if the action names no id, if
    the page does not contain the id, or if several different elements have it.
    """
    id = element_id(text)
    if id is None or f"[{id}]" not in page_text:
        return None
    # Match spaces and tabs only: `\s` would match line breaks too, and then long runs of empty
    # lines take quadratic time.
    matches = re.finditer(rf"^([ \t]*)\[{id}\][ \t]*", page_text, re.MULTILINE)
    elements = {_element(page_text, match.end(), len(match[1])) for match in matches}
    return (elements.pop() or None) if len(elements) == 1 else None


def with_element(action: Action, page_text: str | None) -> Action:
    """Returns the action with the element's id, role and name as target: `[17] link 'Cart'`.

    The action is returned unchanged if the page does not contain the element. The target keeps the
    id, because several elements may have the same name.
    """
    id, element = element_id(action.text), find_element(action.text, page_text or "")
    if element is None or action.target not in (None, id, f"[{id}]"):
        return action
    return replace(action, target=f"[{id}] {element}")


def element_id(text: str) -> str | None:
    """Returns the element id in an action's text, such as `17` or `a12`, or None."""
    if "[" not in text and "(" not in text:
        return None
    if (match := _BRACKETED.match(text)) and match[1].lower() in _VERBS:
        return match[2]
    if (match := _CALLED.match(text)) is None:
        return None
    verb, keyword, quote, id, then = match.groups()
    # `press('12', 'Enter')` names an element and a key, `press('5')` only a key; `click(40, 60)`
    # names a point.
    on_element = verb.lower() in _VERBS or (verb == "press" and then == ",")
    return id if on_element and (keyword or quote or then == ")") else None


def _element(page: str, start: int, depth: int) -> str:
    line = _line(page, start)
    match = _NAMED.match(line)
    if match is None:
        return _cut(line.strip())
    role, name = match["role"], match["name"]
    if name[1:-1].strip():
        return f"{role} {name[0]}{_cut(name[1:-1])}{name[0]}"
    if text := " ".join(_names_inside(page, start, depth)):
        quote = '"' if "'" in text else "'"
        return f"{role} {quote}{_cut(text)}{quote}"
    phone_id = _PHONE_ID.match(line, match.end())
    return f"{role} '{_cut(phone_id[1])}'" if phone_id else role


def _names_inside(page: str, start: int, depth: int) -> Iterator[str]:
    """Yields the text and images of the lines indented below the line at `start`."""
    for _ in range(_MAX_LINES):
        start = page.find("\n", start) + 1
        line = _line(page, start) if start else ""
        bare = line.lstrip(" \t")
        if len(line) - len(bare) <= depth:
            return
        match = _NAMED.match(bare)
        if (
            match is not None
            and match["role"] in _CONTENT
            and (name := match["name"][1:-1].strip())
        ):
            yield name


def _line(page: str, start: int) -> str:
    end = page.find("\n", start)
    return page[start:] if end < 0 else page[start:end]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


_LINE = re.compile(
    r"""\s*(?:\[(?P<number>[A-Za-z]*\d+)\]\s*)?(?P<role>[^\s'"\[\]]+)\s+(?P<name>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""",
    re.DOTALL,
)
_NUMBER = re.compile(r"\s*(?:\[([A-Za-z]*\d+)\]|(\d+)\s*\Z)")


@dataclass(frozen=True, slots=True)
class Target:
    """The parsed name of an element; any part may be None.

    `name` keeps its quotation marks. States such as `focused: True` are left out. BrowserGym's
    numbers have a letter prefix for elements in frames: `a12`.
    """

    number: str | None = None
    role: str | None = None
    name: str | None = None

    @property
    def label(self) -> tuple[str, str] | None:
        """Returns role and name, or None if either is missing or the name is empty."""
        return (
            None
            if self.role is None or self.name is None or len(self.name) <= 2
            else (self.role, self.name)
        )


def read_target(text: str) -> Target:
    """Parses a target, or one line of an observation.

    From a line in another format, it returns the parts that it recognises.
    """
    if line := _LINE.match(text):
        return Target(line["number"], line["role"], line["name"])
    number = _NUMBER.match(text)
    return Target(number[1] or number[2] if number else None)
