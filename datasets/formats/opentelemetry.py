"""Reads OpenTelemetry traces in the conventions of OpenInference (Phoenix, Arize) or GenAI, in
JSON.

A trace is a run.

Model calls repeat the conversation and are merged (`prill.datasets.reading.model_calls`); tool runs
provide the results that no call contains. If there are no model messages at all, as by default in
GenAI, the tool runs are the actions, and the agent's span has the goal and the answer. An image
that is redacted, or stored elsewhere, is named as text.

Spans of kind EVALUATOR, events `gen_ai.evaluation.result` and annotations are labels and not part
of the run. (Arize-ai/openinference, spec/semantic_conventions.md;
open-telemetry/semantic-conventions-genai, docs/gen-ai. Tried: openinference-instrumentation-openai
0.1.66, opentelemetry-instrumentation-openai-v2 2.4b0.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from prill.datasets.reading.anthropic import messages as chat_messages
from prill.datasets.reading.chat import ChatMessage
from prill.datasets.reading.groups import RecordGroups
from prill.datasets.reading.images import RecordImages, read_runs
from prill.datasets.reading.model_calls import ModelCall, ToolRun, to_trajectory
from prill.datasets.reading.records import iso_date, read_record
from prill.datasets.reading.sources import JSON_FILES, Document, Source, read_documents
from prill.datasets.reading.spans import Span, find_text, is_span, nested, spans_in, value_at
from prill.errors import InputError
from prill.io.store import BadLine
from prill.types import LabelRecord, StrPath, Trajectory

_KIND, _OPERATION = "openinference.span.kind", "gen_ai.operation.name"
_MESSAGES = (
    "llm.input_messages",
    "gen_ai.input.messages",
    "llm.output_messages",
    "gen_ai.output.messages",
)
# the event that has the messages if the span has none
_DETAILS = "gen_ai.client.inference.operation.details"
_SESSIONS = ("session.id", "gen_ai.conversation.id")
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_NOTES = ("annotations", "trace.annotations", "evaluations", "trace.evaluations")
_EVALUATOR, _RESULT = "EVALUATOR", "gen_ai.evaluation.result"
_SOURCES = {"HUMAN": "human", "LLM": "llm-judge", "CODE": "oracle"}
_OUTCOMES = {
    **dict.fromkeys(("pass", "passed", "correct", "success", "true", "yes"), True),
    **dict.fromkeys(("fail", "failed", "incorrect", "failure", "false", "no"), False),
}
_Read = dict[bytes, tuple[ChatMessage, ...]]


@dataclass(frozen=True)
class _Trace:
    """The spans of a run, by start time."""

    id: str
    spans: list[Span]


# The id of a run, and the function that reads its spans.
_Unread = tuple[str, Callable[[], _Trace]]


def recognise(source: Source) -> bool:
    """Returns whether the first record has the ids of a trace and a span."""
    return source.has(_matches_format, *JSON_FILES)


def load(
    source: StrPath, *, images: StrPath | None = None, by: Literal["trace", "session"] = "trace"
) -> Iterator[Trajectory | BadLine]:
    """Yields the traces of a file, or of the files below a folder; all spans of a trace must be in
    one file.

    Args:
        source: The file or folder: JSON documents or lines.
        images: The folder for images; None: a temporary folder whose images are removed when the
            next run is requested.
        by: The unit of a run: a trace, or all traces of a session (`session.id`,
            `gen_ai.conversation.id`).
    """
    return read_runs(
        (
            trace
            if isinstance(trace, BadLine)
            else (trace[0], None, partial(_trajectory, trace[1]))
            for trace in _traces(source, by)
        ),
        images,
    )


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the evaluations of a trace as labels.

    A score of at least 0.5 and at most 1, or a positive label, is success.

    The source is `human`, `llm-judge` or `oracle` for annotations by people, models and code, else
    the evaluation's name.
    """
    for unread in _traces(source, "trace"):
        trace = unread if isinstance(unread, BadLine) else read_record(*unread)
        if isinstance(trace, BadLine):
            yield trace
            continue
        for name, value in _evaluations(trace):
            success, note = _verdict(value)
            kind = value.get("annotator_kind")
            labelled = _SOURCES.get(str(kind).upper(), name or "evaluator")
            yield LabelRecord(
                id=trace.id, success=success, source=labelled, annotator=name or None, note=note
            )


