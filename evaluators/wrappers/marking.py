"""Marks the agent's touches on screenshots: a ring for a tap, an arrow for a swipe.

Marks are drawn on copies of the screenshots.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
import weakref
from dataclasses import replace
from io import BytesIO
from math import atan2, cos, dist, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prill.actions.phone import SWIPE_DISTANCE
from prill.evaluators.wrappers.rewritten import Rewritten
from prill.io.images import open_checked
from prill.protocols import Evaluator
from prill.types import Point, Step, Trajectory

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

# Raise it when marks look different.
VERSION = "1"
# A bright line inside a dark one is seen on any background, whatever its colour.
_BRIGHT, _DARK = (255, 64, 160), (20, 20, 20)
# Shares of the screenshot's shorter side: wide enough to go round a button's label, thin enough to
# hide little of it.
_RADIUS, _LINE = 0.04, 0.008
_LEAST_RADIUS, _LEAST_LINE = 5, 2  # pixels; simulators of 160 by 210 exist
_HEAD = pi / 7  # half the angle of an arrow's head
_Pixel = tuple[float, float]


def mark(
    path: str,
    point: Point,
    end_point: Point | None = None,
    *,
    format: Literal["PNG", "WEBP"] = "PNG",
) -> bytes:
    """The image file at `path`, as encoded bytes, with a ring around `point` and an arrow from it
    to `end_point`.

    Points are fractions of the screen. An end within a touch of the point gets no arrow. The file
    stays as it is. Raises InputError when it cannot be used.
    """
    from PIL import ImageDraw

    image = open_checked(path)
    draw = ImageDraw.Draw(image)
    short = min(image.size)
    line = max(_LEAST_LINE, round(short * _LINE))
    radius = max(_LEAST_RADIUS, round(short * _RADIUS))
    start = point[0] * (image.width - 1), point[1] * (image.height - 1)
    # All of the dark part first: it must not cover the bright one.
    for colour, width in ((_DARK, line + 2 * max(1, line // 2)), (_BRIGHT, line)):
        _ring(draw, start, radius, colour, width)
        if end_point is not None and dist(point, end_point) > SWIPE_DISTANCE:
            end = end_point[0] * (image.width - 1), end_point[1] * (image.height - 1)
            _arrow(draw, start, end, radius, colour, width)
    out = BytesIO()
    image.save(out, format, lossless=True)
    return out.getvalue()


def _ring(
    draw: ImageDraw, centre: _Pixel, radius: float, colour: tuple[int, int, int], width: int
) -> None:
    reach = radius + width / 2
    x, y = centre
    draw.ellipse((x - reach, y - reach, x + reach, y + reach), outline=colour, width=width)


def _arrow(
    draw: ImageDraw,
    start: _Pixel,
    end: _Pixel,
    size: float,
    colour: tuple[int, int, int],
    width: int,
) -> None:
    angle = atan2(end[1] - start[1], end[0] - start[0])
    edge = start[0] + size * cos(angle), start[1] + size * sin(angle)
    draw.line((edge, end), fill=colour, width=width)
    for side in (-_HEAD, _HEAD):
        barb = end[0] - size * cos(angle + side), end[1] - size * sin(angle + side)
        draw.line((end, barb), fill=colour, width=width)


class Marked(Rewritten):
    """Shows a judge a ring where the next action touches and an arrow where it swipes; text is not
    changed.

    The state after the last action has no next action and no mark, so a judge of one frame sees no
    mark. The marked copies of the screenshots are in a temporary folder that is deleted with this
    object.

    Args:
        evaluator: The judge.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="prill-marked-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        super().__init__(evaluator, self._with_marks, {"marked": VERSION})

    def __reduce__(self) -> tuple[type[Marked], tuple[Evaluator]]:
        return Marked, (self.evaluator,)  # elsewhere, marks are drawn into a folder of its own

    async def _with_marks(self, trajectory: Trajectory) -> Trajectory:
        screenshots = frozenset(self.evaluator.screenshots(trajectory))
        return await asyncio.to_thread(self._mark_steps, trajectory, screenshots)

    def _mark_steps(self, trajectory: Trajectory, screenshots: frozenset[str]) -> Trajectory:
        steps = tuple(
            self._step(step) if step.observation.screenshot in screenshots else step
            for step in trajectory.steps
        )
        return replace(trajectory, steps=steps)

    def _step(self, step: Step) -> Step:
        path, action = step.observation.screenshot, step.action
        if path is None or action.point is None:
            return step
        picture = mark(path, action.point, action.end_point)
        copy = self._folder / f"{hashlib.sha256(picture).hexdigest()[:16]}.png"
        if not copy.exists():
            part = copy.with_suffix(f".{id(step)}")
            part.write_bytes(picture)
            part.replace(copy)
        return replace(step, observation=replace(step.observation, screenshot=str(copy)))
