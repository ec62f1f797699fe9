"""The handlers of the mock server: what they read of a request, why they refuse one, what they answer, and what they count."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from prill.errors import UsageError
from prill.testing.endpoint.batches import BatchDesk
from prill.testing.endpoint.faults import Faults, certainty, fate

if TYPE_CHECKING:
    from aiohttp import web


OPPOSITE = {"success": "failure", "failure": "success"}
# The other verdict is named on purpose: whoever reads words instead of the verdict, or half a reply, is caught.
THOUGHTS = {
    "success": "because what first looked like a failure was put right, and the last screen shows what was asked for",
    "failure": "because what first looked like a success was undone, and the last screen lacks what was asked for",
}
GARBAGE = (
    "I would need to see more of the screen to say anything about it.",
    "Thoughts: the weather is fine today\nStatus: unknown",
    '{"answer": 42}',
    "{}",
    "Status:",
    "lorem ipsum dolor sit amet " * 8,
)
CHARS_PER_TOKEN = 4
_TOKEN = re.compile(r" ?\w+| ?[^\w\s]+|\s+")
_encode = msgspec.json.encode
# A 1280x720 picture at high detail in OpenAI's counting: 85 + 170 for each of 6 tiles of 512 pixels.
TOKENS_PER_IMAGE = 1105
NO_IMAGES = (
    "Invalid content type. image_url is only supported by certain models.",  # OpenAI
    "At most 0 image(s) may be provided in one prompt.",  # vLLM
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",  # llama.cpp
)
# What quotations carry is drawn anew for every call: two requests that differ in nothing else are one prompt.
_CODE = re.compile(rb"\[[\w-]+ ([0-9a-f]{8})\]")
LARGEST_BODY = 256 * 2**20
_COUNTED = ("requests", "in_flight", "peak_in_flight", "images", "prompt_tokens", "completion_tokens", "outcomes", "prompts")
_HTML = b"<!doctype html><html><head><title>502</title></head><body><h1>Bad gateway</h1></body></html>"


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
    """The prompt of a request: its hash, the text of its first user message, its length, its images, its system role."""

    hash: str
    user_text: str
    tokens: int
    images: int
    has_system: bool


@dataclass(frozen=True)
class Rejection:
    """An answer of status 4xx and what /stats calls it."""

    status: int
    outcome: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class MockEndpoint:
    """One model behind an OpenAI-compatible interface."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.truth = import_function(faults.truth)
        self.requests = self.in_flight = self.peak_in_flight = 0
        self.images = self.prompt_tokens = self.completion_tokens = 0
        self.outcomes: Counter[str] = Counter()
        self.prompts: Counter[str] = Counter()

    def application(self) -> web.Application:
        """The aiohttp application."""
        from aiohttp import web

        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/stats", self.stats)
        BatchDesk(self.faults, self.answer_line, self._key_refusal).add_routes(app)
        return app

    async def models(self, http: web.Request) -> web.Response:
        """The list of models, or 401."""
        return self._key_refusal(http) or _json(
            200, b'{"object":"list","data":[{"id":"mock","object":"model","created":0,"owned_by":"prill"}]}'
        )

    def _key_refusal(self, http: web.Request) -> web.Response | None:
        rejection = key_rejection(self.faults, http.headers, http.query)
        return None if rejection is None else _json(rejection.status, rejection.body)

    async def stats(self, http: web.Request) -> web.Response:
        """What was counted. `prompts`: how often each was sent, by its hash; images and tokens: of well-formed completions."""
        return _json(200, msgspec.json.encode({name: getattr(self, name) for name in _COUNTED}))

    async def complete(self, http: web.Request) -> web.StreamResponse:
        """One completion, or a fault."""
        self.requests += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            return await self._complete(http)
        finally:
            self.in_flight -= 1

    async def _complete(self, http: web.Request) -> web.StreamResponse:
        try:
            request = decode_request(await http.read())
            prompt = read_prompt(request)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return self._reject(Rejection(400, "malformed", problem(f"We could not parse the body of your request: {error}")))
        self.prompts[prompt.hash] += 1
        outcome, detail = fate(self.faults, prompt.hash, self.prompts[prompt.hash])
        rejection = key_rejection(self.faults, http.headers, http.query)
        if (rejection := rejection or refusal_of(self.faults, request, prompt) or self._limited(outcome)) is not None:
            return self._reject(rejection)
        self.outcomes[outcome] += 1
        await asyncio.sleep(self.faults.stall_seconds if outcome == "stall" else self.faults.latency)
        if outcome in ("stall", "drop"):
            if http.transport is not None:
                http.transport.abort()
            return _json(500, b"")
        if outcome == "server_error":
            return _json(500, problem("The server had an error while processing your request.", kind="server_error"))
        if outcome == "html":
            return _json(200, _HTML, content_type="text/html")
        if outcome == "error_inside":
            return _json(200, _encode({"error": {"message": "Provider returned error", "code": 502}}))
        return _json(200, self._answer(request, prompt, outcome, detail))

    def answer_line(self, data: bytes) -> tuple[int, bytes]:
        """Status and body for a request of a batch: the same as for one that is sent, but for what befalls connections."""
        try:
            request = decode_request(data)
            prompt = read_prompt(request)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return 400, problem(f"We could not parse the body of your request: {error}")
        self.requests += 1
        self.prompts[prompt.hash] += 1
        outcome, detail = fate(self.faults, prompt.hash, self.prompts[prompt.hash])
        if (rejection := refusal_of(self.faults, request, prompt)) is not None:
            self.outcomes[rejection.outcome] += 1
            return rejection.status, in_form(rejection.body, self.faults.error_form)
        self.outcomes[outcome] += 1
        return 200, self._answer(request, prompt, outcome, detail)

    def _limited(self, outcome: str) -> Rejection | None:
        crowded = 0 < self.faults.slots < self.in_flight
        if not crowded and outcome != "rate_limit":
            return None
        body = problem("Rate limit reached. Please try again later.", kind="requests", code="rate_limit_exceeded")
        return Rejection(429, "slots" if crowded else "rate_limit", body, {"Retry-After": f"{self.faults.retry_after:g}"})

    def _reject(self, rejection: Rejection) -> web.Response:
        self.outcomes[rejection.outcome] += 1
        return _json(rejection.status, in_form(rejection.body, self.faults.error_form), headers=rejection.headers)

    def _answer(self, request: Request, prompt: Prompt, outcome: str, detail: float) -> bytes:
        truth = self.truth(prompt.user_text)
        word = "unsuccessful" if outcome == "unsuccessful" else truth
        text: str | None = reply_text(self.faults, word, truth, request.response_format)
        finish, refusal, half = "stop", None, detail < 0.5
        limit = (request.max_completion_tokens or request.max_tokens or 2**31) - self.faults.hidden_thought
        limit = max(0, limit) * CHARS_PER_TOKEN
        if outcome == "garbage":
            text = GARBAGE[int(detail * len(GARBAGE))]
        elif outcome == "empty":
            text = "" if half else None
        elif outcome == "refusal":
            text, refusal, finish = (
                (None, "I'm sorry, I can't help with that.", "stop") if half else ("", None, "content_filter")
            )
        elif outcome == "cut" and text:
            text, finish = text[: int(len(text) * (0.2 + 0.6 * detail))], "length" if int(detail * 1000) % 2 else "stop"
        elif outcome == "broken_off" and text:
            text, finish = f"{text[: len(text) // 2]}\nStatus: {OPPOSITE.get(truth, truth)}", "error" if half else "abort"
        if text and len(text) > limit:
            text, finish = text[:limit], "length"
        logprobs = None
        if request.logprobs and text:
            logprobs = logprobs_of(text, truth, prompt.user_text, request.top_logprobs or 0)
        self.images += prompt.images
        self.prompt_tokens += prompt.tokens
        self.completion_tokens += tokens_of(text or "") + self.faults.hidden_thought
        body = completion(
            text, model=request.model, prompt_tokens=prompt.tokens, finish=finish, refusal=refusal, logprobs=logprobs
        )
        return restated(body, self.faults)