def _matches_format(file: Source) -> bool:
    value = file.value
    listed = value.get("data", value.get("spans")) if isinstance(value, dict) else value
    return is_span(listed[0] if isinstance(listed, list) and listed else value)


def _traces(source: StrPath, by: str) -> Iterator[_Unread | BadLine]:
    return read_documents(source, _matches_format, JSON_FILES, partial(_of_document, by))


def _of_document(by: str, document: Document) -> Iterator[_Unread | BadLine]:
    sessions: dict[str, str] = {}  # by trace
    with RecordGroups(Span) as groups:
        for place, value in document.records():
            spans = (
                value
                if isinstance(value, BadLine)
                else read_record(place, lambda: list(spans_in(value)))  # noqa: B023 - called at once
            )
            if isinstance(spans, BadLine):
                yield spans
                continue
            for span in spans:
                groups.add(span.trace, span)
                if by == "session" and (text := find_text(span.attributes, *_SESSIONS)):
                    sessions.setdefault(span.trace, text)
        runs: dict[str, list[str]] = {}
        for trace in groups.runs():
            runs.setdefault(sessions.get(trace, trace), []).append(trace)
        for id, traces in runs.items():

            def read(id: str = id, traces: list[str] = traces) -> _Trace:
                return _Trace(id, sorted(groups.read(*traces), key=lambda span: span.start))

            yield id, read


def _trajectory(read: Callable[[], _Trace], images: RecordImages) -> Trajectory:
    trace = read()
    spans = list(_without_evaluators(trace.spans))
    ids = {span.id for span in spans}
    roots = [span for span in spans if span.parent not in ids]
    known: _Read = {}
    calls = [
        call for span in spans if _is_call(span) and (call := _model_call(span, known)) is not None
    ]
    tools = [_tool_run(span) for span in spans if _is_tool(span)]
    goal = _first(
        _read_text(span, "input.value", "gen_ai.input.messages", "user") for span in roots
    )
    answer = _first(
        _read_text(span, "output.value", "gen_ai.output.messages", "assistant") for span in roots
    )
    agents = (find_text(span.attributes, "agent.name", "gen_ai.agent.name") for span in spans)
    agent = _first(agents) or _first(span.service for span in spans)
    model = _first(_model(span) for span in spans if _is_call(span))
    metadata: dict[str, object] = {"trace_id": trace.spans[0].trace}
    for name, keys in (
        ("prompt_tokens", ("llm.token_count.prompt", "gen_ai.usage.input_tokens")),
        ("completion_tokens", ("llm.token_count.completion", "gen_ai.usage.output_tokens")),
    ):
        counts = [
            count for span in spans if _is_call(span) and (count := _count(span, keys)) is not None
        ]
        if counts:
            metadata[name] = sum(counts)
    metadata["date"] = iso_date(spans[0].start) if spans and spans[0].start else None
    error = _first(span.error for span in roots)
    run = to_trajectory(
        trace.id, calls, tools, images, goal=goal or "", answer=answer, agent=agent, model=model,
        metadata=metadata, error=error,
    )  # fmt: skip
    if not run.steps and not run.task.goal and not any(map(_is_agent, roots)):
        raise InputError("this trace contains no model call and no tool run")
    return run


def _first(texts: Iterable[str | None]) -> str | None:
    """Returns the first text that is not empty."""
    return next(filter(None, texts), None)


def _without_evaluators(spans: Iterable[Span]) -> Iterator[Span]:
    """Yields the spans except evaluators and their descendants.

    `spans` are sorted by start, so parents mostly precede their children.
    """
    spans = list(spans)
    parents = {span.id: span.parent for span in spans}
    hidden = {span.id for span in spans if span.attributes.get(_KIND) == _EVALUATOR}
    if not hidden:
        yield from spans
        return
    for span in spans:
        at: str | None = span.id
        seen: set[str] = set()
        while at is not None and at not in hidden and at not in seen:
            seen.add(at)
            at = parents.get(at)
        if at not in hidden:
            yield span


def _is_call(span: Span) -> bool:
    operation = span.attributes.get(_OPERATION)
    return span.attributes.get(_KIND) == "LLM" or (
        _KIND not in span.attributes
        and (operation in ("chat", "text_completion", "generate_content"))
    )


