"""Items of OpenAI's Responses as messages: calls of a computer, of functions and of built-in tools.

A `computer_call` has a list of `actions`, each a step; the picture that comes back shows the screen after the last one. In the
tool's preview it had one `action`. Text of the agent right before a call is its thought. (openai, `openai.types.responses`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from prill.datasets.reading.chat import ChatMessage, ContentPart, Screen, ToolCall
from prill.datasets.reading.computer_action import scroll_direction
from prill.datasets.reading.tool_calls import fraction, parsed, tool_action
from prill.errors import InputError
from prill.types import Action

COMPUTER = "computer_call"
_CALL, _OUTPUT = "_call", "_output"
# Fields of a call that say nothing of what was done.
_NOT_SHOWN = frozenset({"id", "type", "status", "call_id", "output", "outputs", "result", "results"}) | {
    *("pending_safety_checks", "agent", "name", "arguments", "input", "action")
}
_Item = dict[str, object]


@dataclass(frozen=True)
class _Part:
    """A part of a message, a summary, or a result; a picture is `image_url`, or the id of an uploaded file."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_id: str | None = None
    current_url: str | None = None
    logs: str | None = None
    stdout: str | None = None

    @property
    def words(self) -> str | None:
        """What the part says, or which file it stands for."""
        said = self.text or self.refusal or self.logs or self.stdout
        return said or (f"[file {self.file_id}]" if self.file_id and not self.image_url else None)


_Content = str | tuple[_Part, ...] | _Part | None


def messages(items: object, *, agent: bool = False) -> Iterator[ChatMessage]:
    """The messages that some items are.

    Args:
        items: A text, or a list of items.
        agent: Whether a message without a role, or a text, is the agent's; else it is a user's.

    Raises:
        InputError: An item has another shape than the API's.
    """
    if isinstance(items, str):
        yield ChatMessage("assistant" if agent else "user", items)
        return
    if not isinstance(items, list):
        raise InputError(f"expected a list of items, got {type(items).__name__}")
    yield from _joined(_records(items), agent)


def read_call(name: str, arguments: Mapping[str, object] | str, size: Screen = None) -> Action:
    """The action of a call in `messages`: of the computer, or as `tool_action` reads it."""
    values = parsed(arguments)
    if name != COMPUTER or values is None:
        return tool_action(name, arguments, size)
    type_ = values.get("type")
    given = {key: value for key, value in values.items() if key != "type" and value is not None}
    action = tool_action(type_ if isinstance(type_, str) else COMPUTER, given, size)
    if type_ == "scroll":
        return replace(action, value=scroll_direction(given.get("scroll_x"), given.get("scroll_y")))
    if type_ == "click" and given.get("button") == "right":
        return replace(action, kind="right_click")
    if type_ == "drag":
        path = [place for place in _list(given.get("path")) if isinstance(place, dict)]
        ends = [fraction(place.get("x"), place.get("y"), size) for place in (path[0], path[-1])] if path else [None, None]
        return replace(action, point=ends[0], end_point=ends[1])
    return action


def _joined(items: Iterable[_Item], agent: bool) -> Iterator[ChatMessage]:
    thoughts: list[str] = []
    said: ChatMessage | None = None  # the agent's text, until it is clear whether a call follows
    for item in items:
        type_ = item.get("type") or "message"
        if not isinstance(type_, str):
            raise InputError(f"an item's type is {type_!r}")
        if type_ == "reasoning":
            thoughts += [text for key in ("summary", "content") if (text := _words(_content(item.get(key))))]
            continue
        if type_ == "message":
            role = item.get("role")
            message = ChatMessage(str(role or ("assistant" if agent else "user")), _parts(_content(item.get("content"))))
            if said is not None:
                yield said
                said = None
            if message.role == "assistant":
                said, thoughts = replace(message, reasoning_content="\n".join(thoughts) or None), []
            else:
                yield message
            continue
        if type_.endswith(_OUTPUT):
            if said is not None:
                yield said
                said = None
            yield from _results(item, item.get("output"))
        elif type_.endswith(_CALL):
            words = [*thoughts, *([said.reasoning_content] if said and said.reasoning_content else [])]
            calls, reasoning = tuple(_calls(item, type_)), "\n".join(words) or None
            yield ChatMessage("assistant", said.content if said else None, calls, reasoning_content=reasoning)
            said, thoughts = None, []
            for key in ("output", "outputs", "results"):  # of tools that OpenAI's side carries out
                yield from _results(item, item.get(key))
    if said is not None:
        yield said


def _calls(item: _Item, type_: str) -> Iterator[ToolCall]:
    id = item.get("call_id") or item.get("id")
    call = id if isinstance(id, str) else None
    if type_ == COMPUTER:
        actions = [action for action in [*_list(item.get("actions")), item.get("action")] if isinstance(action, dict)]
        for action in actions or [{}]:
            yield ToolCall(call, name=COMPUTER, arguments=action)
        return
    name, arguments = item.get("name"), item.get("arguments", item.get("input"))
    if isinstance(name, str) and name and isinstance(arguments, str | dict):
        yield ToolCall(call, name=name, arguments=arguments)
        return
    done, others = item.get("action"), {key: value for key, value in item.items() if key not in _NOT_SHOWN}
    given = {**others, **(done if isinstance(done, dict) else {})}
    yield ToolCall(call, name=type_.removesuffix(_CALL), arguments={key: v for key, v in given.items() if key != "type"})


def _results(item: _Item, output: object) -> Iterator[ChatMessage]:
    if output is None:
        return
    id = item.get("call_id") or item.get("id")
    content = _content(output)
    url = next((part.current_url for part in _as_parts(content) if part.current_url), None)
    yield ChatMessage("tool", _parts(content), tool_call_id=id if isinstance(id, str) else None, url=url)


def _content(value: object) -> _Content:
    try:
        content: _Content = msgspec.convert(value, _Content)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"an item's content is broken: {error}") from None
    return content


def _as_parts(content: _Content) -> tuple[_Part, ...]:
    return content if isinstance(content, tuple) else (content,) if isinstance(content, _Part) else ()


def _words(content: _Content) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in _as_parts(content) if part.text)


def _parts(content: _Content) -> str | tuple[ContentPart, ...] | None:
    if isinstance(content, str | None):
        return content
    return tuple(ContentPart(part.type, part.words, part.image_url) for part in _as_parts(content))


def _records(items: list[object]) -> Iterator[_Item]:
    for item in items:
        if not isinstance(item, dict):
            raise InputError(f"an item is no object: {type(item).__name__}")
        yield item


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
