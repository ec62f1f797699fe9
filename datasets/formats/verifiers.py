"""Reads results of verifiers (PrimeIntellect): `results.jsonl` of version 0.1, `traces.jsonl` of
version 0.4.

The source is such a file, or a folder that holds some, at any depth. The reader takes each row's
messages, run state and tokens. It skips the ground truth (`answer`, `info`), metrics and stop
conditions, whose names are the environment's own and may reveal the outcome. For a trace with
several branches, the last one is read, as verifiers itself does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path

import msgspec

from prill.actions.tool_calls import screen_size
from prill.datasets.reading.chat import ChatMessage, conversation
from prill.datasets.reading.images import RecordImages, image_store
from prill.datasets.reading.records import decode_json, read_file, read_rows
from prill.datasets.reading.sources import Source
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import LabelRecord, Task, Trajectory

_RESULTS, _TRACES = "results.jsonl", "traces.jsonl"
# The default threshold for success in verifiers 0.1 (`pass_threshold`); environments may define
# rewards differently.
_SOLVED = 0.5
# The limits of verifiers 0.4, as its `Trace.is_truncated` lists them.
_LIMITS = (
    "max_turns",
    "max_input_tokens",
    "max_output_tokens",
    "max_total_tokens",
    "compaction_failed",
)


@dataclass(frozen=True)
class _Result:
    prompt: object = None
    completion: object = None
    example_id: int | str | None = None
    id: int | str | None = None  # early versions call it example_id
    reward: float | None = None
    error: object = None
    is_truncated: bool | None = None
    token_usage: dict[str, float] | None = None
    tool_defs: tuple[object, ...] | None = None


@dataclass(frozen=True)
class _Metadata:
    env_id: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class _Node:
    message: ChatMessage
    parent: int | None = None


@dataclass(frozen=True)
class _Reward:
    score: float | None  # NaN is written as null
    weight: float = 1.0


@dataclass(frozen=True)
class _Problem:
    type: str = ""
    message: str = ""


@dataclass(frozen=True)
class _Data:
    id: str | None = None
    idx: int | None = None
    prompt: object = None


@dataclass(frozen=True)
class _TraceTask:
    data: _Data = _Data()
    key: str | None = None


@dataclass(frozen=True)
class _AgentConfig:
    model: str | None = None


@dataclass(frozen=True)
class _Agent:
    name: str = "agent"
    config: _AgentConfig = _AgentConfig()


@dataclass(frozen=True)
class _Trace:
    id: str
    task: _TraceTask = _TraceTask()
    agent: _Agent = _Agent()
    nodes: object = None
    tools: tuple[object, ...] = ()
    rewards: dict[str, _Reward | None] = field(default_factory=dict)
    ok: bool = False
    stop_condition: str | None = None
    errors: tuple[_Problem, ...] = ()
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None


@dataclass(frozen=True)
class _Env:
    id: str = ""


@dataclass(frozen=True)
class _Episode:
    traces: tuple[_Trace, ...]
    env: _Env = _Env()


def recognise(source: Source) -> bool:
    """Returns whether rows are rollouts with prompt and completion, or episodes with traces."""
    return source.has(
        lambda file: {"prompt", "completion"} <= file.keys or _has_traces(file.value),
        _RESULTS,
        _TRACES,
    )


def _has_traces(value: object) -> bool:
    traces = value.get("traces") if isinstance(value, dict) else None
    return (
        isinstance(traces, list)
        and bool(traces)
        and isinstance(traces[0], dict)
        and "nodes" in traces[0]
    )


def load(
    source: str | PathLike[str], *, images: str | PathLike[str] | None = None
) -> Iterator[Trajectory | BadLine]:
    """Yields every rollout, without its reward.

    Ids are `<folder below the source>/<example>/<rollout, from 0>` for results, and the trace's own
    id for traces. Images given as data URLs are written to the folder `images`; without one, to a
    temporary folder whose images are removed when the next row is requested.
    """
    with image_store(images) as store:
        for path, place in _files(source):
            record_images = RecordImages(store)
            if _TRACES in path.name:
                yield from read_rows(path, _Episode, partial(_trace_trajectories, record_images))
            else:
                yield from _results(path, place, record_images)


def load_labels(source: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """Yields one label of source `reward` per rollout.

    A rubric may call a model, so the source is neither `human` nor `oracle`.

    Success is a reward of 0.5 or more, and the note has the number; the label of a rollout that
    failed is undecided.
    """
    for path, place in _files(source):
        if _TRACES in path.name:
            yield from read_rows(path, _Episode, _trace_labels)
        else:
            yield from read_rows(path, _Result, partial(_result_label, _Ids(place)))


def _files(source: str | PathLike[str]) -> list[tuple[Path, str]]:
    root = Path(source)
    if not root.is_dir():
        if not root.exists():
            raise UsageError(f"{source}: no such file or folder")
        return [(root, "")]
    paths = sorted(path for name in (_RESULTS, _TRACES) for path in root.rglob(name))
    if not paths:
        raise UsageError(f"{source}: expected {_RESULTS} or {_TRACES} in this folder")
    return [
        (path, "" if path.parent == root else path.parent.relative_to(root).as_posix())
        for path in paths
    ]


def _reward_label(id: str, reward: float | None, broken: bool) -> LabelRecord:
    """Returns the label of a rollout; undecided if the rollout failed or has no reward."""
    success = None if reward is None or broken else reward >= _SOLVED
    note = "ended with an error" if broken else None if reward is None else f"reward {reward:g}"
    return LabelRecord(id=id, success=success, source="reward", note=note)


# results.jsonl: one rollout per row, as a prompt and a completion in chat messages


def _results(path: Path, place: str, images: RecordImages) -> Iterator[Trajectory | BadLine]:
    """Yields every rollout of a file; agent and environment are from `metadata.json`.

    Ids: `<place>/<example>/<rollout, from 0>`.
    """
    return read_rows(
        path, _Result, partial(_result_trajectory, _Ids(place), _metadata(path), images)
    )


class _Ids:
    """Numbers the rollouts of each example in the order of the file."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._seen: Counter[str] = Counter()

    def next(self, row: _Result) -> str:
        example = _example(row)
        self._seen[example] += 1
        return "/".join(
            part for part in (self._place, example, str(self._seen[example] - 1)) if part
        )


