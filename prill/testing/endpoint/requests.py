"""Request parsing and rejection messages of the mock server."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from prill.testing.endpoint.faults import Faults

CHARS_PER_TOKEN = 4
_encode = msgspec.json.encode
# A 1280x720 image at high detail in OpenAI's counting: 85 + 170 for each of 6 tiles of 512 pixels.
TOKENS_PER_IMAGE = 1105
NO_IMAGES = (
    "Invalid content type. image_url is only supported by certain models.",  # OpenAI
    "At most 0 image(s) may be provided in one prompt.",  # vLLM
    # llama.cpp
    "image input is not supported - hint: if this is unexpected, you may need to provide the "
    "mmproj",
)
_PICTURE = b'"url":"data:'  # inside a text, the quotation marks would be escaped
# The delimiters of quotations are random for every call: requests that differ only in them count as
# the same prompt.
_CODE = re.compile(rb"\[[\w-]+ ([a-z]{7})\]")


@dataclass(frozen=True)
class Part:
    """A part of a message's content."""

    type: str
    text: str = ""


@dataclass(frozen=True)
class Turn:
    """One message."""

    role: str
    content: str | list[Part] | None = None


@dataclass(frozen=True)
class Request:
    """A completion request, limited to the fields that the mock reads.

    `messages` stays raw, because its bytes identify a prompt.
    """

    messages: msgspec.Raw
    model: str = "mock"
    response_format: dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None

    @property
    def limit(self) -> int | None:
        """Returns the maximum number of tokens of the reply."""
        return self.max_completion_tokens or self.max_tokens


@dataclass(frozen=True)
class Prompt:
    """The prompt of a request.

    It has its hash, the text of its first user message, its length, its images, its system role;
    and whether it asks for one word, for a number, or for images of a certain detail.
    """

    hash: str
    user_text: str
    tokens: int
    images: int
    has_system: bool
    wants_word: bool = False
    wants_number: bool = False
    has_detail: bool = False


@dataclass(frozen=True)
class Rejection:
    """A response of status 4xx and its name in /stats."""

    status: int
    outcome: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


_decode = msgspec.json.Decoder(Request).decode
_turns = msgspec.json.Decoder(list[Turn]).decode


def decode_request(data: bytes) -> Request:
    """Decodes a request, with a checksum in place of every image.

    Raises MsgspecError and UnicodeDecodeError.
    """
    return _decode(_without_pictures(data))


def read_prompt(request: Request) -> Prompt:
    """Reads the prompt of a request."""
    raw = bytes(request.messages)
    if code := _CODE.search(raw):
        raw = raw.replace(code[1], b"")
    user_text: str | None = None
    tokens = images = 0
    has_system = False
    for turn in _turns(raw):
        parts = (
            [Part("text", turn.content)] if isinstance(turn.content, str) else turn.content or []
        )
        text = "\n".join(part.text for part in parts if part.type == "text")
        pictures = sum(part.type == "image_url" for part in parts)
        tokens += count_tokens(text) + pictures * TOKENS_PER_IMAGE
        images += pictures
        has_system = has_system or turn.role == "system"
        if turn.role == "user" and user_text is None:
            user_text = text
    return Prompt(
        hashlib.blake2b(raw, digest_size=8).hexdigest(),
        user_text or "",
        tokens,
        images,
        has_system,
        wants_word=b"Think without writing it down" in raw,
        wants_number=b"a whole number from 0 to 100" in raw,
        has_detail=images > 0 and b'"detail":"' in raw,
    )


def _without_pictures(raw: bytes) -> bytes:
    """Returns the body with a checksum in place of every image.

    Half a megabyte is then scanned once instead of ten times.
    """
    pieces, end = list[bytes](), 0
    while (start := raw.find(_PICTURE, end)) >= 0:
        start += len(_PICTURE)
        if (stop := raw.find(b'"', start)) < 0:
            break
        pieces += (
            raw[end:start],
            b"%d %08x" % (stop - start, zlib.crc32(memoryview(raw)[start:stop])),
        )
        end = stop
    return b"".join((*pieces, raw[end:])) if pieces else raw


def key_rejection(
    faults: Faults, headers: Mapping[str, str], query: Mapping[str, str]
) -> Rejection | None:
    """Returns the error for a client without access; None if it has access."""
    if faults.refuse_key:
        message = (
            "Incorrect API key provided. You can find your API key at the place that you got "
            "it from."
        )
        return Rejection(401, "refuse_key", problem(message, code="invalid_api_key"))
    if faults.no_credit:
        message = "Insufficient credits. Add more and retry the request."
        return Rejection(402, "no_credit", problem(message, code="402"))
    if faults.api_key_header and "api-version" not in query:
        return Rejection(404, "no_version", problem("Resource not found", code="404"))
    if faults.api_key_header and "api-key" not in headers:
        return Rejection(
            401, "no_key", problem("Access denied due to invalid subscription key.", code="401")
        )
    return None


