"""Reads OpenAI batch files for chat completions and responses: requests, and the replies by
`custom_id`.

The source is a folder, or one file of requests in it; the rows show whether a file holds requests
or replies. A request whose reply failed, or is missing from the reply files, is a trajectory with
`error` and the messages of the request. Requests without any reply file are read without error.
Other endpoints, such as embeddings, are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import msgspec

from prill.actions.tool_calls import screen_size
from prill.datasets.reading.chat import (
    ChatMessage,
    Conversation,
    TokenUsage,
    conversation,
    count_tokens,
)
from prill.datasets.reading.groups import RecordGroups
from prill.datasets.reading.images import RecordImages, image_store
from prill.datasets.reading.records import UNREADABLE, read_rows
from prill.datasets.reading.responses import parse_response, to_trajectory
from prill.datasets.reading.sources import Source
from prill.errors import InputError, UsageError
from prill.io.store import BadLine, read_lines
from prill.types import Task, Trajectory

_ENDPOINT, _RESPONSES = "/v1/chat/completions", "/v1/responses"


@dataclass(frozen=True)
class _Body:
    messages: tuple[ChatMessage, ...]
    model: str | None = None
    tools: tuple[object, ...] | None = None


@dataclass(frozen=True)
class _Request:
    custom_id: str
    body: object
    url: str = _ENDPOINT


@dataclass(frozen=True)
class _Choice:
    message: ChatMessage
    finish_reason: str | None = None


@dataclass(frozen=True)
class _Completion:
    choices: tuple[_Choice, ...]
    model: str | None = None
    usage: TokenUsage | None = None


@dataclass(frozen=True)
class _Problem:
    message: str | None = None
    code: str | int | None = None


@dataclass(frozen=True)
class _Failure:
    error: _Problem | None = None


@dataclass(frozen=True)
class _Response:
    status_code: int = 200
    body: object = None


@dataclass(frozen=True)
class _Reply:
    custom_id: str
    response: _Response | None = None
    error: _Problem | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None or self.response is None or self.response.status_code != 200


@dataclass(frozen=True)
class _Kind:
    custom_id: object = None
    body: object = None


def recognise(source: Source) -> bool:
    """Returns whether rows are requests with a `custom_id`."""
    return source.has(lambda file: {"custom_id", "body"} <= file.keys, "*.jsonl", "*.jsonl.gz")


def load(
    source: str | PathLike[str], *, images: str | PathLike[str] | None = None
) -> Iterator[Trajectory | BadLine]:
    """Yields every request with its reply; the id is `<custom_id>/<n>` if a reply has several
    choices.

    Tasks have no id: requests with the same goal have the same task. Replies are kept in a
    temporary file. Broken rows of replies come first. Images given as data URLs are written to the
    folder `images`; without one, to a temporary folder whose images are removed when the next
    request is requested.
    """
    requests, answers = _files(Path(source))
    ids: set[str] = set()
    with RecordGroups(_Reply) as replies, image_store(images) as store:
        for path in answers:
            for item in read_rows(path, _Reply, lambda row: [row]):
                if isinstance(item, BadLine):
                    yield item
                else:
                    replies.add(item.custom_id, item)
        unpacked = RecordImages(store)

        def joined(row: _Request) -> Iterator[Trajectory]:
            unpacked.next_record()
            if row.custom_id in ids:
                raise InputError(f"custom_id {row.custom_id!r} occurs twice")
            ids.add(row.custom_id)
            endpoint = row.url.split("?")[0].rstrip("/")
            # the first one that did not fail, else the first
            reply = min(replies.read(row.custom_id), key=lambda one: one.failed, default=None)
            if endpoint == _RESPONSES:
                yield _of_response(row, reply, bool(answers), unpacked)
                return
            if endpoint != _ENDPOINT:
                raise InputError(
                    f"unsupported request to {row.url}; expected {_ENDPOINT} or {_RESPONSES}"
                )
            yield from _trajectories(row, reply, bool(answers), unpacked)

        for path in requests:
            yield from read_rows(path, _Request, joined)


def _trajectories(
    row: _Request, reply: _Reply | None, expected: bool, images: RecordImages
) -> Iterator[Trajectory]:
    try:
        body = msgspec.convert(row.body, _Body)
        completion = None if reply is None or reply.failed else _completion(reply)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"{row.custom_id}: {error}") from None
    size = screen_size(body.tools or ())
    if completion is None:
        problem = _why_missing(reply, expected)
        yield _trajectory(
            row.custom_id, body, conversation(body.messages, images, size), None, None, problem
        )
        return
    if not completion.choices:
        raise InputError(f"{row.custom_id}: the reply has no choices")
    for i, choice in enumerate(completion.choices):
        chat = conversation((*body.messages, choice.message), images, size)
        id = row.custom_id if len(completion.choices) == 1 else f"{row.custom_id}/{i}"
        yield _trajectory(id, body, chat, completion, choice, None)


def _completion(reply: _Reply) -> _Completion:
    assert reply.response is not None
    return msgspec.convert(reply.response.body, _Completion)


def _trajectory(
    id: str,
    body: _Body,
    chat: Conversation,
    completion: _Completion | None,
    choice: _Choice | None,
    problem: str | None,
) -> Trajectory:
    return chat.trajectory(
        id,
        Task(goal=chat.goal),
        agent=(completion.model if completion else None) or body.model,
        metadata={
            "finish_reason": choice.finish_reason if choice else None,
            **count_tokens([completion.usage if completion else None]),
        },
        error=problem,
    )


def _of_response(
    row: _Request, reply: _Reply | None, expected: bool, images: RecordImages
) -> Trajectory:
    given = None if reply is None or reply.failed else reply.response
    body = {"output": []} if given is None else given.body
    trajectory = to_trajectory(
        row.custom_id, (parse_response({"request": row.body, "response": body}),), images
    )
    if not trajectory.task.goal:
        raise InputError(f"{row.custom_id}: no user text, so there is no goal")
    return (
        trajectory
        if given is not None
        else replace(trajectory, error=_why_missing(reply, expected))
    )


def _why_missing(reply: _Reply | None, expected: bool) -> str | None:
    """Returns why there is no reply; None if none is expected."""
    return _problem(reply) if reply is not None else "no reply in the batch" if expected else None


def _problem(reply: _Reply) -> str:
    problem = reply.error
    if problem is None and reply.response is not None:
        try:
            problem = msgspec.convert(reply.response.body, _Failure).error
        except (msgspec.ValidationError, RecursionError):
            problem = None
    status = "" if reply.response is None else f" (status {reply.response.status_code})"
    return (
        f"the request failed{status}: "
        f"{(problem and (problem.message or problem.code)) or 'no reason given'}"
    )


def _files(source: Path) -> tuple[list[Path], list[Path]]:
    """Returns the request files and the reply files.

    If the source is a file, it is the only request file.
    """
    if not source.exists():
        raise UsageError(f"{source}: no such file or folder")
    folder = source if source.is_dir() else source.parent
    paths = sorted(path for path in folder.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")))
    kinds = {path: _kind(path) for path in paths if path != source}
    replies = [path for path, kind in kinds.items() if kind == "replies"]
    if not source.is_dir():
        if _kind(source) == "replies":
            raise UsageError(
                f"{source}: this file contains replies; give the file of requests, or the "
                "folder of both"
            )
        return [source], replies
    requests = [path for path, kind in kinds.items() if kind == "requests"]
    if not requests:
        raise UsageError(f"{source}: expected a .jsonl file with batch requests (custom_id, body)")
    return requests, replies


def _kind(path: Path) -> str | None:
    """Returns the type of a file by its first readable row; rows that differ are reported where
    they occur.
    """
    try:
        for line in read_lines(path):
            try:
                row = msgspec.json.decode(line.data, type=_Kind)
            except UNREADABLE:
                continue
            if row.custom_id is None:
                return None
            return "requests" if row.body is not None else "replies"
    except InputError:  # a damaged archive, which is reported when it is read
        return None
    return None
