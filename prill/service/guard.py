"""What every request passes before anything looks at it: the name of this machine, the token, a place inside, and its size.

Nothing of a request is read before it has a place, so that what waits costs a connection and no memory.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from prill.service.board import Board
from prill.service.desk import Busy, Door
from prill.service.spec import ServiceSpec, is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

VISIT = "prill.visit"
_OPEN = ("/healthz", "/readyz")  # for probes of a cluster, which have no token; they tell nothing but their answer
_MOST_CLIENT = 80  # characters of the name that a client gives itself
log = logging.getLogger("prill.service")


@dataclass(frozen=True, slots=True)
class Visit:
    """Who asks, and until when an answer is of use: a time of the event loop."""

    client: str
    deadline: float


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Gone(Exception):
    """The client hung up."""


def problem(code: str, message: str) -> bytes:
    """The body of every answer that is an error."""
    return msgspec.json.encode({"error": {"code": code, "message": message}})


class Guard:
    """The application behind its guard. `holds` says for each path that brings work how long a request is held."""

    def __init__(
        self, app: App, spec: ServiceSpec, token: str | None, door: Door, board: Board, holds: Mapping[str, float]
    ) -> None:
        self.app, self.spec, self.door, self.board, self.holds = app, spec, door, board, holds
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self._answered(scope, send, lambda noted: self._admit(scope, receive, noted))

    async def crowded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Turns away whoever comes while there are too many connections; theirs ends with the answer."""

        async def closing(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        async def refuse(noted: Send) -> None:
            raise Busy("there are too many connections", 5)

        await self._answered(scope, closing, refuse)

    async def _answered(self, scope: Scope, send: Send, answer: Callable[[Send], Awaitable[None]]) -> None:
        """Sends what `answer` sends, or the refusal that it raises, and notes it."""
        began, status = time.monotonic(), 0

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            await answer(noted)
        except _Gone:
            status = 499
        except _Refused as refused:
            await _answer(noted, refused.status, refused.code, str(refused))
        except Busy as busy:
            await _answer(noted, 503, "busy", str(busy), after=busy.after)
        finally:
            took = time.monotonic() - began
            path = getattr(scope.get("route"), "path", None) or (scope["path"] if scope["path"] in self.holds else "other")
            self.board.request(path, status, took)
            if self.spec.log != "quiet":
                log.info("%s %s %d %.3f s", scope["method"], quote(scope["path"]), status, took)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        self._check_host(headers)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["path"] not in _OPEN:
            self._check_token(headers, query)
        # From here on nobody meets the key, whatever writes addresses down.
        scope["query_string"] = urlencode([(name, value) for name, value in query if name != "key"]).encode()
        hold = self.holds.get(scope["path"])
        if hold is None or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        by_name = dict(headers)
        if by_name.get(b"content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(415, "not_json", "send JSON, with Content-Type: application/json")
        if by_name.get(b"content-encoding", "identity") != "identity":
            raise _Refused(415, "packed", "send the request unpacked: compressed ones are not read")
        length = by_name.get(b"content-length", "")
        if length.isdecimal() and int(length[:20]) > self.spec.max_body:
            raise self._too_large()
        client = dict(query).get("client") or by_name.get(b"x-prill-client") or (scope.get("client") or ("unknown",))[0]
        loop = asyncio.get_running_loop()
        visit = Visit(client[:_MOST_CLIENT], loop.time() + hold)
        async with self.door.place(visit.client, visit.deadline):
            try:
                async with asyncio.timeout(self.spec.body_timeout):
                    body = await self._body(receive)
            except TimeoutError:
                raise _Refused(408, "slow", f"the request did not come within {self.spec.body_timeout:g} s") from None
            scope[VISIT] = visit
            await self.app(scope, _replayed(body, receive), send)

    def _check_host(self, headers: list[tuple[bytes, str]]) -> None:
        """Against pages whose own name was made to lead here: only this machine's names will do, while only it is served."""
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            raise _Refused(400, "host", "one Host header, please")
        if self.spec.is_loopback:
            name = hosts[0].lower()
            bare = name if name.endswith("]") else name.rpartition(":")[0] or name
            if not is_loopback(bare.strip("[]")):
                raise _Refused(403, "host", "this address is not served here")
        origin = next((value for name, value in headers if name == b"origin"), None)
        if origin is not None and origin.partition("://")[2] != hosts[0]:
            raise _Refused(403, "origin", "pages of other sites may not ask here")

    def _check_token(self, headers: list[tuple[bytes, str]], query: list[tuple[str, str]]) -> None:
        if self._token is None:
            return
        shown = next((value for name, value in query if name == "key"), "")
        for name, value in headers:
            scheme, _, rest = value.partition(" ")
            if name == b"authorization" and scheme.lower() == "bearer":
                shown = rest.strip()
        if not hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), self._token.encode()):
            raise _Refused(401, "token", "show the token: Authorization: Bearer …, or ?key=… where a client sends no headers")

    def _too_large(self) -> _Refused:
        return _Refused(413, "too_large", f"the request has more than {self.spec.max_body:,} bytes, which is the limit here")

    async def _body(self, receive: Receive) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            size += len(part)
            if size > self.spec.max_body:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _answer(send: Send, status: int, code: str, message: str, after: float | None = None) -> None:
    body = problem(code, message)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if after is not None:
        headers.append((b"retry-after", str(max(1, round(after))).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