def _metadata(path: Path) -> _Metadata:
    file = path.with_name("metadata.json")
    if not file.exists():
        return _Metadata()
    try:
        return decode_json(read_file(file), _Metadata)
    except InputError as error:
        raise UsageError(f"{file}: {error}; fix or remove it") from None


def _example(row: _Result) -> str:
    id = row.example_id if row.example_id is not None else row.id
    return "0" if id is None else str(id)


def _messages(value: object, role: str, name: str) -> tuple[ChatMessage, ...]:
    """Returns messages; completion environments have a text instead."""
    try:
        messages = msgspec.convert(value, tuple[ChatMessage, ...] | str | None)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"{error} - in {name}") from None
    return (ChatMessage(role, messages),) if isinstance(messages, str) else messages or ()


def _result_trajectory(
    ids: _Ids, metadata_file: _Metadata, images: RecordImages, row: _Result
) -> Iterator[Trajectory]:
    images.next_record()
    id = ids.next(row)
    messages = (
        *_messages(row.prompt, "user", "prompt"),
        *_messages(row.completion, "assistant", "completion"),
    )
    chat = conversation(messages, images, screen_size(row.tool_defs or ()))
    usage = row.token_usage or {}
    metadata = {
        "env_id": metadata_file.env_id,
        "truncated": row.is_truncated,
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
    }
    yield chat.trajectory(
        id,
        Task(
            id="/".join(part for part in (metadata_file.env_id, _example(row)) if part),
            goal=chat.goal,
        ),
        agent=metadata_file.model,
        metadata=metadata,
        error=_error_text(row.error),
    )


def _error_text(error: object) -> str | None:
    if isinstance(error, Mapping):
        return str(error.get("error_chain_str") or error.get("error") or "unknown error")
    return str(error) if error else None


def _result_label(ids: _Ids, row: _Result) -> Iterator[LabelRecord]:
    yield _reward_label(ids.next(row), row.reward, bool(row.error))


# traces.jsonl: one episode per row, with a graph of messages for each trace


def _trace_labels(episode: _Episode) -> Iterator[LabelRecord]:
    for trace in episode.traces:
        if trace.rewards:
            rewards = [reward for reward in trace.rewards.values() if reward is not None]
            scores = [
                reward.score * reward.weight for reward in rewards if reward.score is not None
            ]
            yield _reward_label(
                trace.id, sum(scores) if len(scores) == len(trace.rewards) else None, not trace.ok
            )


def _trace_trajectories(images: RecordImages, episode: _Episode) -> Iterator[Trajectory]:
    images.next_record()
    for trace in episode.traces:
        yield _trace_trajectory(trace, episode.env.id, images)


def _trace_trajectory(trace: _Trace, env: str, images: RecordImages) -> Trajectory:
    data = trace.task.data
    messages, branches = _last_branch(trace)
    prompt = data.prompt if isinstance(data.prompt, str) else None
    chat = conversation(messages, images, screen_size(trace.tools), goal=prompt or None)
    example = data.id or trace.task.key or ("" if data.idx is None else str(data.idx))
    metadata = {
        "env_id": env or None,
        "role": None if trace.agent.name == "agent" else trace.agent.name,
        "branches": branches if branches > 1 else None,
        "truncated": trace.stop_condition in _LIMITS,
        "prompt_tokens": trace.num_input_tokens,
        "completion_tokens": trace.num_output_tokens,
    }
    problem = trace.errors[-1] if trace.errors and not trace.ok else None
    return chat.trajectory(
        trace.id,
        Task(id="/".join(part for part in (env, example) if part), goal=chat.goal),
        agent=trace.agent.config.model,
        metadata=metadata,
        error=None if problem is None else f"{problem.type}: {problem.message}",
    )


def _last_branch(trace: _Trace) -> tuple[list[ChatMessage], int]:
    """Returns the messages from a root to the last leaf of the graph, and the number of leaves."""
    try:
        nodes = msgspec.convert(trace.nodes, tuple[_Node, ...] | None) or ()
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"trace {trace.id}: {error} - in nodes") from None
    parents = {node.parent for node in nodes}
    leaves = [i for i in range(len(nodes)) if i not in parents]
    path: list[ChatMessage] = []
    at = leaves[-1] if leaves else None
    while at is not None:
        if not 0 <= at < len(nodes) or len(path) > len(nodes):
            raise InputError(f"trace {trace.id}: the parents of its nodes do not exist")
        path.append(nodes[at].message)
        at = nodes[at].parent
    return path[::-1], len(leaves)
