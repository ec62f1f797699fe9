"""Finds the regions of the screen that differ between two pictures.

A blinking caret, a clock in a status bar and a rotating spinner do not count as a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from prill.io.images import (
    Version,
    file_version,
    image_size,
    open_checked,
    open_image,
    open_image_file,
)
from prill.types import Platform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Mask = NDArray[np.bool_]

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; right and bottom are outside

_MAX_PIXELS = 17_000_000  # of a picture that is compared: two 4K displays
_LEVELS = 12  # of 255 in any channel: paler changes than a selected row's are not seen anyway
_LOSSY_LEVELS = 40  # JPEG and lossy WebP err by up to about 35 next to sharp edges
_MEAN_LEVELS = 8  # of 255, over 8 by 8 pixels of such a picture
_LOSSY = frozenset({"JPEG", "WEBP"})
_CELL = 16  # pixels at scale 1: changes closer than this are one region
_MAX_REGIONS = 8  # with more, it is another screen
_BASE_SIDE = 1080  # of the shorter side of a screen at scale 1
# Where platforms put a clock: (edge's share of the height, at the top or at the bottom). iOS has
# the tallest status bar, 59 of 852 points; its digits end at 38. Taskbars: 48 of 1080 pixels.
_BARS: dict[Platform, tuple[float, float]] = {
    "android": (0.045, 0.0),
    "ios": (0.05, 0.0),
    "desktop": (0.03, 0.045),
}
_CLOCK_WIDTH = 0.16  # of the screen's width: "12:34" on a phone; date and time on a desktop


def changed_regions(before: str, after: str) -> tuple[Box, ...] | None:
    """Returns the boxes around the differences between two pictures, in reading order; empty if the
    pixels differ only by compression noise.

    None if the pictures cannot be compared (different sizes, more than 17 megapixels), or differ in
    more than eight regions. Raises InputError for a picture that cannot be read.
    """
    compared = _compare(before, after)
    return None if compared is None else tuple(box for box, _ in compared[1])


def same_screen(before: str, after: str, platform: Platform = "web") -> bool:
    """Returns whether two pictures are equal except for a caret, a clock or a spinner. Raises
    InputError for a picture that cannot be read.

    A difference that cannot be distinguished from a real change counts as one: a clock inside a
    page, a spinner that grows as it rotates, an advertisement.
    """
    try:
        versions = [file_version(path, Path(path).stat()) for path in (before, after)]
    except (OSError, ValueError):
        return before == after or _same(before, after, platform)  # opening them raises the error
    return before == after or _same_versions(*versions, platform)


@lru_cache(1 << 12)  # needed for a verdict's key and for its judgement
def _same_versions(before: Version, after: Version, platform: Platform) -> bool:
    return _same(before[0], after[0], platform)


def _same(before: str, after: str, platform: Platform) -> bool:
    compared = _compare(before, after)
    if compared is None:
        return False
    pair, regions = compared
    return all(
        _is_clock(box, pair[0].size, platform)
        or _is_caret(mask, pair[0].size)
        or _is_spinner(box, mask, pair)
        for box, mask in regions
    )


def _compare(
    before: str, after: str
) -> tuple[tuple[Image.Image, Image.Image], list[tuple[Box, Mask]]] | None:
    """Returns both pictures and each region with its pixels; None as in `changed_regions`."""
    size = image_size(before)
    if size != image_size(after) or size[0] * size[1] > _MAX_PIXELS:
        return None
    import numpy as np
    from PIL import ImageChops

    pair = open_checked(before), open_checked(after)
    red, green, blue = ImageChops.difference(*pair).split()
    strongest = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    if _is_lossy(before, after):
        changed = np.asarray(strongest) > _LOSSY_LEVELS
        changed = changed | _pale_changes(pair, changed)
    else:
        changed = np.asarray(strongest) > _LEVELS
    cells = _cells(changed, round(_CELL * _scale(size)))
    if cells is None:
        return None
    regions = []
    for left, top, right, bottom in cells:
        part = changed[top:bottom, left:right]
        rows, columns = np.flatnonzero(part.any(1)), np.flatnonzero(part.any(0))
        box = (
            left + int(columns[0]),
            top + int(rows[0]),
            left + int(columns[-1]) + 1,
            top + int(rows[-1]) + 1,
        )
        regions.append((box, changed[box[1] : box[3], box[0] : box[2]]))
    return pair, regions


def _is_lossy(*paths: str) -> bool:
    for path in paths:
        with open_image_file(path) as file:
            if open_image(file, path).format in _LOSSY:
                return True
    return False


def _pale_changes(pair: tuple[Image.Image, Image.Image], strong: Mask) -> Mask:
    """Returns where the mean colour of 8 by 8 pixels differs, away from strong changes.

    Compression preserves that mean.
    """
    import numpy as np
    from PIL import Image, ImageChops
    from scipy.ndimage import binary_dilation

    difference = ImageChops.difference(*(one.reduce(8) for one in pair))
    touched = np.asarray(Image.fromarray(strong).convert("L").reduce(8)) > 0
    surroundings = binary_dilation(touched, np.ones((5, 5)))  # colour is stored per 16 by 16 pixels
    pale = (np.asarray(difference).max(2) > _MEAN_LEVELS) & ~surroundings
    blocks: Mask = pale
    return blocks.repeat(8, 0).repeat(8, 1)[: strong.shape[0], : strong.shape[1]]


def _cells(changed: Mask, side: int) -> list[Box] | None:
    """Returns the boxes around groups of touching cells; None for more than `_MAX_REGIONS`."""
    import numpy as np
    from scipy.ndimage import find_objects, label

    height, width = changed.shape
    padded = np.pad(changed, ((0, -height % side), (0, -width % side)))
    cells = padded.reshape(padded.shape[0] // side, side, -1, side).any((1, 3))
    numbered, count = label(cells, np.ones((3, 3)))
    if count > _MAX_REGIONS:
        return None
    return [
        (part[1].start * side, part[0].start * side, part[1].stop * side, part[0].stop * side)
        for part in find_objects(numbered)
    ]


def _scale(size: Sequence[int]) -> float:
    return max(1.0, min(size) / _BASE_SIDE)


def _is_clock(box: Box, size: tuple[int, int], platform: Platform) -> bool:
    """Returns whether a region is narrow and inside the bar with the platform's clock."""
    top, bottom = _BARS.get(platform, (0.0, 0.0))
    width, height = size
    inside = box[3] <= top * height or box[1] >= (1 - bottom) * height
    return inside and box[2] - box[0] <= _CLOCK_WIDTH * width


