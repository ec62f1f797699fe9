"""A judge that sees where the agent touched: its screenshots are copies with the next action drawn on them."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path

from prill.evaluators.markers import mark
from prill.evaluators.rewritten import Rewritten
from prill.protocols import Evaluator
from prill.types import Step, Trajectory

# Raise it when marks look different.
VERSION = "1"


class Marked(Rewritten):
    """`evaluator`, shown a ring where the next action touches and an arrow where it swipes; text is not changed.

    The state after the last action has no next action and stays bare, so a judge of one frame sees no mark: give it two.
    Copies are made of the screenshots that the judge looks at, in a temporary folder that goes with this object.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="prill-marked-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        super().__init__(evaluator, self._drawn, {"marked": VERSION})

    async def _drawn(self, trajectory: Trajectory) -> Trajectory:
        looked_at = frozenset(self.evaluator.screenshots(trajectory))
        return await asyncio.to_thread(self._marked, trajectory, looked_at)

    def _marked(self, trajectory: Trajectory, looked_at: frozenset[str]) -> Trajectory:
        steps = tuple(self._step(step) if step.observation.screenshot in looked_at else step for step in trajectory.steps)
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
