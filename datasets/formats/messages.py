"""Reads lists of messages in the form of Anthropic's API or of chat completions.

A file is a list of messages, lines of them, an object with `messages` (and `system`, `tools`,
`model`, and the `response` to them), or lines of such objects. If requests each repeat the
conversation, the longest counts; if they continue a `thread`, they are joined by
`previous_message_id`. A run folder with `transcript.jsonl`, `images/` and `meta.json`
has the form that claude-quickstarts writes. (anthropics/claude-quickstarts,
computer-use-best-practices/computer_use/trajectory.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from prill.actions.tool_calls import screen_size
from prill.datasets.reading.anthropic import is_message, messages, read_call
from prill.datasets.reading.chat import LOOKS, TokenUsage, conversation, count_tokens
from prill.datasets.reading.groups import RecordGroups
from prill.datasets.reading.images import RecordImages, read_runs
from prill.datasets.reading.records import (
    Record,
    date_in,
    decode_json,
    decoded_lines,
    read_file,
    read_record,
)
from prill.datasets.reading.responses import is_item
from prill.datasets.reading.sources import JSON_FILES, Source, find_files, read_document
from prill.errors import InputError
from prill.io.store import BadLine
from prill.types import Platform, StrPath, Task, Trajectory

_TRANSCRIPT = re.compile(r"(?:^|/)transcript$")
_STARTED = re.compile(r"\A(\d{8})-(\d{6})")
# keys of records that hold messages as a part
_OTHERS = frozenset({"custom_id", "prompt", "completion", "steps", "history"})


class _Thread(Record):
    previous_message_id: str | None = None


class _Record(Record):
    messages: list[object]
    thread: _Thread | None = None
    id: str | None = None
    tools: list[object] | None = None
    model: str | None = None
    usage: TokenUsage | None = None
    response: dict[str, object] | None = None


class _Meta(Record):
    model: str | None = None
    task: str | None = None
    started: str | None = None


@dataclass(frozen=True)
class _Run:
    id: str
    messages: list[object]
    record: _Record = field(default_factory=lambda: _Record([]))
    meta: _Meta = field(default_factory=_Meta)


class _Threads:
    """The runs whose requests send new messages only and name the reply that they follow.

    Requests are kept on disk, by number; memory holds ids.
    """

    def __init__(self, groups: RecordGroups[_Record]) -> None:
        self._groups = groups
        self._parents: list[int | None] = []  # of each request the one that it continues
        # the last request of each run by the reply that it follows, with its place and its id
        self._ends: dict[str, tuple[int, str, str]] = {}
        # by its own reply: the key in `_ends`, and the request
        self._replied: dict[str, tuple[str, int]] = {}

    def starts(self, record: _Record) -> bool:
        """Returns whether a request continues none of those before it."""
        return _follows(record) not in self._replied

    def add(self, place: str, record: _Record, name: str) -> None:
        """Adds a request of a thread; one that is sent again replaces the first."""
        before, number = _follows(record), len(self._parents)
        key, id, parent = before or place, record.id or name, None
        if before in self._replied:
            end, parent = self._replied[before]
            last = self._ends.pop(end, self._ends.get(before))
            id = last[2] if last else id
        self._groups.add(str(number), record)
        self._parents.append(parent)
        self._ends[key] = number, place, id
        if isinstance(reply := (record.response or {}).get("id"), str):
            self._replied[reply] = key, number

    def runs(self) -> Iterator[tuple[str, _Run | BadLine]]:
        """Yields each run with its position, one in memory at a time."""
        for number, place, id in self._ends.values():
            yield place, read_record(place, partial(self._run, number, id))

    def _run(self, last: int, id: str) -> _Run:
        numbers: list[str] = []
        at: int | None = last
        while at is not None:
            numbers.append(str(at))
            at = self._parents[at]
        records = self._groups.read(*reversed(numbers))
        tools = next((record.tools for record in reversed(records) if record.tools), None)
        return _Run(
            id,
            [message for record in records for message in _with_response(record)],
            replace(records[-1], tools=tools),
        )


def _follows(record: _Record) -> str | None:
    return record.thread.previous_message_id if record.thread else None


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the runs of a file, or of the files below a folder.

    Ids are the records' own, else the path of the file (for a transcript, of its folder), with
    `#2`, `#3`… for further runs. The goal is the first text of a user, else the task in
    `meta.json`, else empty. Calls of `screenshot` and `zoom` are not steps. Coordinates are pixels
    of the last image of the whole screen if no tool states the screen's size. Image paths are
    relative to the file.
    """
    return read_runs(
        (
            run if isinstance(run, BadLine) else (place, path.parent, partial(_trajectory, run))
            for path, name in find_files(source, _matches_format, *JSON_FILES)
            for place, run in _runs(path, name)
        ),
        images,
    )


