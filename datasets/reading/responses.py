"""Converts items of OpenAI's Responses to messages: computer calls, function calls and built-in
tools.

A `computer_call` has a list of `actions`, each a step; the returned image shows the screen after
the last one. In the tool's preview it had one `action`. The agent's text right before a call is its
thought. (openai, `openai.types.responses`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from prill.actions.tool_calls import COMPUTER, response_call, screen_size
from prill.datasets.reading.chat import (
    LOOKS,
    ChatMessage,
    ContentPart,
    TokenUsage,
    ToolCall,
    conversation,
    count_tokens,
)
from prill.datasets.reading.images import RecordImages
from prill.datasets.reading.records import Record, iso_date
from prill.errors import InputError
from prill.types import Platform, Task, Trajectory

_CALL, _OUTPUT = "_call", "_output"
# Fields of a call that do not describe the action.
_NOT_SHOWN = frozenset(
    {"id", "type", "status", "call_id", "output", "outputs", "result", "results"}
) | {*("pending_safety_checks", "agent", "name", "arguments", "input", "action")}
_Item = dict[str, object]
_DESKTOPS = frozenset({"mac", "windows", "ubuntu", "linux"})  # the preview's `environment`


class _Part(Record):
    """A part of a message, summary or result; an image is `image_url`, or an uploaded file's id."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_id: str | None = None
    current_url: str | None = None
    logs: str | None = None
    stdout: str | None = None

    @property
    def display_text(self) -> str | None:
        """Returns the part's text, or the name of its file."""
        text = self.text or self.refusal or self.logs or self.stdout
        return text or (f"[file {self.file_id}]" if self.file_id and not self.image_url else None)


_Content = str | tuple[_Part, ...] | _Part | None


def messages(items: object) -> Iterator[ChatMessage]:
    """Converts a text of the user, or a list of items, to messages. A message without a role is the
    user's. Raises InputError for an item that does not have the API's form.
    """
    if isinstance(items, str):
        yield ChatMessage("user", items)
        return
    if not isinstance(items, list):
        raise InputError(f"expected a list of items, got {type(items).__name__}")
    yield from _joined(_records(items))


def _joined(items: Iterable[_Item]) -> Iterator[ChatMessage]:
    thoughts: list[str] = []
    pending: ChatMessage | None = None  # the agent's text, until it is known whether a call follows
    for item in items:
        type_ = item.get("type") or "message"
        if not isinstance(type_, str):
            raise InputError(f"an item's type is {type_!r}")
        if type_ == "reasoning":
            thoughts += [
                text
                for key in ("summary", "content")
                if (text := _plain_text(_content(item.get(key))))
            ]
            continue
        if type_ == "message":
            message = ChatMessage(
                str(item.get("role") or "user"), _parts(_content(item.get("content")))
            )
            if pending is not None:
                yield pending
                pending = None
            if message.role == "assistant":
                pending, thoughts = (
                    replace(message, reasoning_content="\n".join(thoughts) or None),
                    [],
                )
            else:
                yield message
            continue
        if type_.endswith(_OUTPUT):
            if pending is not None:
                yield pending
                pending = None
            yield from _results(item, item.get("output"))
        elif type_.endswith(_CALL):
            texts = [
                *thoughts,
                *([pending.reasoning_content] if pending and pending.reasoning_content else []),
            ]
            calls, reasoning = tuple(_calls(item, type_)), "\n".join(texts) or None
            yield ChatMessage(
                "assistant",
                pending.content if pending else None,
                calls,
                reasoning_content=reasoning,
            )
            pending, thoughts = None, []
            for key in ("output", "outputs", "results"):  # of server-side tools
                yield from _results(item, item.get(key))
    if pending is not None:
        yield pending


def _calls(item: _Item, type_: str) -> Iterator[ToolCall]:
    id = item.get("call_id") or item.get("id")
    call = id if isinstance(id, str) else None
    if type_ == COMPUTER:
        actions = [
            action
            for action in [*_list(item.get("actions")), item.get("action")]
            if isinstance(action, dict)
        ]
        for action in actions or [{}]:
            yield ToolCall(call, name=COMPUTER, arguments=action)
        return
    name, arguments = item.get("name"), item.get("arguments", item.get("input"))
    if isinstance(name, str) and name and isinstance(arguments, str | dict):
        yield ToolCall(call, name=name, arguments=arguments)
        return
    done, others = (
        item.get("action"),
        {key: value for key, value in item.items() if key not in _NOT_SHOWN},
    )
    fields = {**others, **(done if isinstance(done, dict) else {})}
    yield ToolCall(
        call,
        name=type_.removesuffix(_CALL),
        arguments={key: v for key, v in fields.items() if key != "type"},
    )


