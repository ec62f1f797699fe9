"""Parses CogAgent's reply format: plan, next action, grounded operation (arXiv 2312.08914)."""

from __future__ import annotations

import re

from prill.types import Point

_OPERATION = re.compile(r"grounded operation\s*:", re.IGNORECASE)
_BOX = re.compile(r"\[\[\s*(\d+)\s*,\s*(\d+)(?:\s*,\s*(\d+)\s*,\s*(\d+))?\s*\]\]")
# The question format that the 18B model was trained on. The code of arXiv 2404.06474 wraps every
# goal in it.
_QUESTION = re.compile(
    r'\s*What steps do I need to take to\s+"(.*)"\s*\?\s*\(with grounding\)\s*',
    re.DOTALL | re.IGNORECASE,
)


def split_reply(reply: str) -> tuple[str, str]:
    """Splits a reply at its last "Grounded Operation:" into the text before it and the operation.

    A reply without that marker is returned as both parts.
    """
    *before, operation = _OPERATION.split(reply)
    return ("Grounded Operation:".join(before) if before else reply).strip(), operation.strip()


def goal_from_question(text: str) -> str:
    """Returns the goal inside CogAgent's question, or the text itself if it is not such a question.

    The question is `What steps do I need to take to "GOAL"?(with grounding)`.
    """
    match = _QUESTION.fullmatch(text)
    return match[1] if match else text


def thousandths(text: str) -> Point:
    """Reads a point `[[x,y]]`, or the centre of a box `[[x1,y1,x2,y2]]`, in thousandths of the
    screen.

    Returns:
        (x, y) as fractions of the screen's width and height, from the top left corner.

    Raises:
        ValueError: The text contains no point or box, or it lies outside the screen.
    """
    box = _BOX.search(text)
    if box is None:
        raise ValueError(f"no [[x,y]] in {text[:120]!r}")
    numbers = [int(group) for group in box.groups() if group is not None]
    x, y = (
        numbers
        if len(numbers) == 2
        else ((numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2)
    )
    if max(x, y) > 1000:
        raise ValueError(f"{box[0]!r} is outside the screen")
    return x / 1000, y / 1000
