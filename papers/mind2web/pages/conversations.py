"""Rejoins the turns of one conversation: the earlier turns with the pages they were recorded with.

A file holds the pages of a turn once, with the turn. `task.earlier` has only the actions; otherwise
the file size would grow with the square of the number of turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from prill.types import Observation, Step, Trajectory


def format_conversation(trajectory: Trajectory) -> str:
    """Returns the name of the conversation that a turn belongs to. A single task is its own
    conversation.
    """
    return str(trajectory.metadata.get("conversation", trajectory.id))


def rejoined(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Puts the earlier turns of a conversation, pages included, into `task.earlier`.

    The turns of a conversation have to be adjacent in the file. One conversation at a time is held
    in memory.

    Args:
        trajectories: The turns, in the order of the file.

    Yields:
        Each turn. An earlier turn that was not read before stays without pages; a turn that names
        no earlier ones gets all that were read before in its conversation.
    """
    conversation: str | None = None
    read: dict[str, Trajectory] = {}
    for turn in trajectories:
        if conversation != (conversation := format_conversation(turn)):
            read = {}
        earlier = tuple(read.get(past.id, past) for past in turn.task.earlier) or tuple(
            read.values()
        )
        read[turn.id] = replace(turn, task=replace(turn.task, earlier=()))
        yield replace(turn, task=replace(turn.task, earlier=earlier)) if earlier else turn


def without_pages(turn: Trajectory) -> Trajectory:
    """Returns the turn in the form for `task.earlier`: its goal and actions, without pages and
    earlier turns.
    """
    steps = tuple(Step(Observation(), step.action) for step in turn.steps)
    return replace(turn, task=replace(turn.task, earlier=()), steps=steps, final=None)
