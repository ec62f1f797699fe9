"""A policy that plays a list of steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from prill.types import Action, Observation, Step, Task


class ReplayPolicy:
    """A policy that plays a list of steps or actions, then a `stop` action without an answer.
    A step keeps its thought.
    """

    def __init__(self, moves: Iterable[Step | Action]) -> None:
        self.moves = tuple(moves)
        self.task: Task | None = None
        self._at = 0

    def reset(self, task: Task) -> None:
        """Restarts the list."""
        self.task = task
        self._at = 0

    async def act(self, observation: Observation) -> Step:
        """Returns the next step: recorded thought and action, current observation."""
        move = self.moves[self._at] if self._at < len(self.moves) else Action("stop", "stop")
        self._at += 1
        return (
            replace(move, observation=observation)
            if isinstance(move, Step)
            else Step(observation, move)
        )
