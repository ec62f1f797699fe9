"""Builds requests (fields, messages, images) and stores the endpoint's known capabilities.

Capabilities are learned from the endpoint's error messages and kept for the rest of the process.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from prill.errors import (
    ContextTooLongError,
    InputError,
    RefusalError,
    TransportError,
    UnscoredError,
    UsageError,
)
from prill.io.cache import BoundedCache
from prill.io.images import (
    DAMAGED,
    Version,
    decoded,
    file_version,
    known_hash,
    open_image,
    read_image,
    remember_hash,
)
from prill.models.options import JPEG_QUALITY, ImageDetail, ImageFormat, ReasoningEffort
from prill.models.prompts import NONCE
from prill.protocols import Form, Image, Limits, Message, SamplingLimits

if TYPE_CHECKING:
    from PIL import Image as Pictures

_FIELD_PATTERNS = {
    "reasoning_effort": r"reasoning.?effort",
    "detail": r"image[^.]{0,60}\bdetail\b|[.'\"`]detail\b",
    "format": (
        r"response_format|json_schema|json_object|json schema|structured|grammar|guided|(min|max)(Items|Length|imum['\"`])"  # noqa: E501
    ),
    "temperature": r"temperature",
    "logprobs": r"logprob",
    "max_completion_tokens": r"max_completion_tokens",
    "seed": r"\bseed\b",
    "top_p": r"\btop_p\b",
    "top_k": r"\btop_k\b",
    "repetition_penalty": r"\brepetition_penalty\b",
    "system": r"system (role|message|prompt)s?\b.{0,40}\bnot\b|roles must alternate|only user,? (and )?(model|assistant) role",  # noqa: E501
}
# "top_logprobs must be at most 5", "Requested sample logprobs of 10, which is greater than max
# allowed: 5".
_MAX_LOGPROBS = r"(?:at most|max(?:imum)?(?: allowed)?(?: value)?(?: is)?|less than or equal to|<=|between 0 and)\D{0,12}(\d+)"  # noqa: E501


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters: temperature 0, or another temperature with a seed, so that samples
    differ.

    `limits` are those of `prill.protocols.SamplingLimits`.
    """

    temperature: float = 0.0
    seed: int | None = None
    limits: SamplingLimits = field(default_factory=SamplingLimits)

    @property
    def suffix(self) -> str:
        """Returns the part of a model's name about sampling; empty at temperature 0.

        Without a seed there is no sampling: at temperature 0, `top_p` and `top_k` do not change the
        most likely token.
        """
        parameters: dict[str, float | None] = {
            "temperature": self.temperature,
            "seed": self.seed,
            **self.limits,  # type: ignore[dict-item]
        }
        if self.temperature == 0 and self.seed is None:
            parameters = {
                name: value for name, value in parameters.items() if name == "repetition_penalty"
            }
        listed = ", ".join(
            f"{name} {value:g}" for name, value in parameters.items() if value is not None
        )
        return f" ({listed})" if listed else ""

    def drawn(self, temperature: float, seed: int, limits: SamplingLimits) -> Sampling:
        """Returns parameters for a sample at another temperature; given limits override these."""
        return Sampling(temperature, seed, {**self.limits, **limits})


GREEDY = Sampling()


def sampling_options(
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    repetition_penalty: float | None = None,
) -> Sampling:
    """Returns a model's sampling parameters; None values are not sent."""
    given = {"top_p": top_p, "top_k": top_k, "repetition_penalty": repetition_penalty}
    limits = {name: value for name, value in given.items() if value is not None}
    return Sampling(temperature or 0.0, None, SamplingLimits(**limits))  # type: ignore[typeddict-item]


# Reasoning tokens in addition to those of the answer; increased if a reply was truncated before the
# answer.
THINKING = (0, 4_096, 16_384, 65_536)
# Schema keywords that bound lists, texts and numbers; some servers reject them.
_BOUNDS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"})
TOP_LOGPROBS = 10  # alternatives per token; hosted services allow at most 20, some only 5


