"""Reads lists of messages in the form of Anthropic's API or of chat completions.

A file is a list of messages, lines of them, an object with `messages` (and `system`, `tools`,
`model`, and the `response` to them), or lines of such objects. If requests each repeat the
conversation, the longest counts. A run folder with `transcript.jsonl`, `images/` and `meta.json`
has the form that claude-quickstarts writes. (anthropics/claude-quickstarts,
computer-use-best-practices/computer_use/trajectory.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike

import msgspec

from prill.actions.ending import with_claim
from prill.actions.tool_calls import screen_size
from prill.datasets.reading.anthropic import is_message, messages, read_call
from prill.datasets.reading.chat import LOOKS, conversation
from prill.datasets.reading.images import ImageStore, RecordImages, image_store
from prill.datasets.reading.records import UNREADABLE, date_in, read_record
from prill.datasets.reading.responses import is_item
from prill.datasets.reading.sources import Document, Source, read_documents
from prill.errors import InputError
from prill.io.store import BadLine
from prill.types import Platform, Task, Trajectory

_PATTERNS = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz")
_TRANSCRIPT = re.compile(r"(?:^|/)transcript$")
_STARTED = re.compile(r"\A(\d{8})-(\d{6})")
# keys of records that hold messages as a part
_OTHERS = frozenset({"custom_id", "prompt", "completion", "steps", "history"})


@dataclass(frozen=True)
class _Usage:
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class _Record:
    messages: list[object]
    id: str | None = None
    tools: list[object] | None = None
    model: str | None = None
    usage: _Usage | None = None
    response: dict[str, object] | None = None


@dataclass(frozen=True)
class _Meta:
    model: str | None = None
    task: str | None = None
    started: str | None = None


@dataclass(frozen=True)
class _Run:
    id: str
    messages: list[object]
    record: _Record = field(default_factory=lambda: _Record([]))
    meta: _Meta = _Meta()


def load(
    source: str | PathLike[str], *, images: str | PathLike[str] | None = None
) -> Iterator[Trajectory | BadLine]:
    """Yields the runs of a file, or of the files below a folder.

    Ids are the records' own, else the path of the file (for a transcript, of its folder), with
    `#2`, `#3`… for further runs. The goal is the first text of a user, else the task in
    `meta.json`, else empty. Calls of `screenshot` and `zoom` are not steps. Coordinates are pixels
    of the last image of the whole screen if no tool states the screen's size. Image paths are
    relative to the file; embedded images are written to the folder `images`; without one, to a
    temporary folder whose images are removed when the next run is requested.
    """
    with image_store(images) as store:
        for document in read_documents(source, _is_ours, *_PATTERNS):
            if isinstance(document, BadLine):
                yield document
            else:
                yield from _document(document, store)


def recognise(source: Source) -> bool:
    """Returns whether records have a role and content, or a list of such records under
    `messages`.
    """
    return source.has(_is_ours, *_PATTERNS)


def _is_ours(file: Source) -> bool:
    value = file.value
    if isinstance(value, list):
        return bool(value) and all(map(is_message, value)) and not any(map(is_item, value))
    if is_message(value):
        return not any(map(is_item, file.records))
    return isinstance(value, dict) and _holds_messages(value)


def _holds_messages(record: dict[str, object]) -> bool:
    inner = record.get("messages", _request(record).get("messages"))
    return (
        not record.keys() & _OTHERS
        and isinstance(inner, list)
        and bool(inner)
        and all(map(is_message, inner))
    )


def _request(record: dict[str, object]) -> dict[str, object]:
    request = record.get("request")
    return request if isinstance(request, dict) else {}


def _document(document: Document, store: ImageStore) -> Iterator[Trajectory | BadLine]:
    unpacked = RecordImages(store, document.path.parent)
    for place, run in _runs(document):
        yield (
            run
            if isinstance(run, BadLine)
            else read_record(place, partial(_trajectory, run, unpacked))
        )
        unpacked.next_record()


def _runs(document: Document) -> Iterator[tuple[str, _Run | BadLine]]:
    name = document.name
    if _TRANSCRIPT.search(name):
        name = name.rpartition("/")[0] or document.path.resolve().parent.name
    values = [value for _, value in document.records]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if values and all(map(is_message, values)):
        yield document.place, _Run(name, values, meta=_meta(document))
        return
    kept: list[tuple[str, _Run | BadLine]] = []
    count = 0
    for place, value in document.records:
        record = read_record(place, partial(_record, value))
        if isinstance(record, BadLine):
            kept.append((place, record))
            continue
        before = kept[-1][1] if kept else None
        if (
            isinstance(before, _Run)
            and _repeats(record.messages, before.record.messages)
            and record.id in (None, before.record.id)
        ):
            kept.pop()
        else:
            count += 1
        id = record.id or (name if count == 1 else f"{name}#{count}")
        response = [record.response] if record.response and is_message(record.response) else []
        kept.append((place, _Run(id, [*record.messages, *response], record)))
    yield from kept


def _repeats(messages: list[object], before: list[object]) -> bool:
    """Returns whether a request continues the conversation of the previous one."""
    return len(messages) > len(before) > 0 and messages[: len(before)] == before


def _record(value: object) -> _Record:
    if not isinstance(value, dict):
        raise InputError(f"expected an object with messages, got {type(value).__name__}")
    try:
        record = msgspec.convert({**_request(value), **value}, _Record)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(str(error)) from None
    response = record.response or {}
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        chosen = choices[0].get("message")
        return replace(record, response=chosen if isinstance(chosen, dict) else None)
    return record


def _meta(document: Document) -> _Meta:
    try:
        return msgspec.json.decode((document.path.parent / "meta.json").read_bytes(), type=_Meta)
    except (OSError, *UNREADABLE):
        return _Meta()


def _trajectory(run: _Run, images: RecordImages) -> Trajectory:
    tools, record = run.record.tools or [], run.record
    read = messages(run.messages)
    goal = run.meta.task or ""
    chat = conversation(
        read, images, screen_size(tools), goal=goal, read=read_call, looks=LOOKS, measured=True
    )
    usage = record.usage or _Usage()
    started = _STARTED.match(run.meta.started or "")
    metadata: dict[str, object] = {
        "prompt_tokens": usage.input_tokens
        if usage.input_tokens is not None
        else usage.prompt_tokens,
        "completion_tokens": usage.output_tokens
        if usage.output_tokens is not None
        else usage.completion_tokens,
        "date": date_in(f"{started[1]}T{started[2]}") if started else None,
    }
    return Trajectory(
        id=run.id,
        task=Task(goal=chat.goal, platform=_platform(run.messages)),
        agent=record.model or run.meta.model,
        steps=chat.steps,
        final=chat.final,
        answer=chat.answer,
        metadata=with_claim(
            {key: value for key, value in metadata.items() if value is not None}, chat.claimed
        ),
    )


def _platform(values: list[object]) -> Platform:
    """Returns desktop if the agent calls the tool `computer`, and web if it calls a browser's
    tool.
    """
    names = set()
    for value in values:
        content = value.get("content") if isinstance(value, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                names |= {str(block.get("toolset_name") or ""), str(block.get("name") or "")}
    if any(name == "browser" or "browser_" in name for name in names):
        return "web"
    return "desktop" if names & {"computer", "computer_batch"} else "other"
