"""Request handlers and counters of the mock server."""

from __future__ import annotations

import asyncio
import importlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from prill.errors import UsageError
from prill.testing.endpoint.faults import Faults, certainty, fate
from prill.testing.endpoint.mock import Stats
from prill.testing.endpoint.requests import (
    CHARS_PER_TOKEN,
    Prompt,
    Rejection,
    Request,
    count_tokens,
    decode_request,
    find_rejection,
    in_form,
    key_rejection,
    problem,
    read_prompt,
)

if TYPE_CHECKING:
    from aiohttp import web


OPPOSITE = {"success": "failure", "failure": "success"}
# The other verdict is mentioned on purpose, to catch parsers that search for words instead of the
# verdict, or accept half a reply.
THOUGHTS = {
    "success": (
        "because what first looked like a failure was put right, and the last screen shows "
        "what was asked for"
    ),
    "failure": (
        "because what first looked like a success was undone, and the last screen lacks "
        "what was asked for"
    ),
}
GARBAGE = (
    "I would need to see more of the screen to say anything about it.",
    "Thoughts: the weather is fine today\nStatus: unknown",
    '{"answer": 42}',
    "{}",
    "Status:",
    "lorem ipsum dolor sit amet " * 8,
)
# Grammars of published judge protocols, by words of a prompt's last line: replies of a success and
# of a failure.
GRAMMARS: dict[str, tuple[str, str]] = {
    "<success>": (
        "<reasoning>{why}</reasoning><success>Successful</success><side>No</side>"
        "<optimal>3. Somewhat Optimal</optimal><loop>No</loop>",
        "<reasoning>{why}</reasoning><success>Unsuccessful</success><side>No</side>"
        "<optimal>1. Complete Failure</optimal><loop>No</loop>",
    ),
    "SUCCESS or NOT SUCCESS": ("{why}\nSUCCESS", "{why}\nNOT SUCCESS"),
    "lines Thought and Reward": ("Thought: {why}\nReward: 5", "Thought: {why}\nReward: 2"),
}
# The last line of an instruction for two lines of text, with the name of the verdict and its words.
_TAGGED = re.compile(r"(\w+): <one word: ([^<>]{1,2000})>")
_TOKEN = re.compile(r" ?\w+| ?[^\w\s]+|\s+")
_encode = msgspec.json.encode
LARGEST_BODY = 256 * 2**20
# Outcomes that providers do not charge for. They do charge for responses that their client did not
# wait for, or did not receive.
_FREE = frozenset({"server_error", "html", "error_inside"})
_HTML = (
    b"<!doctype html><html><head><title>502</title></head><body><h1>Bad gateway</h1></body></html>"
)


