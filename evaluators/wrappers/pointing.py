"""Names the element at a bare point from its text: `tap "Settings" (0.41, 0.22)`.

The text comes from an OCR engine, or from the UI tree recorded as the state's text (`tree_boxes`).
arXiv 2404.06474 shows such actions as `tap` and `swipe on screen`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from html import unescape
from math import dist, hypot
from operator import itemgetter
from typing import Protocol

from prill.actions.phone import SWIPE_DISTANCE
from prill.captioner.ocr import OCRCaptioner, TextBox
from prill.evaluators.evidence import action_text
from prill.evaluators.wrappers.rewritten import Rewritten
from prill.models.prompts import clean
from prill.protocols import Evaluator
from prill.types import Action, Platform, Point, Trajectory

# Increase it when the same state would give an action a different text: it is part of the verdicts'
# fingerprint.
VERSION = "1"
# From the point to the edge of the text, in fractions of the screen. The label of a launcher icon
# begins about 40 dp below the icon's middle, 0.045 of a screen of 900 dp; and two points closer
# than 0.05 are one touch in the paper's rules.
NEAR = SWIPE_DISTANCE
# Enough to identify a button, too little for an injected instruction.
LABEL_CHARS = 40
_TOUCH = {
    "click": "tap",
    "tap": "tap",
    "double_click": "double tap",
    "double_tap": "double tap",
    "long_press": "long press",
}
_MOUSE = {
    "click": "click",
    "tap": "tap",
    "double_click": "double click",
    "double_tap": "double tap",
    "long_press": "long press",
    "right_click": "right click",
    "middle_click": "middle click",
    "triple_click": "triple click",
    "hover": "hover over",
}
_STROKES = ("swipe", "scroll", "drag")
# Positions in the text of a UI tree have two decimals, so the rounding error is up to 0.005.
_ROUNDING = 0.005
_CENTRE = re.compile(r" at \((?P<x>[01]?\.\d+|[01]), (?P<y>[01]?\.\d+|[01])\)\s*\Z")
_LABEL = re.compile(r'[^"]*"((?:[^"\\]|\\.)*)"')
_BOUNDS = re.compile(r"\[(-?\d{1,6}), ?(-?\d{1,6})\]\[(-?\d{1,6}), ?(-?\d{1,6})\]")
_ATTRIBUTE = re.compile(r'\b(text|content-desc)="([^"]*)"')
_QUOTATION = re.compile(r'"([^"]+)"')
Read = Callable[[str], Awaitable[Sequence[TextBox]]]


class TextReader(Protocol):
    """Protocol of readers that find text and its position in an image, such as
    `prill.captioner.ocr.OCRCaptioner`.
    """

    @property
    def name(self) -> str:
        """The engine and its version."""
        ...

    async def read(self, path: str) -> Sequence[TextBox]:
        """Returns each piece of text with its position. Raises InputError for an unusable image."""
        ...


class Pointing(Rewritten):
    """A wrapper that names the element at the point of an action by the text there.

    Verdicts record it in `evaluator.params["read_points"]`.

    Args:
        evaluator: The judge.
        reader: Reads the text on screenshots. None: the UI tree in the states' text is used.

    Raises:
        MissingExtraError: The reader's engine is not installed.
    """

    def __init__(self, evaluator: Evaluator, reader: TextReader | None = None) -> None:
        self._reader = reader
        name = "tree" if reader is None else reader.name
        super().__init__(evaluator, self._readable, {"read_points": f"{name}, {VERSION}"})

    async def _readable(self, trajectory: Trajectory) -> Trajectory:
        return await readable(trajectory, None if self._reader is None else self._reader.read)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the distinct images that the judge or the reader reads."""
        read = () if self._reader is None else _images(trajectory)
        return list(dict.fromkeys((*self.evaluator.screenshots(trajectory), *read)))


def read_screenshot() -> TextReader:
    """Returns prill's default reader, OCR on the CPU."""
    return OCRCaptioner()


async def readable(trajectory: Trajectory, read: Read | None = None) -> Trajectory:
    """Returns the trajectory with readable texts and targets for its actions at bare points.

    Everything else is unchanged. `read` finds the text on a screenshot; each screenshot of a step
    with such an action is read once. None: the UI tree in the state's text is used. Raises what
    `read` raises.
    """
    boxes_of: dict[str, Sequence[TextBox]] = {}
    steps = []
    for step in trajectory.steps:
        if not is_bare(step.action, trajectory.task.platform):
            steps.append(step)
            continue
        path = step.observation.screenshot
        boxes: Sequence[TextBox] = ()
        if read is None:
            boxes = tree_boxes(step.observation.text or "")
        elif path:
            if path not in boxes_of:
                boxes_of[path] = await read(path)
            boxes = boxes_of[path]
        steps.append(
            replace(step, action=readable_action(step.action, boxes, trajectory.task.platform))
        )
    return replace(trajectory, steps=tuple(steps))


def is_bare(action: Action, platform: Platform = "other") -> bool:
    """Returns whether an action has a point but no named target, and a kind supported here."""
    if action.point is None or action.target:
        return False
    if (
        platform == "web"
        and action.text
        and action_text(action, platform, paper=True) != action.text
    ):
        return False  # `click [7] where [7] is link 'Cart'` names it
    return _is_stroke(action) or action.kind == "type" or action.kind in _MOUSE


