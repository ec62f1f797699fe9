"""A page's accessibility tree as text for language agents, in the form of WebArena (arXiv
2307.13854, section 2.3).

One line for each node that says something, nested by tabs: `[12] link 'Cart' focused: True`. The
rules are those of WebArena's reference environment in the form of its logs, without what today's
Chromium adds to them (addresses of links, runs of glyphs, list markers; an image is `img`). Three
deliberate differences, each of which shows more: the options of a drop-down list that can be seen
are listed, so that they can be chosen; what a field holds is never left out as a repetition; and
for that a text is compared with what the lines before it say, not with their ids (a lone "1" next
to element 12).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prill.emulators.browser.hints import Hint
from prill.models.prompts import estimate_tokens

Box = tuple[float, float, float, float]
_IGNORED_STATES = {
    "focusable", "editable", "readonly", "level", "settable", "multiline", "invalid", "url",
}  # fmt: skip
_NO_LINE = {"InlineTextBox", "LineBreak", "ListMarker", "MenuListPopup"}
_NO_LINE_IF_EMPTY = {
    "generic", "img", "list", "strong", "paragraph", "banner", "navigation", "Section", "LabelText",
    "Legend", "listitem",
}  # fmt: skip
_FIELDS = {"textbox", "searchbox", "spinbutton", "combobox"}
_ROLES = {"image": "img"}
# Roles of elements that do nothing by themselves when clicked.
_PASSIVE = _NO_LINE_IF_EMPTY | {
    "", "none", "image", "StaticText", "cell", "gridcell", "row", "article", "section", "figure",
    "heading", "term", "definition", "code", "emphasis",
}  # fmt: skip
# Characters of icon fonts.
_GLYPHS = re.compile(r"[\s\ue000-\uf8ff\U000f0000-\U0010fffd]*")
# The threshold of WebArena's reference, whose formula multiplies instead of dividing, so nearly
# every overlapping node is shown.
_IN_VIEW = 0.6


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of an element: `document` changes with every navigation of the frame; `number`
    is Chromium's backend node id.
    """

    frame: str
    document: str
    number: int


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the tree. `depth` counts the ancestors; `name` is None for nodes hidden from
    assistive technology.

    `box` is (left, top, width, height) in CSS pixels of the window; None: the node has no size.
    `key` identifies the node; None: it has no element to act on.
    """

    key: Key | None
    depth: int
    role: str
    name: str | None
    states: tuple[tuple[str, str], ...] = ()
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class TreeLine:
    """A line of the tree: its indentation, its element, and its text without the id."""

    key: Key
    depth: int
    text: str


def with_hint(node: Node, description: str | None, hint: Hint | None) -> Node:
    """Returns the node as it is shown outside WebArena: an icon is named by its description, and an
    element that can be clicked is a node.
    """
    if hint is not None and hint.name is not None and node.role in _PASSIVE:
        name = node.name if node.name and not _GLYPHS.fullmatch(node.name) else hint.name
        return replace(
            node,
            role="generic" if node.role in ("", "none") else node.role,
            name=name,
            states=(*node.states, *hint.states),
        )
    if node.name is None or any(map(str.isalnum, node.name)):
        return node
    bare = _GLYPHS.fullmatch(node.name) is not None
    if node.role == "StaticText":
        return replace(node, name=None) if bare and node.name else node
    tip = description or (hint.tip if hint is not None else "")
    if not tip or node.role in _NO_LINE_IF_EMPTY:
        return node
    return replace(node, name=tip if bare else f"{node.name} {tip}")


def build_lines(nodes: Sequence[Node], window: tuple[float, float] | None = None) -> list[TreeLine]:
    """Builds the lines of nodes in document order. Nodes outside the size `window` are left out;
    None: show the whole page.
    """
    lines: list[TreeLine] = []
    above: list[tuple[Node, bool]] = []
    for node in nodes:
        while above and above[-1][0].depth >= node.depth:
            above.pop()
        text = _text(node)
        visible = (
            text is not None
            and node.key is not None
            and (window is None or _in_window(node, window, above))
        )
        if (
            visible
            and text is not None
            and node.key is not None
            and not _repeats(node, lines, above)
        ):
            lines.append(TreeLine(node.key, sum(visible for _, visible in above), text))
        above.append((node, visible))
    return lines


def written(
    lines: Sequence[TreeLine], number: Callable[[Key], int], max_tokens: int | None = None
) -> str:
    """Formats the lines as text; `number` returns the id of a key. A text over the limit is cut at
    the end of a line, and a last line says so.

    One token is counted as four characters.
    """
    rows = ["\t" * line.depth + f"[{number(line.key)}] {line.text}" for line in lines]
    if max_tokens is None:
        return "\n".join(rows)
    length = 0
    for index, row in enumerate(rows):
        length += len(row) + 1
        if estimate_tokens(" " * length) > max_tokens:
            return "\n".join([*rows[:index], f"… {len(rows) - index} more lines"])
    return "\n".join(rows)


def _text(node: Node) -> str | None:
    if node.name is None or node.role in _NO_LINE:
        return None
    role = _ROLES.get(node.role, node.role)
    states = [f"{name}: {value}" for name, value in node.states if name not in _IGNORED_STATES]
    if not node.name.strip() and role in _NO_LINE_IF_EMPTY and (not states or role == "listitem"):
        return None
    return " ".join([role, repr(node.name), *states])


def _in_window(node: Node, window: tuple[float, float], above: Sequence[tuple[Node, bool]]) -> bool:
    if node.role == "RootWebArea":
        # A frame's document is visible if the frame is.
        return not above or above[-1][1]
    if node.role == "option" and node.box is None:
        return any(visible for other, visible in above if other.role == "combobox")
    if node.box is None or 0 in node.box[2:]:
        return False
    left, top, width, height = node.box
    across = max(0.0, min(left + width, window[0]) - max(left, 0.0))
    down = max(0.0, min(top + height, window[1]) - max(top, 0.0))
    return across * down / width * height >= _IN_VIEW


def _repeats(node: Node, lines: Sequence[TreeLine], above: Sequence[tuple[Node, bool]]) -> bool:
    """Whether one of the three preceding lines contains this text."""
    if (
        node.role != "StaticText"
        or node.name is None
        or any(other.role in _FIELDS for other, _ in above)
    ):
        return False
    name = repr(node.name)[1:-1]
    return not name or any(name in line.text for line in lines[-3:])
