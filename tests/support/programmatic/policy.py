"""An agent that plays MiniWoB++ by program, where no model is to be asked."""

from __future__ import annotations

from collections.abc import Callable

from prill.errors import NoEvidenceError
from prill.types import Action, Observation, Step, Task
from tests.support.programmatic.nodes import nodes_of, parse_action
from tests.support.programmatic.screen import Move, Screen
from tests.support.programmatic.solver import plan


class Programmatic:
    """A policy for MiniWoB++ with its page as HTML. What no program can go on with, it ends with
    `stop`, and says why.

    It asks for a plan before every move or, `staged`, only when all moves of the last plan are
    made. `view` is how it sees the page.
    """

    page_text = "html"

    def __init__(self, *, staged: bool = False, view: Callable[[str], Screen] = nodes_of) -> None:
        self._staged = staged
        self._view = view
        self._goal = ""
        self._done: list[Move] = []
        self._waiting: list[Move] = []

    def reset(self, task: Task) -> None:
        """A new episode."""
        self._goal, self._done, self._waiting = task.goal, [], []

    async def act(self, observation: Observation) -> Step:
        """The next move of the plan, as an action. Raises NoEvidenceError where the page is not
        there as text.
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
