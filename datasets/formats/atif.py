"""Reads and annotates ATIF, Harbor's Agent Trajectory Interchange Format, one JSON document per run
(versions 1.0 to 1.8).

The reader takes the steps with their calls, results and images, the agent's name and model, and the
tokens and cost. It skips `notes` and `extra`, which belong to the writers, and trajectories of
sub-agents inside a document. Steps copied from an earlier document (`is_copied_context`) are kept:
they happened in the same run. Calls of the harness computer-1 are read by
`prill.datasets.formats.atif`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import structs

from prill.actions.tool_calls import fraction, parsed, screen_size, scroll_direction, tool_action
from prill.datasets.reading.chat import ChatMessage, ContentPart, ToolCall, conversation
from prill.datasets.reading.images import RecordImages, image_size_or_none, read_runs
from prill.datasets.reading.records import Record, date_in, decode_json, read_file
from prill.datasets.reading.sources import Source
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import Action, Point, StrPath, Task, Trajectory

# the id prefix of the harness's own call, before the agent gets the task
_START = "call_start_url_navigation"
_MARK = b"ATIF-v"  # the prefix of `schema_version`
_Number = TypeVar("_Number", int, float)


class _Source(Record):
    path: str


class _Part(Record):
    type: str = "text"
    text: str | None = None
    source: _Source | None = None


class _Call(Record):
    function_name: str
    tool_call_id: str | None = None
    arguments: dict[str, object] | str | None = None


class _Result(Record):
    source_call_id: str | None = None
    content: str | tuple[_Part, ...] | None = None


class _Results(Record):
    results: tuple[_Result, ...] = ()


class _Metrics(Record):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


class _Totals(Record):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cost_usd: float | None = None


class _Step(Record):
    source: Literal["system", "user", "agent"]
    message: str | tuple[_Part, ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[_Call, ...] | None = None
    observation: _Results | None = None
    metrics: _Metrics | None = None
    timestamp: object = None


class _Agent(Record):
    name: str
    model_name: str | None = None
    tool_definitions: tuple[object, ...] | None = None


class _Document(Record):
    schema_version: str
    agent: _Agent
    steps: tuple[_Step, ...]
    session_id: str | None = None
    trajectory_id: str | None = None
    final_metrics: _Totals | None = None


def recognise(source: Source) -> bool:
    """Returns whether documents state a version of ATIF."""
    return source.has(
        lambda file: _MARK in file.head and {"schema_version", "steps"} <= file.keys, "*.json"
    )


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the run of a file, or of every ATIF document below a folder; other JSON files are
    skipped.

    Ids are `trajectory_id`, else `session_id`, else the file's path; repeated ids get the suffix
    `#2`, `#3`…. Image paths are relative to the document and must stay below its folder.
    """
    ids = set[str]()
    return read_runs(
        (
            data
            if isinstance(data, BadLine)
            else (str(path), path.parent, partial(_read, data, name, ids))
            for path, name, data in _files(Path(source))
        ),
        images,
    )


def _files(root: Path) -> Iterator[tuple[Path, str, bytes | BadLine]]:
    """Yields every document with its path, and its path below the root without the suffix."""
    if not root.exists():
        raise UsageError(f"{root}: no such file or folder")
    any_document = False
    for path in (
        sorted(path for path in root.rglob("*.json") if path.is_file()) if root.is_dir() else [root]
    ):
        name = path.relative_to(root).with_suffix("").as_posix() if root.is_dir() else path.stem
        try:
            data = read_file(path)
        except InputError as error:
            yield path, name, BadLine(str(path), str(path), str(error), b"")
            continue
        if not root.is_dir() or _MARK in data:
            any_document = True
            yield path, name, data
    if not any_document:
        raise UsageError(f"{root}: expected JSON files with an ATIF schema_version")


def _decoded(data: bytes) -> _Document:
    document = decode_json(data, _Document)
    if not document.schema_version.encode().startswith(_MARK):
        raise InputError(f"schema_version is {document.schema_version!r}; expected ATIF-v1.…")
    return document