def import_function(place: str) -> Callable[[str], str]:
    """The function that `module:name` means; raises UsageError when there is none."""
    module, _, name = place.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"truth {place!r} is not a module:function that can be imported ({error})") from None
    if not callable(function):
        raise UsageError(f"truth {place!r} is not a function")
    return lambda text: str(function(text))


def _json(
    status: int, body: bytes, *, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, body=body, content_type=content_type, headers=headers)


decode_request = msgspec.json.Decoder(Request).decode
_turns = msgspec.json.Decoder(list[Turn]).decode


# Requests


def read_prompt(request: Request) -> Prompt:
    """The prompt of a request."""
    raw = bytes(request.messages)
    if code := _CODE.search(raw):
        raw = raw.replace(code[1], b"")
    user_text: str | None = None
    tokens = images = 0
    has_system = False
    for turn in _turns(raw):
        parts = [Part("text", turn.content)] if isinstance(turn.content, str) else turn.content or []
        text = "\n".join(part.text for part in parts if part.type == "text")
        pictures = sum(part.type == "image_url" for part in parts)
        tokens += tokens_of(text) + pictures * TOKENS_PER_IMAGE
        images += pictures
        has_system = has_system or turn.role == "system"
        if turn.role == "user" and user_text is None:
            user_text = text
    return Prompt(hashlib.blake2b(raw, digest_size=8).hexdigest(), user_text or "", tokens, images, has_system)