@dataclass(slots=True)
class EndpointCapabilities:
    """The request fields to use with one endpoint and model.

    It starts with the most capable format and downgrades when the endpoint rejects it.
    """

    structured: Literal["json_schema", "json_object", "text"] = "json_schema"
    bounds: bool = True
    temperature: bool = True
    logprobs: bool = True
    top_logprobs: int = TOP_LOGPROBS
    seed: bool = True
    system: bool = True
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: int = 0
    sampling_limits: tuple[str, ...] = ("top_p", "top_k", "repetition_penalty")
    reasoning_effort: bool = True
    detail: bool = True
    window: int | None = None
    reply: int | None = None
    images: int | None = None

    @property
    def limits(self) -> Limits:
        """Returns the known limits of one request."""
        return Limits(self.window, self.images, self.thinking)

    def fields(
        self,
        form: Form | None,
        max_tokens: int,
        sampling: Sampling = GREEDY,
        effort: ReasoningEffort | None = None,
    ) -> dict[str, Any]:
        """Returns all fields of a request body except model and messages."""
        fields: dict[str, Any] = {self.token_limit: max_tokens + self.thinking}
        if self.reasoning_effort and effort is not None:
            fields["reasoning_effort"] = effort
        if self.temperature:
            fields["temperature"] = sampling.temperature
        if self.seed and sampling.seed is not None:
            fields["seed"] = sampling.seed
        fields |= {
            name: value for name, value in sampling.limits.items() if name in self.sampling_limits
        }
        if form is not None and self.logprobs:
            fields |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if form is None or form.tagged:
            return fields
        if self.structured == "json_schema":
            plain = form.json_schema()
            schema = {
                "name": "verdict",
                "strict": True,
                "schema": plain if self.bounds else _without_bounds(plain),
            }
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.structured == "json_object":
            fields["response_format"] = {"type": "json_object"}
        return fields

    def room_for_reply(
        self, max_tokens: int, request: Sequence[Message], tokens: int | None = None
    ) -> int:
        """Returns the token limit to send: answer and reasoning, within the limits of endpoint and
        window.

        `tokens` is the number of tokens in the request, if known. With an estimate, part of the
        window is always kept for the reply.
        """
        wanted = max_tokens + self.thinking
        if self.reply is not None:
            wanted = min(wanted, self.reply)
        if self.window is None:
            return wanted
        if tokens is not None:
            return min(wanted, max(1, self.window - tokens))
        return min(
            wanted, max(least_reply(self.limits, max_tokens), self.window - guessed_tokens(request))
        )

    def learn_sizes(self, limits: RequestLimits, images: int | None) -> None:
        """Stores the window from an error message, and `images` as the maximum number of images per
        request.
        """
        self.window = _least(self.window, limits.window)
        self.images = _least(self.images, None if images is None else max(1, images))

    def think_longer(self, thinking: int) -> bool:
        """Raises the limit of reasoning tokens above `thinking`; False if it is at its maximum.

        If a concurrent call has already raised it, it is not raised again.
        """
        more = next((tokens for tokens in THINKING if tokens > thinking), thinking)
        self.thinking = max(self.thinking, more)
        return more > thinking

    def adapt(self, refusal: str, sent: dict[str, Any], *, detail: bool, system: bool) -> bool:
        """Downgrades after an error message about a field of the request; False if it is about
        something else.

        `detail`: the request's images had a detail level. `system`: the request had a system
        message. The decision uses the fields that were sent, not the current capabilities, so that
        every concurrent call is sent again.
        """

        def about(field_name: str) -> bool:
            return re.search(_FIELD_PATTERNS[field_name], refusal, re.IGNORECASE) is not None

        if "max_tokens" in sent and about("max_completion_tokens"):
            self.token_limit = "max_completion_tokens"
        elif "logprobs" in sent and about("logprobs"):
            limit = re.search(_MAX_LOGPROBS, refusal, re.IGNORECASE)
            if limit and 0 < int(limit[1]) < sent["top_logprobs"]:
                self.top_logprobs = int(limit[1])
            else:
                self.logprobs = False
        elif system and about("system"):
            self.system = False
        elif "temperature" in sent and about("temperature"):
            self.temperature = False
        elif "seed" in sent and about("seed"):
            self.seed = False
        elif refused := [name for name in self.sampling_limits if name in sent and about(name)]:
            self.sampling_limits = tuple(
                name for name in self.sampling_limits if name not in refused
            )
        elif "reasoning_effort" in sent and about("reasoning_effort"):
            self.reasoning_effort = False
        elif detail and about("detail"):
            self.detail = False
        elif "response_format" in sent and about("format"):
            self.downgrade(sent)
        else:
            return False
        return True

    def downgrade(self, sent: dict[str, Any]) -> None:
        """Switches to the next simpler request for structured output: first without bounds, then
        without schema.
        """
        form = sent["response_format"]
        if form["type"] != "json_schema":
            self.structured = "text"
        elif _without_bounds(form["json_schema"]) != form["json_schema"]:
            self.bounds = False
        else:
            self.structured = "json_object"


