"""Replays the actions of recorded episodes on a live environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec

from prill.actions.elements import element_id, read_target
from prill.actions.webarena import element_line
from prill.errors import UsageError
from prill.io.store import iter_trajectories
from prill.types import Action, Observation, Platform, Step, Task, Trajectory


class HumanReplay:
    """A policy that replays the recorded trajectory of a task: its actions, thoughts and final
    answer.

    An element whose number has changed is found again by its role and name. The list of actions is
    fixed: if the environment behaves differently than in the recording, later actions may have no
    effect. Invalid lines of a file are ignored.
    """

    def __init__(
        self,
        trajectories: Annotated[
            str | Sequence[Trajectory],
            msgspec.Meta(description="Trajectories to replay, or a file of them."),
        ],
    ) -> None:
        items = (
            iter_trajectories(trajectories, on_error="skip")
            if isinstance(trajectories, str | Path)
            else trajectories
        )
        self._trajectories = [item for item in items if isinstance(item, Trajectory)]
        self._by_task: dict[str, Trajectory] = {}
        for trajectory in self._trajectories:
            for key in (trajectory.task.id, trajectory.task.goal):
                self._by_task.setdefault(key, trajectory)
        self._by_task.pop("", None)
        self._moves: Iterator[Step | Action] = iter(())

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the recorded trajectories."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        played = [
            (t.task.id, t.task.goal, [(s.thought, s.action) for s in t.steps], t.answer)
            for t in self._trajectories
        ]
        return sha256(msgspec.json.encode(played)).hexdigest()

    def reset(self, task: Task) -> None:
        """Starts the first trajectory with the task's id, else with its goal.

        Raises:
            UsageError: There is no such trajectory.
        """
        recorded = self._by_task.get(task.id) or self._by_task.get(task.goal)
        if recorded is None:
            raise UsageError(f"no recorded trajectory for the task {task.id!r} ({task.goal!r})")
        moves: list[Step | Action] = list(recorded.steps)
        if not moves or not recorded.steps[-1].action.is_final:
            moves.append(Action("stop", "stop", value=recorded.answer))
        self._moves = iter(moves)

    async def act(self, observation: Observation) -> Step:
        """Returns the next recorded step, with the element's current number."""
        move = next(self._moves, Action("stop", "stop"))
        step = move if isinstance(move, Step) else Step(observation, move)
        action = relocated(step.action, observation.text or "")
        return replace(step, observation=observation, action=action)


def relocated(action: Action, text: str) -> Action:
    """Returns the action on the current element with the same role and name, preferably the same
    number.

    If no element has this role and name, or they were not recorded, the action uses the recorded
    point, else it is unchanged. A number that now belongs to an element with another role is
    removed, so that the action does not affect that element. If the action's text names the
    element, the recorded point is outdated and is removed.
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
    # Match only numbers that identify the element: the same digits may be typed text.
    named = rf"(\A\w+ |\bwhere |\bis )\[{wanted.number}\]"
    renumbered = (
        action.text if wanted.number is None else re.sub(named, rf"\g<1>[{now}]", action.text)
    )
    return replace(action, target=line, text=renumbered, point=None)
