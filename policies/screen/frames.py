"""Coordinate frames of screen models, and the image size that each model sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, sqrt
from typing import Any

from prill.types import Point

Size = tuple[int, int]  # width and height in pixels


class UnreadableReplyError(ValueError):
    """A reply without an executable call. The message says why and can be shown to the model."""


@dataclass(frozen=True, slots=True)
class CoordinateFrame:
    """A model's coordinate frame, which converts numbers to fractions of the screen and back.

    Args:
        scale: The maximum of the numbers on both axes (1000: thousandths). None: the numbers are
            pixels.
        factor: Pixels refer to the picture after the model's own resize to multiples of this
            number. None: they refer to the picture sent.
        min_pixels: Smallest area after that resize.
        max_pixels: Largest area after that resize.
    """

    scale: int | None = None
    factor: int | None = None
    min_pixels: int = 3_136
    max_pixels: int = 12_845_056

    def extent(self, sent: Size) -> Size:
        """Returns the largest x and y for a picture sent with this width and height, in pixels."""
        if self.scale is not None:
            return self.scale, self.scale
        return (
            sent
            if self.factor is None
            else smart_resize(sent, self.factor, self.min_pixels, self.max_pixels)
        )

    def point(self, numbers: Any, sent: Size) -> Point:
        """Returns the position as fractions of width and height, from the top left. Raises
        UnreadableReplyError for other input than two numbers, or outside the screen.
        """
        if (
            not isinstance(numbers, Sequence)
            or isinstance(numbers, str)
            or len(numbers) != 2
            or not all(map(_is_number, numbers))
        ):
            raise UnreadableReplyError(
                f"a position must be [x, y], two numbers; got {str(numbers)[:60]}"
            )
        width, height = self.extent(sent)
        x, y = numbers[0] / width, numbers[1] / height
        if not (0 <= x <= 1 and 0 <= y <= 1):
            raise UnreadableReplyError(f"{list(numbers)} is outside the screen of {width}x{height}")
        return x, y

    def numbers(self, point: Point, sent: Size) -> list[int]:
        """Returns the model's integers for a position in fractions."""
        return [round(c * side) for c, side in zip(point, self.extent(sent), strict=True)]


def smart_resize(size: Size, factor: int, min_pixels: int, max_pixels: int) -> Size:
    """Returns the size to which Qwen's image processors resize a picture: both sides become
    multiples of `factor`, and the area lies between `min_pixels` and `max_pixels`.

    Source: QwenLM/Qwen3-VL, qwen-vl-utils, vision_process.py. Raises UnreadableReplyError if one
    side is more than 200 times the other.
    """
    width, height = size
    if max(size) > 200 * min(size):
        raise UnreadableReplyError(f"an image of {width}x{height} is too narrow for the model")
    new_width, new_height = (max(factor, round(side / factor) * factor) for side in size)
    if new_width * new_height > max_pixels:
        shrink = sqrt(width * height / max_pixels)
        new_width, new_height = (
            max(factor, floor(side / shrink / factor) * factor) for side in size
        )
    elif new_width * new_height < min_pixels:
        grow = sqrt(min_pixels / (width * height))
        new_width, new_height = (ceil(side * grow / factor) * factor for side in size)
    return new_width, new_height


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


THOUSANDTHS = CoordinateFrame(scale=1000)
PIXELS = CoordinateFrame()
# Limits of the processors: Qwen2.5-VL's own, and those of UI-TARS' parsers (bytedance/UI-TARS,
# action_parser.py).
QWEN25 = CoordinateFrame(factor=28)
UI_TARS = CoordinateFrame(factor=28, min_pixels=78_400)
