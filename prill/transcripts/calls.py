"""The calls of one piece of work: models note each as it is made, and whoever wants to know collects them.

Messages are kept as they were sent, with the code of that call in the quotations; pictures are kept by reference. Headers and
keys are no part of a message and never come here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from prill.errors import InputError
from prill.io.images import file_hash
from prill.models.prompts import NONCE
from prill.protocols import Image, Message

# Stands in a quotation for a code that nobody here knows: the reply was kept from before, or the model drew the code itself.
UNKNOWN_CODE = "(code)"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image in a message, by reference. A model may have been sent a smaller copy.

    Args:
        path: The file.
        sha256: The SHA-256 of the file's content at that time. None: it could not be read.
        size: The length of that content, in bytes. None: it could not be read.
    """

    path: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a request.

    Args:
        role: Who speaks.
        parts: Texts and images, in order.
    """

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | ImageFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a model, and the answer as the model gave it.

    Args:
        model: The model's name.
        messages: The request, oldest message first.
        reply: The answer. None: there was none.
        reasoning: What the endpoint gave of the model's thoughts.
        finish_reason: The endpoint's reason for the answer's end.
        prompt_tokens: Tokens of the request.
        completion_tokens: Tokens of the answer.
        seconds: The time of all attempts, in seconds, without the wait for a turn.
        attempts: How many requests were sent until one was answered.
        cached: The reply is that to an earlier equal call, and nothing was sent: no attempt, no tokens, no time.
        error: Why there is no answer.
    """

    model: str
    messages: tuple[Turn, ...]
    reply: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1
    cached: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """The calls behind one verdict.

    Args:
        id: The trajectory's id.
        key: The verdict's key.
        calls: The calls, in the order in which they ended.
    """

    id: str
    key: str
    calls: tuple[Call, ...]


_calls: ContextVar[list[Call] | None] = ContextVar("prill_calls", default=None)


@contextmanager
def transcribed() -> Iterator[list[Call]]:
    """Collects every call to a model made inside a `with` block, also in tasks started there, also calls that fail.

    Yields:
        The list of calls, which grows.
    """
    outer, calls = _calls.get(), list[Call]()
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)
        if outer is not None:
            outer += calls


def is_transcribed() -> bool:
    """Whether anybody collects calls here; else a model need not note any."""
    return _calls.get() is not None


def note(call: Call) -> None:
    """Hands a call to whoever collects them."""
    if (calls := _calls.get()) is not None:
        calls.append(call)


def turns_of(messages: Sequence[Message], images: Mapping[str, ImageFile]) -> tuple[Turn, ...]:
    """The messages with every picture as a reference, those of `images` by path; a code that is still open is marked."""
    return tuple(
        Turn(
            message.role,
            tuple(
                images.get(part.path) or ImageFile(part.path) if isinstance(part, Image) else part.replace(NONCE, UNKNOWN_CODE)
                for part in message.parts
            ),
        )
        for message in messages
    )


def image_files(messages: Sequence[Message]) -> dict[str, ImageFile]:
    """The pictures of some messages by path; reads and hashes each file."""
    paths = {part.path for message in messages for part in message.parts if isinstance(part, Image)}
    return {path: _image_file(path) for path in paths}


def _image_file(path: str) -> ImageFile:
    try:
        return ImageFile(path, file_hash(path), os.stat(path).st_size)
    except (InputError, OSError):
        return ImageFile(path)
