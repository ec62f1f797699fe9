"""What idb tells of an iOS screen, read: accessibility JSON in points to elements, the size of screenshots checked."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from prill.emulators.elements import Element
from prill.errors import EnvironmentFailure

# Containers that say nothing by themselves; what is in them counts.
_PLAIN = ("Group", "GenericElement", "Other", "Unknown", "ScrollArea", "Cell")
# Two shapes of a screen are the same when they differ by less: some report rounded sizes.
_SHAPE = 0.02


def read_elements(told: str, points: tuple[float, float]) -> list[Element]:
    """The visible elements of `accessibility_info`, nested or flat; `points` is the size of the screen.

    Raises EnvironmentFailure when it is no such JSON.
    """
    try:
        tree = json.loads(told)
        return list(_walk(tree if isinstance(tree, list) else [tree], points, 0))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EnvironmentFailure(f"the simulator's accessibility tree cannot be read: {error!r}") from error


def _walk(nodes: Sequence[dict[str, Any]], points: tuple[float, float], depth: int) -> Iterator[Element]:
    for node in nodes:
        element = _element(node, points, depth)
        if element is not None:
            yield element
        yield from _walk(node.get("children") or [], points, depth + (element is not None))


def _element(node: dict[str, Any], points: tuple[float, float], depth: int) -> Element | None:
    frame, (width, height) = node["frame"], points
    left, top = frame["x"] / width, frame["y"] / height
    right, bottom = left + frame["width"] / width, top + frame["height"] / height
    role = str(node.get("type") or str(node.get("role") or "Unknown").removeprefix("AX"))
    name, value = str(node.get("AXLabel") or node.get("title") or ""), node.get("AXValue")
    seen = right > max(left, 0) and bottom > max(top, 0) and left < 1 and top < 1
    if not seen or (role in _PLAIN and not name and not value):
        return None
    states = [] if value is None or str(value) == name else [("value", repr(str(value)))]
    if node.get("enabled") is False:
        states.append(("enabled", "false"))
    return Element(role, name, (left, top, right, bottom), depth, tuple(states))


def is_home_screen(elements: Sequence[Element]) -> bool:
    """Whether this is the home screen: its application, SpringBoard, is labelled by a blank or by its name."""
    top = elements[0] if elements else None
    return top is not None and top.role == "Application" and top.name.strip() in ("", "SpringBoard")


def check_size(png: bytes, pixels: tuple[int, int]) -> None:
    """Raises EnvironmentFailure unless this is a whole picture in the shape of a screen of that many pixels.

    Taps would go astray on another shape.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png)) as image:
            size = image.size
            image.verify()
    except (OSError, SyntaxError) as error:
        raise EnvironmentFailure(f"the simulator's screenshot is no whole picture ({len(png)} bytes)") from error
    shape, wanted = size[0] / size[1], pixels[0] / pixels[1]
    if abs(shape - wanted) > _SHAPE * wanted:
        raise EnvironmentFailure(f"the screenshot has {size[0]}x{size[1]} pixels, but the screen {pixels[0]}x{pixels[1]}")
