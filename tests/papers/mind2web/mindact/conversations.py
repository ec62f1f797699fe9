"""Recorded pages, steps and turns that are small enough to be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from prill.papers.mind2web.pages.state import PageState
from prill.protocols import Message
from prill.types import Action, Observation, Step, Task, Trajectory


def page(*words: str, first: int = 11) -> str:
    """A page of buttons that say so; their ids are `first` and those after it."""
    buttons = "".join(
        f'<button backend_node_id="{first + i}"><text '
        f'backend_node_id="{500 + i}">{word}</text></button>'
        for i, word in enumerate(words)
    )
    return f'<html backend_node_id="1"><body backend_node_id="2">{buttons}</body></html>'


def seen(*words: str, past: Sequence[str] = ()) -> Observation:
    """A state with such a page, all of whose buttons are candidates."""
    ids = tuple(str(11 + i) for i in range(len(words)))
    return Observation(text=PageState(page(*words), ids, tuple(past)).text())


def turn(
    id: str,
    goal: str,
    *said: str,
    target: str | None = "11",
    words: Sequence[str] = ("Yes", "No", "Later"),
) -> Trajectory:
    """A recorded turn: what was done at each step, always to the same element; each on a page of
    these words.
    """
    steps = []
    for i, text in enumerate(said):
        value = text.partition(": ")[2]
        action = Action(
            "type" if value else "click", text, target=target or "", value=value or None
        )
        steps.append(Step(seen(*words, past=said[:i]), action))
    return Trajectory(
        id=id,
        task=Task(id=id, goal=goal),
        steps=tuple(steps),
        metadata={"uids": [f"u{i}" for i in range(len(said))]},
    )


def request(messages: Sequence[Message]) -> str:
    """The last thing that a model was told."""
    return "".join(str(part) for part in messages[-1].parts)
