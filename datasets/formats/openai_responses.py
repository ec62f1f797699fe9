"""OpenAI Responses: runs as lists of items, or as the responses that the API gave, with or without their input.

A file is a JSON document or JSON lines. A list of items, or an item a line, is one run. A response is an object with `output`
and its `input` next to it, or a pair of `request` and `response`; responses joined by `previous_response_id` are one run.
Without `input`, a response says what the agent did and not what it saw.
(openai, `openai.types.responses`; openai/openai-cua-sample-app, agent/agent.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike

import msgspec

from prill.actions.ending import with_claim
from prill.datasets.reading.chat import LOOKS, conversation
from prill.datasets.reading.images import RecordImages, image_store
from prill.datasets.reading.records import iso_date, read_record
from prill.datasets.reading.responses import COMPUTER, messages, read_call
from prill.datasets.reading.sources import Document, Source, read_documents
from prill.datasets.reading.tool_calls import screen_size
from prill.errors import InputError
from prill.io.store import BadLine
from prill.types import Platform, Task, Trajectory

_DESKTOPS = frozenset({"mac", "windows", "ubuntu", "linux"})  # the preview's `environment`
_PATTERNS = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz")


@dataclass(frozen=True)
class _Usage:
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class _Problem:
    message: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Response:
    """What the API gave, with the fields of the request that are next to it."""

    output: list[object]
    input: str | list[object] | None = None
    id: str | None = None
    previous_response_id: str | None = None
    model: str | None = None
    tools: list[object] | None = None
    usage: _Usage | None = None
    error: _Problem | None = None
    created_at: float | None = None


@dataclass(frozen=True)
class _Request:
    input: str | list[object] | None = None
    previous_response_id: str | None = None
    model: str | None = None
    tools: list[object] | None = None


def load(source: str | PathLike[str], *, images: str | PathLike[str] | None = None) -> Iterator[Trajectory | BadLine]:
    """The runs of a file, or of the files below a folder that hold some.

    Ids are those of the last response, else the file's path, with `#2`, `#3`… for further runs. The goal of a run without a
    user's text is empty. Coordinates are pixels of the picture where no tool states the screen's size. Pictures given as data
    URLs are written to the folder `images`; without one, to a temporary folder, and go when the next run is asked for.
    """
    with image_store(images) as store:
        unpacked = RecordImages(store)
        for document in read_documents(source, _is_ours, *_PATTERNS):
            if isinstance(document, BadLine):
                yield document
                continue
            for place, run in _runs(document):
                unpacked.next_record()
                yield run if isinstance(run, BadLine) else read_record(place, partial(_trajectory, run, unpacked))


def recognise(source: Source) -> bool:
    """A response with its output, or an item that only this API has."""
    return source.has(_is_ours, *_PATTERNS)


def is_response(value: object) -> bool:
    """Whether a value is a response, with its request or alone."""
    if not isinstance(value, dict) or "custom_id" in value:
        return False
    inner = value.get("response")
    if isinstance(inner, dict) and isinstance(inner.get("output"), list):
        return True
    return isinstance(value.get("output"), list) and (
        value.get("object") == "response" or ("type" not in value and ("input" in value or "previous_response_id" in value))
    )


def is_item(value: object) -> bool:
    """Whether a value is an item that messages of other APIs do not have."""
    type_ = value.get("type") if isinstance(value, dict) else None
    return isinstance(type_, str) and (type_ == "reasoning" or type_.endswith(("_call", "_call_output")))


def _is_ours(file: Source) -> bool:
    value = file.value
    if is_response(value) or is_item(value):
        return True
    if isinstance(value, list):
        return any(is_response(one) or is_item(one) for one in value)
    # Lines of items: the first is the user's message.
    return isinstance(value, dict) and "role" in value and any(is_item(record) for record in file.records)


@dataclass(frozen=True)
class _Run:
    """The responses of one run in their order; of a list of items, one without an id."""

    id: str
    responses: tuple[Response, ...]


def _runs(document: Document) -> Iterator[tuple[str, _Run | BadLine]]:
    """The runs of a file, each with its place."""
    records = document.records
    if is_response(records[0][1]) or any(is_response(value) for _, value in records):
        yield from _chains(document)
        return
    items = [value for _, value in records]
    if len(items) == 1 and isinstance(items[0], list):
        items = items[0]
    yield document.place, _Run(document.name, (Response(output=[], input=items),))


def _chains(document: Document) -> Iterator[tuple[str, _Run | BadLine]]:
    """One run for each response that no other one continues."""
    read: dict[str, tuple[str, Response]] = {}  # by its id, or by its place
    for place, value in document.records:
        response = read_record(place, partial(parse_response, value))
        if isinstance(response, BadLine):
            yield place, response
        else:
            read[response.id or place] = place, response
    continued = {response.previous_response_id for _, response in read.values()}
    count = 0
    for key, (place, response) in read.items():
        if key in continued:
            continue
        count += 1
        chain, seen = [response], {key}
        while (before := chain[-1].previous_response_id) in read and before not in seen:
            seen.add(before)
            chain.append(read[before][1])
        name = document.name if count == 1 else f"{document.name}#{count}"
        yield place, _Run(response.id or name, tuple(reversed(chain)))


def parse_response(value: object) -> Response:
    """A response, with what was asked of the model next to it or in `request`. Raises InputError."""
    inner = value.get("response") if isinstance(value, dict) else None
    try:
        if not isinstance(value, Mapping) or not isinstance(inner, dict):
            return msgspec.convert(value, Response)
        request = msgspec.convert(value.get("request", value.get("responses_create_params", {})), _Request)
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


def _trajectory(run: _Run, images: RecordImages) -> Trajectory:
    return to_trajectory(run.id, run.responses, images)


def to_trajectory(id: str, responses: tuple[Response, ...], images: RecordImages) -> Trajectory:
    """The trajectory of responses that follow one another.

    Raises:
        InputError: An item or a picture is broken.
    """
    items = [part for response in responses for part in (_items(response.input, "user"), _items(response.output, "assistant"))]
    flat = [item for part in items for item in part]
    tools = next((response.tools for response in reversed(responses) if response.tools), [])
    size = screen_size(tools)
    chat = conversation(messages(flat), images, size, goal="", read=read_call, looks=LOOKS, measured=True)
    last = responses[-1]
    usages = [response.usage for response in responses if response.usage]
    metadata: dict[str, object] = {}
    for name, counts in (
        ("prompt_tokens", [usage.input_tokens for usage in usages]),
        ("completion_tokens", [usage.output_tokens for usage in usages]),
    ):
        if any(count is not None for count in counts):
            metadata[name] = sum(count or 0 for count in counts)
    if date := iso_date(responses[0].created_at):
        metadata["date"] = date
    if last.id:
        metadata["response_id"] = last.id
    error = last.error and (last.error.message or last.error.code)
    return Trajectory(
        id=id,
        task=Task(goal=chat.goal, platform=_platform(tools, flat)),
        agent=last.model,
        steps=chat.steps,
        final=chat.final,
        answer=chat.answer,
        metadata=with_claim(metadata, chat.claimed),
        error=error or None,
    )


def _items(value: str | list[object] | None, role: str) -> list[object]:
    return [{"role": role, "content": value}] if isinstance(value, str) else value or []


def _platform(tools: list[object], items: list[object]) -> Platform:
    environments = {tool.get("environment") for tool in tools if isinstance(tool, dict)}
    if any(isinstance(environment, str) and environment in _DESKTOPS for environment in environments):
        return "desktop"
    is_computer = any(isinstance(item, dict) and item.get("type") == COMPUTER for item in items)
    return "web" if is_computer else "other"