def readable_action(
    action: Action, boxes: Sequence[TextBox], platform: Platform = "android"
) -> Action:
    """Returns the action with the element at its point as text and target; unchanged unless
    `is_bare`.

    A swipe is described by its end points and the finger's direction along the axis with the longer
    distance.
    """
    if not is_bare(action, platform) or action.point is None:
        return action
    if _is_stroke(action) and action.end_point is not None:
        verb = (
            "drag"
            if action.kind == "drag"
            else f"swipe {_direction(action.point, action.end_point)}".strip()
        )
        return replace(
            action,
            text=f"{verb} {_format_point(action.point)} -> {_format_point(action.end_point)}",
        )
    target = label_at(action.point, boxes)
    at = " ".join(part for part in (target, _format_point(action.point)) if part)
    if action.kind == "type":
        entry = f'type "{_label(action.value or "")}"'
        return replace(
            action, text=f"{entry} {'at' if target is None else 'into'} {at}", target=target
        )
    verb = (_TOUCH if platform in ("android", "ios") else _MOUSE).get(action.kind) or _MOUSE[
        action.kind
    ]
    return replace(action, text=f"{verb} {at}", target=target)


def label_at(point: Point, boxes: Sequence[TextBox]) -> str | None:
    """Returns the quoted text of the smallest box around the point, else `near` and the nearest
    text.

    The nearest text must be within NEAR. Returns None if there is neither. Distances are fractions
    of the screen's width and height.
    """
    labelled_boxes = [(label, box.box) for box in boxes if (label := _label(box.text))]
    around = [(_area(box), label) for label, box in labelled_boxes if _distance(point, box) == 0]
    if around:
        return f'"{min(around, key=itemgetter(0))[1]}"'
    near = [
        (distance, label)
        for label, box in labelled_boxes
        if (distance := _distance(point, box)) <= NEAR
    ]
    return f'near "{min(near, key=itemgetter(0))[1]}"' if near else None


def _images(trajectory: Trajectory) -> list[str]:
    platform = trajectory.task.platform
    return [
        s.observation.screenshot
        for s in trajectory.steps
        if s.observation.screenshot and is_bare(s.action, platform)
    ]


def _is_stroke(action: Action) -> bool:
    if action.point is None or action.end_point is None:
        return False
    return action.kind in _STROKES or (
        action.kind in _MOUSE and dist(action.point, action.end_point) > SWIPE_DISTANCE
    )


def _direction(start: Point, end: Point) -> str:
    right, down = end[0] - start[0], end[1] - start[1]
    if right == down == 0:
        return ""
    if abs(down) >= abs(right):
        return "down" if down > 0 else "up"
    return "right" if right > 0 else "left"


def _format_point(point: Point) -> str:
    return f"({point[0]:.2f}, {point[1]:.2f})"


def _label(text: str) -> str:
    """Returns text from a screen as a short line without marks that could end a quotation."""
    flat = " ".join(clean(text).split()).replace('"', "'")
    return flat if len(flat) <= LABEL_CHARS else flat[: LABEL_CHARS - 1] + "…"


def _area(box: tuple[float, float, float, float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _distance(point: Point, box: tuple[float, float, float, float]) -> float:
    x, y = point
    return hypot(max(box[0] - x, 0.0, x - box[2]), max(box[1] - y, 0.0, y - box[3]))


def tree_boxes(text: str) -> list[TextBox]:
    """Returns the labelled elements of a UI tree that contains positions.

    Either `Class "text" at (0.41, 0.22)` on each line, in fractions of the screen; or Android's
    bounds in pixels, `[x1,y1][x2,y2]`, with `text` or `content-desc` as attributes, or with a label
    in quotation marks. Pixels require the screen's size: the first bounds must start at [0,0], as
    the root of a dump does, and give that size.
    """
    return [*_centres(text), *_pixels(text)]


def _centres(tree: str) -> Iterator[TextBox]:
    for line in tree.splitlines():
        # Search for the position first: lines can be whole documents, and few have a position.
        if (centre := _CENTRE.search(line)) and (label := _LABEL.match(line, 0, centre.start())):
            x, y = float(centre["x"]), float(centre["y"])
            text = label[1].replace('\\"', "'").replace("\\n", " ")
            yield TextBox(text, (x - _ROUNDING, y - _ROUNDING, x + _ROUNDING, y + _ROUNDING), 1.0)


def _pixels(tree: str) -> Iterator[TextBox]:
    size: tuple[int, int] | None = None
    for element in re.split(r"\n|(?=<)", tree):
        if not (bounds := _BOUNDS.search(element)):
            continue
        left, top, right, bottom = map(int, bounds.groups())
        if size is None:
            if (left, top) != (0, 0) or right <= 0 or bottom <= 0:
                return
            size = right, bottom
        attributes = dict(_ATTRIBUTE.findall(element))
        label = attributes.get("text") or attributes.get("content-desc")
        if not label and not element.startswith("<") and (quotation := _QUOTATION.search(element)):
            label = quotation[1]
        if label:
            box = (left / size[0], top / size[1], right / size[0], bottom / size[1])
            yield TextBox(unescape(label), box, 1.0)
