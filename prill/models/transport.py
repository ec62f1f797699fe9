"""HTTP transport of one endpoint: connections and retries with jitter."""

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
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit
from weakref import WeakKeyDictionary

from prill.errors import CallTimeoutError, EndpointError, TransportError, UnscoredError, UsageError
from prill.io.shards import packed_for
from prill.models.flow_control import AdaptiveLimiter, CircuitBreaker
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
# Statuses of a proxy that timed out, although the endpoint may have answered: request timeout,
# gateway timeout, and Cloudflare's 524.
_GAVE_UP_WAITING = frozenset({408, 504, 524})
_MAX_SECONDS = 86_400.0
# Maximum bytes of a decompressed response: a thousand times a long reply with log-probabilities.
MAX_ANSWER = 64 << 20
_AZURE = (".azure.com", ".azure.us", ".azure.cn")  # hosts that expect the key in a different header
UNREACHABLE_AFTER = 3  # maximum attempts at a server that has never answered
PATIENCE = 300.0  # seconds without any response after which a run ends
# base URL, key, concurrency, timeout, patience: endpoints with equal settings share a connection
_Settings = tuple[str, str, int, float, float]


# When each request that waits for its answer was sent, on the monotonic clock.
_waiting: dict[object, float] = {}


def calls_waiting() -> tuple[int, float]:
    """Returns the number of requests that wait for an answer, and the age in seconds of the
    oldest.
    """
    sent = list(_waiting.values())
    return len(sent), time.monotonic() - min(sent) if sent else 0.0


_WRONG_KEY = "API key not valid"  # Gemini (400), where others answer 401


_TELLING = 4  # length of a key's prefix from which it is hidden in messages
# Shorter values are placeholders for servers without keys; hiding them would only garble messages.
_MIN_KEY = 8
_NO_KEYS = frozenset(
    {
        "placeholder", "not-needed", "not_needed", "no-key-required", "no_key_required", "sk-no-key-required", "sk-placeholder",  # noqa: E501
        "your-api-key", "your_api_key", "api_key_here", "localhost", "lm-studio", "llama-cpp", "undefined", "anything",  # noqa: E501
        "something",
    }
)  # fmt: skip
# Errors of an account without credit, whatever the status: OpenAI (429), OpenRouter and Together
# (402).
_NO_CREDIT = r"insufficient_quota|insufficient.{0,10}(credit|balance|funds)|exceeded your current quota|credit.{0,20}exhausted"  # noqa: E501
_LOW_CREDIT = "Your credit balance is too low"  # Anthropic (400)
# Gemini mentions the quota also for a limit per minute
_PASSES = r"docs/rate-limits|retry in [\d.]+ ?m?s"


class RejectedError(Exception):
    """Raised if the endpoint rejects a request that may succeed in another format.

    `message` is the endpoint's message, for parsing; `shown` is the same with the key hidden, for
    users and files. `fatal` is the error for the run if there is no other format, because the cause
    may be the key or the model.
    """

    def __init__(
        self, status: int, message: str, shown: str, fatal: EndpointError | None = None
    ) -> None:
        super().__init__(shown)
        self.status, self.message, self.shown, self.fatal = status, message, shown, fatal


class RetryableError(Exception):
    """Raised if an attempt failed and a retry may succeed.

    `wait`: seconds that the endpoint asked to wait. `message`: the endpoint's message, for parsing.
    `billed`: the endpoint may have processed the request and may charge for it.
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


@dataclass(slots=True)
class _Connection:
    """The HTTP session of one event loop, closed at the end of the loop by `closing`."""

    http: aiohttp.ClientSession
    limiter: AdaptiveLimiter
    breaker: CircuitBreaker
    closing: AsyncGenerator[None, None]


@dataclass(slots=True)
class RequestStats:
    """The number of requests for an answer, and their total seconds without waiting times."""

    attempts: int = 0
    seconds: float = 0.0


# Kept until the event loop ends, so that a model that is garbage-collected early leaves no open
# socket.
_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Settings, _Connection]] = (
    WeakKeyDictionary()
)

_T = TypeVar("_T")
_Reader = Callable[[bytes, _Connection | None], _T]
_Ask = Callable[[_Connection, bytes], Awaitable[_T]]
# Returns status and body of the response to a request. Raises AnswerPendingError.
Answers = Callable[["Endpoint", bytes], tuple[int, bytes]]
_answers: ContextVar[Answers | None] = ContextVar("prill_answers", default=None)


@contextmanager
def answered_by(answers: Answers) -> Iterator[None]:
    """Answers requests to all endpoints inside the block with `answers`; nothing is sent."""
    token = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(token)


@lru_cache
def _url(base: str, path: str) -> URL:
    """Returns the URL of a path at an endpoint, with the base URL's query."""
    from yarl import URL

    url = urlsplit(base)
    return URL(url._replace(path=url.path.rstrip("/") + path).geturl(), encoded=True)