class MockEndpoint:
    """One model behind an OpenAI-compatible interface."""

    name = "mock"  # under which it lists itself

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.truth = import_function(faults.truth)
        self.requests = self.in_flight = self.peak_in_flight = 0
        self.images = self.prompt_tokens = self.completion_tokens = 0
        self.billed_prompt_tokens = self.billed_completion_tokens = 0
        self.outcomes: Counter[str] = Counter()
        self.prompts: Counter[str] = Counter()

    def application(self) -> web.Application:
        """Returns the aiohttp application."""
        from aiohttp import web

        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/stats", self.stats)
        return app

    async def models(self, http: web.Request) -> web.Response:
        """Returns the list of models, or 401."""
        if (refusal := self.key_refusal(http)) is not None:
            return refusal
        entry: dict[str, Any] = {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "prill",
        }
        if self.faults.window_field:
            entry[self.faults.window_field] = self.faults.context
        return _json(200, _encode({"object": "list", "data": [entry]}))

    def key_refusal(self, http: web.Request) -> web.Response | None:
        """Refuses a request without the right key; None if it has the key."""
        rejection = key_rejection(self.faults, http.headers, http.query)
        return None if rejection is None else _json(rejection.status, rejection.body)

    async def stats(self, http: web.Request) -> web.Response:
        """Returns the counters.

        `prompts`: how often each was sent, by its hash; images and tokens: of well-formed
        completions. Billed: what a provider charges for, including responses that no client waited
        for.
        """
        names = (field.name for field in fields(Stats))
        return _json(200, _encode({name: getattr(self, name) for name in names}))

    async def complete(self, http: web.Request) -> web.StreamResponse:
        """Returns one completion, or a fault."""
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
            return self._reject(
                Rejection(
                    400,
                    "malformed",
                    problem(f"We could not parse the body of your request: {error}"),
                )
            )
        self.prompts[prompt.hash] += 1
        outcome, detail = fate(self.faults, prompt.hash, self.prompts[prompt.hash])
        if (
            rejection := key_rejection(self.faults, http.headers, http.query)
            or find_rejection(self.faults, request, prompt)
            or self._limited(outcome)
        ) is not None:
            return self._reject(rejection)
        self.outcomes[outcome] += 1
        reply = self.reply(request, prompt, outcome, detail)
        if outcome not in _FREE:  # whether or not the client waits for the response
            self.billed_prompt_tokens += prompt.tokens
            self.billed_completion_tokens += reply.tokens
        await asyncio.sleep(
            self.faults.stall_seconds if outcome == "stall" else self.faults.latency
        )
        if outcome in ("stall", "drop"):
            if http.transport is not None:
                http.transport.abort()
            return _json(500, b"")
        if outcome == "server_error":
            return _json(
                500,
                problem(
                    "The server had an error while processing your request.", kind="server_error"
                ),
            )
        if outcome == "html":
            return _json(200, _HTML, content_type="text/html")
        if outcome == "error_inside":
            return _json(
                200, _encode({"error": {"message": "Provider returned error", "code": 502}})
            )
        return _json(200, self.answer(request, prompt, reply))

    def _limited(self, outcome: str) -> Rejection | None:
        crowded = 0 < self.faults.slots < self.in_flight
        if not crowded and outcome != "rate_limit":
            return None
        body = problem(
            "Rate limit reached. Please try again later.",
            kind="requests",
            code="rate_limit_exceeded",
        )
        return Rejection(
            429,
            "slots" if crowded else "rate_limit",
            body,
            {"Retry-After": f"{self.faults.retry_after:g}"},
        )

    def _reject(self, rejection: Rejection) -> web.Response:
        self.outcomes[rejection.outcome] += 1
        return _json(
            rejection.status, in_form(rejection, self.faults.error_form), headers=rejection.headers
        )

    def reply(self, request: Request, prompt: Prompt, outcome: str, detail: float) -> Reply:
        """Makes the reply to a request with the outcome that it was given."""
        truth = self.truth(prompt.user_text)
        word = "unsuccessful" if outcome == "unsuccessful" else truth
        number = percent(truth, prompt.user_text) if prompt.wants_number else None
        text: str | None = reply_text(self.faults, word, truth, request.response_format, number)
        form = None if self.faults.ignore_format else request.response_format
        if form is None:
            text = grammar_reply(prompt.user_text, word) or text
        if prompt.wants_word and (form is None or form.get("type") != "json_schema"):
            text = _encode({"status": word}).decode() if form else word
        finish, refusal, half = "stop", None, detail < 0.5
        thought = min(hidden_thought(self.faults, request), request.limit or 2**31)
        limit = max(0, (request.limit or 2**31) - thought) * CHARS_PER_TOKEN
        if outcome == "garbage":
            text = GARBAGE[int(detail * len(GARBAGE))]
        elif outcome == "empty":
            text = "" if half else None
        elif outcome == "refusal":
            text, refusal, finish = (
                (None, "I'm sorry, I can't help with that.", "stop")
                if half
                else ("", None, "content_filter")
            )
        elif outcome == "cut" and text:
            text, finish = (
                text[: int(len(text) * (0.2 + 0.6 * detail))],
                "length" if int(detail * 1000) % 2 else "stop",
            )
        elif outcome == "broken_off" and text:
            text, finish = (
                f"{text[: len(text) // 2]}\nStatus: {OPPOSITE.get(truth, truth)}",
                "error" if half else "abort",
            )
        if text and len(text) > limit:
            text, finish = text[:limit], "length"
        return Reply(text, truth, finish, refusal, thought)

    def answer(self, request: Request, prompt: Prompt, reply: Reply) -> bytes:
        """Returns the body of a completion, and counts it."""
        logprobs = None
        if request.logprobs and reply.text:
            logprobs = make_logprobs(
                reply.text, reply.truth, prompt.user_text, request.top_logprobs or 0
            )
        self.images += prompt.images
        self.prompt_tokens += prompt.tokens
        self.completion_tokens += reply.tokens
        body = completion(
            reply.text,
            model=request.model,
            prompt_tokens=prompt.tokens,
            finish=reply.finish,
            refusal=reply.refusal,
            logprobs=logprobs,
        )
        return restated(body, self.faults, reply.thought)


