"""Turns of one conversation joined again: the earlier turns with the pages that were shown in them.

A file holds the pages of a turn once, with the turn; `task.earlier` has the actions only, since
files would otherwise grow with the square of the turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from prill.types import Observation, Step, Trajectory


def format_conversation(trajectory: Trajectory) -> str:
    """The conversation that a turn belongs to; a task of one turn is its own."""
    return str(trajectory.metadata.get("conversation", trajectory.id))


def rejoined(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Puts the earlier turns of a conversation, pages included, into `task.earlier`.

    The turns of a conversation stand together in a file; one conversation is held in memory at a
    time.

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
    """The turn as a later one of its conversation names it: its goal and actions, no pages and no
    earlier turns.
    """
    steps = tuple(Step(Observation(), step.action) for step in turn.steps)
    return replace(turn, task=replace(turn.task, earlier=()), steps=steps, final=None)
