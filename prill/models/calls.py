"""Model calls of judges: single, concurrent, or once per goal, each recorded.

Models record each call when it is made, and `transcribed` collects the calls. Messages are stored
as sent, with the call's code in the quotations; images are stored by reference. Headers and keys
are not part of a message and are never stored.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from prill.errors import (
    AnswerPendingError,
    BudgetSpentError,
    ContextTooLongError,
    InputError,
    UnscoredError,
)
from prill.io.images import file_hash, image_size
from prill.models.in_flight import InFlight
from prill.models.prompts import NONCE, Prompt, estimate_tokens
from prill.models.request import PIXELS_PER_TOKEN, estimate_size, guessed_tokens, least_reply
from prill.protocols import Form, Image, LanguageModel, Limits, Message, Reply
from prill.types import Usage

_T = TypeVar("_T")
# Characters for the states, and the same number for the actions: 12,000 tokens, which recent
# context windows can hold in addition to screenshots.
ROOM = 24_000
# The divisor if the window is unknown: 4,000 characters each for the states and the actions, which
# fit 4,096 tokens.
_SMALL_SHARE = 6
# Images are dropped before the text is shortened to less than the first limit. With less text than
# the second, nothing could be judged.
_MIN_CHARS, _NO_EVIDENCE_CHARS = 1_000, 200
_HALVINGS = 7  # bisection steps to find the room: accurate to 200 of 24,000 characters
_DENSER = 1.5
_MAX_SIZES = 8  # maximum number of request sizes to try for one answer
_MAX_GOALS = 10_000
# A waiting call keeps its screenshots in memory, half a megabyte each. The default equals a model's
# default concurrency.
_AT_ONCE = 16


async def gather_calls(work: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Runs coroutines, 16 at a time, and returns the results in order.

    The first failure cancels the others and is raised. An AnswerPendingError does not: the other
    calls are still made, because their answers may be pending too.
    """
    if len(work) == 1:
        return [await work[0]]
    gate = asyncio.Semaphore(_AT_ONCE)
    pending: list[AnswerPendingError] = []

    async def in_turn(one: Coroutine[Any, Any, _T]) -> _T | None:
        async with gate:
            try:
                return await one
            except AnswerPendingError as later:
                pending.append(later)
                return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_turn(one)) for one in work]
    except BaseExceptionGroup as failures:
        # Errors that end the whole run take precedence over errors of one trajectory.
        raise min(failures.exceptions, key=lambda error: isinstance(error, UnscoredError)) from None
    finally:
        for one in work:
            one.close()  # those that were not started
    if pending:
        raise pending[0]
    return [cast(_T, task.result()) for task in tasks]


