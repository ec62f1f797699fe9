"""In-process test doubles: a scripted model, a replayed environment and a replayed policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from prill.errors import EnvironmentFailedError, UsageError
from prill.protocols import Message, Reply
from prill.types import Action, Observation, Task, Trajectory, Usage

if TYPE_CHECKING:
    from prill.protocols import Form


Line = str | Reply | Exception


class ScriptedModel:
    """A language model that returns a list of replies, or calls a function of the messages.

    `seen` holds the messages of every call, in order.

    Args:
        script: Replies, or a function from the messages to a reply. A reply is a text, a `Reply`,
            or an exception to raise.
        name: The model's name.
    """

    def __init__(
        self,
        script: Iterable[Line] | Callable[[Sequence[Message]], Line],
        *,
        name: str = "scripted",
    ) -> None:
        self._play = script if callable(script) else None
        self._lines = [] if callable(script) else list(script)
        self.name = name
        self.seen: list[tuple[Message, ...]] = []

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Returns the next reply.

        Its fields are parsed by `form`, if that is given and the reply has none.

        Raises:
            UsageError: There are no more replies.
        """
        self.seen.append(tuple(messages))
        line = self._play(messages) if self._play else self._next()
        if isinstance(line, Exception):
            raise line
        reply = Reply(line, Usage(calls=1), {}) if isinstance(line, str) else line
        if form is None or reply.fields:
            return reply
        return replace(reply, fields=form.parse(reply.text))

    def _next(self) -> Line:
        if len(self.seen) > len(self._lines):
            raise UsageError(
                f"the script has {len(self._lines)} lines, but call {len(self.seen)} was made"
            )
        return self._lines[len(self.seen) - 1]


class ReplayEnvironment:
    """An environment that returns a recorded trajectory's states in order, regardless of the
    actions.

    The episode ends with the last state.

    `actions` holds the actions since the last reset, `closed` whether it was closed.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.actions: list[Action] = []
        self.closed = False

    async def reset(self, task: Task) -> Observation:
        """Returns the first state.

        Raises:
            EnvironmentFailedError: The trajectory has no states.
        """
        self.actions = []
        if not self.trajectory.observations:
            raise EnvironmentFailedError(f"trajectory {self.trajectory.id} has no state to replay")
        return self.trajectory.observations[0]

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Returns the next state and whether it is the last; after the end, the last one again."""
        self.actions.append(action)
        states = self.trajectory.observations
        return states[min(len(self.actions), len(states) - 1)], len(self.actions) >= len(states) - 1

    async def close(self) -> None:
        """Records that it was closed."""
        self.closed = True
