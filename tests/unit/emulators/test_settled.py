"""A screen is at rest when it looks the same twice, whatever the clock and a cursor do; a damaged
picture is a failure.
"""

from __future__ import annotations

import io

from PIL import Image, ImageDraw

from prill.emulators.screenshots import same_screen, settled_picture


def screen(*marks: tuple[int, int, int, int]) -> bytes:
    picture = Image.new("RGB", (200, 400), "white")
    for mark in marks:
        ImageDraw.Draw(picture).rectangle(mark, fill="black")
    packed = io.BytesIO()
    picture.save(packed, "PNG")
    return packed.getvalue()


CLOCK, CURSOR, BUTTON = (150, 2, 190, 14), (50, 200, 51, 220), (20, 100, 120, 140)


def test_clock_and_cursor_do_not_count() -> None:
    assert same_screen(screen(), screen(CLOCK, CURSOR))
    assert not same_screen(screen(), screen(BUTTON))


async def test_first_settled_picture_is_given() -> None:
    moving = [screen((0, y, 100, y + 20)) for y in (100, 150, 200, 200, 300)]
    left = iter(moving)

    async def take() -> bytes:
        return next(left)

    assert await settled_picture(take, gap=0.0, timeout=60.0) == moving[3]
    left = iter(moving)
    assert await settled_picture(take, gap=0.0, timeout=0.0) == moving[0]