def _read(data: bytes, name: str, ids: set[str], images: RecordImages) -> Trajectory:
    document = _decoded(data)
    messages = [message for step in document.steps for message in _messages(step)]
    computer_steps = [
        step
        for step in document.steps
        if any(call.function_name == NAME for call in step.tool_calls or ())
    ]
    size = screen_size(document.agent.tool_definitions or ()) or (
        _desktop_size(document, images) if computer_steps else None
    )
    chat = conversation(messages, images, size, read=ComputerActions())
    start_url = _start_url(document)
    id = _unique(document.trajectory_id or document.session_id or name, ids)
    agent = document.agent
    return chat.trajectory(
        id,
        Task(
            goal=chat.goal,
            platform="web" if start_url else "desktop" if computer_steps else "other",
            start_url=start_url,
        ),
        agent=f"{agent.name} ({agent.model_name})" if agent.model_name else agent.name,
        metadata={**_usage(document), "date": _date(document)},
    )


def _unique(id: str, ids: set[str]) -> str:
    free, count = id, 1
    while free in ids:
        count += 1
        free = f"{id}#{count}"
    ids.add(free)
    return free


def _desktop_size(document: _Document, images: RecordImages) -> tuple[float, float] | None:
    """Returns the size of the first image of the whole desktop, so not of the one after a zoom."""
    for step in document.steps:
        if any(
            isinstance(c.arguments, dict) and c.arguments.get("type") == "zoom"
            for c in step.tool_calls or ()
        ):
            continue
        contents = [
            step.message,
            *(result.content for result in (step.observation.results if step.observation else ())),
        ]
        parts = [part for content in contents if isinstance(content, tuple) for part in content]
        for source in (part.source for part in parts if part.type == "image" and part.source):
            path = images.file(source.path)
            if path is not None and (size := image_size_or_none(path)):
                return size
    return None


def _start_url(document: _Document) -> str | None:
    """Returns the URL that the harness opened before the agent's first step."""
    for call in document.steps[0].tool_calls or () if document.steps else ():
        if (
            call.tool_call_id == _START
            and isinstance(call.arguments, dict)
            and isinstance(url := call.arguments.get("url"), str)
        ):
            return url
    return None


def _messages(step: _Step) -> Iterator[ChatMessage]:
    role = "assistant" if step.source == "agent" else step.source
    calls, results = step.tool_calls or (), step.observation.results if step.observation else ()
    if any(
        isinstance(c.arguments, dict)
        and c.function_name == NAME
        and c.arguments.get("type") in FINAL_TYPES
        for c in calls
    ):
        # the same final message, repeated
        calls = tuple(call for call in calls if call.function_name != COMPLETED)
    elif len(calls) == 1 and calls[0].function_name == COMPLETED and not _has_result(calls[0]):
        # If an agent ended without an action, its message is in the field for the action's result.
        output = "\n".join(text for result in results if (text := _text(result.content)))
        calls = (structs.replace(calls[0], arguments={"result": output}),)
        results = tuple(
            structs.replace(result, content=_pictures(result.content)) for result in results
        )
    yield ChatMessage(
        role,
        _parts(step.message),
        tool_calls=tuple(
            ToolCall(c.tool_call_id, name=c.function_name, arguments=c.arguments) for c in calls
        ),
        reasoning_content=step.reasoning_content,
    )
    for result in results:
        yield ChatMessage("tool", _parts(result.content), tool_call_id=result.source_call_id)


def _has_result(call: _Call) -> bool:
    return isinstance(call.arguments, dict) and bool(call.arguments.get("result"))


def _text(content: str | tuple[_Part, ...] | None) -> str:
    return (
        content or ""
        if not isinstance(content, tuple)
        else "\n".join(part.text for part in content if part.text)
    )


def _pictures(content: str | tuple[_Part, ...] | None) -> tuple[_Part, ...]:
    return (
        tuple(part for part in content if part.type == "image")
        if isinstance(content, tuple)
        else ()
    )


def _parts(content: str | tuple[_Part, ...] | None) -> str | tuple[ContentPart, ...] | None:
    if not isinstance(content, tuple):
        return content
    return tuple(
        ContentPart(
            part.type, part.text, part.source.path if part.type == "image" and part.source else None
        )
        for part in content
    )


def _date(document: _Document) -> str | None:
    return next((date for step in document.steps if (date := date_in(str(step.timestamp)))), None)


