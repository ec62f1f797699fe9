"""Middleware: checks host, origin and token before a request is read, and words every refusal."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from collections.abc import Sequence
from urllib.parse import quote

import msgspec
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prill.errors import InputError
from prill.refine.rewards.service.contracts import Problem, Refusal
from prill.refine.rewards.service.judgements import RETRY_AFTER, RefusedError
from prill.refine.rewards.service.metrics import Metrics
from prill.refine.rewards.service.spec import ServiceSpec, is_loopback

# for cluster probes, which have no token; they reveal only their status
_OPEN = ("/healthz", "/readyz")
log = logging.getLogger("prill.refine.rewards.service")


def refusal(status: int, code: str, message: str, after: float | None = None) -> Response:
    """Returns an error response; `after` is the Retry-After in seconds."""
    headers = {} if after is None else {"retry-after": str(max(1, round(after)))}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body = msgspec.json.encode(Refusal(Problem(code, message)))
    return Response(body, status, headers, media_type="application/json")


def _refusal_of(error: BaseException) -> Response:
    """Returns the error response for an exception."""
    if isinstance(error, RefusedError):
        return refusal(error.status, error.code, str(error), error.after)
    if isinstance(error, InputError):
        return refusal(422, "input", str(error))
    if isinstance(error, asyncio.CancelledError):  # by the server, after the grace period
        return refusal(503, "ending", "the service is shutting down", RETRY_AFTER)
    # Neither to the client nor to the log goes the exception's message: it may quote a request.
    places = "".join(traceback.format_tb(error.__traceback__))
    log.error("an error of the service: %s\n%s", type(error).__name__, places)
    return refusal(500, "internal", "an internal error of the service; see its log")


class Guard:
    """An ASGI application that checks, counts and logs the requests of the wrapped one."""

    def __init__(
        self, app: ASGIApp, spec: ServiceSpec, tokens: Sequence[str], metrics: Metrics
    ) -> None:
        self.app, self.spec, self.tokens, self.metrics = app, spec, tokens, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request, or refuses it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if getattr(scope["app"].state, "is_ending", False):
                    # else a client sends its next request on a connection that is being closed
                    MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, noted)
        except ClientDisconnect:
            status = 499
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every error is answered
            await _refusal_of(error)(scope, receive, noted)
        finally:
            took = time.monotonic() - began
            path = getattr(scope.get("route"), "path", "other")  # not what a client made up
            self.metrics.request(path, status, took)
            if self.spec.log != "quiet":
                log.info("%s %s %d %.3f s", scope["method"], quote(scope["path"]), status, took)

    def _check(self, scope: Scope) -> None:
        headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
        self._check_host(headers)
        if self.tokens and scope["path"] not in _OPEN:
            self._check_token(headers, query)

    def _check_host(self, headers: Headers) -> None:
        """Refuses other names than this machine's if only this machine is served, against DNS
        rebinding, and pages of other sites.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise RefusedError(400, "host", "send exactly one Host header")
        if self.spec.is_loopback:
            name = hosts[0].lower()
            bare = name if name.endswith("]") else name.rpartition(":")[0] or name
            if not is_loopback(bare.strip("[]")):
                raise RefusedError(403, "host", "unknown route")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != hosts[0]:
            raise RefusedError(403, "origin", "requests from pages of other sites are rejected")

    def _check_token(self, headers: Headers, query: QueryParams) -> None:
        shown = query.getlist("key")[0] if "key" in query else ""
        for value in headers.getlist("authorization"):
            scheme, _, rest = value.partition(" ")
            if scheme.lower() == "bearer":
                shown = rest.strip()
        data = shown.encode("utf-8", "surrogateescape")
        if not any([hmac.compare_digest(data, token.encode()) for token in self.tokens]):
            raise RefusedError(
                401,
                "token",
                "the token is missing or wrong; send Authorization: Bearer …, or ?key=… if the "
                "client cannot send headers",
            )