def _least(known: int | None, new: int | None) -> int | None:
    return min((count for count in (known, new) if count is not None), default=None)


def _without_bounds(schema: Any) -> Any:
    """Returns the schema without bounds of lists, texts and numbers."""
    if isinstance(schema, list):
        return [_without_bounds(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_bounds(part)
        for key, part in schema.items()
        if key not in _BOUNDS or isinstance(part, dict)
    }


# Bytes per token of text: English page text and accessibility trees have 3 to 4; other alphabets
# have fewer characters but more bytes each. Too low a value costs some evidence, too high a value a
# rejected call.
_BYTES_PER_TOKEN = 3
# Tokens of a 1280 x 720 screenshot for Qwen2.5-VL (28 x 28 pixels a token); OpenAI counts 1,105.
PIXELS_PER_TOKEN = 28 * 28
TOKENS_PER_IMAGE = 1_200
# Fields of a model's entry with its context window: vLLM, OpenRouter and Together, Groq, Mistral,
# llama.cpp. `n_ctx_train` is the window of the training; a server that was started with a smaller
# one says so when it rejects a request.
_FIELDS = (
    "max_model_len", "n_ctx", "context_length", "context_window", "max_context_length",
    "n_ctx_train",
)  # fmt: skip
_PLACES = ("meta", "top_provider")
_MIN_WINDOW = 128  # smaller values are not windows, but for example unset fields

_NUMBER = r"(\d[\d,]*)"
# The window in the error messages of OpenAI, vLLM, OpenRouter and SGLang; llama.cpp and LM Studio;
# Mistral; Anthropic; Gemini; Together; text-generation-inference.
_WINDOW = (
    rf"context length (?:is |of |\()*(?:only )?{_NUMBER}",
    rf"context (?:size|window|limit)[^\d.]{{0,20}}{_NUMBER} tokens",
    rf"n_ctx={_NUMBER}",
    rf"{_NUMBER} maximum context length",
    rf"(?:too long|context limit):[^>]{{0,60}}> {_NUMBER}",
    rf"maximum (?:number of tokens allowed|model length of) ?\(?{_NUMBER}",
    rf"max_new_tokens` must be <= {_NUMBER}",
    rf"must have less than {_NUMBER} tokens",
    # Patterns by which litellm recognises others; the second is Bedrock's, the third Cerebras's.
    rf"exceed the configured limit of {_NUMBER}",
    rf"exceed model maximum \({_NUMBER}\)",
    rf"while limit is {_NUMBER}",
)
# The request's tokens without the reply, in the error messages of the same providers.
_TOKENS = (
    rf"{_NUMBER} (?:in the messages|input tokens|of text input|tokens from the input|`inputs` tokens)",  # noqa: E501
    rf"(?:resulted in|prompt contains(?: at least)?|keep the first|n_prompt_tokens=) ?{_NUMBER}",
    rf"(?:request|input|input token count|prompt) \((?:length )?{_NUMBER}",
    rf"(?:too long|context limit|given): {_NUMBER}",
    rf"(?:prompt tokens \(|current length is ){_NUMBER}",
)
# "max_tokens is too large: 5000. This model supports at most 4096 completion tokens", "max_tokens:
# 70000 > 64000, which is".
_REPLY = (rf"at most {_NUMBER} (?:completion|output) tokens", rf"max_tokens: \d+ > {_NUMBER}")
# "At most 2 image(s) may be provided", "supports up to 5 images", "too many images and documents:
# 101 + 0 > 100", "image=1".
_IMAGES = (
    rf"(?:at most|up to|more than|maximum(?: of| is)?|limit(?: of| is)?)\s+{_NUMBER}\s+image",
    rf"images[^>]{{0,60}}> {_NUMBER}",
    rf"image={_NUMBER}",
)
_FEWER_IMAGES = (rf"fewer than\s+{_NUMBER}\s+image",)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The numbers in an error message: window, request tokens, and maximum reply tokens and
    images.
    """

    window: int | None = None
    tokens: int | None = None
    reply: int | None = None
    images: int | None = None

    @classmethod
    def from_error(cls, refusal: str) -> RequestLimits:
        """Parses the numbers in an error message; None for each that it does not contain."""
        fewer = _first(_FEWER_IMAGES, refusal)
        images = _first(_IMAGES, refusal) if fewer is None else fewer - 1
        return cls(
            _first(_WINDOW, refusal), _first(_TOKENS, refusal), _first(_REPLY, refusal), images
        )


def _first(patterns: Iterable[str], text: str) -> int | None:
    found = (re.search(pattern, text, re.IGNORECASE) for pattern in patterns)
    return next((int(match[1].replace(",", "")[:12]) for match in found if match), None)


def listed_window(models: bytes, name: str) -> int | None:
    """Returns a model's context window from its entry in `/models`, or from the only entry, or
    None.
    """
    try:
        record = msgspec.json.decode(models)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    rows = record.get("data") if isinstance(record, dict) else record
    entries = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    own = next(
        (row for row in entries if row.get("id") == name), entries[0] if len(entries) == 1 else {}
    )
    return next(_windows(own), None)


def _windows(entry: dict[str, Any]) -> Iterator[int]:
    parts = [entry, *(part for name in _PLACES if isinstance(part := entry.get(name), dict))]
    for part in parts:
        for name in _FIELDS:
            if (
                isinstance(value := part.get(name), int)
                and not isinstance(value, bool)
                and value >= _MIN_WINDOW
            ):
                yield value


def estimate_size(messages: Sequence[Message]) -> tuple[int, int]:
    """Returns the bytes of the messages' text, and the number of their images."""
    parts = [part for message in messages for part in message.parts]
    texts = (part for part in parts if isinstance(part, str))
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts), sum(
        isinstance(part, Image) for part in parts
    )


