"""Converts a tool-calling conversation into a trajectory.

Messages of the user and of tools become observations. Each tool call, and each assistant message
without one, becomes a step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from prill.errors import InputError
from prill.io.store import Item
from prill.refine.rewards.serialization import (
    as_item,
    collect_pictures,
    compute_digest,
    from_value,
    get_column,
    get_text,
    single_step,
)
from prill.types import Action, Observation, Step, Task, Trajectory

_LOOK = Action("other", "look at what was shown next")
# Roles of messages by the agent's surroundings, as chat templates name them.
_AROUND = ("user", "tool", "function", "ipython")


def chat_trajectory(
    messages: Sequence[Mapping[str, Any]], *, goal: str | None = None, id: str | None = None
) -> Trajectory:
    """Converts a chat conversation with tool calls, and images as data URLs, into a trajectory.

    The agent's last message is its answer if it calls no tool. Messages after the agent's last one
    are the final state.

    Args:
        messages: The messages, oldest first.
        goal: The agent's goal. None: the first text of the user.
        id: The trajectory's id. None: a hash of the content.

    Raises:
        InputError: There is no goal or no message of the agent, a message has an unknown role, an
            image is given by a URL, or a text holds an unpaired surrogate.
    """
    steps: list[Step] = []
    texts: list[str] = []
    shown: list[Any] = []
    answer: str | None = None
    for turn in messages:
        role, text = turn.get("role"), get_text(turn)
        if role in ("system", "developer"):
            continue
        if role != "assistant":
            if role not in _AROUND:
                raise InputError(f"a message has the role {role!r}, which is not known")
            goal = goal or (text if role == "user" else None) or None
            texts += [text] if text else []
            shown += collect_pictures(turn)
            continue
        steps += [Step(Observation(picture), _LOOK) for picture in shown[:-1]]
        seen = _state(texts, shown)
        calls = [_call(call) for call in turn.get("tool_calls") or ()]
        thought = turn.get("reasoning_content") or (text if calls else None) or None
        answer = None if calls else text
        actions = [Action("other", call) for call in calls] or [Action("other", text)]
        steps += [
            Step(seen if i == 0 else Observation(), action, thought)
            for i, action in enumerate(actions)
        ]
        texts, shown = [], []
    if goal is None:
        raise InputError("the conversation contains no user text, so there is no goal to judge by")
    if not steps:
        raise InputError("the conversation contains no turn of the agent")
    steps += [Step(Observation(picture), _LOOK) for picture in shown[:-1]]
    final = _state(texts, shown) if texts or shown else None
    if answer is not None and final is None:
        steps[-1] = Step(steps[-1].observation, Action("answer", value=answer), steps[-1].thought)
    else:
        answer = None
    return Trajectory(
        id=id or _digest(goal, steps, final),
        task=Task(goal=goal),
        steps=tuple(steps),
        final=final,
        answer=answer,
    )


def judged_completion(
    prompt: str | Sequence[Mapping[str, Any]],
    completion: str | Sequence[Mapping[str, Any]],
    images: Sequence[Any] = (),
) -> Trajectory:
    """Converts a prompt and its completion into a trajectory.

    A completion with tool calls, tool outputs or several turns is a conversation
    (`chat_trajectory`): what the agent did and saw, not what it says that it did. Its goal is the
    last text of the user in the prompt. Anything else is one answer (`single_step`).

    Args:
        prompt: A text, or chat messages.
        completion: A text, or chat messages.
        images: The images that the messages have places for, oldest first.

    Raises:
        InputError: As in `chat_trajectory` and `single_step`; or the messages of a conversation
            have places for another number of images.
    """
    if isinstance(completion, str) or (
        len(completion) == 1
        and completion[0].get("role") == "assistant"
        and not completion[0].get("tool_calls")
    ):
        return single_step(prompt, completion, images)
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    asked = (get_text(turn) for turn in reversed(turns) if turn.get("role") == "user")
    goal = next(filter(None, asked), None)
    return chat_trajectory(_illustrated([*turns, *completion], images), goal=goal)


def _illustrated(
    turns: Sequence[Mapping[str, Any]], images: Sequence[Any]
) -> list[Mapping[str, Any]]:
    """Puts the images where messages have empty parts of the type `image`."""
    rest, places = list(images), 0
    made: list[Mapping[str, Any]] = []
    for turn in turns:
        content = turn.get("content")
        if not isinstance(content, list | tuple):
            made.append(turn)
            continue
        parts: list[Any] = []
        for part in content:
            empty = isinstance(part, Mapping) and part.get("type") == "image"
            if empty and not part.get("image"):
                places += 1
                part = {**part, "image": rest.pop(0)} if rest else part
            parts.append(part)
        made.append({**turn, "content": parts})
    if places != len(images):
        raise InputError(f"the messages have places for {places} images, but {len(images)} came")
    return made


def carried(
    row: Mapping[str, Any],
    column: str | None,
    messages: Sequence[Mapping[str, Any]],
    *,
    root: str | os.PathLike[str] | None = None,
    place: str,
) -> Item:
    """Reads the trajectory from the row's column (see `from_value`); if `column` is None, converts
    the conversation. Raises UsageError if the row has no such column.
    """
    if column is None:
        return as_item(lambda: chat_trajectory(messages), place)
    return from_value(get_column(row, column), root=root, place=place)


def _state(texts: Sequence[str], shown: Sequence[Any]) -> Observation:
    return Observation(shown[-1] if shown else None, text="\n".join(texts) or None)


def _call(call: Mapping[str, Any]) -> str:
    """Formats a tool call as `name(arguments)`; both are in the call or below `function`."""
    inner = call.get("function")
    source = inner if isinstance(inner, Mapping) else call
    name = inner if isinstance(inner, str) else source.get("name")
    arguments = source.get("arguments", "")
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return f"{name}({arguments})"


def _digest(goal: str, steps: Sequence[Step], final: Observation | None) -> str:
    seen = [(step.observation.screenshot, step.observation.text, step.action) for step in steps]
    return f"chat-{compute_digest((goal, seen, final))}"
