"""The chat-completions format: requests as bytes, answers and errors as records."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from prill.errors import ContextTooLong, InputError, Refusal, TransportFailure, Unscored
from prill.models.images import EncodedImage
from prill.models.prompts import NONCE
from prill.protocols import Image, Message, Token

_CONTEXT = (
    r"context.?length|maximum context|context (size|window)|prompt is too long|too many tokens|exceeds the (available|model)"
)
# More images than the endpoint takes at once, not one that it cannot use.
_TOO_MANY_IMAGES = (
    r"too many images|limit.mm.per.prompt"
    r"|(at most|up to|more than|fewer than|maximum( of| is)?|limit( of| is)?)\s+[1-9]\d*\s+image"
)
_REFUSAL = r"content.?(filter|policy|management)|safety system|responsible ai"
_NO_VISION = (
    r"mmproj|multi-?modal|\bvision\b"
    r"|image[^.]{0,60}(not (be )?(support|allow|accept)|unsupported|only supported)"
    r"|(not? support|unsupported|only support|cannot accept|at most 0)[^.]{0,60}image"
)


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One candidate token of the wire format."""

    token: str
    logprob: float
    top_logprobs: tuple[TokenEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The `logprobs` object of a choice."""

    content: tuple[TokenEntry, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """What the model said. Some endpoints give a refusal a field of its own."""

    content: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer."""

    message: ChatMessage
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What the endpoint says it counted."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer to a chat-completions request, as far as prill reads it."""

    choices: tuple[Choice, ...]
    usage: TokenCounts | None = None

    @property
    def tokens(self) -> tuple[Token, ...] | None:
        """The reply's tokens with probabilities, None when the endpoint gave none."""
        logprobs = self.choices[0].logprobs
        if logprobs is None or not logprobs.content:
            return None
        return tuple(Token(t.token, t.logprob, tuple((c.token, c.logprob) for c in t.top_logprobs)) for t in logprobs.content)


_decoder = msgspec.json.Decoder(Completion)
encode_body = msgspec.json.Encoder().encode


def decode_completion(data: bytes) -> Completion | None:
    """The completion; None when the body is something else (a proxy's page, say)."""
    try:
        completion = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return completion if completion.choices else None


def chat_messages(
    messages: Sequence[Message], images: Mapping[str, EncodedImage], ending: str, code: str = ""
) -> list[dict[str, Any]]:
    """The `messages` of a request. `ending` follows the first text: what all requests share comes first, so that servers
    need to read it only once. `code` takes the places of `prill.models.prompts.NONCE`."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        parts = [part.replace(NONCE, code) if isinstance(part, str) else part for part in message.parts]
        if ending and message is messages[0]:
            place = next((i for i, part in enumerate(parts) if isinstance(part, str)), None)
            if place is None:
                parts.insert(0, ending)
            else:
                parts[place] = f"{parts[place]}\n\n{ending}"
        if any(isinstance(part, Image) for part in parts):
            content: Any = [
                {"type": "image_url", "image_url": _image(part, images[part.path])}
                if isinstance(part, Image)
                else {"type": "text", "text": part}
                for part in parts
            ]
        else:
            content = "\n\n".join(part for part in parts if isinstance(part, str))
        rows.append({"role": message.role, "content": content})
    return rows


def _image(image: Image, encoded: EncodedImage) -> dict[str, Any]:
    detail = {} if image.detail is None else {"detail": image.detail}
    return {"url": _literal(encoded.url), **detail}


def _literal(url: bytes) -> msgspec.Raw:
    """A data URL as JSON. It needs no escapes, and half a megabyte is quicker copied than searched for some."""
    return msgspec.Raw(b'"%b"' % url)


def error_message(body: object, fallback: str) -> str:
    """The words of an error body in one of its usual shapes."""
    record: Any = body
    if isinstance(record, dict):
        record = record.get("error", record)
    if isinstance(record, dict):
        record = " ".join(str(record[k]) for k in ("message", "code", "detail") if record.get(k))
    words = str(record) if record else fallback
    return " ".join(words.split())[:300]


def lacks_vision(message: str) -> bool:
    """True for an error that says the model takes no images at all."""
    return re.search(_NO_VISION, message, re.IGNORECASE) is not None and not _too_many_images(message)


def _too_many_images(message: str) -> bool:
    return re.search(_TOO_MANY_IMAGES, message, re.IGNORECASE) is not None


def rejection(status: int, message: str, has_images: bool) -> Unscored:
    """The error for a request that the endpoint will not take however often it is sent."""
    if re.search(_CONTEXT, message, re.IGNORECASE):
        return ContextTooLong(f"the request does not fit the model's window: {message}")
    if has_images and _too_many_images(message):
        return ContextTooLong(f"the endpoint takes fewer images in one request: {message}")
    if re.search(_REFUSAL, message, re.IGNORECASE):
        return Refusal(f"the endpoint declined: {message}")
    if has_images and ("image" in message.lower() or lacks_vision(message)):
        return InputError(f"the endpoint cannot use an image: {message}")
    return TransportFailure(f"HTTP {status}: {message}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by the Retry-After headers (seconds, milliseconds or a date); None without a usable one."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if not (value := headers.get("retry-after")):
            return None
        if re.fullmatch(r"[\d.]+", value):
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
