"""A transformers model in this process: text and images in, one reply out.

`prill.models.local.weights` loads and generates synchronously. `LocalModel` runs it in a separate
thread, in batches, and implements the `LanguageModel` protocol.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, Unpack

from prill.config.shared import DeviceOption
from prill.errors import PrillError, TruncatedError, UnparsableError, UsageError
from prill.models.calls import Call, build_turns, image_files, is_transcribed, note
from prill.models.client import PIXEL_BUDGET
from prill.models.devices import register_user
from prill.models.ledger import Ledger, Price, queued
from prill.models.local.embedded_weights import embedded_model_folder
from prill.models.local.trained import find_model
from prill.models.local.weights import (
    DTYPES,
    Generation,
    Prepared,
    Weights,
    check_adapter,
    load,
    read_window,
)
from prill.models.options import (
    DTYPE,
    AdapterOption,
    AttemptTimeoutOption,
    BatchOption,
    ImageFormat,
    MaxPixelsOption,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
)
from prill.models.prompts import call_code
from prill.models.replies import GivenReply, excerpt, repeats
from prill.models.request import TOP_LOGPROBS, ImageEncoder, sampling_options, worded
from prill.protocols import Form, Image, Limits, Message, Reply, SamplingLimits
from prill.types import Usage

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

# Tokens of a batch, prompts and answers, including padding: 4 GB of KV cache for a model of
# Qwen2.5-VL-7B's shape (28 layers x 4 heads x 128 numbers x 2, two bytes each: 57 kB a token).
BATCH_TOKENS = 65_536


@dataclass(slots=True)
class _Waiting:
    """A queued call. `begin` is called when it starts, and `future` receives the answer."""

    prepare: Callable[[Weights], Prepared]
    begin: Callable[[], None]
    future: Future[Generation] = field(default_factory=Future)
    prepared: Prepared | None = None


class _Desk:
    """Answers calls in one thread, in batches: the oldest call with others of similar length."""

    def __init__(self, load: Callable[[], Weights], batch: int) -> None:
        self._load, self._batch = load, batch
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="prill-local-model")
        self._weights: Weights | None = None
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        register_user(self)

    def free(self) -> None:
        """Releases the weights after the running batch; the next call loads them again."""
        if self._weights is not None:
            self._worker.submit(self._drop).result()

    def _drop(self) -> None:
        self._weights = None

    def put(self, call: _Waiting) -> None:
        """Queues a call."""
        with self._lock:
            self._waiting.append(call)
        # once per call; a run that finds no waiting call does nothing
        self._worker.submit(self._serve)

    def window(self, path: Path | str) -> Future[int | None]:
        """Returns the context window of a model.

        It is read in the loading thread, because transformers must not be imported by two threads
        at once.
        """
        return self._worker.submit(read_window, path)

    def _serve(self) -> None:
        """Answers one batch. Whatever happens, every call in it gets a result."""
        batch: list[_Waiting] = []
        try:
            self._weights = self._weights or self._load()
            batch = self._next(self._weights)
            calls = [call.prepared for call in batch if call.prepared is not None]
            for call, outcome in zip(
                batch, self._weights.generate(calls) if calls else [], strict=True
            ):
                _settle(call, outcome)
        finally:
            if (error := sys.exc_info()[1]) is not None:
                if not batch:  # a model that cannot be loaded fails all calls
                    with self._lock:
                        batch, self._waiting = self._waiting, []
                for call in batch:
                    _settle(call, error)

    def _next(self, weights: Weights) -> list[_Waiting]:
        """Takes the calls of the next batch from the queue; calls that cannot be prepared get their
        error.
        """
        with self._lock:
            waiting = self._waiting[: 2 * self._batch]
        for call in waiting:
            if call.prepared is None and not call.future.cancelled():
                try:
                    call.prepared = call.prepare(weights)
                except PrillError as error:
                    _settle(call, error)
        ready = [call for call in waiting if not call.future.done()]
        batch = [
            call
            for call in _of_a_length(ready, self._batch)
            if call.future.set_running_or_notify_cancel()
        ]
        with self._lock:
            self._waiting = [
                call for call in self._waiting if call not in batch and not call.future.done()
            ]
        for call in batch:
            call.begin()
        return batch


def _of_a_length(calls: Sequence[_Waiting], most: int) -> list[_Waiting]:
    """Returns the first call and those nearest in length, up to the batch limit."""
    sizes = {id(call): call.prepared.size for call in calls if call.prepared is not None}
    batch: list[_Waiting] = []
    for call in sorted(
        calls, key=lambda call: (call is not calls[0], abs(sizes[id(call)] - sizes[id(calls[0])]))
    ):
        longest = max(sizes[id(one)] for one in (*batch, call))
        if batch and (len(batch) == most or (len(batch) + 1) * longest > BATCH_TOKENS):
            break
        batch.append(call)
    return batch


def _settle(call: _Waiting, outcome: Generation | BaseException) -> None:
    """Passes the answer or the error to a call, unless it already has a result."""
    if call.future.done():
        return
    if isinstance(outcome, BaseException):
        call.future.set_exception(outcome)
    else:
        call.future.set_result(outcome)


class LocalModel:
    """A transformers model in this process, loaded with the first call.

    Queued calls are answered in batches, in a separate thread.

    A name is resolved by `huggingface_hub`, which downloads what is not in its cache. No code of a
    model is run. The answer's format is requested in
    the prompt and validated, but not enforced by constrained decoding. Replies cost nothing and are
    not cached. Batching changes an answer only by rounding. `top_k`: the data collection of arXiv
    2404.06474 samples from 100. The default device is cuda if available, else cpu. The default
    dtype is bfloat16 on a GPU, float32 on a CPU.

    Args:
        path: What `from_pretrained` takes: a folder, or a name on the Hugging Face Hub. `embedded`:
            the bundled model, as adapted by `prill train`.

    Raises:
        UsageError: The folder contains no model, the name is not cached and HF_HUB_OFFLINE is set,
            or the dtype is unknown.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        adapter: AdapterOption = None,
        device: DeviceOption = None,
        dtype: Annotated[str | None, DTYPE] = None,
        batch: BatchOption = 8,
        timeout: AttemptTimeoutOption = 600.0,
        max_pixels: MaxPixelsOption = PIXEL_BUDGET,
        image_format: ImageFormat = None,
        temperature: Temperature = None,
        top_p: TopP = None,
        top_k: TopK = None,
        repetition_penalty: RepetitionPenalty = None,
    ) -> None:
        name = os.fspath(path)
        # a folder, or a name for `from_pretrained`
        self.path = embedded_model_folder() if name == "embedded" else find_model(name) or name
        if dtype not in (None, *DTYPES):
            raise UsageError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
        self.adapter = None if adapter is None else Path(adapter)
        if self.adapter is not None:
            check_adapter(self.adapter)
        self.batch = batch
        self.timeout = timeout
        self.ledger = Ledger(Price(0.0, 0.0), name=str(path))
        self._device, self._dtype = device, dtype
        self._encode = ImageEncoder(max_pixels, image_format)
        self._sampling = sampling_options(temperature, top_p, top_k, repetition_penalty)
        self._limits: Limits | None = None
        self._desk = self._new_desk()  # shared by the copies from `sampled`

    def _new_desk(self) -> _Desk:
        return _Desk(partial(load, self.path, self._device, self._dtype, self.adapter), self.batch)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the settings only; weights are loaded again in the other process."""
        return {key: value for key, value in vars(self).items() if key != "_desk"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._desk = self._new_desk()

    @property
    def name(self) -> str:
        """Returns `local/` and the folders' names, with sampling and image settings other than the
        defaults.
        """
        tuned = "" if self.adapter is None else f"+{self.adapter.resolve().name}"
        seen = f" (image format {self._encode.image_format})" if self._encode.image_format else ""
        own = (
            self.path.rpartition("/")[2] if isinstance(self.path, str) else self.path.resolve().name
        )
        return f"local/{own}{tuned}{self._sampling.suffix}{seen}"

    @property
    def concurrency(self) -> int:
        """Returns the maximum number of concurrent calls: one running batch and one that is being
        filled.
        """
        return 2 * self.batch

    @property
    def max_pixels(self) -> int:
        """Returns the number of pixels that larger images are scaled down to, which bounds their
        tokens.
        """
        return self._encode.max_pixels

    def sampled(self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]) -> Self:
        """Returns the same model at a sampling temperature; weights and thread are shared."""
        other = copy.copy(self)
        other._sampling = self._sampling.drawn(temperature, seed, limits)
        return other

    def __copy__(self) -> Self:
        """Copies the model within this process; unlike a pickled copy, it shares the worker
        thread.
        """
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    async def limits(self) -> Limits:
        """Returns the limits of one request from the model's configuration, without its weights."""
        if self._limits is None:
            self._limits = Limits(window=await asyncio.wrap_future(self._desk.window(self.path)))
        return self._limits

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Requests one answer; see `prill.protocols.LanguageModel`.

        A truncated answer is requested once more with twice the length, unless it repeats itself.
        """
        code = call_code(
            part for message in messages for part in message.parts if isinstance(part, str)
        )
        ending = form.instructions(as_json=not form.tagged) if form else ""
        request, usage = worded(messages, ending, code), Usage()
        pictures = sum(isinstance(part, Image) for message in request for part in message.parts)
        for limit in (max_tokens, 2 * max_tokens):
            generation = await self._in_turn(
                request,
                limit,
                TOP_LOGPROBS if form else 0,
                form.text if isinstance(form, GivenReply) else "",
            )
            await self._note(request, generation)
            usage += self.ledger.record(
                generation.prompt_tokens, generation.completion_tokens, pictures
            )
            if generation.finished:
                break
            if repeats(generation.text):  # with more tokens, the model would only go on
                raise TruncatedError(
                    f"the reply was cut at {limit} tokens, as it repeats itself: "
                    f"{excerpt(generation.text)}",
                    generation.text,
                )
        else:
            raise TruncatedError(
                f"the reply was cut at {2 * max_tokens} tokens: {excerpt(generation.text)}",
                generation.text,
            )
        fields = form.parse(generation.text) if form else {}
        if not generation.text.strip():
            raise UnparsableError("the reply is empty")
        return Reply(generation.text, usage, fields, generation.tokens)

    async def _in_turn(
        self, request: Sequence[Message], max_tokens: int, alternatives: int, given: str
    ) -> Generation:
        """Queues the call and returns its generation. A cancelled call stops at its next token."""
        stop = threading.Event()

        def prepare(weights: Weights) -> Prepared:
            return weights.prepare(
                self._turns(request),
                max_tokens,
                self._sampling,
                alternatives=alternatives,
                timeout=self.timeout,
                stop=stop,
                given=given,
            )

        try:
            with queued() as begin:
                call = _Waiting(prepare, begin)
                self._desk.put(call)
                return await asyncio.wrap_future(call.future)
        finally:
            stop.set()

    async def _note(self, request: Sequence[Message], generation: Generation) -> None:
        if is_transcribed():
            call = Call(
                model=self.name,
                messages=build_turns(request, await asyncio.to_thread(image_files, request)),
                reply=generation.text,
                finish_reason="stop" if generation.finished else "length",
                prompt_tokens=generation.prompt_tokens,
                completion_tokens=generation.completion_tokens,
                seconds=generation.seconds,
            )
            note(call)

    def _turns(self, request: Sequence[Message]) -> list[dict[str, Any]]:
        """Returns the messages in the format of chat templates."""
        rows = []
        for message in request:
            parts: list[dict[str, Any]] = []
            for part in message.parts:
                if isinstance(part, Image):
                    parts.append({"type": "image", "image": self._picture(part.path)})
                else:
                    parts.append({"type": "text", "text": part})
            rows.append({"role": message.role, "content": parts})
        return rows

    def _picture(self, path: str) -> Picture:
        """Returns the image exactly as it would be sent to an endpoint."""
        from PIL import Image as Pictures

        data = base64.b64decode(self._encode(path).url.partition(b",")[2])
        return Pictures.open(BytesIO(data)).convert("RGB")
