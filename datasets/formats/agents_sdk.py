"""Reads spans of the OpenAI Agents SDK as its trace processors export them (`span.export()`): JSON
lines or a list.

A trace is a run. Spans of type `generation` hold the model's input and output; those of `response`
hold an id or, if a processor adds them, `input` and `response`. Without either, the spans of type
`function` are the actions, and the goal, which no other span holds, is empty.
(openai/openai-agents-python, src/agents/tracing/span_data.py; tried: 0.24.0.)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import field

from prill.datasets.reading.anthropic import messages as chat_messages
from prill.datasets.reading.chat import TokenUsage, count_tokens
from prill.datasets.reading.groups import RecordGroups
from prill.datasets.reading.images import RecordImages, Run, read_runs
from prill.datasets.reading.model_calls import ModelCall, ToolRun, to_trajectory
from prill.datasets.reading.records import Record, date_in, record_at
from prill.datasets.reading.responses import messages as item_messages
from prill.datasets.reading.sources import JSON_FILES, Document, Source, read_documents
from prill.errors import InputError
from prill.io.store import BadLine
from prill.types import StrPath, Trajectory

_TRACE, _SPAN = "trace", "trace.span"


class _Response(Record):
    output: list[object] = field(default_factory=list)
    model: str | None = None


class _Data(Record):
    type: str
    name: str | None = None
    input: str | list[object] | dict[str, object] | None = None
    output: str | list[object] | None = None
    model: str | None = None
    usage: TokenUsage | None = None
    response: _Response | None = None


class _Error(Record):
    message: str | None = None
    data: object = None


class _Span(Record):
    trace_id: str
    span_data: _Data
    started_at: str | None = None
    error: _Error | None = None


class _Head(Record):
    id: str
    workflow_name: str | None = None
    group_id: str | None = None


def recognise(source: Source) -> bool:
    """Returns whether the first record's `object` is that of the SDK."""
    return source.has(_matches_format, *JSON_FILES)


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the traces of a file, or of the files below a folder, each by its id.

    All spans of a trace must be in one file.
    """
    return read_runs(read_documents(source, _matches_format, JSON_FILES, _traces), images)


def _traces(document: Document) -> Iterator[Run | BadLine]:
    with RecordGroups(_Span) as spans, RecordGroups(_Head) as heads:
        for place, value in document.values():
            is_head = isinstance(value, dict) and value.get("object") == _TRACE
            record: _Head | _Span | BadLine = (
                record_at(place, value, _Head) if is_head else record_at(place, value, _Span)
            )
            if isinstance(record, BadLine):
                yield record
            elif isinstance(record, _Head):
                heads.add(record.id, record)
            else:
                spans.add(record.trace_id, record)
        for id in spans.runs():
            yield f"{document.place}:{id}", None, partial(_trajectory, id, spans, heads)


def _matches_format(file: Source) -> bool:
    first = file.value[0] if isinstance(file.value, list) and file.value else file.value
    return (
        isinstance(first, dict)
        and first.get("object") in (_TRACE, _SPAN)
        and ("span_data" in first or "workflow_name" in first)
    )


def _trajectory(
    id: str, groups: RecordGroups[_Span], heads: RecordGroups[_Head], images: RecordImages
) -> Trajectory:
    head = next(reversed(heads.read(id)), None)
    spans = sorted(groups.read(id), key=lambda span: span.started_at or "")
    calls = [call for span in spans if (call := _call(span.span_data)) is not None]
    runs = [
        ToolRun(
            data.name or "function",
            data.input if isinstance(data.input, str | dict) else None,
            _text(data.output),
        )
        for data in (span.span_data for span in spans)
        if data.type == "function"
    ]
    if not calls and not runs:
        raise InputError("this trace contains no model call and no function call")
    agent = next(
        (
            span.span_data.name
            for span in spans
            if span.span_data.type == "agent" and span.span_data.name
        ),
        None,
    )
    models = (
        data.model or (data.response.model if data.response else None)
        for data in (span.span_data for span in spans)
    )
    model = next((name for name in models if name), None)
    usages = [
        span.span_data.usage for span in spans if span.span_data.type in ("generation", "response")
    ]
    errors = (
        _error_text(span.error) for span in spans if span.error and span.span_data.type == "agent"
    )
    metadata = {
        "trace_id": id,
        "workflow": head.workflow_name if head else None,
        "session": head.group_id if head else None,
        **count_tokens(usages),
        "date": date_in(spans[0].started_at or ""),
    }
    return to_trajectory(
        id, calls, runs, images, agent=agent, model=model, metadata=metadata,
        error=next(errors, None),
    )  # fmt: skip


def _call(data: _Data) -> ModelCall | None:
    inputs = (
        [{"role": "user", "content": data.input}] if isinstance(data.input, str) else data.input
    )
    inputs = inputs if isinstance(inputs, list) else []
    if data.type == "generation":
        outputs = data.output if isinstance(data.output, list) else []
        return ModelCall(tuple(chat_messages(inputs)), tuple(chat_messages(outputs)))
    if data.type == "response" and (inputs or data.response):
        outputs = data.response.output if data.response else []
        return ModelCall(tuple(item_messages(inputs)), tuple(item_messages(outputs)))
    return None


def _text(output: str | list[object] | None) -> str | None:
    return output if isinstance(output, str) else str(output) if output else None


def _error_text(error: _Error) -> str:
    inner = error.data.get("error") if isinstance(error.data, dict) else None
    parts = (error.message, inner if isinstance(inner, str) else None)
    return ": ".join(part for part in parts if part) or "failed"
