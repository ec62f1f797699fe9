"""HTTP transport of one endpoint: connections, retries with jitter, adaptive concurrency."""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import re
import ssl
import sys
import time
import urllib.request
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit
from weakref import WeakKeyDictionary

from prill.errors import (
    CallTimeoutError,
    EndpointError,
    EndpointGoneError,
    TransportError,
    UnscoredError,
    UsageError,
)
from prill.io.shards import packed_for
from prill.models.ledger import Booking, queued
from prill.models.replies import Completion, Failure, decode_completion, parse_error
from prill.models.request import lacks_vision

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

OPENAI_URL = "https://api.openai.com/v1"
# seconds; each wait is drawn from [0, FIRST_WAIT * 2 ** attempt]
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
LIST_TIMEOUT = 10.0  # seconds for a list of models
# Statuses of a proxy that did not wait for the endpoint's answer, which may have come all the same:
# request timeout, gateway timeout, and Cloudflare's 524.
_GAVE_UP_WAITING = frozenset({408, 504, 524})
_MAX_SECONDS = 86_400.0
# Bytes of an answer, unpacked: a thousand times what a long reply has with its log-probabilities.
MAX_ANSWER = 64 << 20
_AZURE = (".azure.com", ".azure.us", ".azure.cn")  # their keys go into a header of another name
UNREACHABLE_AFTER = 3  # attempts at a server that has never answered
PATIENCE = 300.0  # seconds
# Fewer than this many may all be the fault of what they ask.
LEAST_CALLS = 5
# Additive increase, multiplicative decrease. x0.8, one step per cool-down of 15 s, follow what
# evaluation frameworks use.
SHRINK = 0.8
COOL_DOWN = 15.0
# base URL, key, concurrency, timeout, patience: who shares a connection
_Settings = tuple[str, str, int, float, float]


_WRONG_KEY = "API key not valid"  # Gemini (400), where others answer 401


_TELLING = 4  # characters of a key's beginning that are not shown
# What people put where a server wants no key, and what is too short to be one: hiding it would only
# spoil words.
_LEAST_KEY = 8
_NO_KEYS = frozenset(
    {
        "placeholder", "not-needed", "not_needed", "no-key-required", "no_key_required", "sk-no-key-required", "sk-placeholder",  # noqa: E501
        "your-api-key", "your_api_key", "api_key_here", "localhost", "lm-studio", "llama-cpp", "undefined", "anything",  # noqa: E501
        "something",
    }
)  # fmt: skip
# What an account that cannot pay is told, whatever the status: OpenAI (429), OpenRouter and
# Together (402).
_NO_CREDIT = r"insufficient_quota|insufficient.{0,10}(credit|balance|funds)|exceeded your current quota|credit.{0,20}exhausted"  # noqa: E501
_LOW_CREDIT = "Your credit balance is too low"  # Anthropic (400)
# Gemini speaks of the quota also where a limit a minute is reached
_PASSES = r"docs/rate-limits|retry in [\d.]+ ?m?s"


class RejectedError(Exception):
    """The endpoint will not take this request as it is; another form of it may pass.

    `message` is what the endpoint said, to be understood; `shown` is the same with the key hidden,
    for people and files. `fatal` is the error for the run when there is no other form: the refusal
    may be about the key or the model.
    """

    def __init__(
        self, status: int, message: str, shown: str, fatal: EndpointError | None = None
    ) -> None:
        super().__init__(shown)
        self.status, self.message, self.shown, self.fatal = status, message, shown, fatal


class RetryableError(Exception):
    """This attempt failed in a way that the next may not. `wait`: seconds that the endpoint asked
    for. `message`: its words, to be understood. `billed`: the endpoint may have done the work, and
    may charge for it.
    """

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


