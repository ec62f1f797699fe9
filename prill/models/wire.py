"""The chat-completions format: requests as bytes, answers and errors as records."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec

from prill.errors import ContextTooLong, EndpointError, InputError, Refusal, TransportFailure, Unscored
from prill.models.dialect import ImageDetail
from prill.models.images import EncodedImage
from prill.models.limits import told_by
from prill.models.prompts import NONCE
from prill.protocols import Image, Message, Token

_CONTEXT = (
    r"context.?length|maximum context|context (size|window|limit)|prompt is too long|too many tokens"
    r"|exceeds the (available|model)|maximum (number of tokens|model length)|max_new_tokens. must be|inputs. must have less"
    r"|exceed the configured limit|exceed model maximum|while limit is|input (is )?too long"  # as litellm knows others by
)
# More images than the endpoint takes at once, not one that it cannot use.
_TOO_MANY_IMAGES = (
    r"too many images|limit.mm.per.prompt"
    r"|(at most|up to|more than|fewer than|maximum( of| is)?|limit( of| is)?)\s+[1-9]\d*\s+image"
)
TOO_LARGE = 413
INTERNAL_ERROR = 500  # the server failed, and says no more
_MOST_WORDS = 3_000  # characters of an error that are looked at
_OPENING = 40  # characters in which thoughts begin, if there are any
_REFUSAL = r"content.?(filter|policy|management)|safety system|responsible ai"
_NO_VISION = (
    r"mmproj|multi-?modal|\bvision\b"
    r"|image[^.]{0,60}(not (be )?(support|allow|accept)|unsupported|only supported)"
    r"|(not? support|unsupported|only support|cannot accept|at most 0)[^.]{0,60}image"
)
_TELLING = 4  # characters of a key's beginning that are not shown
# What people put where a server wants no key, and what is too short to be one: hiding it would only spoil words.
_LEAST_KEY = 8
_NO_KEYS = frozenset(
    {
        "placeholder", "not-needed", "not_needed", "no-key-required", "no_key_required", "sk-no-key-required", "sk-placeholder",
        "your-api-key", "your_api_key", "api_key_here", "localhost", "lm-studio", "llama-cpp", "undefined", "anything",
        "something",
    }
)  # fmt: skip
# What an account that cannot pay is told, whatever the status: OpenAI (429), OpenRouter and Together (402).
_NO_CREDIT = r"insufficient_quota|insufficient.{0,10}(credit|balance|funds)|exceeded your current quota|credit.{0,20}exhausted"
_LOW_CREDIT = "Your credit balance is too low"  # Anthropic (400)
_PASSES = r"docs/rate-limits|retry in [\d.]+ ?m?s"  # Gemini speaks of the quota also where a limit a minute is reached


class TokenEntry(msgspec.Struct, frozen=True, gc=False):
    """One candidate token of the wire format."""

    token: str
    logprob: float
    top_logprobs: tuple[TokenEntry, ...] = ()


class Logprobs(msgspec.Struct, frozen=True, gc=False):
    """The `logprobs` object of a choice."""

    content: tuple[TokenEntry, ...] | None = None


class ChatMessage(msgspec.Struct, frozen=True, gc=False):
    """What the model said. Some endpoints give a refusal, or the model's thoughts, a field of its own (one of two names)."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def answer(self) -> str | None:
        """The content without thoughts that stand in it, as models write them whose server does not take them apart."""
        return _apart(self.content)[1]

    @property
    def thoughts(self) -> str | None:
        """The model's thoughts; None where the endpoint gives none, or none as a text."""
        texts = (self.reasoning_content, self.reasoning, _apart(self.content)[0])
        return next((text for text in texts if isinstance(text, str) and text), None)


# Thoughts in the content, in the words of most models and of Mistral's. The opening may stand in the prompt (DeepSeek); a
# reply that is cut has no end. JSON is never taken for thoughts: it may quote a page that says "</think>".
_THOUGHTS = (
    re.compile(r"\s*(?:<(think|thinking|reasoning)>|(\[THINK\]))(?P<thoughts>.*?)(?:</\1>|\[/THINK\]|\Z)", re.DOTALL),
    re.compile(r"(?!\s*[{\[])(?P<thoughts>.*?)</think>", re.DOTALL),
)


