"""Loads a model's weights from a folder and runs batched generation.

A `Prepared` call contains its tokens, images and sampling parameters. The calls of a batch are
left-padded to one length. Each call is sampled independently, with its own seed and limits, and
stops independently, so that batching changes an answer only by rounding.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import math
import os
import pickle
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prill.errors import (
    CallTimeoutError,
    ContextTooLongError,
    EndpointError,
    MissingExtraError,
    PrillError,
    UsageError,
)
from prill.io.manifest import expect_unchanged
from prill.models.local.torchvision import mend_torchvision
from prill.models.local.trained import RECORD, expect_trained
from prill.models.replies import excerpt
from prill.models.request import Sampling
from prill.protocols import Token

DTYPES = ("float32", "bfloat16", "float16")
_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


@dataclass(frozen=True, slots=True)
class Generation:
    """The output of one call: text, token counts, whether it ended by itself, and the seconds.

    `tokens` is set if log-probabilities were requested.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finished: bool
    seconds: float
    tokens: tuple[Token, ...] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """One tokenised call.

    `alternatives`: the number of top tokens to record at each position; 0: no log-probabilities.
    `room` is the part of `max_tokens` that fits the model's window. `given` are the tokens of the
    answer if it is measured and not generated.
    """

    inputs: Mapping[str, Any]
    prompt_tokens: int
    room: int
    max_tokens: int
    sampling: Sampling
    alternatives: int
    timeout: float
    stop: threading.Event
    given: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Returns the maximum number of tokens of prompt and answer."""
        return self.prompt_tokens + self.room


@dataclass(frozen=True, slots=True)
class Weights:
    """A loaded model with its processor (for images) or tokenizer."""

    model: Any
    reader: Any
    sees: bool

    @property
    def has_encoder(self) -> bool:
        """Returns whether this is an encoder-decoder model such as T5."""
        return bool(self.model.config.is_encoder_decoder)

    @property
    def tokenizer(self) -> Any:
        """Returns the tokenizer."""
        return getattr(self.reader, "tokenizer", self.reader)

    def prepare(
        self,
        turns: Sequence[Mapping[str, Any]],
        max_tokens: int,
        sampling: Sampling,
        *,
        alternatives: int,
        timeout: float,
        stop: threading.Event,
        given: str = "",
    ) -> Prepared:
        """Tokenises a call with chat turns. Raises ContextTooLongError, EndpointError."""
        if not self.sees:
            turns = [{**turn, "content": _format_parts(turn["content"])} for turn in turns]
        with model_failures():
            if self.has_encoder and not getattr(self.reader, "chat_template", None):
                inputs = self.tokenizer(
                    one_text([turn["content"] for turn in turns]), return_tensors="pt"
                )
            else:
                inputs = self.reader.apply_chat_template(
                    turns,
                    add_generation_prompt=True,
                    tokenize=True,
                    return_dict=True,
                    return_tensors="pt",
                )
        length = int(inputs["input_ids"].shape[1])
        window = _places(self.model.config)
        if window is not None and length >= window + self.has_encoder:
            raise ContextTooLongError(
                f"the request has {length} tokens, but the model's context window only {window}",
                tokens=length,
            )
        # An encoder-decoder model's decoder starts with one token, so the whole window is available
        # for the answer.
        room = (
            max_tokens
            if window is None
            else min(max_tokens, window - (1 if self.has_encoder else length))
        )
        tokens = self._given(given) if given else ()
        if len(tokens) > room:
            raise ContextTooLongError(
                f"the given reply has {len(tokens)} tokens, but there is room for {room} only",
                tokens=length + len(tokens),
            )
        return Prepared(
            dict(inputs), length, room, max_tokens, sampling, alternatives, timeout, stop, tokens
        )

    def _given(self, text: str) -> tuple[int, ...]:
        """Returns a reply's tokens with the one that ends it."""
        ends = self.model.generation_config.eos_token_id
        end = ends[0] if isinstance(ends, list) else ends
        return *self.tokenizer(text, add_special_tokens=False)["input_ids"], end

    def generate(self, calls: Sequence[Prepared]) -> list[Generation | PrillError]:
        """Returns an answer or an error for each call.

        Calls whose images cannot be batched are answered one by one. Raises EndpointError if the
        model cannot be used at all.
        """
        if len(calls) > 1 and not _have_equal_shapes(calls):
            return [outcome for call in calls for outcome in self.generate([call])]
        try:
            return self._generate(calls)
        except ContextTooLongError as error:  # out of device memory
            if len(calls) == 1:
                return [error]
        half = len(calls) // 2
        return self.generate(calls[:half]) + self.generate(calls[half:])

    def _generate(self, calls: Sequence[Prepared]) -> list[Generation | PrillError]:
        torch = importlib.import_module("torch")
        start = time.monotonic()
        width = 1 if self.has_encoder else max(call.prompt_tokens for call in calls)

        def ended(ids: Any, scores: Any, **rest: Any) -> Any:
            """Returns for each call whether it is complete, timed out, or cancelled."""
            written, seconds = ids.shape[1] - width, time.monotonic() - start
            over = [
                written >= call.room or seconds > call.timeout or call.stop.is_set()
                for call in calls
            ]
            return torch.tensor(over, device=ids.device)

        ends = self.model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        with model_failures(), torch.inference_mode():
            inputs = _together(calls, self.tokenizer.pad_token_id or 0, left=not self.has_encoder)
            inputs = {
                name: value.to(
                    self.model.device, self.model.dtype if value.is_floating_point() else None
                )
                for name, value in inputs.items()
            }
            draw = _Draw(
                calls, [1 if self.has_encoder else call.prompt_tokens for call in calls], width
            )
            out = self.model.generate(
                **inputs,
                max_new_tokens=max(call.room for call in calls),
                do_sample=False,  # `draw` samples
                temperature=None,
                top_p=None,
                top_k=None,
                repetition_penalty=1.0,
                pad_token_id=self.tokenizer.pad_token_id or 0,
                logits_processor=[draw],
                stopping_criteria=[ended],
            )
        seconds = round(time.monotonic() - start, 4)
        rows = out[:, width:].tolist()
        return [
            self._outcome(call, row, ends, draw.noted[i], seconds)
            for i, (call, row) in enumerate(zip(calls, rows, strict=True))
        ]

    def _outcome(
        self, call: Prepared, row: list[int], ends: set[int], noted: list[_Place], seconds: float
    ) -> Generation | PrillError:
        """Converts a row of the batch to an answer, up to its end, or an error."""
        length = next((i + 1 for i, token in enumerate(row) if token in ends), None)
        finished = length is not None and length <= call.room
        if not finished and seconds > call.timeout:
            return CallTimeoutError(f"no response within {call.timeout:g} s")
        if not finished and call.room < call.max_tokens:
            return ContextTooLongError(
                f"after {call.prompt_tokens} tokens, the model's context window has room "
                f"for {call.room} more only"
            )
        kept = row[: length if finished else call.room]
        text = self.tokenizer.decode(kept, skip_special_tokens=True)
        tokens = None
        if call.alternatives:
            spell = functools.cache(self._spell)
            tokens = tuple(
                Token(
                    spell(place.token),
                    place.logprob,
                    tuple((spell(token), logprob) for token, logprob in place.top),
                )
                for place in noted[: len(kept) - finished]
            )
        return Generation(text, call.prompt_tokens, len(kept), finished, seconds, tokens)

    def _spell(self, token: int) -> str:
        """Returns the text of one token.

        Some tokenizers mark a token's leading space, and drop it when the token is decoded alone.
        """
        text = str(self.tokenizer.decode([token]))
        piece = self.tokenizer.convert_ids_to_tokens(token)
        return f" {text}" if str(piece).startswith("▁") and not text.startswith(" ") else text