@dataclass(frozen=True, slots=True)
class Reply:
    """The content of a reply before it is formatted.

    `thought`: the number of reasoning tokens before it.
    """

    text: str | None
    truth: str
    finish: str
    refusal: str | None
    thought: int

    @property
    def tokens(self) -> int:
        """The completion tokens that are counted."""
        return count_tokens(self.text or "") + self.thought


def import_function(place: str) -> Callable[[str], str]:
    """Imports the function `module:name`; raises UsageError if there is none."""
    module, _, name = place.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"truth {place!r} is not a module:function that can be imported ({error})"
        ) from None
    if not callable(function):
        raise UsageError(f"truth {place!r} is not a function")
    return lambda text: str(function(text))


def _json(
    status: int,
    body: bytes,
    *,
    content_type: str = "application/json",
    headers: dict[str, str] | None = None,
) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, body=body, content_type=content_type, headers=headers)


# Replies


def percent(truth: str, user_text: str) -> int:
    """Returns the probability of success that a reply states on request.

    It equals that of its log-probabilities.
    """
    sure = round(100 * certainty(user_text))
    return sure if truth == "success" else 100 - sure


def hidden_thought(faults: Faults, request: Request) -> int:
    """Returns the number of reasoning tokens: the setting, or a tenth of it for low effort."""
    return faults.hidden_thought // (
        10 if request.reasoning_effort in ("none", "minimal", "low") else 1
    )


def reply_text(
    faults: Faults, word: str, truth: str, form: Mapping[str, Any] | None, number: int | None = None
) -> str:
    """Returns a reply with the verdict `word`.

    It is a JSON object if `form`, the response_format, requests one, else tagged lines.

    `number` is the probability that it also states.
    """
    thoughts = THOUGHTS.get(truth, "because the last screen shows it")
    thoughts = (thoughts + " and so on" * faults.thought_tokens)[
        : max(len(thoughts), faults.thought_tokens * CHARS_PER_TOKEN)
    ]
    kind = "text" if form is None or faults.ignore_format else form.get("type")
    if kind == "json_schema" and form is not None:
        record = _filled(form["json_schema"].get("schema", {}), word, thoughts)
        return _encode(
            record
            if number is None or not isinstance(record, dict)
            else {**record, "probability": number}
        ).decode()
    numbers = {} if number is None else {"probability": number}
    if kind == "json_object":
        return _encode({"thoughts": thoughts, "status": word, **numbers}).decode()
    return f"Thoughts: {thoughts}\nStatus: {word}" + "".join(
        f"\nProbability: {n}" for n in numbers.values()
    )


def grammar_reply(user_text: str, word: str) -> str | None:
    """Returns the reply in the grammar that the last line of a prompt asks for, with the verdict
    `word`.

    None for any other verdict, and for a prompt that asks for `Status:` or for nothing that is
    known.
    """
    if word not in (*OPPOSITE, "unsuccessful"):
        return None
    last = user_text.rstrip().rpartition("\n")[2]
    why = THOUGHTS["success" if word == "success" else "failure"]
    for marker, (success, failure) in GRAMMARS.items():
        if marker in last:
            return (success if word == "success" else failure).format(why=why)
    tag = _TAGGED.fullmatch(last)
    choices = tag[2].split(" or ") if tag else []
    if tag is None or not OPPOSITE.keys().isdisjoint(choices):
        return None
    return f"Thoughts: {why}\n{tag[1]}: {choices[0]}"


def _filled(schema: Mapping[str, Any], word: str, thoughts: str) -> object:
    if "anyOf" in schema:
        return _filled(
            next(part for part in schema["anyOf"] if part.get("type") != "null"), word, thoughts
        )
    if "enum" in schema:
        return word if word in schema["enum"] or word == "unsuccessful" else schema["enum"][0]
    kind = schema.get("type")
    empty: dict[str, Callable[[], object]] = {
        "object": lambda: {
            name: _filled(part, word, thoughts)
            for name, part in schema.get("properties", {}).items()
        },
        "array": lambda: [_filled(schema.get("items", {}), word, thoughts)],
        "boolean": lambda: word == "success",
        "number": lambda: 1.0 if word == "success" else 0.25,
        "integer": lambda: 1,
    }
    return empty.get(str(kind), lambda: thoughts)()


