"""Reads run trees of LangSmith as its client sends and lists them, in JSON or JSON lines, or nested
as `child_runs`.

All LangSmith runs of a `trace_id` are one run of the agent. Runs of type `llm` hold messages in
LangChain's forms, in those of OpenAI's and Anthropic's clients, or as items of OpenAI's Responses;
if they have none, the messages of the first run are used, as LangGraph keeps them. Runs of type
`tool` provide the results that no call contains.

Feedback, in lines of its own (`run_id`, `key`, `score`) or as `feedback_stats` of a run, becomes
labels, each key a source. (langchain-ai/langsmith-sdk, python/langsmith/schemas.py, run_trees.py;
tried: langsmith 0.15.1, langchain-core 1.8.3.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

import msgspec
from msgspec.structs import replace

from prill.datasets.reading.anthropic import is_message
from prill.datasets.reading.anthropic import messages as chat_messages
from prill.datasets.reading.chat import ChatMessage, TokenUsage, count_tokens
from prill.datasets.reading.groups import RecordGroups
from prill.datasets.reading.images import RecordImages, Run, read_runs
from prill.datasets.reading.model_calls import ModelCall, ToolRun, to_trajectory
from prill.datasets.reading.records import Record, date_in, record_at
from prill.datasets.reading.responses import is_item
from prill.datasets.reading.responses import messages as item_messages
from prill.datasets.reading.sources import JSON_FILES, Document, Source, read_documents
from prill.errors import InputError
from prill.io.store import BadLine
from prill.types import LabelRecord, StrPath, Trajectory

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "function": "tool",
    "AIMessageChunk": "assistant",
    "HumanMessage": "user",
}
_TEXTS = (
    "input", "question", "query", "task", "goal", "prompt", "output", "answer", "result", "text",
    "content",
)  # fmt: skip


class _Feedback(Record):
    n: int | None = None
    avg: float | None = None


class _Metadata(Record):
    ls_model_name: str | None = None
    usage_metadata: TokenUsage | None = None


class _Extra(Record):
    tool_call_id: str | None = None
    metadata: _Metadata | None = None


class _Run(Record):
    id: str
    run_type: str
    name: str = ""
    trace_id: str | None = None
    parent_run_id: str | None = None
    start_time: str | None = None
    dotted_order: str | None = None
    inputs: dict[str, object] | None = None
    outputs: dict[str, object] | None = None
    error: str | None = None
    extra: _Extra | None = None
    feedback_stats: dict[str, _Feedback] | None = None
    child_runs: list[object] | None = None

    @property
    def trace(self) -> str:
        """Returns the id of its trace; that of the run if it has none."""
        return self.trace_id or self.id


class _FeedbackRecord(Record):
    """Feedback on a run."""

    key: str
    run_id: str | None = None
    trace_id: str | None = None
    score: float | bool | None = None
    comment: str | None = None


def recognise(source: Source) -> bool:
    """Returns whether the keys of the first record are those of a run."""
    return source.has(_matches_format, *JSON_FILES)


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the traces of a file, or of the files below a folder, each by its id.

    All runs of a trace must be in one file.
    """
    return read_runs(read_documents(source, _matches_format, JSON_FILES, _traces), images)


