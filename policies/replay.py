"""Replays the actions of recorded episodes on a live environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec

from prill.actions.elements import element_id
from prill.actions.targets import read_target
from prill.actions.webarena import element_line
from prill.errors import UsageError
from prill.io.store import read_trajectories
from prill.types import Action, Observation, Platform, Step, Task, Trajectory


class HumanReplay:
    """Repeats the actions and thoughts of the trajectory that was recorded for the task, and gives
    its answer at the end.

    An element whose number has changed is found again by its role and name. It plays a fixed list:
    it does not react to what it sees, so where the environment goes another way than it did then,
    later actions may do nothing. Broken lines of a file are left out.
    """

    def __init__(
        self,
        trajectories: Annotated[
            str | Sequence[Trajectory],
            msgspec.Meta(description="the trajectories to play again, or a file of them"),
        ],
    ) -> None:
        items = (
            read_trajectories(trajectories, on_error="skip")
            if isinstance(trajectories, str | Path)
            else trajectories
        )
        self._trajectories = [item for item in items if isinstance(item, Trajectory)]
        self._by_task: dict[str, Trajectory] = {}
        for trajectory in self._trajectories:
            for key in (trajectory.task.id, trajectory.task.goal):
                self._by_task.setdefault(key, trajectory)
        self._by_task.pop("", None)
        self._steps = ReplayPolicy(())

    def fingerprint(self, platform: Platform) -> str:
        """Differs when the recorded trajectories do."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        played = [
            (t.task.id, t.task.goal, [(s.thought, s.action) for s in t.steps], t.answer)
            for t in self._trajectories
        ]
        return sha256(msgspec.json.encode(played)).hexdigest()

    def reset(self, task: Task) -> None:
        """Begins the first trajectory with the task's id, else with its goal.

        Raises:
            UsageError: There is no such trajectory.
        """
        recorded = self._by_task.get(task.id) or self._by_task.get(task.goal)
        if recorded is None:
            raise UsageError(f"no recorded trajectory for the task {task.id!r} ({task.goal!r})")
        moves: list[Step | Action] = list(recorded.steps)
        if not moves or not recorded.steps[-1].action.is_final:
            moves.append(Action("stop", "stop", value=recorded.answer))
        self._steps = ReplayPolicy(moves)
        self._steps.reset(task)

    async def act(self, observation: Observation) -> Step:
        """The next recorded step, on the element as it is called now."""
        step = await self._steps.act(observation)
        return replace(step, action=relocated(step.action, observation.text or ""))


def relocated(action: Action, text: str) -> Action:
    """The action on the element of this observation that has the same role and name, preferably
    with the same number.

    Where no element has them, or they were not recorded: at the recorded point, else the action as
    it is. A number that by now belongs to an element of another role is taken away, so that nothing
    is done to that one. Where the action's text names the element, the recorded point only says
    where that was, and is left out.
    """
    target = action.target
    if target is None:
        return action
    if element_id(action.text) is not None or target in action.text:
        action = replace(action, point=None)
    wanted = read_target(target)
    lines = [line.strip() for line in text.splitlines()]
    if target in lines:
        return action
    same = [
        line
        for line in lines
        if wanted.label is not None and read_target(line).label == wanted.label
    ]
    if not same:
        if action.point is not None and (wanted.label is not None or wanted.number is None):
            return replace(action, target=None)
        there = element_line(wanted.number, text) if wanted.number else None
        renamed = there is not None and wanted.role not in (None, read_target(there).role)
        return replace(action, target=f"{wanted.role} {wanted.name}") if renamed else action
    line = next((line for line in same if read_target(line).number == wanted.number), same[0])
    now = read_target(line).number
    # Only where the number names the element: the same digits may have been typed.
    named = rf"(\A\w+ |\bwhere |\bis )\[{wanted.number}\]"
    renumbered = (
        action.text if wanted.number is None else re.sub(named, rf"\g<1>[{now}]", action.text)
    )
    return replace(action, target=line, text=renumbered, point=None)


class ReplayPolicy:
    """Plays a list of steps or actions, then a `stop` action without an answer.

    Args:
        moves: What to play. An action is combined with the state in which it is done; a step keeps
            its thought.
    """

    def __init__(self, moves: Iterable[Step | Action]) -> None:
        self.moves = tuple(moves)
        self.task: Task | None = None
        self._at = 0

    def reset(self, task: Task) -> None:
        """Begins the list again."""
        self.task = task
        self._at = 0

    async def act(self, observation: Observation) -> Step:
        """The next step. A recorded step keeps its thought and action; its state is the one that is
        seen now.
        """
        move = self.moves[self._at] if self._at < len(self.moves) else Action("stop", "stop")
        self._at += 1
        return (
            replace(move, observation=observation)
            if isinstance(move, Step)
            else Step(observation, move)
        )