def make_logprobs(text: str, word: str, user_text: str, alternatives: int) -> dict[str, Any]:
    """Returns the `logprobs` object of a reply.

    At the verdict, the word and its first four letters share the probability `certainty(asked)`.

    The opposite verdict has the rest except for a thousandth, which goes to a token that begins no
    verdict.
    """
    pieces, index = _pieces(text, word)
    content = []
    for i, piece in enumerate(pieces):
        if i != index or word not in OPPOSITE:
            content.append(_sure(piece, alternatives))
            continue
        space, p = piece[: -len(word)], certainty(user_text)
        top = {
            piece: 0.9 * p,
            space + OPPOSITE[word]: 0.999 - p,
            space + word[:4]: 0.1 * p,
            space + "the": 0.001,
        }
        content.append(_entry(top, alternatives))
    return {"content": content}


@lru_cache(256)
def _pieces(text: str, word: str) -> tuple[list[str], int]:
    """Returns the tokens of a text, and the last position of a word among them; -1 if it does not
    occur.
    """
    pieces = _TOKEN.findall(text)
    return pieces, max((i for i, piece in enumerate(pieces) if piece.strip() == word), default=-1)


@lru_cache(1024)
def _sure(piece: str, alternatives: int) -> dict[str, Any]:
    return _entry({piece: 0.999}, alternatives)


def _entry(top: Mapping[str, float], alternatives: int) -> dict[str, Any]:
    """Returns a token, the first of `top`, with the likeliest alternatives."""
    entries: list[dict[str, Any]] = [
        {"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in top.items()
    ]
    return {
        **entries[0],
        "top_logprobs": sorted(entries, key=lambda e: e["logprob"], reverse=True)[:alternatives],
    }


def completion(
    text: str | None,
    *,
    model: str,
    prompt_tokens: int,
    finish: str = "stop",
    refusal: str | None = None,
    logprobs: dict[str, Any] | None = None,
) -> bytes:
    """Returns the body of a 200 response."""
    reply_tokens = count_tokens(text or "")
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


def restated(body: bytes, faults: Faults, thought: int) -> bytes:
    """Returns the response in the forms of some servers; `thought` is the number of reasoning
    tokens.
    """
    usual = (faults.logprobs_form, faults.usage_form, faults.content_form) == (
        "openai",
        "openai",
        "text",
    )
    if usual and not faults.hidden_thought:
        return body
    record = msgspec.json.decode(body)
    choice, usage = record["choices"][0], record["usage"]
    usage["completion_tokens"] += thought
    usage["total_tokens"] += thought
    thoughts = "Status: success? Status: failure? " * (thought // 9)
    if faults.thought_field == "content":
        opening = f"<think>\n{thoughts}" + (
            "" if choice["finish_reason"] == "length" else "\n</think>\n\n"
        )
        choice["message"]["content"] = opening + (choice["message"]["content"] or "")
        if choice["logprobs"]:
            choice["logprobs"]["content"].insert(
                0, {"token": opening, "logprob": 0.0, "bytes": None, "top_logprobs": []}
            )
    elif faults.thought_field:
        choice["message"][faults.thought_field] = thoughts
    if faults.content_form == "parts" and choice["message"]["content"] is not None:
        choice["message"]["content"] = [{"type": "text", "text": choice["message"]["content"]}]
    if faults.usage_form == "missing":
        del record["usage"]
    else:
        forms: dict[str, Callable[[int], object]] = {
            "float": lambda n: n + 0.5,
            "negative": lambda n: -n,
        }
        change = forms.get(faults.usage_form)
        record["usage"] = (
            {k: change(n) for k, n in usage.items()}
            if change
            else None
            if faults.usage_form == "null"
            else usage
        )
    rows = (choice["logprobs"] or {}).get("content") or []
    if faults.logprobs_form == "missing":
        del choice["logprobs"]
    elif faults.logprobs_form == "null":
        choice["logprobs"] = None
    elif faults.logprobs_form == "nulls":
        choice["logprobs"] = {"content": [{**row, "top_logprobs": None} for row in rows]}
    elif faults.logprobs_form == "lists":
        choice["logprobs"] = {
            "tokens": [row["token"] for row in rows],
            "token_logprobs": [row["logprob"] for row in rows],
        }
    return _encode(record)
