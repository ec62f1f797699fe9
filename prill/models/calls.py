"""Model calls as judges make them: single, concurrent, or once per goal, each recorded.

Models note each call as it is made, and whoever wants to know collects them (`transcribed`).
Messages are kept as they were sent, with the code of that call in the quotations; pictures are kept
by reference. Headers and keys are no part of a message and never come here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from prill.errors import (
    AnswerPendingError,
    BudgetSpentError,
    ContextTooLongError,
    InputError,
    UnscoredError,
)
from prill.io.cache import DiskCache
from prill.io.images import file_hash, image_size
from prill.models.in_flight import InFlight
from prill.models.prompts import NONCE, Prompt, estimate_tokens
from prill.models.replies import RecordFormat
from prill.models.request import PIXELS_PER_TOKEN, estimate_size, guessed_tokens, least_reply
from prill.protocols import Form, Image, LanguageModel, Limits, Message, Reply
from prill.types import Usage

_T = TypeVar("_T")
# Characters for the states, and as many again for the actions: 12,000 tokens, which recent windows
# hold beside screenshots.
ROOM = 24_000
# Where nobody knows the window: for one of 4,096 tokens, 4,000 characters for the states, and as
# much for the actions.
_SMALL_SHARE = 6
# Images go before text falls below this; and with less than the second, there would be nothing to
# judge by.
_LEAST_CHARS, _NO_EVIDENCE_CHARS = 1_000, 200
_HALVINGS = 7  # of the room, to find what fits: to within 200 characters of 24,000
_DENSER = 1.5
_MAX_SIZES = 8  # requests of different sizes, for one answer
_MAX_GOALS = 10_000
# A call holds its screenshots, half a megabyte each, while it waits for its turn. As many as a
# model takes by default.
_AT_ONCE = 16


async def together(work: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results in order, of 16 at a time. The first failure ends the rest, whose results nobody
    would use, and is raised.

    An answer that is still to come ends nothing: the other calls are made, and may have to wait,
    too.
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
        # What ends a whole run goes before what concerns one trajectory.
        raise min(failures.exceptions, key=lambda error: isinstance(error, UnscoredError)) from None
    finally:
        for one in work:
            one.close()  # those that never began
    if pending:
        raise pending[0]
    return [cast(_T, task.result()) for task in tasks]


def filled(prompt: Prompt, images: Sequence[Image], **values: str) -> tuple[Message, ...]:
    """A prompt with a system and a user turn, filled; images come after all text, so that servers
    can reuse the beginning.
    """
    turns = prompt.fill({**values, "code": NONCE})
    return Message("system", (turns["system"],)), Message("user", (turns["user"], *images))


def planned(messages: Sequence[Message], max_tokens: int) -> Usage:
    """Estimates the cost of a call at 4 characters or 28 x 28 pixels a token. Raises InputError."""
    parts = [part for message in messages for part in message.parts]
    sizes = [image_size(part.path) for part in parts if isinstance(part, Image)]
    words = "".join(part for part in parts if isinstance(part, str))
    pixels = sum(width * height for width, height in sizes)
    return Usage(
        1, estimate_tokens(words) + pixels // PIXELS_PER_TOKEN, max_tokens // 4, len(sizes)
    )


class PerGoal(Generic[_T]):
    """A model's answer per goal, requested once even for trajectories judged at the same time.

    A failure is not kept: whoever comes next asks again. The last 10,000 are kept in memory, and
    all of them in `cache`. What the call cost is booked on the trajectory that came first.
    """

    def __init__(self, form: RecordFormat[_T], cache: DiskCache | None = None) -> None:
        self._form = form
        self._cache = cache
        self._records: dict[str, _T] = {}
        self._in_flight = InFlight()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # in another process, goals are asked for again, or found in `cache`
        return PerGoal, (self._form, self._cache)

    def forget(self) -> None:
        """Drops what is in memory: the goals are asked for again, or found in `cache`."""
        with self._lock:
            self._records.clear()

    async def get(self, key: str, call: Callable[[], Awaitable[Reply]]) -> _T:
        """The record for a key, from memory, from the cache, or from the reply to `call`."""
        if (record := self._records.get(key)) is not None:
            return record

        async def make() -> _T:
            reply = await call()
            if self._cache is not None:
                self._cache.put(key, reply.fields["record"].encode())
            return self._keep(key, self._form.read(reply))

        read = partial(msgspec.json.decode, type=self._form.type_)
        if self._cache is not None and (kept := self._cache.get(key, read)) is not None:
            return self._keep(key, kept)
        return await self._in_flight.once(key, make)

    def _keep(self, key: str, record: _T) -> _T:
        with self._lock:
            self._records[key] = record
            if len(self._records) > _MAX_GOALS:
                del self._records[next(iter(self._records))]
        return record


@dataclass(frozen=True, slots=True)
class Room:
    """What a request has room for: characters for the states, and as many again for the actions;
    images, None: all.
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
    """One call. `messages` gets the room for what is quoted: `room` characters, or as much as the
    model's window and its limit of images leave, where they are known.

    A request that is refused as too long is sent again with less, by what the refusal teaches;
    where it says nothing, with a sixth of the characters.
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
                scale *= _DENSER  # the text has more tokens than it was guessed to have
            elif limits == known and (most.chars == room or most.chars > _LEAST_CHARS):
                most = replace(most, chars=most.chars // _SMALL_SHARE)
            smaller = _fitted(messages, most, limits, max_tokens, scale)
            if smaller == request:
                raise
            request = smaller
    return await _complete(model, request, form, max_tokens, prompt.hash)


async def get_limits(model: LanguageModel) -> Limits:
    """The model's limits of one request, as far as it states them."""
    # isinstance with the protocol takes as long as reading the reply
    limits = getattr(model, "limits", None)
    return await limits() if callable(limits) else Limits()


def _fitted(
    messages: Callable[[Room], Sequence[Message]],
    room: Room,
    limits: Limits,
    max_tokens: int,
    scale: float,
) -> Sequence[Message]:
    """The request with the most room within `room` in which it fits the limits. `scale`: its
    tokens, of those guessed.

    Text goes first, until little is left of it, then images, one by one, then the rest of the text.
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
    least, images = min(_LEAST_CHARS, room.chars), estimate_size(request)[1]
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
    """One answer; the call is noted here where the model does not note its own."""
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
            raise  # nothing was asked
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


# Stands in a quotation for a code that nobody here knows: the reply was kept from before, or the
# model drew the code itself.
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
        cached: The reply is that to an earlier equal call, and nothing was sent: no attempt, no
            tokens, no time.
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
    """Collects every call to a model made inside a `with` block, also in tasks started there, also
    calls that fail.

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
    """Tells whether calls are being collected here."""
    return _calls.get() is not None


def note(call: Call) -> None:
    """Passes a call to the collectors."""
    if (calls := _calls.get()) is not None:
        calls.append(call)


def build_turns(messages: Sequence[Message], images: Mapping[str, ImageFile]) -> tuple[Turn, ...]:
    """The messages with every picture as a reference, those of `images` by path; a code that is
    still open is marked.
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
    """The pictures of some messages by path; reads and hashes each file."""
    paths = {part.path for message in messages for part in message.parts if isinstance(part, Image)}
    return {path: _image_file(path) for path in paths}


def _image_file(path: str) -> ImageFile:
    try:
        return ImageFile(path, file_hash(path), Path(path).stat().st_size)
    except (InputError, OSError):
        return ImageFile(path)
