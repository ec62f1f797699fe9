"""Middleware: checks host, token, path and size before a request is read.

The body of a request is read only after admission, so that a waiting request costs a connection and
no memory.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from urllib.parse import quote, urlencode

import msgspec
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prill.service.admission import AdmissionQueue
from prill.service.memory import BusyError, Reservation
from prill.service.metrics import Metrics
from prill.service.spec import ServiceSpec, is_loopback

CONTEXT = "prill.request"
# for cluster probes, which have no token; they reveal only their status
_OPEN = ("/healthz", "/readyz")
_RETRY_AFTER = 5.0  # seconds
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
}
log = logging.getLogger("prill.service")


@dataclass(slots=True)
class RequestContext:
    """The client of a request, its deadline (a time of the event loop), its body, and its memory
    reservation.
    """

    client: str
    deadline: float
    reservation: Reservation
    _body: bytes = b""

    def take(self) -> bytes:
        """Returns the body and drops the reference, so that it can be freed once it is parsed."""
        body, self._body = self._body, b""
        return body


class _RefusedError(Exception):
    def __init__(self, status: int, code: str, message: str, *, closes: bool = False) -> None:
        super().__init__(message)
        self.response = refusal(status, code, message, _RETRY_AFTER if status == 503 else None)
        if closes:
            self.response.headers["connection"] = "close"


def problem(code: str, message: str) -> bytes:
    """Returns the body of an error response."""
    return msgspec.json.encode({"error": {"code": code, "message": message}})


def refusal(status: int, code: str, message: str, after: float | None = None) -> Response:
    """Returns an error response; `after` is the Retry-After in seconds."""
    headers = {} if after is None else {"retry-after": str(max(1, round(after)))}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(problem(code, message), status, headers, media_type="application/json")


class Guard:
    """An ASGI application that checks requests before the wrapped application.

    `timeouts` maps each scoring path to the maximum duration of a request in seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        spec: ServiceSpec,
        tokens: Sequence[str],
        admission: AdmissionQueue,
        metrics: Metrics,
    ) -> None:
        self.app, self.spec, self.admission, self.metrics = app, spec, admission, metrics
        self._tokens = tokens
        self.timeouts = {
            **dict.fromkeys(("/v1/score", "/v1/jobs", "/verify"), spec.request_timeout),
            "/get_reward": spec.openrlhf_timeout,
            "/rm": spec.slime_timeout,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request, or rejects it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self._answered(scope, send, lambda noted: self._admit(scope, receive, noted))

    async def crowded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rejects requests while there are too many connections, and closes theirs."""

        async def refuse(noted: Send) -> None:
            raise _RefusedError(503, "busy", "there are too many connections", closes=True)

        await self._answered(scope, send, refuse)

    async def _answered(
        self, scope: Scope, send: Send, answer: Callable[[Send], Awaitable[None]]
    ) -> None:
        """Sends the response of `answer`, or the rejection that it raises, and records it."""
        began, status = time.monotonic(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            await answer(noted)
        except ClientDisconnect:
            status = 499
        except _RefusedError as refused:
            await refused.response(scope, _no_body, noted)
        except BusyError as busy:
            await refusal(503, "busy", str(busy), busy.after)(scope, _no_body, noted)
        finally:
            took = time.monotonic() - began
            path = getattr(scope.get("route"), "path", None) or (
                scope["path"] if scope["path"] in self.timeouts else "other"
            )
            self.metrics.request(path, status, took)
            if self.spec.log != "quiet":
                log.info("%s %s %d %.3f s", scope["method"], quote(scope["path"]), status, took)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, loop = Request(scope, receive), asyncio.get_running_loop()
        _check_framing(request.headers)
        self._check_host(request.headers)
        token = (
            None
            if scope["path"] in _OPEN
            else self._checked_token(request.headers, request.query_params)
        )
        # Remove the key from the URL, so that no log can contain it.
        query = [
            (name, value) for name, value in request.query_params.multi_items() if name != "key"
        ]
        scope["query_string"] = urlencode(query).encode()
        timeout = self.timeouts.get(scope["path"])
        if timeout is None or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        size = self._checked_size(request.headers)
        client, deadline = self._client(request, token), loop.time() + timeout
        async with self.admission.admitted(client, deadline, size) as reservation:
            try:
                async with asyncio.timeout(self.spec.body_timeout):
                    scope[CONTEXT] = RequestContext(
                        client, deadline, reservation, await self._body(request, reservation)
                    )
            except TimeoutError:
                raise _RefusedError(
                    408, "slow", f"the request was not received within {self.spec.body_timeout:g} s"
                ) from None
            await self._run_while_connected(scope, receive, send)

    async def _run_while_connected(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application until it responds or the client disconnects, which frees its slot at
        once.

        Raises ClientDisconnect.
        """
        answered = False

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = answered or message["type"] == "http.response.start"
            await send(message)

        async def wait_for_disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        work = (
            asyncio.ensure_future(self.app(scope, receive, noted)),
            asyncio.ensure_future(wait_for_disconnect()),
        )
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            if not work[0].done() and not answered:
                raise ClientDisconnect
            await work[0]
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def _client(self, request: Request, token: int | None) -> str:
        """Returns the client for fair queueing: the token's holder if there are several tokens,
        else the network address.

        Names that clients choose are ignored, because a client with many names would get many
        turns.
        """
        if token is not None and len(self._tokens) > 1:
            return f"token {token}"
        return find_network(request.client.host if request.client else "unknown")

    def _checked_size(self, headers: Headers) -> int:
        """Returns the declared content length, 0 if there is none."""
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _RefusedError(415, "not_json", "send JSON, with Content-Type: application/json")
        if headers.get("content-encoding", "identity") != "identity":
            raise _RefusedError(
                415,
                "packed",
                "compressed requests are not supported; send the request uncompressed",
            )
        length = headers.get("content-length", "")
        size = int(length[:20]) if length.isdecimal() else 0
        if size > self.spec.max_body:
            raise self._too_large()
        return size

    def _check_host(self, headers: Headers) -> None:
        """Rejects unknown Host headers, against DNS rebinding.

        Only names of this machine are accepted if the service listens on loopback only.

        Starlette's TrustedHostMiddleware takes a list of names; here every address of this
        machine's own network is valid.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise _RefusedError(400, "host", "send exactly one Host header")
        if self.spec.is_loopback:
            name = hosts[0].lower()
            bare = name if name.endswith("]") else name.rpartition(":")[0] or name
            if not is_loopback(bare.strip("[]")):
                raise _RefusedError(403, "host", "unknown route")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != hosts[0]:
            raise _RefusedError(403, "origin", "requests from pages of other sites are rejected")

    def _checked_token(self, headers: Headers, query: QueryParams) -> int | None:
        """Returns the index of the token that was sent; None if no token is required."""
        if not self._tokens:
            return None
        shown = query.getlist("key")[0] if "key" in query else ""
        for value in headers.getlist("authorization"):
            scheme, _, rest = value.partition(" ")
            if scheme.lower() == "bearer":
                shown = rest.strip()
        data = shown.encode("utf-8", "surrogateescape")
        right = [
            number
            for number, token in enumerate(self._tokens)
            if hmac.compare_digest(data, token.encode())
        ]
        if right:
            return right[0]
        raise _RefusedError(
            401,
            "token",
            "the token is missing or wrong; send Authorization: Bearer …, or ?key=… if the "
            "client cannot send headers",
        )

    def _too_large(self) -> _RefusedError:
        return _RefusedError(
            413,
            "too_large",
            f"the request has more than {self.spec.max_body:,} bytes, which is the limit",
        )

    async def _body(self, request: Request, reservation: Reservation) -> bytes:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.spec.max_body:
                raise self._too_large()
            reservation.grow(size)  # if it declared no length
            parts.append(part)
        return b"".join(parts)


def find_network(address: str) -> str:
    """Returns the network of a client's address.

    A client with IPv6 has billions of addresses, those of a /64.
    """
    try:
        ip = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ip.ipv4_mapped or IPv6Network((ip, 64), strict=False))


def _check_framing(headers: Headers) -> None:
    """Rejects a body with two declared lengths, which allows request smuggling."""
    if "content-length" in headers and "transfer-encoding" in headers:
        problem = "Content-Length together with Transfer-Encoding; a request body has one length"
        raise _RefusedError(400, "http", problem, closes=True)


async def _no_body() -> Message:
    raise ClientDisconnect
