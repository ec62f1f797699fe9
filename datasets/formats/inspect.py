"""Reads and annotates Inspect logs: `.eval` archives, compressed by deflate (until about 0.3.80) or
zstd, and JSON documents.

A sample is a run: its messages with their calls and images. In an archive it is one entry or, in
chunks, a folder of entries. There, `message_refs` lists the sample's messages in the pool, in
order. `attachment://` refers to a text that is stored separately, by its hash or, in chunks, by its
number. Inspect's own agents end a run with `submit`.

`target` and `scores` are labels, each scorer a source of its own; `metadata`, which may hold
answers, is skipped. (UKGovernmentBEIS/inspect_ai, log/_log.py, log/_recorders/chunked/format.py;
tried: 0.3.75, 0.3.285.)
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import field, structs

from prill.actions.tool_calls import tool_action
from prill.datasets.annotations import Judged, inspect_score
from prill.datasets.reading.archives import Archive
from prill.datasets.reading.chat import (
    LOOKS,
    ChatMessage,
    ContentPart,
    TokenUsage,
    ToolCall,
    conversation,
    count_tokens,
)
from prill.datasets.reading.images import RecordImages, image_store
from prill.datasets.reading.records import (
    MAX_FILE_VALUES,
    UNREADABLE,
    Record,
    as_record,
    date_in,
    decode_json,
    read_file,
    read_record,
)
from prill.datasets.reading.sources import Source, find_files
from prill.errors import InputError
from prill.io.lines import check_values
from prill.io.store import BadLine
from prill.types import Action, LabelRecord, StrPath, Task, Trajectory

_Made = TypeVar("_Made")
_PATTERNS = ("*.eval", "*.json")
_SAMPLE = re.compile(r"samples/(.+)_epoch_(\d{1,9})(?:\.json|/sample\.json)", re.DOTALL)
_SUMMARIES = re.compile(r"summaries\.json|_journal/summaries/\d+\.json")
_ATTACHMENT = "attachment://"
_JSON_LOG = re.compile(
    rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"[a-z]+"\s*,\s*(?:"invalidated"\s*:\s*\w+\s*,\s*)?"eval"\s*:'
)
# NaN outside of strings, as unscored samples have it, is not valid JSON.
_NO_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_COMPUTER, _SUBMIT = "computer", "submit"
_GRADES = {
    "C": True, "I": False, "N": False, "yes": True, "no": False, "true": True, "false": False,
}  # fmt: skip


class _Part(Record):
    type: str = "text"
    text: str | None = None
    image: str | None = None
    reasoning: str | None = None
    summary: str | None = None
    redacted: bool = False


class _Call(Record):
    function: str
    id: str | None = None
    arguments: dict[str, object] = field(default_factory=dict)


class _ToolError(Record):
    message: str = ""


class _Message(Record):
    role: str
    content: str | tuple[_Part, ...] = ""
    tool_calls: tuple[_Call, ...] | None = None
    tool_call_id: str | list[str] | None = None
    function: str | None = None
    error: _ToolError | None = None


class _Score(Record):
    value: object = None
    explanation: str | None = None


class _Error(Record):
    message: str = ""


class _Limit(Record):
    type: str


class _Sample(Record):
    id: str | int
    epoch: int = 1
    input: str | tuple[_Message, ...] = ""
    target: str | list[str] = ""
    messages: tuple[_Message, ...] = ()
    message_refs: tuple[tuple[int, int], ...] | None = None
    scores: dict[str, _Score] | None = None
    error: _Error | None = None
    limit: _Limit | None = None
    attachments: dict[str, str] = field(default_factory=dict)
    model_usage: dict[str, TokenUsage] = field(default_factory=dict)
    started_at: str | None = None


class _Eval(Record):
    model: str | None = None
    task: str = ""
    created: str | None = None


class _Header(Record):
    eval: _Eval


class _Log(Record):
    eval: _Eval
    samples: tuple[_Sample, ...] | None = None


def recognise(source: Source) -> bool:
    """Returns whether the entries of an archive, or a JSON document's first keys, are a log's."""
    return source.has(_matches_format, *_PATTERNS)


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the samples of a log, or of every log below a folder.

    Ids are `<log>/<sample>/<epoch>`.

    Raises:
        MissingExtraError: A log is compressed by zstd, and Python is older than 3.14 and has no
            zstandard.
    """
    with image_store(images) as store:
        unpacked = RecordImages(store)

        def make(log: str, header: _Eval, sample: _Sample) -> Trajectory:
            unpacked.next_record()
            return _trajectory(log, header, sample, unpacked)

        yield from _each(source, make)


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the scores as labels: C is success, I and N are failure, P is undecided.

    A number of 0.5 or more is success.

    Each scorer is a source; of a score with several values, each value is one, `<scorer>/<value>`.
    NaN gives no label.
    """
    for labels in _each(source, lambda log, _, sample: list(_labels(log, sample))):
        yield from [labels] if isinstance(labels, BadLine) else labels


def annotate(source: StrPath, judged: Judged, found: set[str]) -> Iterator[tuple[str, bytes]]:
    """Yields the logs that have verdicts, by their names below the source, with a score for each
    judge in their samples and sample summaries, and adds the ids of these samples to `found`.

    The metrics of the whole log, which belong to its own scorers, are unchanged. Archives are
    written with deflate, which every version reads.
    """
    for path, log in find_files(source, _matches_format, *_PATTERNS):
        if not any(id.startswith(f"{log}/") for id in judged):
            continue
        if not Source(path).head.startswith(b"PK"):
            yield f"{log}{path.suffix}", _scored(read_file(path), log, judged, found)
            continue
        file = io.BytesIO()
        with Archive(path) as archive, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for name in archive.names:
                archive.next_record()
                data = archive.read(name)
                if _SAMPLE.fullmatch(name) or _SUMMARIES.fullmatch(name):
                    data = _scored(data, log, judged, found)
                packed.writestr(name, data)
        yield f"{log}{path.suffix}", file.getvalue()


def _scored(data: bytes, log: str, judged: Judged, found: set[str]) -> bytes:
    """Returns a log, a sample or a list of samples with scores; broken data stays unchanged."""
    try:
        check_values(data, MAX_FILE_VALUES)
        record = json.loads(data)  # the standard library accepts NaN, which these logs contain
    except (*UNREADABLE, ValueError):
        return data
    samples = record.get("samples", [record]) if isinstance(record, dict) else record
    for sample in samples if isinstance(samples, list) else ():
        if isinstance(sample, dict):
            id = f"{log}/{sample.get('id')}/{sample.get('epoch', 1)}"
            if id in judged:
                found.add(id)
                there = sample.get("scores")
                ours = {name: inspect_score(one) for name, one in judged[id].items()}
                sample["scores"] = {**(there if isinstance(there, dict) else {}), **ours}
    return json.dumps(record).encode()


def _matches_format(source: Source) -> bool:
    names = source.zip_names
    return (
        any(name in names for name in ("header.json", "_journal/start.json"))
        if names
        else _JSON_LOG.match(source.head) is not None
    )


def _each(
    source: StrPath, make: Callable[[str, _Eval, _Sample], _Made]
) -> Iterator[_Made | BadLine]:
    """Yields the result of `make` for each sample.

    For an archive, one sample is in memory at a time.
    """
    for path, log in find_files(source, _matches_format, *_PATTERNS):
        if Source(path).head.startswith(b"PK"):
            yield from _of_archive(path, log, make)
            continue
        document = read_record(str(path), partial(_document, path))
        if isinstance(document, BadLine):
            yield document
            continue
        for i, sample in enumerate(document.samples or ()):
            yield read_record(f"{path}:samples[{i}]", partial(make, log, document.eval, sample))


def _of_archive(
    path: Path, log: str, make: Callable[[str, _Eval, _Sample], _Made]
) -> Iterator[_Made | BadLine]:
    archive = read_record(str(path), partial(Archive, path))
    if isinstance(archive, BadLine):
        yield archive
        return
    with archive:
        header = _Eval()  # it may be missing from an interrupted log
        for name in ("header.json", "_journal/start.json"):
            if name in archive.names:
                found = read_record(f"{path}:{name}", partial(_read, archive, name, _Header))
                if isinstance(found, BadLine):
                    yield found
                else:
                    header = found.eval
                break
        for name in archive.names:
            if _SAMPLE.fullmatch(name):
                archive.next_record()

                def made(name: str = name) -> _Made:
                    return make(log, header, _sample(archive, name))

                yield read_record(f"{path}:{name}", made)


def _document(path: Path) -> _Log:
    return as_record(_decoded(read_file(path)), _Log)


def _read(archive: Archive, name: str, type_: type[_Made]) -> _Made:
    data = archive.read(name)
    try:
        return decode_json(data, type_)
    except InputError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
    return as_record(_decoded(data), type_)


def _decoded(data: bytes) -> object:
    replaced = _NO_NUMBER.sub(lambda found: found[0] if found[0][:1] == b'"' else b"null", data)
    return decode_json(replaced, object)


def _sample(archive: Archive, name: str) -> _Sample:
    sample = _read(archive, name, _Sample)
    if not name.endswith("/sample.json"):
        return sample
    folder = name.removesuffix("sample.json")
    pool = [
        part
        for entry in _chunks(archive, f"{folder}messages/")
        for part in _read(archive, entry, tuple[_Message, ...])
    ]
    texts = [
        part
        for entry in _chunks(archive, f"{folder}attachments/")
        for part in _read(archive, entry, tuple[str, ...])
    ]
    refs = ((0, len(pool)),) if sample.message_refs is None else sample.message_refs
    # The pool is no longer than its entries, but the references may repeat them: each counts once.
    if sum(end - start for start, end in refs) > max(10_000, 10 * len(pool)):
        raise InputError("message_refs refer to messages that do not exist")
    messages = tuple(
        message for start, end in refs for message in pool[max(0, start) : max(0, end)]
    )
    return structs.replace(
        sample, messages=messages, attachments={str(i): text for i, text in enumerate(texts)}
    )


def _chunks(archive: Archive, folder: str) -> list[str]:
    """Returns the entries of a sequence, each named by the index of its first item."""
    names = [name for name in archive.names if name.startswith(folder)]
    return sorted(
        (name for name in names if re.fullmatch(r"\d{1,12}\.json", name[len(folder) :])),
        key=lambda name: int(name[len(folder) : -5]),
    )


def _trajectory(log: str, header: _Eval, sample: _Sample, images: RecordImages) -> Trajectory:
    resolve = partial(_resolved, sample.attachments)
    # The result of `submit` is the answer, not an observation.
    seen = [
        message
        for message in sample.messages
        if message.role != "tool" or message.function != _SUBMIT
    ]
    messages = [found for message in seen for found in _messages(message, resolve)]
    given = sample.input if isinstance(sample.input, str) else ""
    chat = conversation(
        messages, images, goal=resolve(given), read=_call, looks=LOOKS, measured=True
    )
    calls = {call.function for message in sample.messages for call in message.tool_calls or ()}
    metadata = {
        "sample": sample.id,
        "epoch": sample.epoch,
        **count_tokens(sample.model_usage.values()),
        "limit": sample.limit and sample.limit.type,
        "date": date_in(sample.started_at or "") or date_in(header.created or ""),
    }
    return chat.trajectory(
        _id(log, sample),
        Task(
            id=f"{header.task}/{sample.id}" if header.task else str(sample.id),
            goal=chat.goal,
            platform="desktop"
            if _COMPUTER in calls
            else "web"
            if any(c.startswith("web_browser_") for c in calls)
            else "other",
        ),
        agent=header.model,
        metadata=metadata,
        error=sample.error.message or "failed" if sample.error else None,
    )


def _id(log: str, sample: _Sample) -> str:
    return f"{log}/{sample.id}/{sample.epoch}"


def _resolved(attachments: Mapping[str, str], text: str) -> str:
    if not text.startswith(_ATTACHMENT):
        return text
    key = text.removeprefix(_ATTACHMENT)
    if key not in attachments:
        raise InputError(f"attachment {key[:60]!r} is missing")
    return attachments[key]


def _messages(message: _Message, resolve: Callable[[str], str]) -> Iterator[ChatMessage]:
    parts = (_Part(text=message.content),) if isinstance(message.content, str) else message.content
    content: list[ContentPart] = []
    reasoning: list[str] = []
    for part in parts:
        if part.type == "text" and part.text:
            content.append(ContentPart(text=resolve(part.text)))
        elif part.type == "image" and part.image:
            content.append(ContentPart("image", image_url=resolve(part.image)))
        elif part.type == "reasoning" and (
            thought := part.summary if part.redacted else part.reasoning or part.summary
        ):
            reasoning.append(resolve(thought))
    if message.error and message.error.message:
        content.append(ContentPart(text=resolve(message.error.message)))
    calls = [made for call in message.tool_calls or () for made in _calls(call, resolve)]
    result = message.tool_call_id
    yield ChatMessage(
        message.role,
        tuple(content),
        tool_calls=tuple(calls),
        tool_call_id=result[-1]
        if isinstance(result, list) and result
        else result
        if isinstance(result, str)
        else None,
        reasoning_content="\n\n".join(reasoning) or None,
    )


def _calls(call: _Call, resolve: Callable[[str], str]) -> Iterator[ToolCall]:
    """Yields one call; a `computer` call with several `actions` yields one each.

    The last of them has the result.
    """
    arguments = {
        key: resolve(value) if isinstance(value, str) else value
        for key, value in call.arguments.items()
    }
    actions = arguments.get("actions")
    if (
        call.function != _COMPUTER
        or not isinstance(actions, list)
        or not all(isinstance(one, dict) for one in actions)
    ):
        yield ToolCall(call.id, name=call.function, arguments=arguments)
        return
    for i, one in enumerate(actions):
        yield ToolCall(call.id if i == len(actions) - 1 else None, name=_COMPUTER, arguments=one)


def _call(
    name: str, arguments: Mapping[str, object] | str, size: tuple[float, float] | None = None
) -> Action:
    action = tool_action(name, arguments, size)
    if name == _SUBMIT and isinstance(arguments, Mapping):
        answer = arguments.get("answer", arguments.get("text"))
        return replace(action, kind="answer", value=answer if isinstance(answer, str) else None)
    return action


def _labels(log: str, sample: _Sample) -> Iterator[LabelRecord]:
    target = sample.target if isinstance(sample.target, str) else ", ".join(sample.target)
    target = sample.attachments.get(target.removeprefix(_ATTACHMENT), target)
    for name, score in (sample.scores or {}).items():
        values = score.value.items() if isinstance(score.value, dict) else [("", score.value)]
        for key, value in values:
            if value is None or (isinstance(value, float) and math.isnan(value)):
                continue
            success, explanation = _grade(value)
            notes = (
                explanation,
                score.explanation and _resolved_or_same(sample.attachments, score.explanation),
                target and f"target: {target}",
            )
            note = "; ".join(part for part in notes if part) or None
            yield LabelRecord(
                id=_id(log, sample),
                success=success,
                source=f"{name}/{key}" if key else name,
                note=note,
            )


def _resolved_or_same(attachments: Mapping[str, str], text: str) -> str:
    return (
        attachments.get(text.removeprefix(_ATTACHMENT), text)
        if text.startswith(_ATTACHMENT)
        else text
    )


def _grade(value: object) -> tuple[bool | None, str | None]:
    """Returns the success and a note with the information that success alone loses."""
    if isinstance(value, bool):
        return value, None
    if isinstance(value, str):
        grade = _GRADES.get(value, _GRADES.get(value.strip().lower()))
        return grade, None if grade is not None else f"score {value}"
    if isinstance(value, int | float):
        return (value >= 0.5 if 0 <= value <= 1 else None), None if value in (
            0,
            1,
        ) else f"score {value:g}"
    return None, "score of another kind"
