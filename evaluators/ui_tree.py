"""The labelled elements of a UI tree that was recorded as the text of a state, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from prill.captioner.boxes import TextBox

# A place that is written with two decimals can be off by half of the last one.
_ROUNDING = 0.005
_CENTRE = re.compile(r" at \((?P<x>[01]?\.\d+|[01]), (?P<y>[01]?\.\d+|[01])\)\s*\Z")
_LABEL = re.compile(r'[^"]*"((?:[^"\\]|\\.)*)"')
_BOUNDS = re.compile(r"\[(-?\d+), ?(-?\d+)\]\[(-?\d+), ?(-?\d+)\]")
_NAMED = re.compile(r'\b(text|content-desc)="([^"]*)"')
_QUOTED = re.compile(r'"([^"]+)"')


def tree_boxes(text: str) -> list[TextBox]:
    """The labelled elements of a UI tree that says their places.

    Either `Class "text" at (0.41, 0.22)` on each line, in fractions of the screen; or Android's bounds in pixels,
    `[x1,y1][x2,y2]`, with `text` or `content-desc` as attributes, or with a label in quotation marks.
    Pixels need the screen's size: the first bounds must begin at [0,0], as the root of a dump does, and are taken for it.
    """
    return [*_centres(text), *_pixels(text)]


def _centres(text: str) -> Iterator[TextBox]:
    for line in text.splitlines():
        # The place first: lines can be whole documents, and few have one.
        if (found := _CENTRE.search(line)) and (named := _LABEL.match(line, 0, found.start())):
            x, y = float(found["x"]), float(found["y"])
            label = named[1].replace('\\"', "'").replace("\\n", " ")
            yield TextBox(label, (x - _ROUNDING, y - _ROUNDING, x + _ROUNDING, y + _ROUNDING), 1.0)


def _pixels(text: str) -> Iterator[TextBox]:
    size: tuple[int, int] | None = None
    for element in re.split(r"\n|(?=<)", text):
        if not (found := _BOUNDS.search(element)):
            continue
        left, top, right, bottom = map(int, found.groups())
        if size is None:
            if (left, top) != (0, 0) or right <= 0 or bottom <= 0:
                return
            size = right, bottom
        attributes = dict(_NAMED.findall(element))
        label = attributes.get("text") or attributes.get("content-desc")
        if not label and not element.startswith("<") and (quoted := _QUOTED.search(element)):
            label = quoted[1]
        if label:
            box = (left / size[0], top / size[1], right / size[0], bottom / size[1])
            yield TextBox(unescape(label), box, 1.0)