def recognise(source: Source) -> bool:
    """Returns whether records have a role and content, or a list of such under `messages`."""
    return source.has(_matches_format, *JSON_FILES)


def _matches_format(file: Source) -> bool:
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


def _runs(path: Path, name: str) -> Iterator[tuple[str, _Run | BadLine]]:
    value = Source(path).value
    if isinstance(value, dict) and _holds_messages(value):
        lines = ((place, line) for place, _, line in decoded_lines(path, object))
        yield from _of_records(lines, name)
        return
    document = read_record(str(path), partial(read_document, path, name))
    if isinstance(document, BadLine):
        yield document.place, document
        return
    if _TRANSCRIPT.search(name):
        name = name.rpartition("/")[0] or path.resolve().parent.name
    records = read_record(document.place, document.read_all)
    if isinstance(records, BadLine):
        yield document.place, records
        return
    values = [value for _, value in records if not isinstance(value, BadLine)]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if values and all(map(is_message, values)):
        yield from ((place, value) for place, value in records if isinstance(value, BadLine))
        yield document.place, _Run(name, values, meta=_meta(path))
        return
    yield from _of_records(records, name)


def _of_records(
    records: Iterable[tuple[str, object | BadLine]], name: str
) -> Iterator[tuple[str, _Run | BadLine]]:
    """Yields the runs of records; of requests that repeat the conversation, the longest."""
    with RecordGroups(_Record) as groups:
        threads = _Threads(groups)
        yield from _joined(records, name, threads)
        yield from threads.runs()


def _joined(
    records: Iterable[tuple[str, object | BadLine]], name: str, threads: _Threads
) -> Iterator[tuple[str, _Run | BadLine]]:
    """Yields the runs of records without threads, and adds the others to the threads."""
    before: tuple[str, _Run] | None = None
    count = 0
    for place, value in records:
        record = (
            value if isinstance(value, BadLine) else read_record(place, partial(_record, value))
        )
        if isinstance(record, BadLine):
            if before is not None:
                yield before
            before = None
            yield place, record
            continue
        if record.thread is not None:
            count += threads.starts(record)
            threads.add(place, record, _numbered(name, count))
            continue
        repeats = (
            before is not None
            and _repeats(record.messages, before[1].record.messages)
            and record.id in (None, before[1].record.id)
        )
        if before is not None and not repeats:
            yield before
        count += not repeats
        id = record.id or _numbered(name, count)
        before = place, _Run(id, _with_response(record), record)
    if before is not None:
        yield before


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name}#{count}"


def _with_response(record: _Record) -> list[object]:
    """Returns the messages of a request and of its response."""
    response = record.response
    return [*record.messages, *([response] if response and is_message(response) else [])]


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


def _meta(path: Path) -> _Meta:
    file = path.parent / "meta.json"
    try:
        return decode_json(read_file(file), _Meta) if file.is_file() else _Meta()
    except InputError:
        return _Meta()


def _trajectory(run: _Run, images: RecordImages) -> Trajectory:
    tools, record = run.record.tools or [], run.record
    read = messages(run.messages)
    goal = run.meta.task or ""
    chat = conversation(
        read, images, screen_size(tools), goal=goal, read=read_call, looks=LOOKS, measured=True
    )
    started = _STARTED.match(run.meta.started or "")
    return chat.trajectory(
        run.id,
        Task(goal=chat.goal, platform=_platform(run.messages)),
        agent=record.model or run.meta.model,
        metadata={
            **count_tokens([record.usage]),
            "date": date_in(f"{started[1]}T{started[2]}") if started else None,
        },
        error=_error(record.response),
    )


def _error(response: dict[str, object] | None) -> str | None:
    """Returns the message of a response that is an error of the API."""
    error = (response or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else None


def _platform(values: list[object]) -> Platform:
    """Returns desktop if the agent calls the tool `computer`, web if it calls a browser's tool."""
    names = set()
    for value in values:
        content = value.get("content") if isinstance(value, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                names |= {str(block.get("toolset_name") or ""), str(block.get("name") or "")}
    if any(name == "browser" or "browser_" in name for name in names):
        return "web"
    return "desktop" if names & {"computer", "computer_batch"} else "other"