@dataclass(frozen=True, slots=True)
class _Place:
    """A generated token with its log-probability before sampling limits and temperature, and the
    top tokens at its position.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class _Draw:
    """Chooses the next token of each call with its own sampling parameters and random numbers.

    `penalised`: how many of the last prompt tokens count for the repetition penalty, per call.
    `width`: the number of tokens before the answer. All tokens but the chosen one are masked for
    transformers, which selects greedily. Sampling adds Gumbel noise to the log-probabilities and
    takes the maximum, which samples from the distribution (Gumbel 1954).
    """

    calls: Sequence[Prepared]
    penalised: Sequence[int]
    width: int
    noted: list[list[_Place]] = field(default_factory=list)
    numbers: dict[int, Any] = field(default_factory=dict)

    def __call__(self, ids: Any, scores: Any) -> Any:
        torch = importlib.import_module("torch")
        self.noted = self.noted or [[] for _ in self.calls]
        chosen = scores.argmax(-1)
        for i, call in enumerate(self.calls):
            if call.given:
                chosen[i] = call.given[min(len(self.noted[i]), len(call.given) - 1)]
            elif (
                call.sampling.temperature > 0
                or call.sampling.limits.get("repetition_penalty", 1.0) != 1.0
            ):
                chosen[i] = self._drawn(i, ids[i, self.width - self.penalised[i] :], scores[i])
        most = max(call.alternatives for call in self.calls)
        if most:
            logprobs = scores.float().log_softmax(-1)
            values, tokens = (
                part.tolist() for part in logprobs.topk(min(most, logprobs.shape[-1]))
            )
            own = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
            for i, call in enumerate(self.calls):
                top = zip(tokens[i][: call.alternatives], values[i], strict=False)
                finite = tuple((token, value) for token, value in top if math.isfinite(value))
                self.noted[i].append(_Place(int(chosen[i]), own[i], finite))
        return torch.full_like(scores, -math.inf).scatter_(1, chosen[:, None], 0.0)

    def _drawn(self, i: int, ids: Any, scores: Any) -> Any:
        """Returns the next token of one call, after the tokens `ids` of its prompt and answer."""
        torch = importlib.import_module("torch")
        sampling = self.calls[i].sampling
        penalty = sampling.limits.get("repetition_penalty", 1.0)
        # the repetition penalty of CTRL (arXiv 1909.05858, section 4.1), with the sign handling of
        # transformers and vLLM
        if penalty != 1.0:
            seen = scores[ids]
            scores = scores.scatter(0, ids, torch.where(seen < 0, seen * penalty, seen / penalty))
        if sampling.temperature == 0:
            return scores.argmax()
        scores = (scores / sampling.temperature).float().log_softmax(-1)
        if 0 < (top_k := sampling.limits.get("top_k", 0)) < len(scores):
            scores = scores.masked_fill(scores < scores.topk(top_k).values[-1], -math.inf)
        if (top_p := sampling.limits.get("top_p", 1.0)) < 1.0:
            likely, order = scores.softmax(-1).sort(descending=True)
            beyond = likely.cumsum(-1) - likely >= top_p  # never excludes the most likely token
            scores = scores.masked_fill(
                torch.zeros_like(beyond).scatter(0, order, beyond), -math.inf
            )
        if i not in self.numbers:
            self.numbers[i] = torch.Generator(device=scores.device).manual_seed(sampling.seed or 0)
        noise = torch.empty_like(scores).exponential_(generator=self.numbers[i]).log()
        return (scores - noise).argmax()


def load(
    path: Path | str, device: str | None, dtype: str | None, adapter: Path | None = None
) -> Weights:
    """Loads the model in a folder, or of a name. Raises MissingExtraError, EndpointError."""
    torch, transformers = libraries()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = getattr(torch, dtype) if dtype else torch.float32 if device == "cpu" else torch.bfloat16
    with model_failures(f"{path}: the model cannot be loaded"):
        config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False)
        sees = type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        if config.is_encoder_decoder and not sees:
            family = transformers.AutoModelForSeq2SeqLM
        else:
            family = (
                transformers.AutoModelForImageTextToText
                if sees
                else transformers.AutoModelForCausalLM
            )
        reads = transformers.AutoProcessor if sees else transformers.AutoTokenizer
        reader = reads.from_pretrained(path, trust_remote_code=False)
        model = family.from_pretrained(path, dtype=kind, trust_remote_code=False)
        if adapter is not None:
            model = _adapted(model, adapter)
        return Weights(model.to(device).eval(), reader, sees)


def libraries(extra: str = "local") -> tuple[Any, Any]:
    """Imports torch and transformers. Raises MissingExtraError, which names the extra."""
    try:
        mend_torchvision()
        return importlib.import_module("torch"), importlib.import_module("transformers")
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", extra) from None


def read_window(path: Path | str) -> int | None:
    """Returns the context window of a model, without loading its weights, or None.

    It is the smaller of the model's number of positions and the tokenizer's maximum length. For
    encoder-decoder models, the tokenizer's value is ignored: T5's says 512, but its relative
    positions are unbounded. Raises MissingExtraError, EndpointError.
    """
    _, transformers = libraries()
    with model_failures(f"{path}: the model cannot be loaded"):
        config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False)
        file = transformers.utils.cached_file(
            path, "tokenizer_config.json", _raise_exceptions_for_missing_entries=False
        )
    windows = [places] if (places := _places(config)) is not None else []
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        says = json.loads(Path(file or "").read_text(encoding="utf-8")).get("model_max_length")
        # Tokenizers without a limit report 10 to the power of 30.
        if isinstance(says, int) and 0 < says < 10**9 and not config.is_encoder_decoder:
            windows.append(says)
    return min(windows, default=None)


def _places(config: Any) -> int | None:
    """Returns a model's number of positions; None if it is unbounded.

    YaRN (arXiv 2309.00071) multiplies it.
    """
    text = config.get_text_config()
    places: int | None = getattr(text, "max_position_embeddings", None)
    rope = getattr(text, "rope_parameters", None) or {}
    if places is not None and rope.get("rope_type") == "yarn":
        trained = rope.get("original_max_position_embeddings") or places
        return max(places, int(trained * rope["factor"]))
    return places


def check_adapter(adapter: Path) -> None:
    """Raises UsageError if a folder contains no PEFT adapter, an unfinished one, or a changed
    one.
    """
    file = adapter / "adapter_config.json"
    expect_unchanged(adapter / RECORD, "train the adapter again in another folder")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(
            f"{adapter}: not an adapter folder (it needs PEFT's adapter_config.json and weights)"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file}: not valid JSON ({error}); train the adapter again, or copy the file again"
        ) from None
    if not isinstance(config, dict) or not isinstance(config.get("peft_type"), str):
        raise UsageError(f"{file}: not an adapter configuration (peft_type is missing)")
    expect_trained(adapter)
    # PEFT would import the module named by `megatron_core`
    if config.get("megatron_config") is not None:
        raise UsageError(
            f"{file}: megatron_config: Megatron adapters are not supported, because they "
            "name code to import"
        )
    # PEFT would otherwise download the weights
    if not any((adapter / name).is_file() for name in _ADAPTER_WEIGHTS):
        raise UsageError(
            f"{adapter}: the weights of the adapter are missing ({_ADAPTER_WEIGHTS[0]})"
        )


def _adapted(model: Any, adapter: Path) -> Any:
    """Returns the model with an adapter's weights added."""
    try:
        peft = importlib.import_module("peft")
    except ImportError:
        raise MissingExtraError("peft", "train") from None
    with model_failures(f"{adapter}: the adapter cannot be loaded"):
        return peft.PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()