def _apart(content: str | None) -> tuple[str | None, str | None]:
    """The thoughts at the beginning of a content, and the rest; None for the first where there are none."""
    if content is None or ("</" not in content and "<" not in content[:_OPENING] and "[THINK]" not in content[:_OPENING]):
        return None, content
    for pattern in _THOUGHTS:
        if found := pattern.match(content):
            return found["thoughts"].strip(), content[found.end() :].lstrip()
    return None, content


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One answer. `error`: why it is none, where an endpoint says so inside of it."""

    message: ChatMessage
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    error: Any = None


class TokenCounts(msgspec.Struct, frozen=True, gc=False):
    """What the endpoint says it counted. Some leave thoughts out of the completion, but not out of the total (Gemini, xAI)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    @property
    def reply_tokens(self) -> int:
        """The tokens of the reply and of thoughts, which cost the same."""
        return max(self.completion_tokens, self.total_tokens - self.prompt_tokens)


class Completion(msgspec.Struct, frozen=True, gc=False):
    """An answer to a chat-completions request, as far as prill reads it."""

    choices: tuple[Choice, ...]
    usage: TokenCounts | None = None
    error: Any = None

    @property
    def tokens(self) -> tuple[Token, ...] | None:
        """The reply's tokens with probabilities, None when the endpoint gave none."""
        logprobs = self.choices[0].logprobs
        if logprobs is None or not logprobs.content:
            return None
        return tuple(
            [Token(t.token, t.logprob, tuple([(c.token, c.logprob) for c in t.top_logprobs])) for t in logprobs.content]
        )


_MOST_TOKENS = 10**9  # of one call
_decoder = msgspec.json.Decoder(Completion)
encode_body = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Failure:
    """An error inside an answer of status 200. `status` is the one that it names; None where it names none. `begun`: a reply
    had begun, which is paid for."""

    status: int | None
    message: str
    begun: bool = False


def decode_completion(data: bytes) -> Completion | Failure | None:
    """The completion; a failure where the answer says that there is none; None when the body is something else (a proxy's
    page, say). What is odd about probabilities or counts leaves these out: the reply stands."""
    completion: Completion | None
    try:
        completion = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        completion = _read_loosely(data)
    if completion is not None:
        choice = completion.choices[0] if completion.choices else None
        error = completion.error or (choice.error if choice else None)
        if error or (choice and choice.finish_reason in _FAILED):
            words = f"the endpoint ended the reply with {choice.finish_reason!r}" if choice else "an error"
            return _failure(error, words, begun=choice is not None)
        if choice is None:
            return None
        if (counts := completion.usage) and not _is_count(counts):
            return Completion(completion.choices)
    return completion


# Finish reasons of replies that broke off on the endpoint's side: whatever was written by then is no answer.
_FAILED = frozenset({"error", "abort", "failed"})


def _failure(error: object, fallback: str, *, begun: bool) -> Failure:
    code = str(error.get("code")) if isinstance(error, dict) else ""
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else None
    return Failure(status, error_message(error, fallback), begun)


def _read_loosely(data: bytes) -> Completion | None:
    """An answer whose less important parts are not as documented."""
    try:
        record = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not isinstance(message := first.get("message"), dict):
        return Completion((), error=record["error"]) if record.get("error") else None
    reason = first.get("finish_reason")
    choice = Choice(
        ChatMessage(
            _text(message.get("content")),
            _text(message.get("refusal")),
            message.get("reasoning_content"),
            message.get("reasoning") or _thinking(message.get("content")),
        ),
        reason if isinstance(reason, str) else None,
        _logprobs(first.get("logprobs")),
        first.get("error"),
    )
    return Completion((choice,), _counts(record.get("usage")), record.get("error"))


