"""Stores screenshots by content hash, measures them, and waits for a stable one.

A screen counts as stable when two consecutive screenshots are the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import struct
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from prill.errors import EnvironmentFailedError, InputError, UsageError
from prill.io.images import DAMAGED, open_image

Size = tuple[int, int]
# Of the screen's height: 24 dp of a Pixel 4's 830, with room for taller bars. The clock there never
# rests.
_STATUS_BAR = 0.045
# Of the screen's area: a blinking cursor (2 x 24 dp) is a tenth of it, a small spinner (24 x 24 dp)
# twice as much.
_CURSOR_AREA = 0.001
SettleGapOption = Annotated[
    float,
    Meta(
        ge=0,
        description="Seconds between the two screenshots that are compared to see whether "
        "the screen has settled.",
    ),
]
SettleTimeoutOption = Annotated[
    float, Meta(ge=0, description="Maximum number of seconds to wait until the screen has settled.")
]


def keep_screenshot(png: bytes, folder: Path) -> str:
    """Stores a PNG as a lossless WebP file in the folder, and returns its path. It blocks, so use
    `asyncio.to_thread`.

    Raises EnvironmentFailedError for a damaged image, UsageError if the file cannot be written.
    """
    path = folder / f"{hashlib.sha256(png).hexdigest()[:16]}.webp"
    if not path.exists():
        packed = io.BytesIO()
        # Effort 0: a tenth of the time of the default, for files a fifth larger, and smaller than
        # the PNG anyway.
        try:
            picture = open_image(io.BytesIO(png), "of the screen").convert("RGB")
            picture.save(packed, "WEBP", lossless=True, quality=0, method=0)
        except (InputError, *DAMAGED) as error:
            raise EnvironmentFailedError(f"the screenshot is damaged ({len(png)} bytes)") from error
        _write(path, packed.getvalue())
    return str(path)


def _write(path: Path, data: bytes) -> None:
    """Writes a file atomically, so that a killed run leaves no incomplete image.

    Two phones may write the same image at the same time, so each first writes its own temporary
    file.
    """
    part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


async def settled_picture(
    take: Callable[[], Awaitable[bytes]], *, gap: float, timeout: float
) -> bytes:
    """Takes screenshots every `gap` seconds until two in a row are the same, and returns the last
    PNG; after `timeout` seconds, returns the last one anyway.
    """
    clock = asyncio.get_running_loop()
    end = clock.time() + timeout
    earlier = await take()
    while clock.time() < end:
        await asyncio.sleep(gap)
        picture = await take()
        if picture == earlier or await asyncio.to_thread(same_screen, earlier, picture):
            return picture
        earlier = picture
    return earlier


def same_screen(one: bytes, other: bytes) -> bool:
    """Whether two PNG files differ only in the status bar or in a cursor-sized spot.

    Raises EnvironmentFailedError if one of them is damaged.
    """
    from PIL import ImageChops

    try:
        first, second = (
            open_image(io.BytesIO(png), "of the screen").convert("RGB") for png in (one, other)
        )
    except (InputError, *DAMAGED) as error:
        raise EnvironmentFailedError(f"a screenshot is damaged: {error}") from error
    if first.size != second.size:
        return False
    width, height = first.size
    below = (0, round(height * _STATUS_BAR), width, height)
    changed = ImageChops.difference(first.crop(below), second.crop(below)).getbbox()
    if changed is None:
        return True
    left, top, right, bottom = changed
    return (right - left) * (bottom - top) <= _CURSOR_AREA * width * height


def png_size(png: bytes) -> Size:
    """Reads width and height from the header of a PNG file that is known to be complete."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def decoded_size(picture: bytes) -> Size:
    """Decodes an image completely, and returns its width and height. Raises EnvironmentFailedError
    for an incomplete one.
    """
    try:
        with open_image(io.BytesIO(picture), "of the screen") as image:
            size = image.size
            image.verify()
    except (InputError, *DAMAGED) as error:
        raise EnvironmentFailedError(
            f"the screenshot is incomplete ({len(picture)} bytes)"
        ) from error
    return size