def _have_equal_shapes(calls: Sequence[Prepared]) -> bool:
    """Returns whether the calls' other inputs, such as images, have equal shapes except in
    number.
    """
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for call in calls:
        for name, value in call.inputs.items():
            if not _by_token(call, value):
                shapes.setdefault(name, set()).add(tuple(value.shape[1:]))
    return all(len(kinds) == 1 for kinds in shapes.values())


def _by_token(call: Prepared, value: Any) -> bool:
    """Returns whether a tensor has one value per token of the call."""
    return tuple(value.shape) == (1, call.prompt_tokens)


def _together(calls: Sequence[Prepared], padding: int, *, left: bool) -> dict[str, Any]:
    """Combines the inputs of several calls into a batch.

    Inputs per token are padded on the left, or on the right for an encoder, which counts positions
    from the start. Other inputs are concatenated.
    """
    torch = importlib.import_module("torch")
    width = max(call.prompt_tokens for call in calls)
    batch: dict[str, Any] = {}
    for name in dict.fromkeys(name for call in calls for name in call.inputs):
        values = [(call, call.inputs.get(name)) for call in calls]
        first = next(value for _, value in values if value is not None)
        if not any(value is not None and _by_token(call, value) for call, value in values):
            batch[name] = torch.cat([value for _, value in values if value is not None])
            continue
        rows = torch.full(
            (len(calls), width), padding if name == "input_ids" else 0, dtype=first.dtype
        )
        for row, (_, value) in zip(rows, values, strict=True):
            if value is not None:
                row[width - value.shape[1] if left else 0 :][: value.shape[1]] = value[0]
        batch[name] = rows
    return batch