def _usage(document: _Document) -> dict[str, int | float | None]:
    """Returns the run's totals, or the sums over its steps if the document states none."""
    totals, steps = (
        document.final_metrics or _Totals(),
        [step.metrics for step in document.steps if step.metrics],
    )
    return {
        "prompt_tokens": _stated_or_sum(
            totals.total_prompt_tokens, [m.prompt_tokens for m in steps]
        ),
        "completion_tokens": _stated_or_sum(
            totals.total_completion_tokens, [m.completion_tokens for m in steps]
        ),
        "cost_usd": _stated_or_sum(totals.total_cost_usd, [m.cost_usd for m in steps]),
    }


def _stated_or_sum(stated: _Number | None, parts: Sequence[_Number | None]) -> _Number | None:
    numbers = [part for part in parts if part is not None]
    return stated if stated is not None else sum(numbers[1:], start=numbers[0]) if numbers else None


NAME, COMPLETED = "computer_action", "mark_task_complete"
FINAL_TYPES = frozenset({"done", "answer", "terminate"})
_GRID, _SOURCE = (999.0, 999.0), "normalized_completion"
# Internal calls of the harness, which are not actions.
_NOT_SHOWN = frozenset({"type", "source", "model_x", "model_y", "metadata"})
_Box = tuple[float, float, float, float]


class ComputerActions:
    """Reads the calls of one run in order.

    A zoom changes the meaning of the next action's position.
    """

    def __init__(self) -> None:
        self._shown: _Box | None = None

    def __call__(
        self,
        name: str,
        arguments: Mapping[str, object] | str,
        size: tuple[float, float] | None = None,
    ) -> Action:
        """Returns the action of a call; calls of other tools are parsed by `tool_action`."""
        values = parsed(arguments)
        if name == COMPLETED and values is not None:
            return replace(
                tool_action(name, _given(values)), kind="stop", value=_plain_text(values)
            )
        if name != NAME or values is None or not isinstance(type_ := values.get("type"), str):
            return tool_action(name, arguments, size)
        shown, self._shown = (
            self._shown,
            _box(values.get("zoom_region")) if type_ == "zoom" else None,
        )
        action = tool_action(type_, _given(values))
        return replace(
            action,
            kind="right_click"
            if action.kind == "click" and values.get("button") == "right"
            else action.kind,
            value=_value(type_, values, action),
            point=_place(values, "x", "y", size, shown),
            end_point=_place(values, "end_x", "end_y", size, shown),
        )


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {
        key: value for key, value in values.items() if value is not None and key not in _NOT_SHOWN
    }


def _value(type_: str, values: Mapping[str, object], action: Action) -> str | None:
    if type_ in FINAL_TYPES:
        return _plain_text(values)
    if type_ == "scroll":
        return scroll_direction(values.get("scroll_x"), values.get("scroll_y"))
    # it presses Enter unless the call disables it
    if type_ == "type_text_at" and values.get("press_enter") is not False:
        return f"{action.value or ''}\n"
    return action.value


def _plain_text(values: Mapping[str, object]) -> str | None:
    """Returns the agent's final message."""
    return next(
        (text for key in ("result", "text") if isinstance(text := values.get(key), str) and text),
        None,
    )


def _place(
    values: Mapping[str, object],
    x: str,
    y: str,
    size: tuple[float, float] | None,
    shown: _Box | None,
) -> Point | None:
    horizontal, vertical = values.get(x), values.get(y)
    if values.get("source") == _SOURCE:
        on_grid = (values.get("model_x"), values.get("model_y"))
        if on_grid == (None, None):
            return fraction(horizontal, vertical, _GRID)
        if shown is None and x == "x":
            return fraction(*on_grid, _GRID)
    if shown is None:
        return fraction(horizontal, vertical, size)
    if not isinstance(horizontal, int | float) or not isinstance(vertical, int | float):
        return None
    left, top, right, bottom = shown
    return fraction(horizontal - left, vertical - top, (right - left, bottom - top))


def _box(region: object) -> _Box | None:
    if (
        not isinstance(region, list)
        or len(region) != 4
        or not all(isinstance(edge, int | float) for edge in region)
    ):
        return None
    left, top, right, bottom = map(float, region)
    return (left, top, right, bottom) if left < right and top < bottom else None
