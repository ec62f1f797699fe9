"""Recorded pages, steps and turns that are small enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence

from prill.papers.mind2web.pages.state import PageState
from prill.protocols import Message
from prill.types import Action, Observation, Step, Task, Trajectory


def page(*words: str, first: int = 11) -> str:
    """Returns a page of buttons with these texts. Their ids count from `first`."""
    buttons = "".join(
        f'<button backend_node_id="{first + i}"><text '
        f'backend_node_id="{500 + i}">{word}</text></button>'
        for i, word in enumerate(words)
    )
    return f'<html backend_node_id="1"><body backend_node_id="2">{buttons}</body></html>'


def seen(*words: str, past: Sequence[str] = ()) -> Observation:
    """Returns a state with such a page, on which all buttons are candidates."""
    ids = tuple(str(11 + i) for i in range(len(words)))
    return Observation(text=PageState(page(*words), ids, tuple(past)).text())


def turn(
    id: str,
    goal: str,
    *said: str,
    target: str | None = "11",
    words: Sequence[str] = ("Yes", "No", "Later"),
) -> Trajectory:
    """Returns a recorded turn. Each step has a page with these texts and acts on the same
    element.
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
    """Returns the last message to a model."""
    return "".join(str(part) for part in messages[-1].parts)