def _is_tool(span: Span) -> bool:
    return span.attributes.get(_KIND) == "TOOL" or (
        _KIND not in span.attributes and span.attributes.get(_OPERATION) == "execute_tool"
    )


def _is_agent(span: Span) -> bool:
    return (
        span.attributes.get(_KIND) in ("AGENT", "CHAIN")
        or span.attributes.get(_OPERATION) == "invoke_agent"
    )


def _model(span: Span) -> str | None:
    return find_text(
        span.attributes, "llm.model_name", "gen_ai.response.model", "gen_ai.request.model"
    )


def _count(span: Span, keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = value_at(span.attributes, key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _model_call(span: Span, read: _Read) -> ModelCall | None:
    attributes = span.attributes
    for name, event_attributes in span.events:
        if name == _DETAILS:
            attributes = {**event_attributes, **attributes}
    found = nested(attributes, *_MESSAGES)
    inputs, outputs = (
        found[_MESSAGES[0]] or found[_MESSAGES[1]],
        found[_MESSAGES[2]] or found[_MESSAGES[3]],
    )
    call = ModelCall(tuple(_messages(inputs, read)), tuple(_messages(outputs, read)))
    return call if call.inputs or call.outputs else None


def _tool_run(span: Span) -> ToolRun:
    attributes = span.attributes
    name = find_text(attributes, "tool.name", "gen_ai.tool.name") or span.name
    arguments = find_text(
        attributes, "gen_ai.tool.call.arguments", "tool.parameters", "input.value"
    )
    result = find_text(attributes, "gen_ai.tool.call.result", "output.value")
    id = find_text(attributes, "gen_ai.tool.call.id", "tool.id", "tool_call.id")
    return ToolRun(name, arguments, result, id)


def _read_text(span: Span, text_key: str, messages_key: str, role: str) -> str | None:
    """Returns the text of an agent's input or output."""
    if text := find_text(span.attributes, text_key):
        return text
    value = nested({messages_key: value_at(span.attributes, messages_key)}, messages_key)[
        messages_key
    ]
    messages = [message for message in _messages(value) if message.role == role]
    texts = [
        part.text
        for message in messages
        if isinstance(message.content, tuple)
        for part in message.content
        if part.text
    ]
    return "\n".join(texts) or None


def _messages(values: object, read: _Read | None = None) -> Iterator[ChatMessage]:
    """Yields the messages of an attribute.

    `read` are those of earlier calls, which later ones repeat.
    """
    read = {} if read is None else read
    for value in values if isinstance(values, list) else ():
        if isinstance(value, dict):
            text = msgspec.json.encode(value)
            if text not in read:
                inner = value.get("message")
                read[text] = tuple(
                    chat_messages(_plain_messages(inner if isinstance(inner, dict) else value))
                )
            yield from read[text]


def _plain_messages(message: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Converts a message of either convention to chat completions; tool results are separate."""
    role = str(message.get("role") or "user").lower()
    role = _ROLES.get(role, role)
    parts, content = message.get("contents", message.get("parts")), message.get("content")
    if not isinstance(parts, list) and isinstance(content, list):
        parts, content = content, None
    blocks: list[dict[str, object]] = []
    calls: list[dict[str, object]] = [_call(one) for one in _objects(message.get("tool_calls"))]
    thoughts: list[str] = []
    if isinstance(content, str) and content:
        blocks.append({"type": "text", "text": content})
    for part in _objects(parts):
        inner = part.get("message_content")
        part = inner if isinstance(inner, dict) else part
        kind = part.get("type")
        text = part.get("content", part.get("text"))
        if kind == "tool_call":
            calls.append(_call(part))
        elif kind == "tool_call_response":
            result = part.get("response", part.get("result"))
            yield {"role": "tool", "tool_call_id": _text(part.get("id")), "content": _shown(result)}
        elif kind in ("reasoning", "thinking"):
            thoughts += [text] if isinstance(text, str) else []
        elif (block := _block(part)) is not None:
            blocks.append(block)
    if blocks or calls or thoughts:
        yield {
            "role": role,
            "content": blocks,
            "tool_calls": calls or None,
            "tool_call_id": _text(message.get("tool_call_id")),
            "reasoning_content": "\n".join(thoughts) or None,
        }


def _block(part: Mapping[str, object]) -> dict[str, object] | None:
    """Returns a content block: a text, an image with data, or a text for one stored elsewhere."""
    kind, text = part.get("type"), part.get("content", part.get("text"))
    if kind == "blob" or (kind == "image" and isinstance(text, str)):
        if part.get("modality", "image") != "image" or not isinstance(text, str):
            return {"type": "text", "text": f"[{part.get('modality', 'picture')}]"}
        return _picture(f"data:{part.get('mime_type') or 'image/png'};base64,{text}")
    if kind in ("image", "image_url", "input_image", "uri", "file"):
        image: object = part.get(
            "image", part.get("image_url", part.get("uri", part.get("file_id")))
        )
        while isinstance(image, dict):
            image = image.get("image", image.get("url"))
        return _picture(image if isinstance(image, str) else "")
    return {"type": "text", "text": text} if isinstance(text, str) and text else None


def _picture(url: str) -> dict[str, object]:
    if url[:5].lower() == "data:":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": f"[picture at {url}]" if "://" in url else "[picture withheld]"}


def _shown(result: object) -> object:
    """Returns the result of a tool: a text, or blocks."""
    if (
        isinstance(result, list)
        and result
        and all(isinstance(one, dict) and "type" in one for one in result)
    ):
        return [
            block for one in result if isinstance(one, dict) and (block := _block(one)) is not None
        ]
    return (
        result
        if isinstance(result, str)
        else msgspec.json.encode(result).decode()
        if result is not None
        else ""
    )


def _call(part: Mapping[str, object]) -> dict[str, object]:
    inner = part.get("tool_call")
    part = inner if isinstance(inner, dict) else part
    function = part.get("function")
    named: Mapping[str, object] = function if isinstance(function, dict) else part
    arguments = named.get("arguments")
    return {
        "id": _text(part.get("id")),
        "name": _text(named.get("name")) or "tool",
        "arguments": arguments if isinstance(arguments, str | dict) else None,
    }


def _objects(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _inner(note: dict[str, object]) -> dict[str, object]:
    """Returns the fields a level deeper in a flat record: `trace.annotations.0.annotation.name`."""
    evaluation = note.get("annotation", note.get("evaluation"))
    return evaluation if isinstance(evaluation, dict) else {}


def _evaluations(trace: _Trace) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields each evaluation with its name."""
    for span in trace.spans:
        noted = [
            *span.annotations,
            *(
                one
                for key, value in span.attributes.items()
                if key.endswith("annotations")
                for one in _objects(value)
            ),
            *(
                _inner(one)
                for tree in nested(span.attributes, *_NOTES).values()
                for one in _objects(tree)
                if _inner(one)
            ),
        ]
        for note in _objects(noted):
            result = note.get("result")
            yield (
                str(note.get("name") or ""),
                {**note, **(result if isinstance(result, dict) else {})},
            )
        for name, attributes in span.events:
            if name == _RESULT:
                value: dict[str, object] = {
                    key: attributes.get(f"gen_ai.evaluation.{path}")
                    for key, path in (
                        ("score", "score.value"),
                        ("label", "score.label"),
                        ("explanation", "explanation"),
                    )
                }
                yield str(attributes.get("gen_ai.evaluation.name") or ""), value
        if span.attributes.get(_KIND) == _EVALUATOR and not noted:
            result = nested(span.attributes, "output.value")["output.value"]
            yield (
                span.name,
                result
                if isinstance(result, dict)
                else {"label": span.attributes.get("output.value")},
            )


def _verdict(value: Mapping[str, object]) -> tuple[bool | None, str | None]:
    score, label, why = value.get("score"), value.get("label"), value.get("explanation")
    success = _OUTCOMES.get(str(label).strip().lower()) if label is not None else None
    if success is None and isinstance(score, bool | int | float) and 0 <= score <= 1:
        success = score >= 0.5
    parts = (
        f"label {label}" if isinstance(label, str) else "",
        f"score {score:g}" if isinstance(score, float) else "",
        why,
    )
    return success, "; ".join(part for part in parts if isinstance(part, str) and part) or None