def _traces(document: Document) -> Iterator[Run | BadLine]:
    with RecordGroups(_Run) as runs:
        for item in _records(document):
            if isinstance(item, BadLine):
                yield item
            elif isinstance(item, _Run):
                runs.add(item.trace, item)
        for id in runs.runs():
            yield f"{document.place}:{id}", None, partial(_trajectory, id, runs)


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the feedback on the first run of a trace as labels, each key a source.

    A score of at least 0.5 and at most 1 is success.
    """
    yield from read_documents(source, _matches_format, JSON_FILES, _labels)


def _labels(document: Document) -> Iterator[LabelRecord | BadLine]:
    roots: dict[str, str] = {}  # the traces by the ids of their first runs
    with RecordGroups(_FeedbackRecord) as feedback, RecordGroups(_Run) as rated:
        for item in _records(document):
            if isinstance(item, BadLine):
                yield item
            elif isinstance(item, _FeedbackRecord):
                feedback.add("", item)
            elif item.parent_run_id is None:
                roots[item.id] = item.trace
                rated.add(item.trace, replace(item, inputs=None, outputs=None, extra=None))
        for one in feedback.records():
            id = roots.get(one.run_id or "") or (one.trace_id if one.run_id is None else None)
            if id is not None:
                yield _label(id, one.key, one.score, one.comment)
        for root in rated.records():
            for key, stats in (root.feedback_stats or {}).items():
                yield _label(root.trace, key, stats.avg)


def _matches_format(file: Source) -> bool:
    first = file.value[0] if isinstance(file.value, list) and file.value else file.value
    return isinstance(first, dict) and {"id", "run_type", "inputs"} <= first.keys()


def _records(document: Document) -> Iterator[_Run | _FeedbackRecord | BadLine]:
    """Yields the runs, each with its trace and without its children, which follow, and feedback."""
    for place, value in document.values():
        waiting = deque([value])
        while waiting:
            one = waiting.popleft()
            if isinstance(one, dict) and "key" in one and "run_type" not in one:
                yield record_at(place, one, _FeedbackRecord)
                continue
            run = record_at(place, one, _Run)
            if isinstance(run, BadLine):
                yield run
                continue
            yield replace(run, trace_id=run.trace, child_runs=None)
            for child in run.child_runs or ():
                # use the enclosing trace and run, whatever the record states
                if isinstance(child, dict):
                    waiting.append({**child, "trace_id": run.trace, "parent_run_id": run.id})


def _trajectory(id: str, groups: RecordGroups[_Run], images: RecordImages) -> Trajectory:
    runs = sorted(groups.read(id), key=lambda run: run.dotted_order or run.start_time or "")
    ids = {run.id for run in runs}
    roots = [run for run in runs if run.parent_run_id not in ids]
    calls = [call for run in runs if run.run_type == "llm" and (call := _call(run)) is not None]
    if not any(call.inputs for call in calls):
        outputs = next(
            (messages for run in roots if (messages := _messages(_read_messages(run.outputs)))), ()
        )
        calls = [ModelCall(tuple(outputs), ())] if outputs else calls
    tools = [
        ToolRun(
            run.name,
            _arguments(run),
            _plain_text(run.outputs),
            run.extra.tool_call_id if run.extra else None,
        )
        for run in runs
        if run.run_type == "tool"
    ]
    if not calls and not tools:
        raise InputError("this trace contains no model call and no tool run")
    metas = [
        run.extra.metadata
        for run in runs
        if run.run_type == "llm" and run.extra and run.extra.metadata
    ]
    model = next((meta.ls_model_name for meta in metas if meta.ls_model_name), None)
    metadata: dict[str, object] = {
        "trace_id": id,
        "date": next((d for run in roots if (d := date_in(run.start_time or ""))), None),
        **count_tokens(meta.usage_metadata for meta in metas),
    }
    return to_trajectory(
        id,
        calls,
        tools,
        images,
        goal=next((text for run in roots if (text := _plain_text(run.inputs))), ""),
        answer=next((text for run in roots if (text := _plain_text(run.outputs))), None),
        agent=roots[0].name if roots else None,
        model=model,
        metadata=metadata,
        error=next((run.error.split("\n", 1)[0] for run in roots if run.error), None),
    )


def _call(run: _Run) -> ModelCall | None:
    inputs, outputs = _messages(_read_messages(run.inputs)), _messages(_read_output(run.outputs))
    return ModelCall(tuple(inputs), tuple(outputs)) if inputs or outputs else None


def _read_messages(values: dict[str, object] | None) -> object:
    """Returns the messages in a run's inputs or outputs; for a batch, those of the first item."""
    messages = (values or {}).get("messages", (values or {}).get("input"))
    is_batch = (
        isinstance(messages, list)
        and len(messages) > 0
        and isinstance(messages[0], list)
        and not _is_pair(messages[0])
    )
    return messages[0] if is_batch and isinstance(messages, list) else messages