def planned(messages: Sequence[Message], max_tokens: int) -> Usage:
    """Estimates the usage of a call at 4 characters or 28 x 28 pixels per token. Raises
    InputError.
    """
    parts = [part for message in messages for part in message.parts]
    sizes = [image_size(part.path) for part in parts if isinstance(part, Image)]
    text = "".join(part for part in parts if isinstance(part, str))
    pixels = sum(width * height for width, height in sizes)
    return Usage(1, estimate_tokens(text) + pixels // PIXELS_PER_TOKEN, max_tokens // 4, len(sizes))


class PerGoal(Generic[_T]):
    """Remembers what was made once for a goal, also for concurrent trajectories.

    Failures are not remembered; the next caller makes it again. The latest 10,000 are kept. The
    cost is charged to the first trajectory.
    """

    def __init__(self) -> None:
        self._records: dict[str, _T] = {}
        self._in_flight = InFlight()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # the copy in another process starts empty
        return PerGoal, ()

    def forget(self) -> None:
        """Clears the memory; all is made again."""
        with self._lock:
            self._records.clear()

    async def get(self, key: str, make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Returns what is known by the key, or what `make` returns."""
        if (record := self._records.get(key)) is not None:
            return record

        async def kept() -> _T:
            return self._keep(key, await make())

        return await self._in_flight.once(key, kept)

    def _keep(self, key: str, record: _T) -> _T:
        with self._lock:
            self._records[key] = record
            if len(self._records) > _MAX_GOALS:
                del self._records[next(iter(self._records))]
        return record


@dataclass(frozen=True, slots=True)
class Room:
    """The room in a request: characters for the states and as many for the actions, and images.

    `images` None: all images.
    """

    chars: int = ROOM
    images: int | None = None


async def ask(
    model: LanguageModel,
    messages: Callable[[Room], Sequence[Message]],
    form: Form,
    prompt: Prompt,
    max_tokens: int,
    room: int = ROOM,
) -> Reply:
    """Makes one call, with messages that fit the model's limits.

    `messages` is called with the available room: `room` characters, or fewer if the model's known
    context window and image limit require it. If the request is rejected as too long, it is
    shortened and sent again, according to the numbers in the error. If the error contains no
    numbers, a sixth of the characters is used.
    """
    limits, most, scale = await get_limits(model), Room(room), 1.0
    request = _fitted(messages, most, limits, max_tokens, scale)
    for _ in range(_MAX_SIZES):
        try:
            return await _complete(model, request, form, max_tokens, prompt.hash)
        except ContextTooLongError as error:
            known, limits = limits, await get_limits(model)
            if error.tokens and limits.window is not None:
                scale = error.tokens / max(1, guessed_tokens(request))
            elif limits == known and limits.window is not None:
                scale *= _DENSER  # the text has more tokens than estimated
            elif limits == known and (most.chars == room or most.chars > _MIN_CHARS):
                most = replace(most, chars=most.chars // _SMALL_SHARE)
            smaller = _fitted(messages, most, limits, max_tokens, scale)
            if smaller == request:
                raise
            request = smaller
    return await _complete(model, request, form, max_tokens, prompt.hash)


async def get_limits(model: LanguageModel) -> Limits:
    """Returns the model's known limits of one request."""
    # an isinstance check of the protocol takes as long as reading the reply
    limits = getattr(model, "limits", None)
    return await limits() if callable(limits) else Limits()


def _fitted(
    messages: Callable[[Room], Sequence[Message]],
    room: Room,
    limits: Limits,
    max_tokens: int,
    scale: float,
) -> Sequence[Message]:
    """Returns the largest request, up to `room`, that fits the limits.

    `scale` is the ratio of actual to estimated tokens. Text is shortened first, down to a minimum;
    then images are dropped one by one; then the rest of the text is shortened.
    """
    room = replace(room, images=limits.images)
    request = messages(room)
    if limits.window is None:
        return request
    tokens = limits.window - least_reply(limits, max_tokens)

    def fits(request: Sequence[Message]) -> bool:
        return guessed_tokens(request) * scale <= tokens

    if fits(request):
        return request
    least, images = min(_MIN_CHARS, room.chars), estimate_size(request)[1]
    while images > 1 and not fits(messages(Room(least, images))):
        images -= 1
    room = replace(room, images=images) if images else room
    low, high = (
        (least, room.chars)
        if fits(messages(replace(room, chars=least)))
        else (min(_NO_EVIDENCE_CHARS, least), least)
    )
    for _ in range(_HALVINGS):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(messages(replace(room, chars=middle))) else (low, middle)
    return messages(replace(room, chars=low))


async def _complete(
    model: LanguageModel, messages: Sequence[Message], form: Form, max_tokens: int, prompt: str
) -> Reply:
    """Makes one call and records it, unless the model records its own calls."""
    if not is_transcribed():
        return await model.complete(messages, form=form, max_tokens=max_tokens, prompt=prompt)

    async def noted(**answer: Any) -> None:
        if not calls:
            pictures = any(
                isinstance(part, Image) for message in messages for part in message.parts
            )
            turns = build_turns(
                messages, await asyncio.to_thread(image_files, messages) if pictures else {}
            )
            calls.append(
                Call(
                    model=model.name,
                    messages=turns,
                    seconds=round(time.perf_counter() - start, 4),
                    **answer,
                )
            )

    start = time.perf_counter()
    with transcribed() as calls:
        try:
            reply = await model.complete(messages, form=form, max_tokens=max_tokens, prompt=prompt)
        except BudgetSpentError:
            raise  # no call was made
        except UnscoredError as error:
            await noted(error=str(error))
            raise
        usage = reply.usage
        await noted(
            reply=reply.text,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
        )
    return reply


# Replaces the code in quotations if it is unknown: the reply came from the cache, or the model drew
# the code itself.
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
        role: The author of the message.
        parts: Texts and images, in order.
    """

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | ImageFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a model, and its answer.

    Args:
        model: The model's name.
        messages: The request, oldest message first.
        reply: The answer. None: there was none.
        reasoning: The model's reasoning, as far as the endpoint returned it.
        finish_reason: Why the endpoint ended the answer.
        prompt_tokens: Tokens of the request.
        completion_tokens: Tokens of the answer.
        seconds: The time of all attempts, in seconds, excluding time in the queue.
        attempts: The number of requests until one was answered.
        cached: Whether the reply came from the cache: nothing was sent, and attempts, tokens and
            time are 0.
        error: The error, if there is no answer.
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
    """Collects every call to a model made inside the `with` block, including failed calls and calls
    in tasks started there.

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
    """Returns whether calls are being collected in this context."""
    return _calls.get() is not None


def note(call: Call) -> None:
    """Adds a call to the active collectors."""
    if (calls := _calls.get()) is not None:
        calls.append(call)


def build_turns(messages: Sequence[Message], images: Mapping[str, ImageFile]) -> tuple[Turn, ...]:
    """Converts messages to turns, with images replaced by references from `images`, by path.

    A placeholder code that was never replaced is marked as unknown.
    """
    return tuple(
        Turn(
            message.role,
            tuple(
                images.get(part.path) or ImageFile(part.path)
                if isinstance(part, Image)
                else part.replace(NONCE, UNKNOWN_CODE)
                for part in message.parts
            ),
        )
        for message in messages
    )


def image_files(messages: Sequence[Message]) -> dict[str, ImageFile]:
    """Reads and hashes the images of messages; returns them by path."""
    paths = {part.path for message in messages for part in message.parts if isinstance(part, Image)}
    return {path: _image_file(path) for path in paths}


def _image_file(path: str) -> ImageFile:
    try:
        return ImageFile(path, file_hash(path), Path(path).stat().st_size)
    except (InputError, OSError):
        return ImageFile(path)