def _format_parts(parts: Sequence[Mapping[str, str]]) -> str:
    if any(part["type"] == "image" for part in parts):
        raise EndpointError("this model does not accept images; use a vision model")
    return "".join(part["text"] for part in parts)


def one_text(turns: Sequence[str]) -> str:
    """Returns the prompt for a model without a chat template: turns separated by a blank line."""
    return "\n\n".join(turns)


@contextmanager
def model_failures(problem: str = "the local model cannot be used") -> Iterator[None]:
    """Converts exceptions of torch, transformers and chat templates to prill's errors.

    The message begins with `problem`.
    """
    torch, jinja2 = (importlib.import_module(name) for name in ("torch", "jinja2"))
    try:
        yield
    except MissingExtraError:
        raise
    except torch.OutOfMemoryError as error:
        raise ContextTooLongError(
            f"the request does not fit the memory of the device: {excerpt(str(error))}"
        ) from None
    except (*library_errors(), jinja2.TemplateError) as error:
        raise EndpointError(f"{problem}: {error_cause(error)}") from error


def library_errors() -> tuple[type[Exception], ...]:
    """Returns the exceptions of transformers, PEFT and safetensors for damaged files."""
    damaged: type[Exception] = importlib.import_module("safetensors").SafetensorError
    contradictory: type[Exception] = importlib.import_module(
        "huggingface_hub.errors"
    ).StrictDataclassError
    wrong = ImportError, OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError
    return *wrong, EOFError, pickle.UnpicklingError, damaged, contradictory


def error_cause(error: BaseException) -> str:
    """Returns the cause of one of the `library_errors` as text for users."""
    # transformers wraps the original error in "could not import module"
    while error.__cause__ is not None:
        error = error.__cause__
    if "trust_remote_code" in str(
        error
    ):  # the message recommends an option that prill does not offer
        return "it contains Python code, which is not run"
    if isinstance(error, pickle.UnpicklingError):
        return "its weights are a pickle with more than tensors, which is not loaded"
    return excerpt(str(error), 300)


def folder_hash(folder: Path) -> str:
    """Returns a 12-digit hash of a folder's weights, which distinguishes models of one name; or
    `missing`.
    """
    digest, found = hashlib.sha256(), False
    for file in sorted(
        path
        for form in ("config.json", "*.safetensors", "pytorch_model*.bin")
        for path in folder.glob(form)
    ):
        with file.open("rb") as data:
            digest.update(os.fsencode(file.name) + hashlib.file_digest(data, "sha256").digest())
        found = True
    return digest.hexdigest()[:12] if found else "missing"
