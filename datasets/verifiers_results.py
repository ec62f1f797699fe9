"""`results.jsonl` of verifiers 0.1: a rollout a row, as a prompt and a completion in chat messages. See `verifiers_traces`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from prill.datasets.chat import ChatMessage, conversation
from prill.datasets.data_urls import Unpacked
from prill.datasets.rows import UNREADABLE, read_rows
from prill.datasets.tool_calls import screen_size
from prill.errors import InputError, UsageError
from prill.store import BadLine
from prill.types import LabelRecord, Task, Trajectory

# What verifiers 0.1 takes for solved by default (`pass_threshold`); environments may mean something else by their rewards.
_SOLVED = 0.5


@dataclass(frozen=True)
class _Result:
    prompt: object = None
    completion: object = None
    example_id: int | str | None = None
    id: int | str | None = None  # what early versions called example_id
    reward: float | None = None
    error: object = None
    is_truncated: bool | None = None
    token_usage: dict[str, float] | None = None
    tool_defs: tuple[object, ...] | None = None


@dataclass(frozen=True)
class _About:
    env_id: str | None = None
    model: str | None = None


def results(path: Path, place: str, images: Unpacked) -> Iterator[Trajectory | BadLine]:
    """Every rollout of a file. Ids: `<place>/<example>/<rollout, from 0>`; agent and environment are from `metadata.json`."""
    return read_rows(path, _Result, partial(_recorded, _Ids(place), _about(path), images))


def result_labels(path: Path, place: str) -> Iterator[LabelRecord | BadLine]:
    """The rewards of a file, with the ids of `results`."""
    return read_rows(path, _Result, partial(_rewarded, _Ids(place)))


def reward_label(id: str, reward: float | None, broken: bool) -> LabelRecord:
    """The label of a rollout; undecided when it broke off or has no reward."""
    success = None if reward is None or broken else reward >= _SOLVED
    note = "the rollout broke off" if broken else None if reward is None else f"reward {reward:g}"
    return LabelRecord(id=id, success=success, source="reward", note=note)


class _Ids:
    """Numbers the rollouts of each example in the order of the file."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._seen: Counter[str] = Counter()

    def next(self, row: _Result) -> str:
        example = _example(row)
        self._seen[example] += 1
        return "/".join(part for part in (self._place, example, str(self._seen[example] - 1)) if part)


def _about(path: Path) -> _About:
    beside = path.with_name("metadata.json")
    try:
        return msgspec.json.decode(beside.read_bytes(), type=_About)
    except FileNotFoundError:
        return _About()
    except (OSError, *UNREADABLE) as error:
        raise UsageError(f"{beside}: {error}; mend or remove it") from None


def _example(row: _Result) -> str:
    found = row.example_id if row.example_id is not None else row.id
    return "0" if found is None else str(found)


def _messages(given: object, role: str, name: str) -> tuple[ChatMessage, ...]:
    """Messages, or the text that completion environments have instead."""
    try:
        found = msgspec.convert(given, tuple[ChatMessage, ...] | str | None)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"{error} - in {name}") from None
    return (ChatMessage(role, found),) if isinstance(found, str) else found or ()


def _recorded(ids: _Ids, about: _About, images: Unpacked, row: _Result) -> Iterator[Trajectory]:
    images.next_record()
    id = ids.next(row)
    messages = (*_messages(row.prompt, "user", "prompt"), *_messages(row.completion, "assistant", "completion"))
    found = conversation(messages, images, screen_size(row.tool_defs or ()))
    usage = row.token_usage or {}
    metadata = {
        "env_id": about.env_id,
        "truncated": row.is_truncated,
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
    }
    yield Trajectory(
        id=id,
        task=Task(id="/".join(part for part in (about.env_id, _example(row)) if part), goal=found.goal),
        agent=about.model,
        steps=found.steps,
        final=found.final,
        answer=found.answer,
        metadata={key: value for key, value in metadata.items() if value is not None},
        error=_said(row.error),
    )


def _said(error: object) -> str | None:
    if isinstance(error, Mapping):
        return str(error.get("error_chain_str") or error.get("error") or "unknown error")
    return str(error) if error else None


def _rewarded(ids: _Ids, row: _Result) -> Iterator[LabelRecord]:
    yield reward_label(ids.next(row), row.reward, bool(row.error))
