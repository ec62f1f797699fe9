"""Parses page text of MiniWoB++, `role "name" #place state`, one element a line; and accessibility
trees, `[12] role 'name' state: value`.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

QUOTED = r'"(?:[^"\\]|\\.)*"'
LINE = re.compile(rf"(?P<indent> *)(?P<role>\w+)(?: (?P<name>{QUOTED}))?(?: #\d+)?(?P<state>.*)")

_NODE = re.compile(
    r"(?P<indent>\t*)\[(?P<number>\w+)\] (?P<role>\w+) "
    rf"(?P<name>'(?:[^'\\]|\\.)*'|{QUOTED})(?P<state>.*)"
)
# The words of MiniWoB++'s text for roles and states of a tree. Other roles are "container".
_ROLES = {
    **dict.fromkeys(("StaticText", "heading", "LabelText"), "text"),
    **{
        role: role
        for role in (
            *("button", "checkbox", "combobox", "link", "listbox", "menuitem", "option", "radio"),
            *("slider", "spinbutton", "switch", "tab", "textbox"),
        )
    },
    "searchbox": "textbox",
}
_STATES = {
    "checked: true": "checked",
    "selected: True": "selected",
    "expanded: True": "expanded",
    "expanded: False": "collapsed",
}


@dataclass(frozen=True)
class PageElement:
    """An element, described by one line.

    `target` is its name in actions; `inside` contains the elements indented below it.
    """

    target: str
    role: str
    name: str
    state: str
    depth: int
    inside: tuple[PageElement, ...] = ()

    def is_(self, state: str) -> bool:
        """Returns whether the element has a state, such as `checked`."""
        return state in self.state.split()


@dataclass(frozen=True)
class TextPage:
    """The elements of a page in reading order, nested ones included."""

    elements: tuple[PageElement, ...]

    @classmethod
    def read(cls, text: str) -> TextPage:
        """Parses the text of a page; lines in another format are ignored."""
        lines = text.splitlines()
        nodes = [match for line in lines if (match := _NODE.fullmatch(line))]
        listed = [match for line in lines if (match := LINE.fullmatch(line))]
        return cls(tuple(_nested(list(_nodes(nodes) if nodes else map(_element, listed)))))

    def all(self, *roles: str) -> list[PageElement]:
        """Returns every element with one of these roles."""
        return [element for element in self.elements if element.role in roles]

    def named(self, role: str, name: str) -> PageElement:
        """Returns the first element with this role and name. Raises LookupError."""
        return named(self.all(role), name)


def named(elements: list[PageElement] | tuple[PageElement, ...], name: str) -> PageElement:
    """Returns the first of these elements with this name. Raises LookupError."""
    for element in elements:
        if element.name == name:
            return element
    raise LookupError(f"no element is named {name!r}")


def _element(match: re.Match[str]) -> PageElement:
    return PageElement(
        target=match.string[match.end("indent") : match.start("state")],
        role=match["role"],
        name=json.loads(match["name"]) if match["name"] else "",
        state=match["state"].strip(),
        depth=len(match["indent"]) // 2,
    )


def _nodes(matches: Sequence[re.Match[str]]) -> Iterator[PageElement]:
    """Yields a tree's elements. The target of one that is not the first of its role and name ends
    with its place, as in MiniWoB++'s text.
    """
    seen: Counter[tuple[str, str]] = Counter()
    field: PageElement | None = None
    for match in matches:
        name, depth = str(ast.literal_eval(match["name"])), len(match["indent"])
        role = _ROLES.get(match["role"], "container")
        if field is not None and depth <= field.depth:
            yield field
            field = None
        if field is not None:  # what it holds
            field = replace(field, state=f"value {json.dumps(name)}")
            continue
        seen[role, name] += 1
        place = "" if seen[role, name] == 1 else f" #{seen[role, name]}"
        target = f"[{match['number']}] {match['role']} {match['name']}{place}"
        state = " ".join(word for said, word in _STATES.items() if said in match["state"])
        element = PageElement(target, role, name, state, depth)
        if role == "textbox":
            field = replace(element, state='value ""')
        else:
            yield element
    if field is not None:
        yield field


def _nested(elements: Sequence[PageElement]) -> Iterator[PageElement]:
    done: list[PageElement] = []
    for at in reversed(range(len(elements))):
        depth, after = elements[at].depth, range(at + 1, len(elements))
        end = next((i for i in after if elements[i].depth <= depth), len(elements))
        inside = done[len(done) - (end - at - 1) :]
        done.append(replace(elements[at], inside=tuple(reversed(inside))))
    return reversed(done)