class Endpoint:
    """Sends request bodies to `/chat/completions`. Each event loop has its own connections.

    `timeout` limits one attempt, in seconds, and `retries` the attempts after the first. The
    attribute `total_timeout` limits all attempts of a call, and `patience` is that of
    `CircuitBreaker`.
    """

    def __init__(
        self, base_url: str | None, api_key_env: str, concurrency: int, timeout: float, retries: int
    ) -> None:
        self.base_url = (base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")
        self.origin = self.base_url  # identifies the endpoint in cache keys
        self.api_key_env = api_key_env
        self.concurrency = concurrency
        self.timeout, self.total_timeout, self.retries = timeout, max(600.0, 3 * timeout), retries
        self.patience = max(PATIENCE, timeout)
        self.reached = self.answered = False
        _check_url(self.base_url)
        if concurrency < 1:
            raise UsageError(f"concurrency is {concurrency}; expected at least 1")
        if not 0 < timeout < _MAX_SECONDS or retries < 0:
            raise UsageError(
                f"timeout is {timeout:g} and retries {retries}; expected seconds above 0 and below "
                f"{_MAX_SECONDS:g}, and 0 or more retries"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "concurrency": -(-self.concurrency // (packed_for() or 1))}

    @property
    def place(self) -> str:
        """Returns the URL without user name, password and query, for messages."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1], query="").geturl()

    async def send(
        self, body: Callable[[], bytes], booking: Booking, stats: RequestStats
    ) -> Completion:
        """Returns the response to one request, with retries, which are added to `stats`.

        `body` is called when an attempt starts, because the request format may have changed since.
        Raises RejectedError for errors that retries cannot fix, TransportError or CallTimeoutError
        after the last retry, BudgetSpentError before a call that the budget does not cover,
        EndpointError if no request can succeed, and EndpointGoneError if the endpoint has not
        answered for a while.
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
        """Sends a request to another path, otherwise like `send`.

        `read` parses the response and returns None if it is invalid.
        """

        def checked(data: bytes, connection: _Connection | None) -> _T:
            found = read(data)
            if found is None:
                self.reached = True
                raise RetryableError(f"the endpoint's response to {path} is invalid", billed=True)
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
        """Repeats attempts and returns the first response."""
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
                    f"cannot reach {self.place} ({last}); check that the server is running "
                    "and the URL is correct"
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
        """Makes one attempt when a slot is free and the budget covers it.

        Cost and time are added to `booking` and `stats`.
        """
        loop = asyncio.get_running_loop()
        with queued() as begin:
            async with connection.limiter:
                await booking.reserve()
                begin()
                start = loop.time()
                stats.attempts += 1
                is_open = True
                _waiting[begin] = time.monotonic()
                try:
                    answer = await ask(connection, body())
                    is_open = False  # the caller records the cost
                    return answer
                except (RejectedError, EndpointError, RetryableError) as error:
                    if not getattr(error, "billed", False):
                        booking.release()
                        is_open = False
                    raise
                finally:
                    del _waiting[begin]
                    stats.seconds += loop.time() - start
                    if is_open:  # sent without an answer, also if the caller cancelled it
                        booking.lose()

    async def models(self) -> bytes:
        """Returns the raw model list; empty if the endpoint returns none within 10 seconds."""
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
        """Returns why the endpoint cannot be reached; empty if it answers.

        The check does not wait for a free connection.
        """
        import aiohttp

        try:
            await self._exchange(await self.connection(), "GET", "/models")
        except UsageError as error:
            return str(error)
        except (OSError, aiohttp.ClientError) as error:
            return f"{self.place} cannot be reached: {self._describe_error(error)}"
        except (
            TransportError,
            ValueError,
        ):  # an invalid response still shows that the endpoint is reachable
            return ""
        return ""

    async def _exchange(
        self, connection: _Connection, method: str, path: str, body: bytes | None = None
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Sends one request and returns the response with its body.

        Raises TransportError for a body of more than MAX_ANSWER.
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
                        f"the endpoint's response has more than {MAX_ANSWER >> 20} MB"
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
        # includes connection timeouts
        except aiohttp.ClientConnectionError as error:
            sent = not isinstance(
                error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            raise RetryableError(
                f"connection failed: {self._describe_error(error)}", refused=True, billed=sent
            ) from None
        except TimeoutError:
            raise RetryableError(
                f"no response within {seconds:.3g} s", timeout=True, billed=True
            ) from None
        except aiohttp.ClientHttpProxyError as error:
            raise RetryableError(f"connection failed: {self._describe_error(error)}") from None
        except (aiohttp.ClientPayloadError, OSError) as error:
            raise RetryableError(
                f"connection failed: {self._describe_error(error)}", billed=True
            ) from None
        except (aiohttp.ClientError, ValueError) as error:  # the response is not valid HTTP
            self.reached = True
            raise RetryableError(
                f"the endpoint's response cannot be read: {self._describe_error(error)}",
                billed=True,
            ) from None
        if response.status // 100 != 2:
            self.reached = True
            raise self._status(
                response.status,
                parse_error(data, response.reason or "no message"),
                response.headers,
                connection,
            )
        return read(data, connection)

    def no_trust(self, error: BaseException) -> EndpointError:
        """Returns the error for a rejected certificate of the endpoint or its proxy."""
        reason = getattr(error, "verify_message", None) or self._describe_error(error)
        return EndpointError(
            f"the certificate of {self.place}, or of the proxy in front of it, is not "
            f"trusted ({reason}); if you trust it, set $SSL_CERT_FILE to a PEM file with "
            "the certificate of the authority that signed it"
        )

    def _completion(self, data: bytes, connection: _Connection | None) -> Completion:
        completion = decode_completion(data, self.hide_key)
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
            raise RetryableError("the endpoint's response is not a chat completion", billed=True)
        self.reached = self.answered = True
        return completion

    def _given(self, status: int, data: bytes, stats: RequestStats) -> Completion:
        """Interprets a stored response like one after the last retry.

        Its errors concern this request only: an error that would end a run, such as a quota used up
        at that time, does not end this one.
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
        shown = self.without_key(message)  # the code below parses the original message
        wait = retry_after(headers)
        if 300 <= status < 400:
            # Following a redirect could change the request or send the prompts to another host.
            return EndpointError(
                f"{self.place} answers with a redirect (HTTP {status}), which is not "
                "followed; give its final URL"
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
        """Returns the connection of this event loop.

        Endpoints with equal settings share it, including the limit on calls.
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
        # asyncio.run closes async generators at its end; this one closes the session, so that no
        # socket stays open.
        closing = _close_with_loop(http)
        limiter, breaker = (
            AdaptiveLimiter(self.concurrency),
            CircuitBreaker(self.place, self.patience, self.timeout),
        )
        connection = connections[settings] = _Connection(http, limiter, breaker, closing)
        await anext(closing)
        return connection

    def key(self) -> str:
        """Returns the key from the environment, or "none" for servers without keys. Raises
        UsageError.
        """
        key = os.environ.get(self.api_key_env)
        if not key and self.base_url == OPENAI_URL:
            raise UsageError(
                f"${self.api_key_env} is not set; set it, or name another endpoint (base URL)"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise UsageError(
                f"${self.api_key_env} contains a line break or another invalid character; "
                "set it again"
            )
        return key or "none"

    def without_key(self, message: str) -> str:
        """Returns the message with the key masked, including a truncated key at its end."""
        return without_key(message, os.environ.get(self.api_key_env, ""))

    def hide_key(self, text: str) -> str:
        """Returns the text of a reply with the key masked.

        A reply may end with the first letters of a key by chance, so only half of it counts.
        """
        key = os.environ.get(self.api_key_env, "")
        return without_key(text, key, max(_MIN_KEY, len(key) // 2))

    def _describe_error(self, error: BaseException) -> str:
        """Returns a connection error's text without the URL, which may contain a key or the proxy's
        password.
        """
        message = getattr(error, "message", None)
        message = (
            message if isinstance(message, str) and message else str(error) or type(error).__name__
        )
        return self.without_key(" ".join(message.split())[:200])


def _http_parts(url: str) -> SplitResult | None:
    """Returns the parts of an HTTP URL with a host; None for anything else."""
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
    """Raises UsageError for an unusable base URL; the message never contains a password."""
    if (parts := _http_parts(url)) is None:
        where = repr(url) if "@" not in url and "?" not in url else "given"
        raise UsageError(f"the base URL {where} must start with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise UsageError(
            "the base URL contains a user name or a password; put the key into the "
            "environment instead"
        )


def _proxy(url: SplitResult) -> str | None:
    """Returns the proxy that the environment sets for a URL. Raises UsageError for an unusable
    proxy.
    """
    proxies = {} if urllib.request.proxy_bypass(url.netloc) else urllib.request.getproxies()
    name = url.scheme if proxies.get(url.scheme) else "all"
    if not (proxy := proxies.get(name)):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if _http_parts(proxy) is None:
        raise UsageError(
            f"the proxy in ${name}_proxy is not of the form http://HOST:PORT; fix it, or set "
            "$no_proxy"
        )
    return proxy


def _trust() -> ssl.SSLContext:
    """Returns the SSL context with the trusted certificates.

    Raises UsageError if the certificates named by the environment are unreadable.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        # OpenSSL does not use the macOS keychain
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
    """Returns Azure's header for the key; empty for other hosts."""
    return {"api-key": key} if (url.hostname or "").endswith(_AZURE) else {}


def _headers(url: SplitResult, key: str) -> Mapping[str, str]:
    """Returns the headers of every request, from the environment variables of OpenAI's SDK.

    Headers that the user sets there take precedence.
    """
    from multidict import CIMultiDict

    values = {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": "prill",
        **azure_header(url, key),
        "OpenAI-Organization": os.environ.get("OPENAI_ORG_ID"),
        "OpenAI-Project": os.environ.get("OPENAI_PROJECT_ID"),
    }
    headers = CIMultiDict({name: value for name, value in values.items() if value is not None})
    own = (line.partition(":") for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines())
    headers.update({name.strip(): value.strip() for name, colon, value in own if colon})
    return headers


async def _close_with_loop(http: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await http.close()


def cannot_pay(status: int, message: str) -> bool:
    """Returns whether an error is about billing, so that no other request can succeed."""
    if status in (403, 429) and re.search(_NO_CREDIT, message, re.IGNORECASE):
        return re.search(_PASSES, message) is None
    return status == 402 or (status == 400 and message.startswith(_LOW_CREDIT))


def without_key(message: str, key: str, least: int = _TELLING) -> str:
    """Returns the message with the key masked, including one at its end that is truncated to at
    `least` so many characters.
    """
    if len(key) < _MIN_KEY or key.lower() in _NO_KEYS:
        return message
    message = message.replace(key, "***")
    cut = next((n for n in range(len(key) - 1, least - 1, -1) if message.endswith(key[:n])), 0)
    return f"{message[:-cut]}***" if cut else message


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds in the Retry-After headers (seconds, milliseconds or a date), or None."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif not (value := headers.get("retry-after")):
            return None
        elif re.fullmatch(r"[\d.]+", value):
            seconds = float(value)
        else:
            until, now = email.utils.parsedate_to_datetime(value), headers.get("date")
            # relative to the server's clock, because the local clock may differ
            seconds = until.timestamp() - (
                email.utils.parsedate_to_datetime(now).timestamp() if now else time.time()
            )
    except (ValueError, OverflowError, TypeError):  # an invalid date
        return None
    return max(0.0, seconds) if isfinite(seconds) else None
