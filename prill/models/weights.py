"""Weights loaded through transformers, and one answer generated from them; both block."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prill.errors import CallTimeout, ContextTooLong, EndpointError, MissingExtra
from prill.models.dialect import Sampling
from prill.parse import excerpt


@dataclass(frozen=True, slots=True)
class Said:
    """One generation: the text, tokens read and written, and whether it ended by itself."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finished: bool


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
        top_k: int,
        timeout: float,
        stop: threading.Event,
    ) -> Said:
        """One answer. Raises ContextTooLong, CallTimeout, EndpointError."""
        torch = importlib.import_module("torch")
        end = time.monotonic() + timeout

        def given_up(ids: Any, scores: Any, **rest: Any) -> Any:
            over = stop.is_set() or time.monotonic() > end
            return torch.full((ids.shape[0],), over, device=ids.device, dtype=torch.bool)

        with _model_failures(), torch.random.fork_rng(), torch.inference_mode():
            inputs = self._inputs(turns)
            read = int(inputs["input_ids"].shape[1])
            room = self._room(read, max_tokens)
            torch.manual_seed(sampling.seed or 0)
            out = self.model.generate(**inputs, max_new_tokens=room, stopping_criteria=[given_up], **_drawing(sampling, top_k))
        if time.monotonic() > end:
            raise CallTimeout(f"no answer within {timeout:g} s")
        written = out[0, read:].tolist()
        ends = self.model.generation_config.eos_token_id
        finished = bool(written) and written[-1] in (ends if isinstance(ends, list) else [ends])
        if not finished and room < max_tokens:
            raise ContextTooLong(f"after {read} tokens the model's window has no more room for the answer than {room}")
        tokenizer = getattr(self.reader, "tokenizer", self.reader)
        return Said(tokenizer.decode(written, skip_special_tokens=True), read, len(written), finished)

    def _room(self, read: int, max_tokens: int) -> int:
        """Tokens that the answer may have in the model's window."""
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if window is not None and read >= window:
            raise ContextTooLong(f"the request has {read} tokens, and the model's window {window}")
        return max_tokens if window is None else min(max_tokens, window - read)

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


def _drawing(sampling: Sampling, top_k: int) -> dict[str, Any]:
    """The settings of `generate` that say how tokens are chosen; the model's own habits are put aside."""
    if sampling.temperature > 0:
        return {"do_sample": True, "temperature": sampling.temperature, "top_p": 1.0, "top_k": top_k}
    return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}


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