def key_rejection(faults: Faults, headers: Mapping[str, str], query: Mapping[str, str]) -> Rejection | None:
    """Why this server serves nothing to this client; None when it may."""
    if faults.refuse_key:
        words = "Incorrect API key provided. You can find your API key at the place that you got it from."
        return Rejection(401, "refuse_key", problem(words, code="invalid_api_key"))
    if faults.no_credit:
        words = "Insufficient credits. Add more and retry the request."
        return Rejection(402, "no_credit", problem(words, code="402"))
    if faults.api_key_header and "api-version" not in query:
        return Rejection(404, "no_version", problem("Resource not found", code="404"))
    if faults.api_key_header and "api-key" not in headers:
        return Rejection(401, "no_key", problem("Access denied due to invalid subscription key.", code="401"))
    return None


def refusal_of(faults: Faults, request: Request, prompt: Prompt) -> Rejection | None:
    """Why this server will never take this request; None when it may."""

    def bad(outcome: str, message: str, param: str | None = None, code: str | None = None) -> Rejection:
        return Rejection(400, outcome, problem(message, param=param, code=code))

    form = (request.response_format or {}).get("type")
    if faults.unknown_model:
        words = f"The model `{request.model}` does not exist or you do not have access to it."
        return Rejection(404, "unknown_model", problem(words, code="model_not_found"))
    if faults.no_images and prompt.images:
        return bad("no_images", NO_IMAGES[int(prompt.hash, 16) % len(NO_IMAGES)])
    for name, rejection in (("json_schema", faults.no_json_schema), ("json_object", faults.no_json_object)):
        if rejection and form == name:
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
        words = "'logprobs' is not supported with this model."
        if faults.logprobs_status == 403:
            words = "You are not allowed to request logprobs from this model."
        body = problem(words, param="logprobs", code="unsupported_parameter")
        return Rejection(faults.logprobs_status, "no_logprobs", body)
    if 0 < faults.most_logprobs < (request.top_logprobs or 0):
        words = (
            f"Requested sample logprobs of {request.top_logprobs}, which is greater than max allowed: {faults.most_logprobs}"
        )
        return bad("most_logprobs", words)
    if faults.no_system and prompt.has_system:
        return bad("no_system", "System role not supported")
    if faults.context and prompt.tokens > faults.context:
        words = (
            f"This model's maximum context length is {faults.context} tokens. However, your messages resulted in "
            f"{prompt.tokens} tokens. Please reduce the length of the messages."
        )
        return bad("context", words, "messages", "context_length_exceeded")
    return None


# Replies


def tokens_of(text: str) -> int:
    """The mock's count of tokens: one for four characters."""
    return len(text) // CHARS_PER_TOKEN + 1


def reply_text(faults: Faults, word: str, truth: str, form: Mapping[str, Any] | None) -> str:
    """A reply with the verdict `word`: a JSON object where `form`, the response_format, asks for one, else tagged lines."""
    thoughts = THOUGHTS.get(truth, "because the last screen shows it")
    thoughts = (thoughts + " and so on" * faults.thought_tokens)[: max(len(thoughts), faults.thought_tokens * CHARS_PER_TOKEN)]
    kind = "text" if form is None or faults.ignore_format else form.get("type")
    if kind == "json_schema" and form is not None:
        return _encode(_filled(form["json_schema"].get("schema", {}), word, thoughts)).decode()
    if kind == "json_object":
        return _encode({"thoughts": thoughts, "status": word}).decode()
    return f"Thoughts: {thoughts}\nStatus: {word}"