def _read_output(values: dict[str, object] | None) -> object:
    """Returns the messages that a model generated."""
    values = values or {}
    for key in ("generations", "choices"):
        value = values.get(key)
        while isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return (
                [value.get("message")]
                if value.get("message") is not None
                else [("assistant", value.get("text"))]
            )
    if isinstance(values.get("output"), list | dict):
        value = values["output"]
        return value if isinstance(value, list) else [value]
    if isinstance(values.get("message"), dict):
        return [values["message"]]
    return [values] if "role" in values else values.get("messages")


def _messages(values: object) -> list[ChatMessage]:
    if not isinstance(values, list):
        return []
    if any(map(is_item, values)):
        return list(item_messages(values))
    plain = [message for value in values if (message := _plain(value)) is not None]
    return list(chat_messages(plain))


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(one, str) for one in value)
    )


def _plain(value: object) -> dict[str, object] | None:
    """Converts a message in any of LangChain's forms to the form of an API."""
    if _is_pair(value) and isinstance(value, list | tuple):
        return {"role": _ROLES.get(str(value[0]), value[0]), "content": value[1]}
    if not isinstance(value, dict):
        return None
    inner = value.get("kwargs", value.get("data"))
    if isinstance(inner, dict):
        names = value.get("id")
        kind = (
            str(names[-1]).removesuffix("Chunk").removesuffix("Message").lower()
            if isinstance(names, list) and names
            else value.get("type")
        )
        value = {"type": kind, **inner}
    if is_message(value):
        return value
    role = value.get("type", value.get("role"))
    if not isinstance(role, str) or not ("content" in value or "tool_calls" in value):
        return None
    more = value.get("additional_kwargs")
    more = more if isinstance(more, dict) else {}
    calls = value.get("tool_calls") or more.get("tool_calls")
    return {
        "role": _ROLES.get(role, role),
        "content": value.get("content"),
        "tool_calls": [_plain_call(call) for call in calls if isinstance(call, dict)]
        if isinstance(calls, list)
        else None,
        "tool_call_id": value.get("tool_call_id"),
        "reasoning_content": more.get("reasoning_content"),
    }


def _plain_call(call: dict[str, object]) -> dict[str, object]:
    return (
        call
        if "function" in call
        else {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
    )


def _arguments(run: _Run) -> dict[str, object] | str | None:
    """Returns a tool's input.

    LangChain writes it as the text of a Python value, which is kept as text.
    """
    inputs = run.inputs or {}
    only = inputs.get("input") if inputs.keys() == {"input"} else None
    return only if isinstance(only, str) else inputs


def _plain_text(values: dict[str, object] | None) -> str | None:
    """Returns the text of a run's inputs or outputs, if they are text."""
    values = values or {}
    for key in _TEXTS:
        found = values.get(key)
        if isinstance(found, dict) and (message := _plain(found)):
            found = message["content"]
        if isinstance(found, str) and found:
            return found
    if messages := _read_messages(values):
        turns = [
            message for message in _messages(messages) if message.role in ("user", "assistant")
        ]
        return next(
            (
                message.content
                for message in turns
                if isinstance(message.content, str) and message.content
            ),
            None,
        )
    if len(values) == 1 and isinstance(only := next(iter(values.values())), str):
        return only
    is_empty = all(value is None for value in values.values())
    return None if is_empty or "messages" in values else msgspec.json.encode(values).decode()


def _label(
    id: str, source: str, score: float | bool | None, comment: str | None = None
) -> LabelRecord:
    success = score >= 0.5 if score is not None and 0 <= score <= 1 else None
    parts = (f"score {score:g}" if score is not None and score not in (0, 1) else None, comment)
    note = "; ".join(part for part in parts if part) or None
    return LabelRecord(id=id, success=success, source=source, note=note)
