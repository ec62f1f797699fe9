"""Programs for drawings, based on their HTML: colours, sizes, shapes, slices of a pie."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.programmatic.screen import Move, Node, Page, click

_SHAPES = {"circle": "circle", "rect": "rectangle", "polygon": "triangle"}
# A small shape is 10 pixels wide, a large one 20.
_LARGE = 15.0


def _colour(match: re.Match[str], page: Page) -> list[Move]:
    for node in page.nodes:
        if node.attributes.get("data-color") == match["colour"]:
            return page.left([click(node)])
    raise LookupError(f"nothing here is {match['colour']}")


def _shades(match: re.Match[str], page: Page) -> list[Move]:
    wanted = [click(node) for node in page.nodes if _shade(node) == match["colour"]]
    return page.left([*wanted, click(page.end())])


def _shade(node: Node) -> str | None:
    """Returns the dominant colour of the background."""
    found = re.search(
        r"background-color: rgb\((\d+), (\d+), (\d+)\)", node.attributes.get("style", "")
    )
    if found is None:
        return None
    strengths = dict(zip(("red", "green", "blue"), map(int, found.groups()), strict=True))
    return max(strengths, key=strengths.__getitem__)


def _shape(match: re.Match[str], page: Page) -> list[Move]:
    for node, words in _drawn(page):
        if set(match["words"].split()) <= words:
            return page.left([click(node)])
    raise LookupError(f"there is no {match['words']}")


def _count(match: re.Match[str], page: Page) -> list[Move]:
    wanted = set(match["words"].split())
    count = sum(wanted <= words for _, words in _drawn(page))
    for button in page.of_kind("button"):
        if button.text == str(count):
            return page.left([click(button)])
    raise LookupError(f"no button says {count}")


def _identify(match: re.Match[str], page: Page) -> list[Move]:
    for _, words in _drawn(page):
        for button in page.of_kind("button"):
            if button.text.lower() in words or (button.text == "Number" and "digit" in words):
                return page.left([click(button)])
    raise LookupError("no button says what is drawn")


def _drawn(page: Page) -> Iterator[tuple[Node, set[str]]]:
    """Yields each figure with the words that describe it."""
    for node in page.nodes:
        tag, said = node.tag.lower(), node.attributes
        if tag == "text" and node.text:
            words = {node.text, "digit" if node.text.isdigit() else "letter"}
            size = float(said.get("font-size", "0").removesuffix("px"))
        elif tag in _SHAPES:
            words = {_SHAPES[tag], "shape"}
            size = _size(said.get("width"), said.get("r"), said.get("points"))
        else:
            continue
        yield node, words | {said.get("fill", ""), "item", "large" if size > _LARGE else "small"}


def _size(width: str | None, radius: str | None, points: str | None) -> float:
    if width:
        return float(width)
    if radius:
        return 2 * float(radius)
    corners = [float(corner.split(",")[0]) for corner in (points or "").split()]
    return max(corners, default=0.0) - min(corners, default=0.0)


def _pie(match: re.Match[str], page: Page) -> list[Move]:
    opener = page.saying("+")
    if opener and not page.clicked(opener[0]):
        return [click(opener[0])]
    return page.left([click(page.one(match["name"]))])


PROGRAMS = {
    r"^Click on the (?P<colour>\w+) colored box": _colour,
    r"^Select all the shades of (?P<colour>\w+)": _shades,
    r"^Click on an? (?P<words>[\w ]+)$": _shape,
    r"^How many (?P<words>.+?)s are there\?": _count,
    r"^Click the button that best describes the figure": _identify,
    r'^Expand the pie menu below and click on the item labeled "(?P<name>.)"': _pie,
}
