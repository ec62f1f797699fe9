"""The handlers of the mock server and what they count."""

from __future__ import annotations

import asyncio
import importlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from prill.errors import UsageError
from prill.fakes.faults import Faults, fate
from prill.fakes.replies import CHARS_PER_TOKEN, GARBAGE, completion, logprobs_of, problem, reply_text, tokens_of
from prill.fakes.requests import Prompt, Refused, Request, decode_request, read_prompt, refusal_of

if TYPE_CHECKING:
    from aiohttp import web

LARGEST_BODY = 256 * 2**20
_COUNTED = ("requests", "in_flight", "peak_in_flight", "images", "prompt_tokens", "completion_tokens", "outcomes", "prompts")
_HTML = b"<!doctype html><html><head><title>502</title></head><body><h1>Bad gateway</h1></body></html>"


class MockEndpoint:
    """One model behind an OpenAI-compatible interface."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.truth = function_named(faults.truth)
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
        return app

    async def models(self, http: web.Request) -> web.Response:
        """The list of models, or 401."""
        if self.faults.refuse_key:
            return _json(401, problem("Incorrect API key provided.", code="invalid_api_key"))
        return _json(200, b'{"object":"list","data":[{"id":"mock","object":"model","created":0,"owned_by":"prill"}]}')

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
            return self._refused(Refused(400, "malformed", problem(f"We could not parse the body of your request: {error}")))
        self.prompts[prompt.hash] += 1
        outcome, detail = fate(self.faults, prompt.hash, self.prompts[prompt.hash])
        if (refused := refusal_of(self.faults, request, prompt) or self._limited(outcome)) is not None:
            return self._refused(refused)
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
        return _json(200, self._answer(request, prompt, outcome, detail))

    def _limited(self, outcome: str) -> Refused | None:
        crowded = 0 < self.faults.slots < self.in_flight
        if not crowded and outcome != "rate_limit":
            return None
        body = problem("Rate limit reached. Please try again later.", kind="requests", code="rate_limit_exceeded")
        return Refused(429, "slots" if crowded else "rate_limit", body, {"Retry-After": f"{self.faults.retry_after:g}"})

    def _refused(self, refused: Refused) -> web.Response:
        self.outcomes[refused.outcome] += 1
        return _json(refused.status, refused.body, headers=refused.headers)

    def _answer(self, request: Request, prompt: Prompt, outcome: str, detail: float) -> bytes:
        truth = self.truth(prompt.asked)
        word = "unsuccessful" if outcome == "unsuccessful" else truth
        text: str | None = reply_text(self.faults, word, truth, request.response_format)
        finish, refusal, half = "stop", None, detail < 0.5
        limit = (request.max_completion_tokens or request.max_tokens or 2**31) * CHARS_PER_TOKEN
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
        if text and len(text) > limit:
            text, finish = text[:limit], "length"
        logprobs = None
        if request.logprobs and text:
            logprobs = logprobs_of(text, truth, prompt.asked, request.top_logprobs or 0)
        self.images += prompt.images
        self.prompt_tokens += prompt.tokens
        self.completion_tokens += tokens_of(text or "")
        return completion(
            text, model=request.model, prompt_tokens=prompt.tokens, finish=finish, refusal=refusal, logprobs=logprobs
        )


def function_named(place: str) -> Callable[[str], str]:
    """The function that `module:name` means; raises UsageError when there is none."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"truth {place!r} is not a module:function that can be imported ({error})") from None
    if not callable(found):
        raise UsageError(f"truth {place!r} is not a function")
    return lambda text: str(found(text))


def _json(
    status: int, body: bytes, *, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, body=body, content_type=content_type, headers=headers)
