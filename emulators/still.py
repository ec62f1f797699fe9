"""Waits until a screen has stopped moving, by looking at it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable

from prill.errors import EnvironmentFailure

# Of the screen's height: 24 dp of a Pixel 4's 830, with room for taller bars. The clock there never rests.
STATUS_BAR = 0.045
# Of the screen's area: a blinking cursor (2 x 24 dp) is a tenth of it, a small spinner (24 x 24 dp) twice as much.
SMALL = 0.001


async def still_picture(take: Callable[[], Awaitable[bytes]], *, gap: float, timeout: float) -> bytes:
    """The first PNG that shows what the one `gap` seconds before it showed; after `timeout` seconds the last one taken."""
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
    """Whether two PNG files differ in nothing but the status bar, or in a spot no larger than a cursor.

    Raises EnvironmentFailure when one of them is damaged.
    """
    from PIL import Image, ImageChops

    try:
        first, second = (Image.open(io.BytesIO(png)).convert("RGB") for png in (one, other))
    except (OSError, SyntaxError) as error:
        raise EnvironmentFailure(f"a screenshot is damaged: {error}") from error
    if first.size != second.size:
        return False
    width, height = first.size
    below = (0, round(height * STATUS_BAR), width, height)
    changed = ImageChops.difference(first.crop(below), second.crop(below)).getbbox()
    if changed is None:
        return True
    left, top, right, bottom = changed
    return (right - left) * (bottom - top) <= SMALL * width * height
