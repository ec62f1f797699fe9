"""How much one request may hold: what an endpoint's list of models says of it, and what the words of a refusal say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from prill.protocols import Image, Limits, Message

# Bytes for a token of text: page text and accessibility trees have 3 to 4 in English, other alphabets fewer characters but
# more bytes each. A guess that is too low costs a little evidence, one that is too high a refused call.
_BYTES_PER_TOKEN = 3
# A screenshot of 1280 x 720 in Qwen2.5-VL's counting (28 x 28 pixels a token); OpenAI's is 1,105.
PIXELS_PER_TOKEN = 28 * 28
TOKENS_PER_IMAGE = 1_200
# Fields of a model's entry that say how long its window is: of vLLM, OpenRouter and Together, Groq, Mistral, llama.cpp.
# `n_ctx_train` is what a model was trained for; a server may have loaded it with less, and then says so when it refuses.
_FIELDS = ("max_model_len", "n_ctx", "context_length", "context_window", "max_context_length", "n_ctx_train")
_PLACES = ("meta", "top_provider")
_LEAST_WINDOW = 128  # what is smaller is no window: an unset field, say

_NUMBER = r"(\d[\d,]*)"
# The window in the words of: OpenAI, vLLM, OpenRouter and SGLang; llama.cpp and LM Studio; Mistral; Anthropic; Gemini;
# Together; text-generation-inference.
_WINDOW = (
    rf"context length (?:is |of |\()*(?:only )?{_NUMBER}",
    rf"context (?:size|window|limit)[^\d.]{{0,20}}{_NUMBER} tokens",
    rf"n_ctx={_NUMBER}",
    rf"{_NUMBER} maximum context length",
    rf"(?:too long|context limit):[^>]{{0,60}}> {_NUMBER}",
    rf"maximum (?:number of tokens allowed|model length of) ?\(?{_NUMBER}",
    rf"max_new_tokens` must be <= {_NUMBER}",
    rf"must have less than {_NUMBER} tokens",
    # By these words litellm recognises others; the second are Bedrock's, the third Cerebras's.
    rf"exceed the configured limit of {_NUMBER}",
    rf"exceed model maximum \({_NUMBER}\)",
    rf"while limit is {_NUMBER}",
)
# The tokens of the request without its reply, in the words of the same.
_TOKENS = (
    rf"{_NUMBER} (?:in the messages|input tokens|of text input|tokens from the input|`inputs` tokens)",
    rf"(?:resulted in|prompt contains(?: at least)?|keep the first|n_prompt_tokens=) ?{_NUMBER}",
    rf"(?:request|input|input token count|prompt) \((?:length )?{_NUMBER}",
    rf"(?:too long|context limit|given): {_NUMBER}",
    rf"(?:prompt tokens \(|current length is ){_NUMBER}",
)
# "max_tokens is too large: 5000. This model supports at most 4096 completion tokens", "max_tokens: 70000 > 64000, which is".
_REPLY = (rf"at most {_NUMBER} (?:completion|output) tokens", rf"max_tokens: \d+ > {_NUMBER}")
# "At most 2 image(s) may be provided", "supports up to 5 images", "too many images and documents: 101 + 0 > 100", "image=1".
_IMAGES = (
    rf"(?:at most|up to|more than|maximum(?: of| is)?|limit(?: of| is)?)\s+{_NUMBER}\s+image",
    rf"images[^>]{{0,60}}> {_NUMBER}",
    rf"image={_NUMBER}",
)
_FEWER_IMAGES = (rf"fewer than\s+{_NUMBER}\s+image",)


@dataclass(frozen=True, slots=True)
class Told:
    """What a refusal says in numbers: the window, the tokens of the request, and the most of a reply and of images."""

    window: int | None = None
    tokens: int | None = None
    reply: int | None = None
    images: int | None = None


def told_by(refusal: str) -> Told:
    """The numbers in the words of a refusal; None for each that it does not name."""
    fewer = _first(_FEWER_IMAGES, refusal)
    images = _first(_IMAGES, refusal) if fewer is None else fewer - 1
    return Told(_first(_WINDOW, refusal), _first(_TOKENS, refusal), _first(_REPLY, refusal), images)


def _first(patterns: Iterable[str], text: str) -> int | None:
    found = (re.search(pattern, text, re.IGNORECASE) for pattern in patterns)
    return next((int(match[1].replace(",", "")[:12]) for match in found if match), None)


def listed_window(models: bytes, name: str) -> int | None:
    """The window of a model by its entry in `/models`, or by the only entry there is; None where none is named."""
    try:
        record = msgspec.json.decode(models)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    rows = record.get("data") if isinstance(record, dict) else record
    entries = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    own = next((row for row in entries if row.get("id") == name), entries[0] if len(entries) == 1 else {})
    return next(_windows(own), None)


def _windows(entry: dict[str, Any]) -> Iterator[int]:
    parts = [entry, *(part for name in _PLACES if isinstance(part := entry.get(name), dict))]
    for part in parts:
        for name in _FIELDS:
            if isinstance(value := part.get(name), int) and not isinstance(value, bool) and value >= _LEAST_WINDOW:
                yield value


def size_of(messages: Sequence[Message]) -> tuple[int, int]:
    """The bytes of the text in some messages, and the number of their images."""
    parts = [part for message in messages for part in message.parts]
    texts = (part for part in parts if isinstance(part, str))
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts), sum(isinstance(part, Image) for part in parts)


def guessed_tokens(messages: Sequence[Message]) -> int:
    """A guess at the tokens of some messages, rather too high than too low."""
    size, images = size_of(messages)
    return size // _BYTES_PER_TOKEN + images * TOKENS_PER_IMAGE


def least_reply(limits: Limits, max_tokens: int) -> int:
    """The tokens that are kept for a reply of `max_tokens`: no more than a quarter of the window, half where a model thinks."""
    if limits.window is None:
        return max_tokens
    return min(max_tokens + limits.thinking, max(1, limits.window // (2 if limits.thinking else 4)))
