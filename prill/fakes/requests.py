"""What the mock server reads of a request, and why it may refuse one before any model would see it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from prill.fakes.faults import Faults
from prill.fakes.replies import problem, tokens_of

# A 1280x720 picture at high detail in OpenAI's counting: 85 + 170 for each of 6 tiles of 512 pixels.
TOKENS_PER_IMAGE = 1105
NO_IMAGES = (
    "Invalid content type. image_url is only supported by certain models.",  # OpenAI
    "At most 0 image(s) may be provided in one prompt.",  # vLLM
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",  # llama.cpp
)


@dataclass(frozen=True)
class Part:
    """A piece of a message's content."""

    type: str
    text: str = ""


@dataclass(frozen=True)
class Turn:
    """A message."""

    role: str
    content: str | list[Part] | None = None


@dataclass(frozen=True)
class Request:
    """A completion request, as far as the mock reads it. `messages` stays raw: its bytes are what a prompt is known by."""

    messages: msgspec.Raw
    model: str = "mock"
    response_format: dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


@dataclass(frozen=True)
class Prompt:
    """The prompt of a request: its hash, the text of its first user message, its length, its number of images."""

    hash: str
    asked: str
    tokens: int
    images: int


@dataclass(frozen=True)
class Refused:
    """An answer of status 4xx and what /stats calls it."""

    status: int
    outcome: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


# What quotations carry is drawn anew for every call: two requests that differ in nothing else are one prompt.
_CODE = re.compile(rb"\[[\w-]+ ([0-9a-f]{8})\]")
decode_request = msgspec.json.Decoder(Request).decode
_turns = msgspec.json.Decoder(list[Turn]).decode


def read_prompt(request: Request) -> Prompt:
    """The prompt of a request."""
    raw = bytes(request.messages)
    if code := _CODE.search(raw):
        raw = raw.replace(code[1], b"")
    asked: str | None = None
    tokens = images = 0
    for turn in _turns(raw):
        parts = [Part("text", turn.content)] if isinstance(turn.content, str) else turn.content or []
        text = "\n".join(part.text for part in parts if part.type == "text")
        pictures = sum(part.type == "image_url" for part in parts)
        tokens += tokens_of(text) + pictures * TOKENS_PER_IMAGE
        images += pictures
        if turn.role == "user" and asked is None:
            asked = text
    return Prompt(hashlib.blake2b(raw, digest_size=8).hexdigest(), asked or "", tokens, images)


def refusal_of(faults: Faults, request: Request, prompt: Prompt) -> Refused | None:
    """Why this server will never take this request; None when it may."""

    def bad(outcome: str, message: str, param: str | None = None, code: str | None = None) -> Refused:
        return Refused(400, outcome, problem(message, param=param, code=code))

    form = (request.response_format or {}).get("type")
    if faults.refuse_key:
        words = "Incorrect API key provided. You can find your API key at the place that you got it from."
        return Refused(401, "refuse_key", problem(words, code="invalid_api_key"))
    if faults.unknown_model:
        words = f"The model `{request.model}` does not exist or you do not have access to it."
        return Refused(404, "unknown_model", problem(words, code="model_not_found"))
    if faults.no_images and prompt.images:
        return bad("no_images", NO_IMAGES[int(prompt.hash, 16) % len(NO_IMAGES)])
    for name, refused in (("json_schema", faults.no_json_schema), ("json_object", faults.no_json_object)):
        if refused and form == name:
            words = f"Invalid parameter: 'response_format' of type '{name}' is not supported with this model."
            return bad(f"no_{name}", words, "response_format")
    if faults.no_temperature and request.temperature not in (None, 1):
        words = (
            f"Unsupported value: 'temperature' does not support {request.temperature:g} with this model: only 1, its default."
        )
        return bad("no_temperature", words, "temperature", "unsupported_value")
    if faults.no_max_tokens and request.max_tokens is not None:
        words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return bad("no_max_tokens", words, "max_tokens", "unsupported_parameter")
    if faults.no_logprobs and request.logprobs:
        return bad("no_logprobs", "'logprobs' is not supported with this model.", "logprobs", "unsupported_parameter")
    if faults.context and prompt.tokens > faults.context:
        words = (
            f"This model's maximum context length is {faults.context} tokens. However, your messages resulted in "
            f"{prompt.tokens} tokens. Please reduce the length of the messages."
        )
        return bad("context", words, "messages", "context_length_exceeded")
    return None
