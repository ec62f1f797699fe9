"""A scripted MiniWoB++ policy, for episodes with a known type of failure.

True and false claims of success have the same wording, so that the text does not reveal the
outcome.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Literal, get_args

from msgspec import Meta

from prill.errors import UsageError
from prill.policies.miniwob_text import TextPage
from prill.policies.scripted.scripts import SCRIPTS, Aim, Move, Play
from prill.types import Action, Observation, Step, Task

Behaviour = Literal[
    "solve",  # does the task
    "wrong-target",  # the right kind of actions on another element, or with another value
    "stop-early",  # gives up after one action, or before any when the first would end the attempt
    "no-submit",  # everything but the last action
    "false-claim",  # looks around, then says that it is done
]
BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)


class ScriptedPolicy:
    """A deterministic policy: the same task and observations give the same steps.

    It ends every episode with `stop`.

    `plays` are the tasks with a script.

    Raises:
        UsageError: The behaviour is not known.
    """

    plays = frozenset(SCRIPTS)

    def __init__(
        self,
        behaviour: Annotated[
            Behaviour,
            Meta(description="Behaviour of the policy, from solving tasks to failing at them."),
        ] = "solve",
    ) -> None:
        if behaviour not in BEHAVIOURS:
            raise UsageError(
                f"unknown behaviour {behaviour!r}; expected one of {', '.join(BEHAVIOURS)}"
            )
        self._behaviour = behaviour
        self._goal = ""
        self._site = ""
        self._variant = 0
        self._play: Play | None = None
        self._sentences: list[str] = []

    def reset(self, task: Task) -> None:
        """Starts the task.

        Raises:
            UsageError: There is no script for `task.site`.
        """
        if task.site not in SCRIPTS:
            raise UsageError(
                f"the scripted policy has no script for the task {task.site!r}, only for "
                f"{', '.join(SCRIPTS)}"
            )
        self._goal, self._site, self._play, self._sentences = task.goal, task.site, None, []
        self._variant = zlib.crc32(task.id.encode())

    async def act(self, observation: Observation) -> Step:
        """Returns the next move of the script, modified by the behaviour."""
        try:
            move = self._next(TextPage.read(observation.text or ""))
        except LookupError as error:
            return _stop(observation, "I cannot go on.", f"I could not do it: {error.args[0]}.")
        if self._behaviour == "false-claim":
            return self._claim(observation, move)
        if move is None:
            return self._finish(observation)
        if self._behaviour == "no-submit" and move.commit:
            return self._finish(observation)
        if self._behaviour == "stop-early" and (move.commit or self._sentences):
            return _stop(observation, "I stop here.", "I stopped before the task was finished.")
        self._sentences.append(move.sentence)
        return Step(observation, move.action, f"The next thing to do is: {move.action.text}.")

    def _next(self, page: TextPage) -> Move | None:
        try:
            if self._play is None:
                self._play = SCRIPTS[self._site](
                    self._goal, page, Aim(misses=self._behaviour == "wrong-target")
                )
                return next(self._play)
            return self._play.send(page)
        except StopIteration:
            return None

    def _claim(self, observation: Observation, move: Move | None) -> Step:
        if not self._sentences:
            self._sentences.append(move.sentence if move else "")
            return Step(
                observation,
                Action("scroll", "scroll down", value="down"),
                "Let me see what is on the page.",
            )
        return self._finish(observation)

    def _finish(self, observation: Observation) -> Step:
        sentences = " ".join(self._sentences)
        answers = (
            f"Done. {sentences}".strip(),
            f"Done: {self._goal}",
            f"{sentences} The task is complete.".strip(),
        )
        return _stop(
            observation, "There is nothing left to do.", answers[self._variant % len(answers)]
        )


def _stop(observation: Observation, thought: str, answer: str) -> Step:
    return Step(observation, Action("stop", "stop", value=answer), thought)
