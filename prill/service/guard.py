"""What every request passes before anything looks at it: the name of this machine, the token, a place inside, and its size.

Nothing of a request is read before it has a place, so that what waits costs a connection and no memory.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from prill.service.admission import AdmissionQueue, Busy
from prill.service.board import Board
from prill.service.memory import Reservation
from prill.service.spec import ServiceSpec, is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

VISIT = "prill.visit"
_OPEN = ("/healthz", "/readyz")  # for probes of a cluster, which have no token; they tell nothing but their answer
_RETRY_AFTER = 5.0  # seconds
log = logging.getLogger("prill.service")


@dataclass(slots=True)
class Visit:
    """Who asks, until when an answer is of use (a time of the event loop), and what was sent with the memory that it holds."""

    client: str
    deadline: float
    held: Reservation
    _body: bytes = b""

    def take(self) -> bytes:
        """The body, once: whoever has it lets it go when it is read."""
        body, self._body = self._body, b""
        return body


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str, *, closes: bool = False) -> None:
        super().__init__(message)
        self.status, self.code, self.closes = status, code, closes


class _Gone(Exception):
    """The client hung up."""


def problem(code: str, message: str) -> bytes:
    """The body of every answer that is an error."""
    return msgspec.json.encode({"error": {"code": code, "message": message}})


class Guard:
    """The application behind its guard. `holds` says for each path that brings work how long a request is held."""

    def __init__(
        self,
        app: App,
        spec: ServiceSpec,
        tokens: Sequence[str],
        admission: AdmissionQueue,
        board: Board,
        holds: Mapping[str, float],
    ) -> None:
        self.app, self.spec, self.admission, self.board, self.holds = app, spec, admission, board, holds
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self._answered(scope, send, lambda noted: self._admit(scope, receive, noted))

    async def crowded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Turns away whoever comes while there are too many connections; theirs ends with the answer."""

        async def refuse(noted: Send) -> None:
            raise _Refused(503, "busy", "there are too many connections", closes=True)

        await self._answered(scope, send, refuse)

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
            after = _RETRY_AFTER if refused.status == 503 else None
            await _answer(noted, refused.status, refused.code, str(refused), after, closes=refused.closes)
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
        _check_framing(headers)
        self._check_host(headers)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = None if scope["path"] in _OPEN else self._checked_token(headers, query)
        # From here on nobody meets the key, whatever writes addresses down.
        scope["query_string"] = urlencode([(name, value) for name, value in query if name != "key"]).encode()
        hold = self.holds.get(scope["path"])
        if hold is None or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        size = self._checked_size(dict(headers))
        client, deadline = self._client(scope, token), asyncio.get_running_loop().time() + hold
        async with self.admission.admitted(client, deadline, size) as held:
            try:
                async with asyncio.timeout(self.spec.body_timeout):
                    scope[VISIT] = Visit(client, deadline, held, await self._body(receive, held))
            except TimeoutError:
                raise _Refused(408, "slow", f"the request did not come within {self.spec.body_timeout:g} s") from None
            await self._while_there(scope, receive, send)

    async def _while_there(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, unless the client hangs up before: then its place is free at once. Raises _Gone."""
        answered = False

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal answered
            answered = answered or message["type"] == "http.response.start"
            await send(message)

        async def hangs_up() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        work = asyncio.ensure_future(self.app(scope, receive, noted)), asyncio.ensure_future(hangs_up())
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            if not work[0].done() and not answered:
                raise _Gone
            await work[0]
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def _client(self, scope: Scope, token: int | None) -> str:
        """Who takes turns with others: the holder of a token where there are several, else an address. No name that clients
        give themselves: one that has two hundred would have two hundred turns."""
        if token is not None and len(self._tokens) > 1:
            return f"token {token}"
        return network_of((scope.get("client") or ("unknown",))[0])

    def _checked_size(self, headers: Mapping[bytes, str]) -> int:
        """The length that the request says it has, 0 where it says none."""
        if headers.get(b"content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(415, "not_json", "send JSON, with Content-Type: application/json")
        if headers.get(b"content-encoding", "identity") != "identity":
            raise _Refused(415, "packed", "send the request unpacked: compressed ones are not read")
        length = headers.get(b"content-length", "")
        size = int(length[:20]) if length.isdecimal() else 0
        if size > self.spec.max_body:
            raise self._too_large()
        return size

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

    def _checked_token(self, headers: list[tuple[bytes, str]], query: list[tuple[str, str]]) -> int | None:
        """Which of the tokens was shown; None where none is asked for."""
        if not self._tokens:
            return None
        shown = next((value for name, value in query if name == "key"), "")
        for name, value in headers:
            scheme, _, rest = value.partition(" ")
            if name == b"authorization" and scheme.lower() == "bearer":
                shown = rest.strip()
        data = shown.encode("utf-8", "surrogateescape")
        right = [number for number, token in enumerate(self._tokens) if hmac.compare_digest(data, token.encode())]
        if right:
            return right[0]
        raise _Refused(401, "token", "show the token: Authorization: Bearer …, or ?key=… where a client sends no headers")

    def _too_large(self) -> _Refused:
        return _Refused(413, "too_large", f"the request has more than {self.spec.max_body:,} bytes, which is the limit here")

    async def _body(self, receive: Receive, held: Reservation) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            size += len(part)
            if size > self.spec.max_body:
                raise self._too_large()
            if size > held.size:  # it did not say how long it is
                if not held.can_grow(size):
                    raise Busy("requests of others take all the memory there is for them", 2)
                held.resize(size)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


def network_of(address: str) -> str:
    """An address as that of a client: who has one of version 6 has billions, those of a /64."""
    try:
        ip = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ip.ipv4_mapped or IPv6Network((ip, 64), strict=False))


def _check_framing(headers: list[tuple[bytes, str]]) -> None:
    """Two lengths of one body are two bodies to somebody on the way: the rest of it may be taken for another request."""
    names = {name for name, _ in headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        words = "Content-Length together with Transfer-Encoding: a body has one length"
        raise _Refused(400, "http", words, closes=True)


_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


async def _answer(
    send: Send, status: int, code: str, message: str, after: float | None = None, *, closes: bool = False
) -> None:
    body = problem(code, message)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if after is not None:
        headers.append((b"retry-after", str(max(1, round(after))).encode()))
    if closes:
        headers.append((b"connection", b"close"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
