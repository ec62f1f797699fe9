"""Merges model calls and tool runs, as tracers record them, into one conversation.

Each call repeats the conversation so far and adds the messages after the known ones. A call whose
messages are a prefix of the known conversation is a retry, and replaces what came after. A
compacted context still ends with known messages, or begins with the same system message. Calls that
share nothing with others, such as those of a tool that calls a model itself, are separate
conversations; the one with the most actions is the agent's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prill.datasets.reading.anthropic import read_call
from prill.datasets.reading.chat import LOOKS, ChatMessage, ToolCall, conversation
from prill.datasets.reading.images import RecordImages
from prill.types import Task, Trajectory

_SYSTEM = ("system", "developer")


@dataclass(frozen=True)
class ModelCall:
    """A model call: its input messages and its output messages."""

    inputs: tuple[ChatMessage, ...]
    outputs: tuple[ChatMessage, ...]


@dataclass(frozen=True)
class ToolRun:
    """A tool run. `id` is that of the call; None if the tracer does not record it."""

    name: str
    arguments: dict[str, object] | str | None = None
    result: str | None = None
    id: str | None = None


@dataclass
class _Conversation:
    messages: list[ChatMessage] = field(default_factory=list)
    keys: list[object] = field(default_factory=list)
    known: set[object] = field(default_factory=set)

    def add(self, messages: Sequence[ChatMessage], keys: Sequence[object]) -> None:
        self.messages += messages
        self.keys += keys
        self.known.update(keys)

    @property
    def actions(self) -> int:
        return sum(len(message.tool_calls or ()) for message in self.messages)


def to_trajectory(
    id: str,
    calls: Iterable[ModelCall],
    tools: Sequence[ToolRun],
    images: RecordImages,
    *,
    goal: str = "",
    answer: str | None = None,
    agent: str | None,
    model: str | None,
    metadata: Mapping[str, object],
    error: str | None,
) -> Trajectory:
    """Returns the run of a trace; `goal` and `answer` are used where no message has one.

    Metadata of None is left out. Raises InputError if a message or an image is broken.
    """
    chat = conversation(
        join_calls(calls, tools), images, goal=goal, read=read_call, looks=LOOKS, measured=True
    )
    if chat.answer is None:
        chat = replace(chat, answer=answer)
    return chat.trajectory(
        id,
        Task(goal=chat.goal),
        agent=f"{agent} ({model})" if agent and model else agent or model,
        metadata=metadata,
        error=error,
    )


def join_calls(calls: Iterable[ModelCall], tools: Sequence[ToolRun] = ()) -> list[ChatMessage]:
    """Merges calls, by start time, into the agent's conversation; those without messages are
    skipped.

    Results of the tool runs, by start time, replace results missing from the calls. Without any
    model call, the tool runs are the conversation.
    """
    conversations: list[_Conversation] = []
    # readers return repeated messages as the same object
    known: dict[int, tuple[ChatMessage, object]] = {}

    def key(message: ChatMessage) -> object:
        if id(message) not in known:
            known[id(message)] = message, _key(message)
        return known[id(message)][1]

    for call in calls:
        if not call.inputs and not call.outputs:
            continue
        keys = [key(message) for message in call.inputs]
        found = _continued(conversations, call, keys)
        if found is None:
            found = (_Conversation(), 0)
            conversations.append(found[0])
        conversation, start = found
        conversation.add(call.inputs[start:], keys[start:])
        conversation.add(call.outputs, [key(message) for message in call.outputs])
    if not conversations:
        return [message for i, run in enumerate(tools) for message in _as_messages(run, f"run {i}")]
    return _with_results(
        max(conversations, key=lambda one: (one.actions, len(one.messages))).messages, tools
    )


def _continued(
    conversations: list[_Conversation], call: ModelCall, keys: list[object]
) -> tuple[_Conversation, int] | None:
    """Returns the conversation that a call continues, and how many messages it has of it."""
    if not call.inputs:  # the tracer does not record them
        return (conversations[-1], 0) if conversations else None
    for one in reversed(conversations):
        size = min(len(keys), len(one.keys))
        if (
            keys
            and keys[:size] == one.keys[:size]
            and any(message.role not in _SYSTEM for message in call.inputs[:size])
        ):
            if len(keys) < len(one.keys):  # a retry
                del one.messages[size:], one.keys[size:]
            return one, size
    for one in reversed(conversations):
        known = [
            i
            for i, key in enumerate(keys)
            if key in one.known and call.inputs[i].role not in _SYSTEM
        ]
        if known:
            return one, known[-1] + 1
    for one in reversed(conversations):
        known = [i for i, key in enumerate(keys) if key in one.known]
        if known:
            return one, known[-1] + 1
    return None


def _key(message: ChatMessage) -> object:
    """Returns a key that identifies a message.

    Ids are preferred, because later calls often omit images and thoughts.
    """
    if message.role == "tool" and message.tool_call_id:
        return "tool", message.tool_call_id
    calls = [call for call in message.tool_calls or () if isinstance(call, ToolCall)]
    if calls:
        return "calls", tuple(
            call.id or repr((call.function or call.name, call.arguments)) for call in calls
        )
    content = message.content
    if isinstance(content, tuple):
        texts = tuple(part.text.strip() for part in content if part.text)
        pictures = tuple(repr(part.image_url) for part in content if part.image_url)
        return message.role, texts, pictures
    return message.role, (content.strip(),) if content else (), ()


def _with_results(messages: list[ChatMessage], tools: Sequence[ToolRun]) -> list[ChatMessage]:
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    by_id = {run.id: run for run in tools if run.id}
    unnamed = [run for run in tools if not run.id]
    joined: list[ChatMessage] = []
    for message in messages:
        joined.append(message)
        for call in message.tool_calls or ():
            if not isinstance(call, ToolCall) or call.id in answered:
                continue
            name = call.function.name if call.function else call.name
            run = by_id.get(call.id or "") or next(
                (run for run in unnamed if run.name == name), None
            )
            if run is not None and run in unnamed:
                unnamed.remove(run)
            if run is not None and run.result:
                joined.append(ChatMessage("tool", run.result, tool_call_id=call.id))
    return joined


def _as_messages(run: ToolRun, id: str) -> Iterable[ChatMessage]:
    yield ChatMessage(
        "assistant", tool_calls=(ToolCall(run.id or id, name=run.name, arguments=run.arguments),)
    )
    if run.result:
        yield ChatMessage("tool", run.result, tool_call_id=run.id or id)