def _text(content: object) -> str | None:
    """The content as one text; some endpoints answer with a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def _thinking(content: object) -> str | None:
    """The thoughts in a content that is a list of parts (Mistral)."""
    parts = [part.get("thinking") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join(text for part in parts if (text := _text(part))) or None


def _logprobs(record: object) -> Logprobs | None:
    """The log-probabilities, with nulls taken for empty lists; None when they are in another form."""
    entries = record.get("content") if isinstance(record, dict) else None
    if not isinstance(entries, list):
        return None
    rows = [{**e, "top_logprobs": e.get("top_logprobs") or []} if isinstance(e, dict) else e for e in entries]
    try:
        return Logprobs(msgspec.convert(rows, tuple[TokenEntry, ...]))
    except msgspec.ValidationError:
        return None


def _counts(record: object) -> TokenCounts | None:
    """The counts as whole numbers; None when one is missing or is no count: `true`, half a token, a text."""
    if not isinstance(record, dict):
        return None
    total = record.get("total_tokens")
    counts = [record.get("prompt_tokens"), record.get("completion_tokens"), 0 if total is None else total]
    numbers = [int(n) for n in counts if type(n) is int or (isinstance(n, float) and n.is_integer())]
    return TokenCounts(*numbers) if len(numbers) == len(counts) and _is_count(TokenCounts(*numbers)) else None


def _is_count(counts: TokenCounts) -> bool:
    """False for what cannot have been counted: some proxies report no token, and a budget would never end."""
    return 0 < counts.prompt_tokens < _MOST_TOKENS and 0 <= counts.completion_tokens <= counts.reply_tokens < _MOST_TOKENS


def worded(messages: Sequence[Message], ending: str, code: str) -> tuple[Message, ...]:
    """The messages as they are sent. `ending` follows the first text: what all requests share comes first, so that servers
    need to read it only once. `code` takes the places of `prill.models.prompts.NONCE`."""
    whole = []
    for message in messages:
        parts = [part.replace(NONCE, code) if isinstance(part, str) else part for part in message.parts]
        if ending and message is messages[0]:
            place = next((i for i, part in enumerate(parts) if isinstance(part, str)), None)
            if place is None:
                parts.insert(0, ending)
            else:
                parts[place] = f"{parts[place]}\n\n{ending}"
        whole.append(Message(message.role, tuple(parts)))
    return tuple(whole)


def chat_messages(messages: Sequence[Message], images: Mapping[str, EncodedImage]) -> list[dict[str, Any]]:
    """The `messages` of a request."""
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


def with_detail(messages: Sequence[Message], detail: ImageDetail | None, *, taken: bool) -> tuple[Message, ...]:
    """The messages with `detail` for the images that do not say how closely to look; without any where it is not `taken`."""
    if taken and detail is None:
        return tuple(messages)

    def image(part: Image) -> Image:
        return Image(part.path, (part.detail or detail) if taken else None)

    return tuple(
        Message(message.role, tuple(image(part) if isinstance(part, Image) else part for part in message.parts))
        for message in messages
    )


def without_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages for a chat template that knows no system role: its text goes before the user's."""
    first = tuple(part for message in messages if message.role == "system" for part in message.parts)
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


def error_message(body: object, fallback: str) -> str:
    """The words of an error body in one of its usual shapes."""
    record: Any = body
    if isinstance(record, list) and record:
        record = record[0]
    while isinstance(record, dict) and record.get("error"):  # `vllm run-batch` has an error inside its error
        record = record["error"]
    if isinstance(record, dict):
        record = " ".join(str(record[k]) for k in ("message", "code", "detail") if record.get(k))
    words = str(record) if record else fallback
    # Cut before it is divided into words: those of a body of 64 MB would take gigabytes.
    return " ".join(words.strip()[:_MOST_WORDS].split())[:300]


def error_of(data: bytes, fallback: str = "no reason given") -> str:
    """The words of an error body as it came; `fallback` where it has none."""
    try:
        return error_message(msgspec.json.decode(data), fallback)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return error_message(data.decode("utf-8", "replace"), fallback)


