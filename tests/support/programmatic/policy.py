"""A policy that plays MiniWoB++ by program, without a model."""

from __future__ import annotations

from collections.abc import Callable

from prill.errors import NoEvidenceError
from prill.types import Action, Observation, Step, Task
from tests.support.programmatic.nodes import nodes_of, parse_action
from tests.support.programmatic.screen import Move, Screen
from tests.support.programmatic.solver import plan


class Programmatic:
    """A policy for MiniWoB++ with pages as HTML. If no program can continue, it ends with `stop`
    and the reason.

    It plans before every move or, with `staged`, only after all moves of the last plan. `view`
    converts the page.
    """

    page_text = "html"

    def __init__(self, *, staged: bool = False, view: Callable[[str], Screen] = nodes_of) -> None:
        self._staged = staged
        self._view = view
        self._goal = ""
        self._done: list[Move] = []
        self._waiting: list[Move] = []

    def reset(self, task: Task) -> None:
        """Begins a new episode."""
        self._goal, self._done, self._waiting = task.goal, [], []

    async def act(self, observation: Observation) -> Step:
        """Returns the next move of the plan as an action. Raises NoEvidenceError if the page has no
        text.
        """
        if observation.text is None:
            raise NoEvidenceError(
                "a programmatic policy reads the page's text, and this observation has none"
            )
        thought = None
        if not self._waiting:
            try:
                self._waiting = plan(self._goal, self._view(observation.text), self._done)
            except LookupError as problem:
                thought = str(problem)
        if not self._waiting:
            return Step(observation, Action("stop"), thought)
        move, *rest = self._waiting
        self._waiting = rest if self._staged else []
        self._done.append(move)
        return Step(observation, parse_action(move, nodes_of(observation.text)))
