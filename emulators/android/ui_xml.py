"""Parses UiAutomator's XML hierarchy into widgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from prill.emulators.screenshots import Size
from prill.emulators.widgets import Widget

# Characters that are invalid in XML 1.0, literal or as references; UiAutomator copies them from the
# texts of apps.
_FORBIDDEN = re.compile(
    r"&#(?:x0*(?:[0-8bcefBCEF]|1[0-9a-fA-F])|0*(?:[0-8]|1[124-9]|2\d|3[01]));|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"
)
_BOUNDS = re.compile(r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]")
_ID = re.compile(r"[\w.-]+\Z")
# The suffix of a widget's class, and the corresponding web role. Longer suffixes come first.
_ROLES = {
    "AutoCompleteTextView": "textbox", "CheckedTextView": "option", "RadioButton": "radio",
    "ToggleButton": "switch", "EditText": "textbox", "CheckBox": "checkbox", "Switch": "switch",
    "SwitchCompat": "switch", "Button": "button", "Chip": "button", "TextView": "text",
    "ImageView": "image", "Spinner": "combobox", "SeekBar": "slider", "RatingBar": "slider",
    "ProgressBar": "progressbar", "RecyclerView": "list", "ListView": "list", "GridView": "list",
    "ScrollView": "scrollable", "ViewPager": "scrollable", "WebView": "document",
}  # fmt: skip
_ACTS = ("clickable", "long-clickable", "checkable", "scrollable")


def elements(xml: str, size: Size) -> tuple[Widget, ...]:
    """Parses the widgets that have text or can be acted on, in tree order, with boxes as fractions
    of `size`.

    It reads both formats: `<node class=…>` of `uiautomator dump`, and Appium's elements named by
    class. Widgets outside the screen and plain containers are left out. Raises ValueError for
    invalid XML.
    """
    try:
        root = ElementTree.fromstring(_FORBIDDEN.sub("", xml).lstrip())
    except ElementTree.ParseError as error:
        raise ValueError(f"the UI tree is not XML: {error}") from None
    return tuple(_useful(root, size))


def _useful(root: ElementTree.Element, size: Size) -> Iterator[Widget]:
    todo = [(root, 0)]
    while todo:
        node, depth = todo.pop()
        box = _box(node, size)
        if box is not None and (_name(node) or any(node.get(act) == "true" for act in _ACTS)):
            yield Widget(_role(node), _name(node), box, depth, tuple(_states(node)))
            depth += 1
        todo += [(child, depth) for child in reversed(node)]


def _box(node: ElementTree.Element, size: Size) -> tuple[float, float, float, float] | None:
    """Returns the box of a node on the screen; None without a visible one."""
    bounds = _BOUNDS.fullmatch(node.get("bounds", ""))
    if bounds is None or node.get("displayed") == "false":
        return None
    left, top, right, bottom = map(int, bounds.groups())
    width, height = size
    if min(right, width) <= max(left, 0) or min(bottom, height) <= max(top, 0):
        return None
    return left / width, top / height, right / width, bottom / height


def _role(node: ElementTree.Element) -> str:
    kind = (node.get("class") or node.tag).rpartition(".")[2]
    role = next((role for ending, role in _ROLES.items() if kind.endswith(ending)), "view")
    # Icons and list rows are often plain text views or layouts that can be tapped.
    return (
        "button" if role in ("text", "image", "view") and node.get("clickable") == "true" else role
    )


def _name(node: ElementTree.Element) -> str:
    """Returns a node's accessible name. A field's name is its hint; its text is a state."""
    texts = (
        node.get("content-desc"),
        node.get("hint") if _role(node) == "textbox" else None,
        node.get("text"),
    )
    return next((text for text in texts if text), "")


def _states(node: ElementTree.Element) -> Iterator[tuple[str, str]]:
    text, name = node.get("text"), _name(node)
    if text and text != name:
        # Texts may hold line breaks, but the observation has one line per element.
        yield "value", repr(text)
    if not name and (resource := _ID.search(node.get("resource-id", ""))):
        yield "id", resource[0]
    if node.get("checkable") == "true":
        yield "checked", node.get("checked", "false")
    for state in ("selected", "focused", "scrollable", "password"):
        if node.get(state) == "true":
            yield state, "true"
    if node.get("enabled") == "false":
        yield "disabled", "true"