def guessed_tokens(messages: Sequence[Message]) -> int:
    """Returns an upper estimate of the messages' tokens."""
    size, images = estimate_size(messages)
    return size // _BYTES_PER_TOKEN + images * TOKENS_PER_IMAGE


def least_reply(limits: Limits, max_tokens: int) -> int:
    """Returns the tokens reserved for a reply of `max_tokens`.

    At most a quarter of the window is reserved, or half for a reasoning model.
    """
    if limits.window is None:
        return max_tokens
    return min(max_tokens + limits.thinking, max(1, limits.window // (2 if limits.thinking else 4)))


_CONTEXT = (
    r"context.?length|maximum context|context (size|window|limit)|prompt is too long|too many tokens"  # noqa: E501
    r"|exceeds the (available|model)|maximum (number of tokens|model length)|max_new_tokens. must be|inputs. must have less"  # noqa: E501
    # patterns by which litellm recognises others
    r"|exceed the configured limit|exceed model maximum|while limit is|input (is )?too long"
)
# Errors about the number of images, not about an unusable image.
_TOO_MANY_IMAGES = (
    r"too many images|limit.mm.per.prompt"
    r"|(at most|up to|more than|fewer than|maximum( of| is)?|limit( of| is)?)\s+[1-9]\d*\s+image"
)
encode_body = msgspec.json.Encoder().encode
TOO_LARGE = 413
INTERNAL_ERROR = 500  # the server failed without further information
_REFUSAL = r"content.?(filter|policy|management)|safety system|responsible ai"
_NO_VISION = (
    r"mmproj|multi-?modal|\bvision\b"
    r"|image[^.]{0,60}(not (be )?(support|allow|accept)|unsupported|only supported)"
    r"|(not? support|unsupported|only support|cannot accept|at most 0)[^.]{0,60}image"
)


def rejection(
    status: int, message: str, has_images: bool, shown: str | None = None
) -> UnscoredError:
    """Returns the error for a request that the endpoint rejects permanently.

    It is classified by `message`. The error's text contains `shown`, in which the key is hidden.
    """
    shown = message if shown is None else shown
    if re.search(_CONTEXT, message, re.IGNORECASE):
        return ContextTooLongError(
            f"the request exceeds the model's context window: {shown}",
            tokens=RequestLimits.from_error(message).tokens,
        )
    if has_images and too_many_images(message):
        return ContextTooLongError(f"the endpoint accepts fewer images per request: {shown}")
    if status == TOO_LARGE:
        return ContextTooLongError(f"the request is larger than the endpoint accepts: {shown}")
    if re.search(_REFUSAL, message, re.IGNORECASE):
        return RefusalError(f"the endpoint declined: {shown}")
    if has_images and ("image" in message.lower() or lacks_vision(message)):
        return InputError(f"the endpoint cannot use an image: {shown}")
    return TransportError(f"HTTP {status}: {shown}")


def lacks_vision(message: str) -> bool:
    """Returns True if an error says that the model accepts no images at all."""
    return re.search(_NO_VISION, message, re.IGNORECASE) is not None and not too_many_images(
        message
    )


def too_many_images(message: str) -> bool:
    """Returns True if an error says that the request has too many images."""
    return re.search(_TOO_MANY_IMAGES, message, re.IGNORECASE) is not None


def worded(messages: Sequence[Message], ending: str, code: str) -> tuple[Message, ...]:
    """Returns the messages as they are sent.

    `ending` is inserted after the first text, because the common prefix of all requests can be
    cached by the server. `code` replaces `prill.models.prompts.NONCE`.
    """
    sent = []
    for message in messages:
        parts = [
            part.replace(NONCE, code) if isinstance(part, str) else part for part in message.parts
        ]
        if ending and message is messages[0]:
            index = next((i for i, part in enumerate(parts) if isinstance(part, str)), None)
            if index is None:
                parts.insert(0, ending)
            else:
                parts[index] = f"{parts[index]}\n\n{ending}"
        sent.append(Message(message.role, tuple(parts)))
    return tuple(sent)


def chat_messages(
    messages: Sequence[Message], images: Mapping[str, EncodedImage]
) -> list[dict[str, Any]]:
    """Returns the `messages` field of a request."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        if any(isinstance(part, Image) for part in message.parts):
            content: Any = [
                {"type": "image_url", "image_url": _image(part, images[part.path])}
                if isinstance(part, Image)
                else {"type": "text", "text": part}
                for part in message.parts
            ]
        else:
            content = "\n\n".join(part for part in message.parts if isinstance(part, str))
        rows.append({"role": message.role, "content": content})
    return rows


def with_detail(
    messages: Sequence[Message], detail: ImageDetail | None, *, accepted: bool
) -> tuple[Message, ...]:
    """Returns the messages with `detail` set for images without a detail level.

    If the endpoint does not accept the field (`accepted` is false), it is removed from all images.
    """
    if accepted and detail is None:
        return tuple(messages)

    def image(part: Image) -> Image:
        return Image(part.path, (part.detail or detail) if accepted else None)

    return tuple(
        Message(
            message.role,
            tuple(image(part) if isinstance(part, Image) else part for part in message.parts),
        )
        for message in messages
    )


def without_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Returns the messages for a chat template without a system role: its text precedes the
    user's.
    """
    first = tuple(
        part for message in messages if message.role == "system" for part in message.parts
    )
    others = [message for message in messages if message.role != "system"]
    if not first or not others:
        return tuple(messages)
    start, *parts = others[0].parts
    texts = [part for part in (*first, start) if isinstance(part, str)]
    images = [part for part in (*first, start) if not isinstance(part, str)]
    return Message(others[0].role, ("\n\n".join(texts), *images, *parts)), *others[1:]


def _image(image: Image, encoded: EncodedImage) -> dict[str, Any]:
    detail = {} if image.detail is None else {"detail": image.detail}
    return {"url": msgspec.Raw(encoded.literal), **detail}


# Formats that every OpenAI-compatible endpoint accepts; others are re-encoded as PNG.
_MIME = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
_CACHED, _CACHE_BYTES = 10_000, 32_000_000  # maximum number of cached images, and of their bytes
_SMALL_BYTES = 1_000_000  # size of a file that is encoded in less than a millisecond


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image as it is sent; width and height are in pixels.

    `literal` is its data URL as a JSON string with quotation marks, which avoids copying half a
    megabyte repeatedly. `sha256` and `size`, in bytes, describe the original file.
    """

    literal: bytes
    width: int
    height: int
    sha256: str
    size: int

    @property
    def url(self) -> bytes:
        """Returns a data URL with the MIME type of the bytes, all ASCII."""
        return self.literal[1:-1]


def encode_image(
    data: bytes,
    path: str,
    max_pixels: int,
    sha256: str | None = None,
    image_format: ImageFormat = None,
) -> EncodedImage:
    """Encodes an image file's bytes as a data URL of at most `max_pixels`.

    The bytes are unchanged if they can be sent directly. `sha256` is the hash of the bytes, if
    known. With an `image_format`, other formats are re-encoded.
    """
    image = open_image(BytesIO(data), path)
    if unchanged := _encode_unchanged(image, data, path, max_pixels, sha256, image_format):
        return unchanged
    width, height = image.size
    source = sha256 or hashlib.sha256(data).hexdigest(), len(data)
    mime = _sendable(image, image_format)
    picture = decoded(image, path)
    if mime and width * height <= max_pixels and not _is_animated(image, path):
        return EncodedImage(_literal(mime, data), width, height, *source)
    size = scaled_size(image.size, max_pixels)
    out, scaled = BytesIO(), picture if size == image.size else picture.resize(size)
    if image_format == "jpeg":
        scaled.save(out, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        return EncodedImage(_literal("image/jpeg", out.getvalue()), *size, *source)
    scaled.save(out, "JPEG" if mime == "image/jpeg" else "PNG", quality=90)
    return EncodedImage(
        _literal("image/jpeg" if mime == "image/jpeg" else "image/png", out.getvalue()),
        *size,
        *source,
    )


def scaled_size(size: tuple[int, int], max_pixels: int) -> tuple[int, int]:
    """Returns the size in pixels after scaling down to `max_pixels`; smaller images are
    unchanged.
    """
    width, height = size
    scale = min(1.0, (max_pixels / (width * height)) ** 0.5)
    return max(1, int(width * scale)), max(1, int(height * scale))


def _sendable(image: Pictures.Image, image_format: ImageFormat) -> str | None:
    """Returns an image's MIME type if its format can be sent, or None if it must be re-encoded."""
    mime = _MIME.get(image.format or "")
    return mime if image_format is None or mime == f"image/{image_format}" else None


def _encode_unchanged(
    image: Pictures.Image,
    data: bytes,
    path: str,
    max_pixels: int,
    sha256: str | None,
    image_format: ImageFormat,
) -> EncodedImage | None:
    """Returns the encoded image if it can be sent without decoding, else None."""
    width, height = image.size
    mime = _sendable(image, image_format)
    if (
        not mime
        or width * height > max_pixels
        or _is_animated(image, path)
        or not _is_complete(data, image.format or "")
    ):
        return None
    return EncodedImage(
        _literal(mime, data), width, height, sha256 or hashlib.sha256(data).hexdigest(), len(data)
    )


class ImageEncoder:
    """Encodes images and caches the latest by file, modification time and size. It is
    thread-safe.
    """

    def __init__(self, max_pixels: int, image_format: ImageFormat = None) -> None:
        if image_format not in (None, "jpeg"):
            raise UsageError(f"unknown image_format {image_format!r}; use jpeg, or leave it out")
        self.max_pixels = max_pixels
        self.image_format = image_format
        self._cache: BoundedCache[Version, EncodedImage] = BoundedCache(_CACHED, _CACHE_BYTES)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ImageEncoder], tuple[int, ImageFormat]]:
        return ImageEncoder, (self.max_pixels, self.image_format)

    def __call__(self, path: str) -> EncodedImage:
        """Returns the encoded image; blocks while reading and scaling. Raises InputError."""
        key = self._key(path)
        if (entry := self._cached(key)) is not None:
            return entry
        encoded = encode_image(
            read_image(path), path, self.max_pixels, known_hash(key), self.image_format
        )
        return self._store(key, encoded)

    def at_once(self, path: str) -> EncodedImage | None:
        """Returns the encoded image if that is faster than starting a thread, else None.

        Large images and those that must be decoded return None.
        """
        key = self._key(path)
        if (entry := self._cached(key)) is not None or key[2] > _SMALL_BYTES:
            return entry
        data = read_image(path)
        opened = open_image(BytesIO(data), path)
        image = _encode_unchanged(
            opened, data, path, self.max_pixels, known_hash(key), self.image_format
        )
        return image and self._store(key, image)

    def _key(self, path: str) -> Version:
        try:
            return file_version(path, Path(path).stat())
        except OSError:
            read_image(path)
            raise

    def _cached(self, key: Version) -> EncodedImage | None:
        with self._lock:
            return self._cache.get(key)

    def _store(self, key: Version, image: EncodedImage) -> EncodedImage:
        remember_hash(key, image.sha256)
        with self._lock:
            self._cache.put(key, image, len(image.literal))
        return image


def _is_animated(image: Pictures.Image, path: str) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except DAMAGED as error:
        raise InputError(f"image {path} is truncated or damaged ({error})") from None


def _is_complete(data: bytes, format: str) -> bool:
    """Returns whether the file looks complete; if not, the image is decoded to verify it."""
    if format == "PNG":
        return data[-8:-4] == b"IEND"
    if format == "JPEG":
        return data.endswith(b"\xff\xd9")
    if format == "WEBP":
        return int.from_bytes(data[4:8], "little") + 8 <= len(data)
    return False


def _literal(mime: str, data: bytes) -> bytes:
    # the standard library's function is twenty times slower and holds the GIL
    from pybase64 import b64encode

    return b"".join((b'"data:', mime.encode(), b";base64,", b64encode(data), b'"'))