class CircuitBreaker:
    """Watches all calls to one endpoint in one event loop, and ends them together once it is gone.

    It is gone when five calls or more have failed, none was answered since the first of these
    failures, and `patience` seconds have passed. Where calls are made one at a time, five would
    take long to fail: there a call ends early after a fifth of that time, and when all of it is
    spent the calls still missing share the time of one attempt, `timeout`. So the end comes at
    latest `patience` and one attempt after the first failure. What comes later begins again.
    """

    def __init__(self, place: str, patience: float, timeout: float) -> None:
        self.place, self.patience, self.timeout = place, patience, timeout
        self._since: float | None = None
        self._failing: dict[asyncio.Timeout, float] = {}
        self._open: set[asyncio.Timeout] = set()
        self.why = ""

    @asynccontextmanager
    async def call(self) -> AsyncIterator[asyncio.Timeout]:
        """Around one call with all its attempts; what it gives stands for the call. Raises
        EndpointGoneError once the circuit breaker opens.
        """
        call = asyncio.timeout(None)
        self._open.add(call)
        try:
            async with call:
                yield call
        except TimeoutError:
            if not call.expired():
                raise
            raise EndpointGoneError(self.why) from None
        finally:
            self._open.discard(call)

    def answered(self) -> None:
        """Notes an answer, including an error: the endpoint is reachable."""
        self._since = None
        self._failing.clear()

    def failed(self, call: asyncio.Timeout, problem: object) -> None:
        """An attempt had no answer, or one that asks to come again. Raises EndpointGoneError once
        the circuit breaker opens.
        """
        now = _now()
        self._since = now if self._since is None else self._since
        self._failing.setdefault(call, now)
        if len(self._failing) < LEAST_CALLS or now - self._since < self.patience:
            return
        self.why = (
            f"{self.place} has answered nothing for {now - self._since:.3g} s "
            f"({len(self._failing)} calls failed; the last: {problem})"
        )
        self.answered()
        self._open.discard(call)
        for other in self._open:
            other.reschedule(now)
        self._open.clear()
        raise EndpointGoneError(self.why)

    def left(self) -> float:
        """Seconds until the circuit breaker opens."""
        return (
            self.patience if self._since is None else max(0.0, self._since + self.patience - _now())
        )

    def attempt_seconds(self) -> float:
        """How long an attempt that begins now may take."""
        return min(self.timeout, max(self.left(), self.timeout / (LEAST_CALLS - 1)))

    def gives_up(self, call: asyncio.Timeout, *, told_to_wait: bool) -> bool:
        """Whether a call that has failed should leave it at that, so that others are tried; one
        that was told to wait waits.
        """
        if told_to_wait or len(self._failing) >= LEAST_CALLS:
            return not self.left()
        return (
            not self.left()
            or _now() - self._failing.get(call, _now()) >= self.patience / LEAST_CALLS
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


class AdaptiveLimiter:
    """At most `limit` holders at a time, first come first served; for one event loop.

    Only `rate_limited` lowers the limit. It grows by one each time `limit` calls in a row went
    well, up to `most`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        self.in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._quiet = 0
        self._closed_until = 0.0
        self._shrunk_at = -COOL_DOWN

    async def __aenter__(self) -> None:
        while (pause := self._closed_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(pause)
        if self.in_use < self.limit and not self._waiting:
            self.in_use += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            elif turn in self._waiting:  # a call that ended in the meantime may have taken it out
                self._waiting.remove(turn)
            raise
        while (pause := self._closed_until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                self._release()
                raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def succeeded(self) -> None:
        """Notes a success."""
        self._quiet += 1
        if self._quiet >= self.limit and self.limit < self.most:
            self.limit += 1
            self._quiet = 0
            self._wake()

    def rate_limited(self, pause: float | None) -> None:
        """The endpoint asked for less. `pause`: seconds during which no call starts (its
        Retry-After).
        """
        now = asyncio.get_running_loop().time()
        self._quiet = 0
        if now - self._shrunk_at >= COOL_DOWN:
            self.limit = max(1, int(self.limit * SHRINK))
            self._shrunk_at = now
        if pause:
            self._closed_until = max(self._closed_until, now + pause)

    def _release(self) -> None:
        self.in_use -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.in_use < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_use += 1
                turn.set_result(None)


@dataclass(slots=True)
class _Connection:
    """What belongs to one event loop. `closing` ends with the loop, and closes the session."""

    http: aiohttp.ClientSession
    limiter: AdaptiveLimiter
    breaker: CircuitBreaker
    closing: AsyncGenerator[None, None]


@dataclass(slots=True)
class RequestStats:
    """What an answer took: requests sent, and the seconds of them all, without the waiting in
    between.
    """

    attempts: int = 0
    seconds: float = 0.0


# Kept for as long as the loop lives, whoever made them: a model that is dropped early leaves no
# socket open.
_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Settings, _Connection]] = (
    WeakKeyDictionary()
)

_T = TypeVar("_T")
_Reader = Callable[[bytes, _Connection | None], _T]
_Ask = Callable[[_Connection, bytes], Awaitable[_T]]
# Gives the status and the body that answer a request. Raises AnswerPendingError.
Answers = Callable[["Endpoint", bytes], tuple[int, bytes]]
_answers: ContextVar[Answers | None] = ContextVar("prill_answers", default=None)


@contextmanager
def answered_by(answers: Answers) -> Iterator[None]:
    """Inside it, nothing is sent to any endpoint: requests are answered by what is given."""
    token = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(token)


@lru_cache
def _url(base: str, path: str) -> URL:
    """The URL of a path at an endpoint, the base URL's query behind it."""
    from yarl import URL

    url = urlsplit(base)
    return URL(url._replace(path=url.path.rstrip("/") + path).geturl(), encoded=True)


class Endpoint:
    """Sends request bodies to `/chat/completions`. Connections are opened in each event loop.

    `timeout` bounds one attempt and `total_timeout` all attempts, in seconds; `retries` are
    attempts after the first; `patience` is that of `CircuitBreaker`.
    """

    def __init__(
        self,
        base_url: str | None,
        api_key_env: str,
        concurrency: int,
        timeout: float,
        total_timeout: float,
        retries: int,
        patience: float = PATIENCE,
    ) -> None:
        self.base_url = (base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")
        self.origin = self.base_url  # who answers, in the keys of kept replies
        self.api_key_env = api_key_env
        self.concurrency = concurrency
        self.timeout, self.total_timeout, self.retries, self.patience = (
            timeout,
            total_timeout,
            retries,
            patience,
        )
        self.reached = self.answered = False
        _check_url(self.base_url)
        if concurrency < 1:
            raise UsageError(f"concurrency is {concurrency}; give at least 1")
        if (
            not 0 < timeout < _MAX_SECONDS
            or not total_timeout > 0
            or not patience > 0
            or retries < 0
        ):
            raise UsageError(
                f"timeout is {timeout:g}, total timeout {total_timeout:g}, patience {patience:g} "
                f"and retries {retries}; give times above 0 (seconds, less than {_MAX_SECONDS:g} "
                "for one attempt), and 0 or more retries"
            )

    def __getstate__(self) -> dict[str, Any]:
        packing = packed_for()
        return vars(self) | (
            {"concurrency": packing.shard.share(self.concurrency)} if packing else {}
        )

    @property
    def place(self) -> str:
        """The URL without user name, password and query, for messages."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1], query="").geturl()

    async def send(
        self, body: Callable[[], bytes], booking: Booking, stats: RequestStats
    ) -> Completion:
        """The answer to one request, after retries, which add to `stats`. `body` is asked for when
        an attempt's turn has come: by then it may be known that the endpoint wants it in another
        form.

        Raises RejectedError for what retries cannot mend, TransportError or CallTimeoutError when
        they are used up, BudgetSpentError before a call that the budget does not cover,
        EndpointError when no request can succeed, EndpointGoneError when none has for a while.
        """
        if (answers := _answers.get()) is not None:
            return self._given(*answers(self, body()), stats)
        return await self._post("/chat/completions", body, self._completion, booking, stats)

    async def post(
        self,
        path: str,
        body: bytes,
        read: Callable[[bytes], _T | None],
        booking: Booking,
        stats: RequestStats,
    ) -> _T:
        """The answer to a request at another path, as `read` finds it (None: it is no such answer);
        as `send` else.
        """

        def checked(data: bytes, connection: _Connection | None) -> _T:
            found = read(data)
            if found is None:
                self.reached = True
                raise RetryableError(
                    f"the endpoint answered {path} with something else", billed=True
                )
            self.reached = self.answered = True
            return found

        return await self._post(path, lambda: body, checked, booking, stats)

    async def _post(
        self,
        path: str,
        body: Callable[[], bytes],
        read: _Reader[_T],
        booking: Booking,
        stats: RequestStats,
    ) -> _T:
        connection = await self.connection()
        async with connection.breaker.call() as call:
            return await self._persist(
                connection, call, partial(self._attempt, path=path, read=read), body, booking, stats
            )

    async def _persist(
        self,
        connection: _Connection,
        call: asyncio.Timeout,
        ask: _Ask[_T],
        body: Callable[[], bytes],
        booking: Booking,
        stats: RequestStats,
    ) -> _T:
        """The answer of the first attempt that brings one."""
        loop, breaker = asyncio.get_running_loop(), connection.breaker
        deadline = loop.time() + self.total_timeout
        for attempt in range(self.retries + 1):
            try:
                answer = await self._in_turn(connection, ask, body, booking, stats)
                connection.limiter.succeeded()
                breaker.answered()
                return answer
            except (RejectedError, TransportError):
                breaker.answered()
                raise
            except RetryableError as failure:
                last = failure
            if last.refused and not self.reached and attempt + 1 >= UNREACHABLE_AFTER:
                raise EndpointError(
                    f"cannot reach {self.place} ({last}): is the server running, and the URL right?"
                )
            breaker.failed(call, last)
            wait = (
                random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**attempt))
                if last.wait is None
                else last.wait
            )
            late = loop.time() + wait > deadline
            if (
                attempt == self.retries
                or late
                or breaker.gives_up(call, told_to_wait=last.wait is not None)
            ):
                break
            await asyncio.sleep(min(wait, breaker.left()))
        raise self._failure(last, attempt + 1)

    async def _in_turn(
        self,
        connection: _Connection,
        ask: _Ask[_T],
        body: Callable[[], bytes],
        booking: Booking,
        stats: RequestStats,
    ) -> _T:
        """One attempt, when its turn has come and the budget covers it; `booking` and `stats` learn
        what it took.
        """
        loop = asyncio.get_running_loop()
        with queued() as begin:
            async with connection.limiter:
                await booking.hold()
                begin()
                start = loop.time()
                stats.attempts += 1
                is_open = True
                try:
                    answer = await ask(connection, body())
                    is_open = False  # whoever asked knows what it cost
                    return answer
                except (RejectedError, EndpointError, RetryableError) as error:
                    if not getattr(error, "billed", False):
                        booking.release()
                        is_open = False
                    raise
                finally:
                    stats.seconds += loop.time() - start
                    if is_open:  # sent, without an answer: also where the caller gave it up
                        booking.lose()

    async def models(self) -> bytes:
        """The endpoint's list of models, as it came; empty where it gives none within 10
        seconds.
        """
        import aiohttp

        if _answers.get() is not None:
            return b""
        connection = await self.connection()
        try:
            async with asyncio.timeout(min(self.timeout, LIST_TIMEOUT)):
                response, data = await self._exchange(connection, "GET", "/models")
        except (OSError, TransportError, aiohttp.ClientError, ValueError):
            return b""
        return data if response.status // 100 == 2 else b""

    async def why_unreachable(self) -> str:
        """Why nothing answers there; empty where something does. What connections wait for does not
        matter to this one.
        """
        import aiohttp

        try:
            await self._exchange(await self.connection(), "GET", "/models")
        except UsageError as error:
            return str(error)
        except (OSError, aiohttp.ClientError) as error:
            return f"{self.place} cannot be reached: {self._words(error)}"
        except (TransportError, ValueError):  # an answer that cannot be read is one
            return ""
        return ""

    async def _exchange(
        self, connection: _Connection, method: str, path: str, body: bytes | None = None
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """One request, and the answer with its body. Raises TransportError for a body of more than
        MAX_ANSWER.
        """
        pieces, size = list[bytes](), 0
        url = _url(self.base_url, path)
        async with connection.http.request(
            method, url, data=body, allow_redirects=False
        ) as response:
            async for piece in response.content.iter_any():
                size += len(piece)
                if size > MAX_ANSWER:
                    raise TransportError(
                        f"the endpoint's answer has more than {MAX_ANSWER >> 20} MB"
                    )
                pieces.append(piece)
        return response, b"".join(pieces)

    async def _attempt(
        self, connection: _Connection, body: bytes, *, path: str, read: _Reader[_T]
    ) -> _T:
        import aiohttp

        seconds = connection.breaker.attempt_seconds()
        try:
            async with asyncio.timeout(seconds):
                response, data = await self._exchange(connection, "POST", path, body)
        except aiohttp.ClientConnectorCertificateError as error:
            raise self.no_trust(error.certificate_error) from None
        # that no connection came about in time is one of these
        except aiohttp.ClientConnectionError as error:
            sent = not isinstance(
                error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            raise RetryableError(
                f"connection failed: {self._words(error)}", refused=True, billed=sent
            ) from None
        except TimeoutError:
            raise RetryableError(
                f"no answer within {seconds:.3g} s", timeout=True, billed=True
            ) from None
        except aiohttp.ClientHttpProxyError as error:
            raise RetryableError(f"connection failed: {self._words(error)}") from None
        except (aiohttp.ClientPayloadError, OSError) as error:
            raise RetryableError(f"connection failed: {self._words(error)}", billed=True) from None
        except (aiohttp.ClientError, ValueError) as error:  # an answer that is no HTTP
            self.reached = True
            raise RetryableError(
                f"the endpoint's answer cannot be read: {self._words(error)}", billed=True
            ) from None
        if response.status // 100 != 2:
            self.reached = True
            raise self._status(
                response.status,
                parse_error(data, response.reason or "no words"),
                response.headers,
                connection,
            )
        return read(data, connection)

    def no_trust(self, error: BaseException) -> EndpointError:
        """The end of a run whose endpoint, or the proxy before it, has a certificate that is not
        accepted.
        """
        reason = getattr(error, "verify_message", None) or self._words(error)
        return EndpointError(
            f"the certificate of {self.place}, or of the proxy before it, was not accepted "
            f"({reason}); if you trust it, set "
            "$SSL_CERT_FILE to a file (PEM) with the certificate of the authority that signed it"
        )

    def _completion(self, data: bytes, connection: _Connection | None) -> Completion:
        completion = decode_completion(data)
        if isinstance(completion, Failure):
            self.reached = True
            raise self._status(
                completion.status or 502,
                completion.message,
                {},
                connection,
                billed=completion.begun,
            )
        if completion is None:
            raise RetryableError(
                "the endpoint answered with something that is no chat completion", billed=True
            )
        self.reached = self.answered = True
        return completion

    def _given(self, status: int, data: bytes, stats: RequestStats) -> Completion:
        """What an answer that was not sent for means: the same as one after the last retry.

        It speaks for this request alone: what would end a run, such as a quota that was used up
        then, does not end this one.
        """
        self.reached = self.answered = True
        stats.attempts += 1
        try:
            if status == 200:
                return self._completion(data, None)
            raise self._status(status, parse_error(data), {}, None)
        except RetryableError as failure:
            raise self._failure(failure, 1) from None
        except EndpointError as failure:
            raise TransportError(str(failure)) from None

    def _status(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str],
        connection: _Connection | None,
        *,
        billed: bool = False,
    ) -> Exception:
        shown = self.without_key(message)  # what is understood below are the endpoint's own words
        wait = retry_after(headers)
        if 300 <= status < 400:
            # A redirect would turn the request into another one, or take the prompts to another
            # host.
            return EndpointError(
                f"{self.place} answers with a redirect (HTTP {status}), which is not followed: "
                "give its final URL"
            )
        if cannot_pay(status, message):
            return EndpointError(
                f"{self.place}: the account's quota is used up (HTTP {status}: {shown})"
            )
        if connection is not None and (
            status == 429 or (status in (503, 529) and wait is not None)
        ):
            pause = (
                None if wait is None else min(wait, self.total_timeout, connection.breaker.left())
            )
            connection.limiter.rate_limited(pause)
        if status in (408, 409, 429) or (
            status >= 500 and status != 501 and not lacks_vision(message)
        ):
            billed = billed or status in _GAVE_UP_WAITING
            return RetryableError(
                f"HTTP {status}: {shown}", status=status, message=message, wait=wait, billed=billed
            )
        key = EndpointError(
            f"{self.place} refused the key in ${self.api_key_env} (HTTP {status}: {shown})"
        )
        if status == 401 or (status == 400 and message.startswith(_WRONG_KEY)):
            return key
        if status == 403 and not self.answered:
            return RejectedError(status, message, shown, key)
        if status == 404 and not self.answered:
            return EndpointError(
                f"{self.place} does not know this model or path (HTTP 404: {shown}); check the "
                "model's name and the base URL"
            )
        return RejectedError(status, message, shown)

    def _failure(self, last: RetryableError, attempts: int) -> Exception:
        if last.status == 500 and not self.answered:
            return RejectedError(500, last.message, str(last).removeprefix("HTTP 500: "))
        kind: type[UnscoredError] = CallTimeoutError if last.timeout else TransportError
        return kind(f"{last} ({attempts} attempt{'s' if attempts > 1 else ''})")

    async def connection(self) -> _Connection:
        """The connection of this event loop. Endpoints with equal settings share it, and so the
        limit on calls.
        """
        settings = (self.base_url, self.key(), self.concurrency, self.timeout, self.patience)
        connections = _connections.setdefault(asyncio.get_running_loop(), {})
        if settings in connections:
            return connections[settings]
        import aiohttp

        url, connect = urlsplit(self.base_url), min(10.0, self.timeout)
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self.concurrency + 8, ssl=_trust() if url.scheme == "https" else True
            ),
            headers=_headers(url, self.key()),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
            proxy=_proxy(url),
        )
        # asyncio.run ends a loop by closing its async generators: this one closes the session, so
        # no socket is left open.
        closing = _close_with_loop(http)
        limiter, breaker = (
            AdaptiveLimiter(self.concurrency),
            CircuitBreaker(self.place, self.patience, self.timeout),
        )
        connection = connections[settings] = _Connection(http, limiter, breaker, closing)
        await anext(closing)
        return connection

    def key(self) -> str:
        """The key that the environment holds; "none" where servers want none. Raises UsageError."""
        key = os.environ.get(self.api_key_env)
        if not key and self.base_url == OPENAI_URL:
            raise UsageError(
                f"${self.api_key_env} is not set; set it, or name another endpoint (base URL)"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise UsageError(
                f"${self.api_key_env} holds a line break or another character that no key has; "
                "set it again"
            )
        return key or "none"

    def without_key(self, message: str) -> str:
        """The message with the key replaced by stars, also a part of it at a cut end."""
        return without_key(message, os.environ.get(self.api_key_env, ""))

    def _words(self, error: BaseException) -> str:
        """What a failure of the connection says, without the URL: that may hold a key, or the
        proxy's password.
        """
        message = getattr(error, "message", None)
        message = (
            message if isinstance(message, str) and message else str(error) or type(error).__name__
        )
        return self.without_key(" ".join(message.split())[:200])


def _http_parts(url: str) -> SplitResult | None:
    """The parts of a URL with a host that HTTP can reach; None for anything else."""
    try:
        parts = urlsplit(url)
        return (
            parts
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            else None
        )
    except ValueError:
        return None


def _check_url(url: str) -> None:
    """Raises UsageError for a base URL that cannot be used; the message never repeats a
    password.
    """
    if (parts := _http_parts(url)) is None:
        where = repr(url) if "@" not in url and "?" not in url else "given"
        raise UsageError(f"the base URL {where} does not begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise UsageError(
            "the base URL holds a user name or a password; put the key into the environment instead"
        )


def _proxy(url: SplitResult) -> str | None:
    """The proxy that the environment names for a URL. Raises UsageError for one that calls cannot
    go through.
    """
    proxies = {} if urllib.request.proxy_bypass(url.netloc) else urllib.request.getproxies()
    name = url.scheme if proxies.get(url.scheme) else "all"
    if not (proxy := proxies.get(name)):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if _http_parts(proxy) is None:
        raise UsageError(
            f"the proxy in ${name}_proxy is not of the form http://HOST:PORT; mend it, or set "
            "$no_proxy"
        )
    return proxy


def _trust() -> ssl.SSLContext:
    """The certificates that servers are held against. Raises UsageError where the environment names
    none that can be read.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        # OpenSSL knows nothing of the keychain
        if sys.platform == "darwin" and not file and not folder:
            import truststore

            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return ssl.create_default_context(
            cafile=file or None, capath=None if file else folder or None
        )
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(
            f"the certificates that $SSL_CERT_FILE or $SSL_CERT_DIR names cannot be read: {reason}"
        ) from None


def azure_header(url: SplitResult, key: str) -> Mapping[str, str]:
    """The header that holds the key at Azure; none elsewhere."""
    return {"api-key": key} if (url.hostname or "").endswith(_AZURE) else {}


def _headers(url: SplitResult, key: str) -> Mapping[str, str]:
    """The headers of every request, by the environment variables of OpenAI's SDK: what the user
    says there counts.
    """
    from multidict import CIMultiDict

    said = {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": "prill",
        **azure_header(url, key),
        "OpenAI-Organization": os.environ.get("OPENAI_ORG_ID"),
        "OpenAI-Project": os.environ.get("OPENAI_PROJECT_ID"),
    }
    headers = CIMultiDict({name: value for name, value in said.items() if value is not None})
    own = (line.partition(":") for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines())
    headers.update({name.strip(): value.strip() for name, colon, value in own if colon})
    return headers


async def _close_with_loop(http: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await http.close()


def cannot_pay(status: int, message: str) -> bool:
    """Whether an error is about the account (billing), which no other request can change."""
    if status in (403, 429) and re.search(_NO_CREDIT, message, re.IGNORECASE):
        return re.search(_PASSES, message) is None
    return status == 402 or (status == 400 and message.startswith(_LOW_CREDIT))


def without_key(message: str, key: str) -> str:
    """The message with the key replaced by stars, also a part of it at a cut end."""
    if len(key) < _LEAST_KEY or key.lower() in _NO_KEYS:
        return message
    message = message.replace(key, "***")
    cut = next((n for n in range(len(key) - 1, _TELLING - 1, -1) if message.endswith(key[:n])), 0)
    return f"{message[:-cut]}***" if cut else message


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by the Retry-After headers (seconds, milliseconds or a date); None without a
    usable one.
    """
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
            seconds = until.timestamp() - (
                email.utils.parsedate_to_datetime(now).timestamp() if now else time.time()
            )
    except (ValueError, OverflowError, TypeError):  # a date that no calendar has
        return None
    return max(0.0, seconds) if isfinite(seconds) else None