def lacks_vision(message: str) -> bool:
    """True for an error that says the model takes no images at all."""
    return re.search(_NO_VISION, message, re.IGNORECASE) is not None and not too_many_images(message)


def too_many_images(message: str) -> bool:
    """True for an error that says the request has more images than the endpoint takes at once."""
    return re.search(_TOO_MANY_IMAGES, message, re.IGNORECASE) is not None


class Rejected(Exception):
    """The endpoint will not take this request as it is; another form of it may pass.

    `message` is what the endpoint said, to be understood; `shown` is the same with the key hidden, for people and files.
    `fatal` is the error for the run when there is no other form: the refusal may be about the key or the model.
    """

    def __init__(self, status: int, message: str, shown: str, fatal: EndpointError | None = None) -> None:
        super().__init__(shown)
        self.status, self.message, self.shown, self.fatal = status, message, shown, fatal


class TryAgain(Exception):
    """This attempt failed in a way that the next may not. `wait`: seconds that the endpoint asked for. `message`: its words, to
    be understood. `billed`: the endpoint may have done the work, and may charge for it."""

    def __init__(
        self,
        problem: str,
        *,
        status: int = 0,
        message: str = "",
        wait: float | None = None,
        timeout: bool = False,
        refused: bool = False,
        billed: bool = False,
    ) -> None:
        super().__init__(problem)
        self.status, self.message, self.wait, self.timeout = status, message, wait, timeout
        self.refused, self.billed = refused, billed


def rejection(status: int, message: str, has_images: bool, shown: str | None = None) -> Unscored:
    """The error for a request that the endpoint will not take however often it is sent: by its `message`, which the error
    repeats as it is `shown` (with the key hidden)."""
    shown = message if shown is None else shown
    if re.search(_CONTEXT, message, re.IGNORECASE):
        return ContextTooLong(f"the request does not fit the model's window: {shown}", tokens=told_by(message).tokens)
    if has_images and too_many_images(message):
        return ContextTooLong(f"the endpoint takes fewer images in one request: {shown}")
    if status == TOO_LARGE:
        return ContextTooLong(f"the request is larger than the endpoint takes: {shown}")
    if re.search(_REFUSAL, message, re.IGNORECASE):
        return Refusal(f"the endpoint declined: {shown}")
    if has_images and ("image" in message.lower() or lacks_vision(message)):
        return InputError(f"the endpoint cannot use an image: {shown}")
    return TransportFailure(f"HTTP {status}: {shown}")


def cannot_pay(status: int, message: str) -> bool:
    """Whether a refusal is about the account, which no other request can change. Other words with a 400 may quote a page."""
    if status in (403, 429) and re.search(_NO_CREDIT, message, re.IGNORECASE):
        return re.search(_PASSES, message) is None
    return status == 402 or (status == 400 and message.startswith(_LOW_CREDIT))


def without_key(message: str, key: str) -> str:
    """The message with stars in the place of the key, and of what there is of it at the end of a message that was cut. For what
    is shown: it is understood as it came."""
    if len(key) < _LEAST_KEY or key.lower() in _NO_KEYS:
        return message
    message = message.replace(key, "***")
    cut = next((n for n in range(len(key) - 1, _TELLING - 1, -1) if message.endswith(key[:n])), 0)
    return f"{message[:-cut]}***" if cut else message


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by the Retry-After headers (seconds, milliseconds or a date); None without a usable one."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif not (value := headers.get("retry-after")):
            return None
        elif re.fullmatch(r"[\d.]+", value):
            seconds = float(value)
        else:
            until, now = email.utils.parsedate_to_datetime(value), headers.get("date")
            # By the clock that the date is of: this machine's may be set otherwise.
            seconds = until.timestamp() - (email.utils.parsedate_to_datetime(now).timestamp() if now else time.time())
    except (ValueError, OverflowError, TypeError):  # a date that no calendar has
        return None
    return max(0.0, seconds) if isfinite(seconds) else None