def _is_caret(mask: Mask, size: tuple[int, int]) -> bool:
    """Returns whether the changes form a vertical bar: a line high, at most two pixels wide."""
    height, width = mask.shape
    scale = _scale(size)
    is_bar = bool(mask.all(0).any()) and float(mask.mean()) >= 0.75  # JPEG blurs one side
    return is_bar and width <= 2 * scale and 10 * scale <= height <= 64 * scale


def _is_spinner(box: Box, mask: Mask, pair: tuple[Image.Image, Image.Image]) -> bool:
    """Returns whether the changes lie on a circle with an unchanged centre and as many pixels
    vanish as appear, as in a rotation.
    """
    import numpy as np

    ys, xs = np.nonzero(mask)
    # the circle nearest to the changed pixels: x² + y² = 2ax + 2by + c
    points = np.column_stack([xs, ys, np.ones(len(xs))]).astype(float)
    try:
        (a, b, c), *_ = np.linalg.lstsq(points, (points[:, :2] ** 2).sum(1), rcond=None)
    except np.linalg.LinAlgError:
        return False
    x, y = a / 2, b / 2
    radius = float(np.sqrt(max(0.0, c + x * x + y * y)))
    size = pair[0].size
    if not 7 <= radius <= 0.06 * min(size):
        return False
    if (np.abs(np.hypot(xs - x, ys - y) - radius) > 0.32 * radius).any():
        return False
    left, top, right, bottom = (
        round(box[0] + x - radius),
        round(box[1] + y - radius),
        round(box[0] + x + radius) + 1,
        round(box[1] + y + radius) + 1,
    )
    if left < 0 or top < 0 or right > size[0] or bottom > size[1]:
        return False
    grey = [np.asarray(one.crop((left, top, right, bottom)).convert("L"), int) for one in pair]
    rows, columns = np.indices(grey[0].shape)
    middle = np.hypot(columns - (right - left - 1) / 2, rows - (bottom - top - 1) / 2)
    inner = [one[middle < 0.55 * radius] for one in grey]
    if any(part.std() > _LEVELS for part in inner):
        return False
    ink = [np.abs(one - np.median(part)) for one, part in zip(grey, inner, strict=True)]
    change = ink[1] - ink[0]
    gained, lost = float(change[change > 0].sum()), float(-change[change < 0].sum())
    return min(gained, lost) >= 0.6 * max(gained, lost) > 0
