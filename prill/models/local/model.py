"""A model in this process through transformers: a folder with its weights, text and images in, one answer out.

`Weights` loads and generates, and blocks; `LocalModel` does so in a thread of its own and keeps the protocol of models.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, Unpack

from msgspec import Meta

from prill.errors import CallTimeout, ContextTooLong, EndpointError, MissingExtra, Truncated, Unparsable, UsageError
from prill.models.client import PIXEL_BUDGET
from prill.models.dialect import GREEDY, Sampling
from prill.models.images import ImageEncoder
from prill.models.ledger import Ledger, Price, queued
from prill.models.prompts import call_code
from prill.models.replies import excerpt
from prill.models.wire import worded
from prill.protocols import Form, Image, Message, Reply, SamplingLimits
from prill.transcripts.calls import Call, image_files, is_transcribed, note, turns_of
from prill.types import Usage

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_T = TypeVar("_T")
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Generation:
    """What one call generated: the text, tokens read and written, whether it ended by itself, and the seconds it took."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finished: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Weights:
    """A loaded model with what prepares its input: a processor with images, or a tokenizer without."""

    model: Any
    reader: Any
    sees: bool

    def generate(
        self,
        turns: Sequence[Mapping[str, Any]],
        max_tokens: int,
        sampling: Sampling,
        timeout: float,
        stop: threading.Event,
    ) -> Generation:
        """One answer. Raises ContextTooLong, CallTimeout, EndpointError."""
        torch = importlib.import_module("torch")
        start = time.monotonic()
        deadline = start + timeout

        def should_stop(ids: Any, scores: Any, **rest: Any) -> Any:
            over = stop.is_set() or time.monotonic() > deadline
            return torch.full((ids.shape[0],), over, device=ids.device, dtype=torch.bool)

        with _model_failures(), torch.random.fork_rng(), torch.inference_mode():
            inputs = self._inputs(turns)
            prompt_tokens = int(inputs["input_ids"].shape[1])
            room = self._room(prompt_tokens, max_tokens)
            torch.manual_seed(sampling.seed or 0)
            settings = _sampling_settings(sampling)
            out = self.model.generate(**inputs, max_new_tokens=room, stopping_criteria=[should_stop], **settings)
        if time.monotonic() > deadline:
            raise CallTimeout(f"no answer within {timeout:g} s")
        tokens = out[0, prompt_tokens:].tolist()
        ends = self.model.generation_config.eos_token_id
        finished = bool(tokens) and tokens[-1] in (ends if isinstance(ends, list) else [ends])
        if not finished and room < max_tokens:
            raise ContextTooLong(f"after {prompt_tokens} tokens the model's window has no more room for the answer than {room}")
        tokenizer = getattr(self.reader, "tokenizer", self.reader)
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        return Generation(text, prompt_tokens, len(tokens), finished, round(time.monotonic() - start, 4))

    def _room(self, prompt_tokens: int, max_tokens: int) -> int:
        """Tokens that the answer may have in the model's window."""
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if window is not None and prompt_tokens >= window:
            raise ContextTooLong(f"the request has {prompt_tokens} tokens, and the model's window {window}")
        return max_tokens if window is None else min(max_tokens, window - prompt_tokens)

    def _inputs(self, turns: Sequence[Mapping[str, Any]]) -> Any:
        if not self.sees:
            turns = [{**turn, "content": _words(turn["content"])} for turn in turns]
        inputs = self.reader.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        return inputs.to(self.model.device, self.model.dtype) if self.sees else inputs.to(self.model.device)


def load(path: Path, device: str | None, dtype: str | None) -> Weights:
    """The model in a folder, ready to answer. Raises MissingExtra, EndpointError."""
    try:
        torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    except ImportError as error:
        raise MissingExtra(error.name or "transformers", "local") from None
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = getattr(torch, dtype) if dtype else torch.float32 if device == "cpu" else "auto"
    with _model_failures():
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
        sees = type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        family = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
        reads = transformers.AutoProcessor if sees else transformers.AutoTokenizer
        reader = reads.from_pretrained(path, local_files_only=True)
        model = family.from_pretrained(path, dtype=kind, local_files_only=True).to(device).eval()
    return Weights(model, reader, sees)


def _sampling_settings(sampling: Sampling) -> dict[str, Any]:
    """The settings of `generate` that say how tokens are chosen; the model's own habits are put aside."""
    limits = sampling.limits
    settings: dict[str, Any] = {"repetition_penalty": limits.get("repetition_penalty", 1.0)}
    if sampling.temperature > 0:
        draw = {"temperature": sampling.temperature, "top_p": limits.get("top_p", 1.0), "top_k": limits.get("top_k", 0)}
        return {**settings, "do_sample": True, **draw}
    return {**settings, "do_sample": False, "temperature": None, "top_p": None, "top_k": None}


def _words(parts: Sequence[Mapping[str, str]]) -> str:
    if any(part["type"] == "image" for part in parts):
        raise EndpointError("this model takes no images; use a model with vision")
    return "".join(part["text"] for part in parts)


@contextmanager
def _model_failures() -> Iterator[None]:
    """Turns what torch, transformers and chat templates raise into our errors."""
    torch, jinja2 = (importlib.import_module(name) for name in ("torch", "jinja2"))
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ContextTooLong(f"the request does not fit the memory of the device: {excerpt(str(error))}") from None
    except (ImportError, OSError, RuntimeError, ValueError, KeyError, TypeError, jinja2.TemplateError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # transformers hides what failed behind "could not import module"
            cause = cause.__cause__
        raise EndpointError(f"the local model cannot be used: {excerpt(str(cause), 300)}") from error


def _begun(begin: Callable[[], None], work: Callable[[threading.Event], _T], stop: threading.Event) -> _T:
    begin()
    return work(stop)


def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="prill-local-model")


