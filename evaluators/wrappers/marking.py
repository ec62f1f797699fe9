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
from prill.errors import InputError
from prill.evaluators.wrappers.rewritten import Rewritten
from prill.io.images import file_hash, open_checked
from prill.protocols import Evaluator
from prill.types import Point, Step, Trajectory

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

# Increase it when the marks change.
VERSION = "1"
# A bright line inside a dark one is visible on any background.
_BRIGHT, _DARK = (255, 64, 160), (20, 20, 20)
# Shares of the screenshot's shorter side: large enough to surround a button's label, thin enough to
# hide little of it.
_RADIUS, _LINE = 0.04, 0.008
_MIN_RADIUS, _MIN_LINE = 5, 2  # pixels; simulators of 160 by 210 exist
_HEAD = pi / 7  # half the angle of an arrow's head
_Pixel = tuple[float, float]


def mark(
    path: str,
    point: Point,
    end_point: Point | None = None,
    *,
    format: Literal["PNG", "WEBP"] = "PNG",
) -> bytes:
    """Returns the encoded image with a ring around `point` and an arrow from it to `end_point`.

    Points are fractions of the screen. There is no arrow if `end_point` is within a touch's
    distance of `point`. The file at `path` is not changed. Raises InputError if it cannot be used.
    """
    from PIL import ImageDraw

    image = open_checked(path)
    draw = ImageDraw.Draw(image)
    short = min(image.size)
    line = max(_MIN_LINE, round(short * _LINE))
    radius = max(_MIN_RADIUS, round(short * _RADIUS))
    start = point[0] * (image.width - 1), point[1] * (image.height - 1)
    # Draw all dark parts first, so that they do not cover the bright ones.
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


def _content(path: str) -> str:
    """Returns the hash of a file, or its path if it cannot be read."""
    try:
        return file_hash(path)
    except InputError:
        return path


class Marked(Rewritten):
    """A wrapper that marks the next action on screenshots: a ring for a touch, an arrow for a
    swipe.

    Text is not changed.

    The state after the last action has no next action and no mark, so a judge of one frame sees no
    mark. Of equal screenshots, a judge may show one: all are marked, as their actions may differ.
    The marked copies of the screenshots are in a temporary folder that is deleted with this
    object.

    Args:
        evaluator: The judge.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="prill-marked-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        super().__init__(evaluator, self._with_marks, {"marked": VERSION})

    def __reduce__(self) -> tuple[type[Marked], tuple[Evaluator]]:
        return Marked, (self.evaluator,)  # other processes use their own folder

    async def _with_marks(self, trajectory: Trajectory) -> Trajectory:
        screenshots = frozenset(self.evaluator.screenshots(trajectory))
        return await asyncio.to_thread(self._mark_steps, trajectory, screenshots)

    def _mark_steps(self, trajectory: Trajectory, screenshots: frozenset[str]) -> Trajectory:
        shown = {_content(path) for path in screenshots}
        steps = tuple(
            self._step(step)
            if step.observation.screenshot and _content(step.observation.screenshot) in shown
            else step
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
