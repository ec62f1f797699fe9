"""Converts messages of Anthropic's API to chat messages: text, thinking, calls, results and images.

Supported are calls of the tool `computer` with an `action`, of current tool sets with a tool for
each action, and of any other tool; each action of a batch (`computer_batch`) is a call. Messages of
chat completions pass unchanged. (anthropic package, `anthropic.types.beta`;
anthropics/claude-quickstarts, computer-use-best-practices/computer_use/tools/batch.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from prill.actions.tool_calls import fraction, parsed, tool_action
from prill.datasets.reading.chat import ChatMessage, ContentPart, ImageUrl, Screen, ToolCall
from prill.datasets.reading.records import Record
from prill.errors import InputError
from prill.types import Action

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
# the suffix of result types; those of server-side tools have a prefix
_RESULT = "tool_result"
_BATCH = "_batch"
# The replacement for an image that was removed (WebVoyager, utils.py, `print_message`).
_PLACEHOLDER = re.compile(r";base64,\{\w+\}\Z")


class _ImageSource(Record):
    type: str | None = None
    media_type: str | None = None
    data: object = None
    url: str | None = None
    file_id: str | None = None


class _Block(Record):
    type: str = "text"
    text: str | None = None
    thinking: str | None = None
    title: str | None = None
    url: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, object] | str | None = None
    tool_use_id: str | None = None
    content: str | tuple[_Block, ...] | _Block | None = None
    stdout: str | None = None
    error_code: str | None = None
    source: _ImageSource | str | None = None
    path: str | None = None
    image_url: ImageUrl | str | None = None


class _Message(Record):
    role: str
    content: str | tuple[_Block, ...] | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


def messages(values: Iterable[object]) -> Iterator[ChatMessage]:
    """Yields each message as one or more chat messages.

    Raises InputError for a message of another form.
    """
    for value in values:
        try:
            message = msgspec.convert(value, _Message)
        except (msgspec.ValidationError, RecursionError) as error:
            raise InputError(f"invalid message: {error}") from None
        if not isinstance(message.content, tuple):
            yield _chat(message, message.content)
        elif message.role == "assistant":
            yield from _parse_message(message, message.content)
        else:
            yield from _shown(message, message.content)


def is_message(value: object) -> bool:
    """Returns whether a value is a message of one of the two APIs."""
    return (
        isinstance(value, dict)
        and value.get("role") in ("system", "developer", "user", "assistant", "tool", "function")
        and ("content" in value or "tool_calls" in value)
    )


def read_call(name: str, arguments: Mapping[str, object] | str, size: Screen = None) -> Action:
    """Returns the action of a call in `messages`; a `target` is a position or an element."""
    values = parsed(arguments)
    action = tool_action(name, arguments, size)
    if values is None or not isinstance(target := values.get("target"), dict):
        return action
    start = values.get("from", values.get("from_"))
    points = [
        fraction(one.get("x"), one.get("y"), size)
        for one in (start, target)
        if isinstance(one, dict)
    ]
    ref = target.get("ref")
    return replace(
        action,
        target=ref if isinstance(ref, str) else action.target,
        point=points[0],
        end_point=points[1] if len(points) > 1 else action.end_point,
    )


def _chat(message: _Message, content: str | tuple[ContentPart, ...] | None) -> ChatMessage:
    calls, reasoning = message.tool_calls, message.reasoning_content
    return ChatMessage(
        message.role, content, calls, message.tool_call_id, reasoning, message.refusal
    )


def _parse_message(message: _Message, blocks: tuple[_Block, ...]) -> Iterator[ChatMessage]:
    """Yields the agent's text and calls, with results of server-side tools between them."""
    thoughts = [message.reasoning_content] if message.reasoning_content else []
    parts: list[ContentPart] = []
    calls: list[ToolCall] = list(message.tool_calls or ())
    for block in blocks:
        if block.type == "thinking":
            thoughts += [block.thinking] if block.thinking else []
        elif block.type in _CALLS:
            calls += _calls(block)
        elif block.type.endswith(_RESULT):
            yield ChatMessage(
                "assistant",
                tuple(parts),
                tuple(calls),
                reasoning_content="\n".join(thoughts) or None,
            )
            yield ChatMessage("tool", tuple(_parts(block)), tool_call_id=block.tool_use_id)
            thoughts, parts, calls = [], [], []
        else:
            parts += _parts(block)
    if thoughts or parts or calls:
        reasoning = "\n".join(thoughts) or None
        yield ChatMessage(
            "assistant",
            tuple(parts),
            tuple(calls),
            reasoning_content=reasoning,
            refusal=message.refusal,
        )


def _shown(message: _Message, blocks: tuple[_Block, ...]) -> Iterator[ChatMessage]:
    """Yields results first, because a user's text in the same message comes after them."""
    for block in blocks:
        if block.type.endswith(_RESULT):
            yield ChatMessage("tool", tuple(_parts(block)), tool_call_id=block.tool_use_id)
    rest = tuple(
        part for block in blocks if not block.type.endswith(_RESULT) for part in _parts(block)
    )
    if rest:
        yield _chat(message, rest)


def _calls(block: _Block) -> Iterator[ToolCall]:
    name, arguments = block.name or block.type, block.input or {}
    actions = (
        arguments.get("actions") if isinstance(arguments, dict) and name.endswith(_BATCH) else None
    )
    if not isinstance(actions, list) or not actions:
        yield ToolCall(block.id, name=name, arguments=arguments)
        return
    for action in actions:
        yield ToolCall(
            block.id,
            name=name.removesuffix(_BATCH),
            arguments=action if isinstance(action, dict) else {},
        )


def _parts(block: _Block) -> list[ContentPart]:
    """Returns the text and the images of a block, or of a result's content."""
    if block.type.endswith(_RESULT):
        if isinstance(block.content, str):
            return [ContentPart(text=block.content)]
        inner = (
            block.content
            if isinstance(block.content, tuple)
            else (block.content,)
            if block.content
            else ()
        )
        return [part for one in inner for part in _parts(one)]
    if block.type in ("image", "image_url", "input_image"):
        return [_picture(block)]
    text = block.text or block.stdout or block.title or block.error_code or block.url
    if (
        block.type == "document"
        and isinstance(block.source, _ImageSource)
        and isinstance(block.source.data, str)
    ):
        text = block.source.data if block.source.type == "text" else text
    if isinstance(block.content, str):
        text = text or block.content
    return [ContentPart(text=text)] if text else []


def _picture(block: _Block) -> ContentPart:
    source = block.source if isinstance(block.source, _ImageSource) else _ImageSource()
    if source.type == "base64" and isinstance(source.data, str):
        return ContentPart(
            "image", None, f"data:{source.media_type or 'image/png'};base64,{source.data}"
        )
    address = (
        block.path
        or source.url
        or (block.image_url.url if isinstance(block.image_url, ImageUrl) else block.image_url)
    )
    if address and not _PLACEHOLDER.search(address):
        return ContentPart("image", None, address)
    return ContentPart("text", f"[picture {source.file_id}]" if source.file_id else "[picture]")