def find_rejection(faults: Faults, request: Request, prompt: Prompt) -> Rejection | None:
    """Returns the error for a request that this server never accepts; None if it accepts it."""

    def bad(
        outcome: str, message: str, param: str | None = None, code: str | None = None
    ) -> Rejection:
        return Rejection(400, outcome, problem(message, param=param, code=code))

    form = (request.response_format or {}).get("type")
    if faults.unknown_model:
        text = f"The model `{request.model}` does not exist or you do not have access to it."
        return Rejection(404, "unknown_model", problem(text, code="model_not_found"))
    if faults.no_images and prompt.images:
        return bad("no_images", NO_IMAGES[int(prompt.hash, 16) % len(NO_IMAGES)])
    for name, rejection in (
        ("json_schema", faults.no_json_schema),
        ("json_object", faults.no_json_object),
    ):
        if rejection and form == name:
            text = (
                f"Invalid parameter: 'response_format' of type '{name}' is not supported with "
                "this model."
            )
            return bad(f"no_{name}", text, "response_format")
    if faults.no_temperature and request.temperature not in (None, 1):
        text = (
            f"Unsupported value: 'temperature' does not support {request.temperature:g} with "
            "this model: only 1, its default."
        )
        return bad("no_temperature", text, "temperature", "unsupported_value")
    if faults.no_max_tokens and request.max_tokens is not None:
        text = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead."
        )
        return bad("no_max_tokens", text, "max_tokens", "unsupported_parameter")
    if faults.no_logprobs and request.logprobs:
        text = "'logprobs' is not supported with this model."
        if faults.logprobs_status == 403:
            text = "You are not allowed to request logprobs from this model."
        body = problem(text, param="logprobs", code="unsupported_parameter")
        return Rejection(faults.logprobs_status, "no_logprobs", body)
    if 0 < faults.most_logprobs < (request.top_logprobs or 0):
        text = (
            f"Requested sample logprobs of {request.top_logprobs}, which is greater than max "
            f"allowed: {faults.most_logprobs}"
        )
        return bad("most_logprobs", text)
    if faults.no_system and prompt.has_system:
        return bad("no_system", "System role not supported")
    if faults.no_reasoning_effort and request.reasoning_effort:
        text = "Unsupported parameter: 'reasoning_effort' is not supported with this model."
        return bad("no_reasoning_effort", text, "reasoning_effort", "unsupported_parameter")
    if faults.no_detail and prompt.has_detail:
        return bad(
            "no_detail",
            "Unknown parameter: 'messages[1].content[1].image_url.detail'.",
            code="unknown_parameter",
        )
    if faults.no_bounds and _BOUND.search(_encode(request.response_format)):
        text = (
            "Invalid schema for response_format 'verdict': In context=('properties',), "
            "'maxLength' is not permitted."
        )
        return bad("no_bounds", text, "response_format")
    if 0 < faults.most_images < prompt.images:
        return bad(
            "most_images", f"At most {faults.most_images} image(s) may be provided in one request."
        )
    reply = (request.limit or 0) if faults.context_form == "vllm" else 0
    if faults.context and prompt.tokens + reply > faults.context:
        return bad(
            "context", too_long(faults, prompt.tokens, reply), "messages", "context_length_exceeded"
        )
    return None


_BOUND = re.compile(rb'"(m(in|ax)(Items|Length|imum))":')


def too_long(faults: Faults, tokens: int, reply: int) -> str:
    """Returns a server's message about a prompt that is too long.

    litellm recognises Anthropic's and Gemini's messages by "prompt is too long: N tokens > M
    maximum" and "exceeds the maximum number of tokens allowed".
    """
    window = faults.context
    return {
        "openai": f"This model's maximum context length is {window} tokens. However, your "
        f"messages resulted in {tokens} "
        "tokens. Please reduce the length of the messages.",
        "vllm": f"This model's maximum context length is {window} tokens. However, you requested "
        f"{reply} output tokens and "
        f"your prompt contains at least {tokens} input tokens, for a total of at least "
        f"{tokens + reply} tokens. Please reduce "
        "the length of the input prompt or the number of requested output tokens.",
        "llama.cpp": (
            f"request ({tokens} tokens) exceeds the available context size ({window} "
            "tokens), try increasing it"
        ),
        "anthropic": f"prompt is too long: {tokens} tokens > {window} maximum",
        "gemini": (
            f"The input token count ({tokens}) exceeds the maximum number of tokens allowed "
            f"({window})."
        ),
        "mute": "the request exceeds the available context size, try increasing it",
    }[faults.context_form]


def count_tokens(text: str) -> int:
    """Returns the mock's count of tokens: one for four characters."""
    return len(text) // CHARS_PER_TOKEN + 1


# Google's names of statuses, in the `status` of an error that google-genai and litellm read.
_GOOGLES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
}


def in_form(rejection: Rejection, form: str) -> bytes:
    """Converts the body of a rejection from OpenAI's form to another one."""
    error = msgspec.json.decode(rejection.body)
    if form == "list":
        status = rejection.status
        named = {
            "code": status,
            "message": error["error"]["message"],
            "status": _GOOGLES.get(status, "UNKNOWN"),
        }
        return _encode([{"error": named}])
    if form == "detail":
        detail = [
            {
                "type": "extra_forbidden",
                "loc": ["body", error["error"]["param"]],
                "msg": error["error"]["message"],
            }
        ]
        return _encode({"object": "error", "message": {"detail": detail}, "code": None})
    return str(error["error"]["message"]).encode() if form == "text" else rejection.body


def problem(
    message: str,
    *,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
) -> bytes:
    """Returns the body of an error in OpenAI's form."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