def _filled(schema: Mapping[str, Any], word: str, thoughts: str) -> object:
    if "anyOf" in schema:
        return _filled(next(part for part in schema["anyOf"] if part.get("type") != "null"), word, thoughts)
    if "enum" in schema:
        return word if word in schema["enum"] or word == "unsuccessful" else schema["enum"][0]
    kind = schema.get("type")
    empty: dict[str, Callable[[], object]] = {
        "object": lambda: {name: _filled(part, word, thoughts) for name, part in schema.get("properties", {}).items()},
        "array": lambda: [_filled(schema.get("items", {}), word, thoughts)],
        "boolean": lambda: word == "success",
        "number": lambda: 1.0 if word == "success" else 0.25,
        "integer": lambda: 1,
    }
    return empty.get(str(kind), lambda: thoughts)()


def logprobs_of(text: str, word: str, user_text: str, alternatives: int) -> dict[str, Any]:
    """The `logprobs` object of a reply. At the verdict, `certainty(asked)` is shared by the word and its first four letters.

    The opposite verdict has what is left but for a thousandth, which goes to a token that begins no verdict.
    """
    pieces = _TOKEN.findall(text)
    place = max((i for i, piece in enumerate(pieces) if piece.strip() == word), default=-1)
    content = []
    for i, piece in enumerate(pieces):
        top = {piece: 0.999}
        if i == place and word in OPPOSITE:
            space, p = piece[: -len(word)], certainty(user_text)
            top = {piece: 0.9 * p, space + OPPOSITE[word]: 0.999 - p, space + word[:4]: 0.1 * p, space + "the": 0.001}
        entries = [{"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in top.items()]
        content.append({**entries[0], "top_logprobs": sorted(entries, key=lambda e: e["logprob"], reverse=True)[:alternatives]})
    return {"content": content}


def completion(
    text: str | None,
    *,
    model: str,
    prompt_tokens: int,
    finish: str = "stop",
    refusal: str | None = None,
    logprobs: dict[str, Any] | None = None,
) -> bytes:
    """The body of a 200 answer."""
    reply_tokens = tokens_of(text or "")
    return b"".join(
        (
            b'{"id":"chatcmpl-mock","object":"chat.completion","created":1700000000,"model":',
            _encode(model),
            b',"choices":[{"index":0,"message":{"role":"assistant","content":',
            _encode(text),
            b',"refusal":',
            _encode(refusal),
            b'},"finish_reason":"%b","logprobs":' % finish.encode(),
            _encode(logprobs),
            b'}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}'
            % (prompt_tokens, reply_tokens, prompt_tokens + reply_tokens),
        )
    )


def restated(body: bytes, faults: Faults) -> bytes:
    """The answer in the forms that some servers give their parts."""
    usual = (faults.logprobs_form, faults.usage_form, faults.content_form) == ("openai", "openai", "text")
    if usual and not faults.hidden_thought:
        return body
    record = msgspec.json.decode(body)
    choice, usage = record["choices"][0], record["usage"]
    usage["completion_tokens"] += faults.hidden_thought
    if faults.thought_field:
        choice["message"][faults.thought_field] = "let me see " * (faults.hidden_thought // 3)
    if faults.content_form == "parts" and choice["message"]["content"] is not None:
        choice["message"]["content"] = [{"type": "text", "text": choice["message"]["content"]}]
    if faults.usage_form == "missing":
        del record["usage"]
    else:
        forms: dict[str, Callable[[int], object]] = {"float": lambda n: n + 0.5, "negative": lambda n: -n}
        change = forms.get(faults.usage_form)
        record["usage"] = {k: change(n) for k, n in usage.items()} if change else None if faults.usage_form == "null" else usage
    rows = (choice["logprobs"] or {}).get("content") or []
    if faults.logprobs_form == "missing":
        del choice["logprobs"]
    elif faults.logprobs_form == "null":
        choice["logprobs"] = None
    elif faults.logprobs_form == "nulls":
        choice["logprobs"] = {"content": [{**row, "top_logprobs": None} for row in rows]}
    elif faults.logprobs_form == "lists":
        choice["logprobs"] = {"tokens": [row["token"] for row in rows], "token_logprobs": [row["logprob"] for row in rows]}
    return _encode(record)


def in_form(body: bytes, form: str) -> bytes:
    """An error body, which is in OpenAI's form, in another one."""
    error = msgspec.json.decode(body)
    if form == "list":
        return _encode([error])
    if form == "detail":
        detail = [{"type": "extra_forbidden", "loc": ["body", error["error"]["param"]], "msg": error["error"]["message"]}]
        return _encode({"object": "error", "message": {"detail": detail}, "code": None})
    return str(error["error"]["message"]).encode() if form == "text" else body


def problem(message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None) -> bytes:
    """The body of an error in OpenAI's form."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