def _results(item: _Item, output: object) -> Iterator[ChatMessage]:
    if output is None:
        return
    id = item.get("call_id") or item.get("id")
    content = _content(output)
    url = next((part.current_url for part in _as_parts(content) if part.current_url), None)
    yield ChatMessage(
        "tool", _parts(content), tool_call_id=id if isinstance(id, str) else None, url=url
    )


def _content(value: object) -> _Content:
    try:
        content: _Content = msgspec.convert(value, _Content)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"invalid item content: {error}") from None
    return content


def _as_parts(content: _Content) -> tuple[_Part, ...]:
    return (
        content if isinstance(content, tuple) else (content,) if isinstance(content, _Part) else ()
    )


def _plain_text(content: _Content) -> str:
    return (
        content
        if isinstance(content, str)
        else "\n".join(part.text for part in _as_parts(content) if part.text)
    )


def _parts(content: _Content) -> str | tuple[ContentPart, ...] | None:
    if isinstance(content, str | None):
        return content
    return tuple(
        ContentPart(part.type, part.display_text, part.image_url) for part in _as_parts(content)
    )


def _records(items: list[object]) -> Iterator[_Item]:
    for item in items:
        if not isinstance(item, dict):
            raise InputError(f"expected an item as an object, got {type(item).__name__}")
        yield item


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


class _ResponseError(Record):
    message: str | None = None
    code: str | None = None


class Response(Record):
    """An API response, with the fields of the request next to it."""

    output: list[object]
    input: str | list[object] | None = None
    id: str | None = None
    previous_response_id: str | None = None
    model: str | None = None
    tools: list[object] | None = None
    usage: TokenUsage | None = None
    error: _ResponseError | None = None
    created_at: float | None = None


class _Request(Record):
    input: str | list[object] | None = None
    previous_response_id: str | None = None
    model: str | None = None
    tools: list[object] | None = None


def is_response(value: object) -> bool:
    """Returns whether a value is a response, with or without its request."""
    if not isinstance(value, dict) or "custom_id" in value:
        return False
    inner = value.get("response")
    if isinstance(inner, dict) and isinstance(inner.get("output"), list):
        return True
    return isinstance(value.get("output"), list) and (
        value.get("object") == "response"
        or ("type" not in value and ("input" in value or "previous_response_id" in value))
    )


def is_item(value: object) -> bool:
    """Returns whether a value is an item that messages of other APIs do not have."""
    type_ = value.get("type") if isinstance(value, dict) else None
    return isinstance(type_, str) and (
        type_ == "reasoning" or type_.endswith(("_call", "_call_output"))
    )


def parse_response(value: object) -> Response:
    """Parses a response, with the model's input next to it or in `request`. Raises InputError."""
    inner = value.get("response") if isinstance(value, dict) else None
    try:
        if not isinstance(value, Mapping) or not isinstance(inner, dict):
            return msgspec.convert(value, Response)
        request = msgspec.convert(
            value.get("request", value.get("responses_create_params", {})), _Request
        )
        response = msgspec.convert(inner, Response)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(str(error)) from None
    return replace(
        response,
        input=request.input,
        previous_response_id=response.previous_response_id or request.previous_response_id,
        model=response.model or request.model,
        tools=response.tools or request.tools,
    )


def to_trajectory(id: str, responses: tuple[Response, ...], images: RecordImages) -> Trajectory:
    """Makes a trajectory of consecutive responses. Raises InputError for a broken item or image."""
    items = [
        part
        for response in responses
        for part in (_as_items(response.input, "user"), _as_items(response.output, "assistant"))
    ]
    flat = [item for part in items for item in part]
    tools = next((response.tools for response in reversed(responses) if response.tools), [])
    size = screen_size(tools)
    chat = conversation(
        messages(flat), images, size, goal="", read=response_call, looks=LOOKS, measured=True
    )
    last = responses[-1]
    error = last.error and (last.error.message or last.error.code)
    return chat.trajectory(
        id,
        Task(goal=chat.goal, platform=_platform(tools, flat)),
        agent=last.model,
        metadata={
            **count_tokens(response.usage for response in responses),
            "date": iso_date(responses[0].created_at),
            "response_id": last.id or None,
        },
        error=error or None,
    )


def _as_items(value: str | list[object] | None, role: str) -> list[object]:
    return [{"role": role, "content": value}] if isinstance(value, str) else value or []


def _platform(tools: list[object], items: list[object]) -> Platform:
    environments = {tool.get("environment") for tool in tools if isinstance(tool, dict)}
    if any(
        isinstance(environment, str) and environment in _DESKTOPS for environment in environments
    ):
        return "desktop"
    is_computer = any(isinstance(item, dict) and item.get("type") == COMPUTER for item in items)
    return "web" if is_computer else "other"