class LocalModel:
    """The model in a folder, loaded with the first call; calls are carried out one after another in a thread of its own.

    `path` is a folder as `save_pretrained` writes it; nothing is fetched, and no code in it is run. Without a `device`: cuda
    where there is one, else cpu; without a `dtype`: that of the weights on a GPU, float32 on a CPU. `top_k` goes with
    `sampled`: arXiv 2404.06474's collection draws from 100; 0: from all.

    The form of an answer is asked for in words and validated; nothing forces the model to keep to it. Replies carry no
    log-probabilities, cost nothing, and are not kept.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: Annotated[str | None, Meta(description="cuda, cpu, mps, …")] = None,
        dtype: Annotated[str | None, Meta(description="float32, bfloat16 or float16")] = None,
        timeout: Annotated[float, Meta(gt=0, description="seconds for one answer")] = 600.0,
        max_pixels: Annotated[int, Meta(ge=1, description="larger screenshots are scaled down to it")] = PIXEL_BUDGET,
        top_k: Annotated[int, Meta(ge=0, description="when sampled: draw from so many likeliest tokens; 0: from all")] = 0,
    ) -> None:
        self.path = Path(path)
        if not (self.path / "config.json").is_file():
            raise UsageError(f"{self.path}: no folder with a model in it (a config.json and weights)")
        if dtype not in (None, *_DTYPES):
            raise UsageError(f"unknown dtype {dtype!r}; choose {', '.join(_DTYPES)}")
        self.timeout = timeout
        self.top_k = top_k
        self.ledger = Ledger(Price(0.0, 0.0))
        self._device, self._dtype = device, dtype
        self._encode = ImageEncoder(max_pixels)
        self._sampling = GREEDY
        self._worker = _worker()
        self._weights: list[Weights] = []  # one entry once they are loaded; samples share the list

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: the settings; weights are loaded anew there."""
        return {key: value for key, value in vars(self).items() if key not in ("_worker", "_weights")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _worker=_worker(), _weights=[])

    @property
    def name(self) -> str:
        """`local/` and the folder's name, and how it is sampled where that is not at temperature 0."""
        return f"local/{self.path.resolve().name}{self._sampling.suffix}"

    @property
    def concurrency(self) -> int:
        """One call at a time."""
        return 1

    def sampled(self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]) -> Self:
        """The same model, drawn from at a temperature; weights and thread are shared with this one."""
        other = copy.copy(self)
        if self.top_k:
            limits = {"top_k": self.top_k, **limits}
        other._sampling = Sampling(temperature, seed, limits)
        return other

    async def complete(
        self, messages: Sequence[Message], *, form: Form | None = None, max_tokens: int = 1024, prompt: str = ""
    ) -> Reply:
        """One answer; see `prill.protocols.LanguageModel`. An answer that is cut is asked for once more at twice the length."""
        code = call_code(part for message in messages for part in message.parts if isinstance(part, str))
        ending = form.instructions(as_json=not form.tagged) if form else ""
        request, usage = worded(messages, ending, code), Usage()
        for limit in (max_tokens, 2 * max_tokens):
            generation, images = await self._in_thread(partial(self._generate, request, limit))
            await self._note(request, generation)
            usage += self.ledger.record(generation.prompt_tokens, generation.completion_tokens, images)
            if generation.finished:
                break
        else:
            raise Truncated(f"the reply was cut at {2 * max_tokens} tokens: {excerpt(generation.text)}")
        fields = form.parse(generation.text) if form else {}
        if not generation.text.strip():
            raise Unparsable("the reply is empty")
        return Reply(generation.text, usage, fields)

    async def _in_thread(self, work: Callable[[threading.Event], tuple[Generation, int]]) -> tuple[Generation, int]:
        """Runs the work when its turn comes. A call that is given up stops generating at its next token."""
        stop = threading.Event()
        try:
            with queued() as begin:
                return await asyncio.get_running_loop().run_in_executor(self._worker, _begun, begin, work, stop)
        finally:
            stop.set()

    async def _note(self, request: Sequence[Message], generation: Generation) -> None:
        if is_transcribed():
            call = Call(
                model=self.name,
                messages=turns_of(request, await asyncio.to_thread(image_files, request)),
                reply=generation.text,
                finish_reason="stop" if generation.finished else "length",
                prompt_tokens=generation.prompt_tokens,
                completion_tokens=generation.completion_tokens,
                seconds=generation.seconds,
            )
            note(call)

    def _generate(self, request: Sequence[Message], max_tokens: int, stop: threading.Event) -> tuple[Generation, int]:
        if not self._weights:
            self._weights.append(load(self.path, self._device, self._dtype))
        turns, pictures = self._turns(request)
        generation = self._weights[0].generate(turns, max_tokens, self._sampling, self.timeout, stop)
        return generation, pictures

    def _turns(self, request: Sequence[Message]) -> tuple[list[dict[str, Any]], int]:
        """The messages in the form of chat templates, and how many pictures are in them."""
        rows, pictures = [], 0
        for message in request:
            parts: list[dict[str, Any]] = []
            for part in message.parts:
                if isinstance(part, Image):
                    parts.append({"type": "image", "image": self._picture(part.path)})
                    pictures += 1
                else:
                    parts.append({"type": "text", "text": part})
            rows.append({"role": message.role, "content": parts})
        return rows, pictures

    def _picture(self, path: str) -> Picture:
        """The picture exactly as an endpoint would be sent it."""
        from PIL import Image as Pictures

        data = base64.b64decode(self._encode(path).url.partition(b",")[2])
        return Pictures.open(BytesIO(data)).convert("RGB")
