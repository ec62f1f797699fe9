"""CogAgent's reply format: plan, next action, grounded operation (arXiv 2312.08914)."""

from __future__ import annotations

import re

from prill.types import Point

_OPERATION = re.compile(r"grounded operation\s*:", re.IGNORECASE)
_BOX = re.compile(r"\[\[\s*(\d+)\s*,\s*(\d+)(?:\s*,\s*(\d+)\s*,\s*(\d+))?\s*\]\]")
# The question that the 18B model was trained on (arXiv 2404.06474's code wraps every goal in it).
_QUESTION = re.compile(
    r'\s*What steps do I need to take to\s+"(.*)"\s*\?\s*\(with grounding\)\s*',
    re.DOTALL | re.IGNORECASE,
)


def split_reply(reply: str) -> tuple[str, str]:
    """The text before the last "Grounded Operation:", and the operation after it; a reply without
    that mark is both.
    """
    *before, operation = _OPERATION.split(reply)
    return ("Grounded Operation:".join(before) if before else reply).strip(), operation.strip()


def goal_of_question(text: str) -> str:
    """The goal inside CogAgent's question
    `What steps do I need to take to "GOAL"?(with grounding)`; else the text itself.
    """
    match = _QUESTION.fullmatch(text)
    return match[1] if match else text


def thousandths(text: str) -> Point:
    """The point of `[[x,y]]`, or the middle of the box `[[x1,y1,x2,y2]]`, read as thousandths of
    the screen.

    Returns:
        (x, y) as fractions of the screen's width and height, from the top left corner.

    Raises:
        ValueError: There is no such place in the text, or it lies outside the screen.
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
