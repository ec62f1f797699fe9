"""One endpoint: a connection per event loop, retries with jittered back-off, and a limit on calls that adapts."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit
from weakref import WeakKeyDictionary

from prill.errors import CallTimeout, EndpointError, TransportFailure, Unscored, UsageError
from prill.io.shards import packed_for
from prill.models.guard import PATIENCE, AdaptiveLimiter, Guard
from prill.models.ledger import Booking, queued
from prill.models.wire import (
    Completion,
    Failure,
    Rejected,
    TryAgain,
    cannot_pay,
    decode_completion,
    error_of,
    lacks_vision,
    retry_after,
    without_key,
)

if TYPE_CHECKING:
    import aiohttp
    import openai
    from yarl import URL

OPENAI_URL = "https://api.openai.com/v1"
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds; each wait is drawn from [0, FIRST_WAIT * 2 ** attempt]
LIST_TIMEOUT = 10.0  # seconds for a list of models
# Statuses of a proxy that did not wait for the endpoint's answer, which may have come all the same: request timeout, gateway
# timeout, and Cloudflare's 524.
_GAVE_UP_WAITING = frozenset({408, 504, 524})
_MOST_SECONDS = 86_400.0
# Bytes of an answer, unpacked: a thousand times what a long reply has with its log-probabilities.
MOST_ANSWER = 64 << 20
_AZURE = (".azure.com", ".azure.us", ".azure.cn")  # their keys go into a header of another name
UNREACHABLE_AFTER = 3  # attempts at a server that has never answered
_Settings = tuple[str, str, int, float, float]  # base URL, key, concurrency, timeout, patience: who shares a connection


_WRONG_KEY = "API key not valid"  # Gemini (400), where others answer 401


@dataclass(slots=True)
class _Connection:
    """What belongs to one event loop. `closing` ends with the loop and closes both clients.

    Calls have the headers of OpenAI's SDK and go through aiohttp as its own do, but not through its layers for typed replies,
    retries and other transports: those take more of the processor than all the rest of a call.
    """

    client: openai.AsyncOpenAI
    http: aiohttp.ClientSession
    headers: Mapping[str, str]
    limiter: AdaptiveLimiter
    guard: Guard
    closing: AsyncGenerator[None, None]


@dataclass(slots=True)
class Effort:
    """What an answer took: requests sent, and the seconds of them all, without the waiting in between."""

    attempts: int = 0
    seconds: float = 0.0


# Kept for as long as the loop lives, whoever made them: a model that is dropped early leaves no socket open.
_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Settings, _Connection]] = WeakKeyDictionary()

_T = TypeVar("_T")
_Reader = Callable[[bytes, _Connection | None], _T]
# Gives the status and the body that answer a request. Raises AnswerPending.
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
    """Sends request bodies to `/chat/completions`. Made of settings only: connections are opened inside each event loop.

    `timeout` bounds one attempt and `total_timeout` all attempts, in seconds; `retries` are attempts after the first;
    `patience` is that of `prill.models.guard.Guard`.
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
        self.timeout, self.total_timeout, self.retries, self.patience = timeout, total_timeout, retries, patience
        self.reached = self.answered = False
        _check_url(self.base_url)
        if concurrency < 1:
            raise UsageError(f"concurrency is {concurrency}; give at least 1")
        if not 0 < timeout < _MOST_SECONDS or not total_timeout > 0 or not patience > 0 or retries < 0:
            raise UsageError(
                f"timeout is {timeout:g}, total timeout {total_timeout:g}, patience {patience:g} and retries {retries}; give "
                f"times above 0 (seconds, less than {_MOST_SECONDS:g} for one attempt), and 0 or more retries"
            )

    def __getstate__(self) -> dict[str, Any]:
        packing = packed_for()
        return vars(self) | ({"concurrency": packing.shard.share(self.concurrency)} if packing else {})

    @property
    def place(self) -> str:
        """The URL without user name, password and query, for messages."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1], query="").geturl()

    async def send(self, body: Callable[[], bytes], booking: Booking, effort: Effort) -> Completion:
        """The answer to one request, after retries, which add to `effort`. `body` is asked for when an attempt's turn has
        come: by then it may be known that the endpoint wants it in another form.

        Raises Rejected for what retries cannot mend, TransportFailure or CallTimeout when they are used up, BudgetSpent
        before a call that the budget does not cover, EndpointError when no request can succeed, EndpointGone when none has
        for a while.
        """
        if (answers := _answers.get()) is not None:
            return self._given(*answers(self, body()), effort)
        return await self._post("/chat/completions", body, self._completion, booking, effort)

    async def post(self, path: str, body: bytes, read: Callable[[bytes], _T | None], booking: Booking, effort: Effort) -> _T:
        """The answer to a request at another path, as `read` finds it (None: it is no such answer); as `send` else."""

        def checked(data: bytes, connection: _Connection | None) -> _T:
            found = read(data)
            if found is None:
                self.reached = True
                raise TryAgain(f"the endpoint answered {path} with something else", billed=True)
            self.reached = self.answered = True
            return found

        return await self._post(path, lambda: body, checked, booking, effort)

    async def _post(self, path: str, body: Callable[[], bytes], read: _Reader[_T], booking: Booking, effort: Effort) -> _T:
        connection = await self.connection()
        async with connection.guard.call() as call:
            return await self._persist(connection, call, partial(self._attempt, path=path, read=read), body, booking, effort)

    async def _persist(
        self,
        connection: _Connection,
        call: asyncio.Timeout,
        ask: Callable[[_Connection, bytes], Awaitable[_T]],
        body: Callable[[], bytes],
        booking: Booking,
        effort: Effort,
    ) -> _T:
        loop, guard = asyncio.get_running_loop(), connection.guard
        deadline = loop.time() + self.total_timeout
        for attempt in range(self.retries + 1):
            try:
                with queued() as begin:
                    async with connection.limiter:
                        await booking.hold()
                        begin()
                        start = loop.time()
                        effort.attempts += 1
                        is_open = True
                        try:
                            answer = await ask(connection, body())
                            is_open = False  # whoever asked knows what it cost
                        except (Rejected, EndpointError, TryAgain) as error:
                            if not getattr(error, "billed", False):
                                booking.release()
                                is_open = False
                            raise
                        finally:
                            effort.seconds += loop.time() - start
                            if is_open:  # sent, without an answer: also where the caller gave it up
                                booking.lose()
                connection.limiter.succeeded()
                guard.answered()
                return answer
            except (Rejected, TransportFailure):
                guard.answered()
                raise
            except TryAgain as failure:
                last = failure
            if last.refused and not self.reached and attempt + 1 >= UNREACHABLE_AFTER:
                raise EndpointError(f"cannot reach {self.place} ({last}): is the server running, and the URL right?")
            guard.failed(call, last)
            wait = random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**attempt)) if last.wait is None else last.wait
            late = loop.time() + wait > deadline
            if attempt == self.retries or late or guard.gives_up(call, told_to_wait=last.wait is not None):
                break
            await asyncio.sleep(min(wait, guard.left()))
        raise self._failure(last, attempt + 1)

    async def models(self) -> bytes:
        """The endpoint's list of models, as it came; empty where it gives none within 10 seconds."""
        import aiohttp

        if _answers.get() is not None:
            return b""
        connection = await self.connection()
        try:
            async with asyncio.timeout(min(self.timeout, LIST_TIMEOUT)):
                response, data = await self._exchange(connection, "GET", "/models")
        except (OSError, TransportFailure, aiohttp.ClientError, ValueError):
            return b""
        return data if response.status // 100 == 2 else b""

    async def why_unreachable(self) -> str:
        """Why nothing answers there; empty where something does. What connections wait for does not matter to this one."""
        import aiohttp

        try:
            await self._exchange(await self.connection(), "GET", "/models")
        except UsageError as error:
            return str(error)
        except (OSError, aiohttp.ClientError) as error:
            return f"{self.place} cannot be reached: {self._words(error)}"
        except (TransportFailure, ValueError):  # an answer that cannot be read is one
            return ""
        return ""

    async def _exchange(
        self, connection: _Connection, method: str, path: str, body: bytes | None = None
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """One request, and the answer with its body. Raises TransportFailure for a body of more than MOST_ANSWER."""
        pieces, size = list[bytes](), 0
        url, headers = _url(self.base_url, path), connection.headers
        async with connection.http.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
            async for piece in response.content.iter_any():
                size += len(piece)
                if size > MOST_ANSWER:
                    raise TransportFailure(f"the endpoint's answer has more than {MOST_ANSWER >> 20} MB")
                pieces.append(piece)
        return response, b"".join(pieces)

    async def _attempt(self, connection: _Connection, body: bytes, *, path: str, read: _Reader[_T]) -> _T:
        import aiohttp

        seconds = connection.guard.attempt_seconds()
        try:
            async with asyncio.timeout(seconds):
                response, data = await self._exchange(connection, "POST", path, body)
        except aiohttp.ClientConnectorCertificateError as error:
            raise self.no_trust(error.certificate_error) from None
        except aiohttp.ClientConnectionError as error:  # that no connection came about in time is one of these
            sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
            raise TryAgain(f"connection failed: {self._words(error)}", refused=True, billed=sent) from None
        except TimeoutError:
            raise TryAgain(f"no answer within {seconds:.3g} s", timeout=True, billed=True) from None
        except aiohttp.ClientHttpProxyError as error:
            raise TryAgain(f"connection failed: {self._words(error)}") from None
        except (aiohttp.ClientPayloadError, OSError) as error:
            raise TryAgain(f"connection failed: {self._words(error)}", billed=True) from None
        except (aiohttp.ClientError, ValueError) as error:  # an answer that is no HTTP
            self.reached = True
            raise TryAgain(f"the endpoint's answer cannot be read: {self._words(error)}", billed=True) from None
        if response.status // 100 != 2:
            self.reached = True
            raise self._status(response.status, error_of(data, response.reason or "no words"), response.headers, connection)
        return read(data, connection)

    def no_trust(self, error: BaseException) -> EndpointError:
        """The end of a run whose endpoint, or the proxy before it, has a certificate that is not accepted."""
        reason = getattr(error, "verify_message", None) or self._words(error)
        return EndpointError(
            f"the certificate of {self.place}, or of the proxy before it, was not accepted ({reason}); if you trust it, set "
            "$SSL_CERT_FILE to a file (PEM) with the certificate of the authority that signed it"
        )

    def _completion(self, data: bytes, connection: _Connection | None) -> Completion:
        completion = decode_completion(data)
        if isinstance(completion, Failure):
            self.reached = True
            raise self._status(completion.status or 502, completion.message, {}, connection, billed=completion.begun)
        if completion is None:
            raise TryAgain("the endpoint answered with something that is no chat completion", billed=True)
        self.reached = self.answered = True
        return completion

    def _given(self, status: int, data: bytes, effort: Effort) -> Completion:
        """What an answer that was not sent for means: the same as one after the last retry.

        It speaks for this request alone: what would end a run, such as a quota that was used up then, does not end this one.
        """
        self.reached = self.answered = True
        effort.attempts += 1
        try:
            if status == 200:
                return self._completion(data, None)
            raise self._status(status, error_of(data), {}, None)
        except TryAgain as failure:
            raise self._failure(failure, 1) from None
        except EndpointError as failure:
            raise TransportFailure(str(failure)) from None

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
            # A redirect would turn the request into another one, or take the prompts to another host.
            return EndpointError(
                f"{self.place} answers with a redirect (HTTP {status}), which is not followed: give its final URL"
            )
        if cannot_pay(status, message):
            return EndpointError(f"{self.place}: the account's quota is used up (HTTP {status}: {shown})")
        if connection is not None and (status == 429 or (status in (503, 529) and wait is not None)):
            pause = None if wait is None else min(wait, self.total_timeout, connection.guard.left())
            connection.limiter.rate_limited(pause)
        if status in (408, 409, 429) or (status >= 500 and status != 501 and not lacks_vision(message)):
            billed = billed or status in _GAVE_UP_WAITING
            return TryAgain(f"HTTP {status}: {shown}", status=status, message=message, wait=wait, billed=billed)
        key = EndpointError(f"{self.place} refused the key in ${self.api_key_env} (HTTP {status}: {shown})")
        if status == 401 or (status == 400 and message.startswith(_WRONG_KEY)):
            return key
        if status == 403 and not self.answered:
            return Rejected(status, message, shown, key)
        if status == 404 and not self.answered:
            return EndpointError(
                f"{self.place} does not know this model or path (HTTP 404: {shown}); check the model's name and the base URL"
            )
        return Rejected(status, message, shown)

    def _failure(self, last: TryAgain, attempts: int) -> Exception:
        if last.status == 500 and not self.answered:
            return Rejected(500, last.message, str(last).removeprefix("HTTP 500: "))
        kind: type[Unscored] = CallTimeout if last.timeout else TransportFailure
        return kind(f"{last} ({attempts} attempt{'s' if attempts > 1 else ''})")

    async def connection(self) -> _Connection:
        """The connection of this event loop. Endpoints with equal settings share it, and so the limit on calls."""
        settings = (self.base_url, self._key(), self.concurrency, self.timeout, self.patience)
        connections = _connections.setdefault(asyncio.get_running_loop(), {})
        if settings in connections:
            return connections[settings]
        import aiohttp
        import openai
        from multidict import CIMultiDict

        httpx = http_library()
        url, connect = urlsplit(self.base_url), min(10.0, self.timeout)
        proxy, trust = _proxy(url), _trust(httpx) if url.scheme == "https" else True
        timeout = httpx.Timeout(self.timeout + 5, connect=connect)
        client = openai.AsyncOpenAI(
            base_url=url._replace(query="").geturl(),
            api_key=self._key(),
            max_retries=0,
            http_client=openai.DefaultAioHttpClient(timeout=timeout, follow_redirects=False),
            timeout=timeout,
            default_query=dict(parse_qsl(url.query)),
            default_headers={"api-key": self._key()} if (url.hostname or "").endswith(_AZURE) else None,
        )
        # As the SDK puts them together: what the user says in $OPENAI_CUSTOM_HEADERS counts, in whatever case it is written.
        headers = CIMultiDict(client.auth_headers)
        headers.update({name: value for name, value in client.default_headers.items() if isinstance(value, str)})
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.concurrency + 8, ssl=trust),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
            proxy=proxy,
        )
        # asyncio.run ends a loop by closing its async generators: this one closes the clients, so no socket is left open.
        closing = _close_with_loop(client, http)
        limiter, guard = AdaptiveLimiter(self.concurrency), Guard(self.place, self.patience, self.timeout)
        connection = connections[settings] = _Connection(client, http, headers, limiter, guard, closing)
        await anext(closing)
        return connection

    def _key(self) -> str:
        key = os.environ.get(self.api_key_env)
        if not key and self.base_url == OPENAI_URL:
            raise UsageError(f"${self.api_key_env} is not set; set it, or name another endpoint (base URL)")
        if key and not (key.isascii() and key.isprintable()):
            raise UsageError(f"${self.api_key_env} holds a line break or another character that no key has; set it anew")
        return key or "none"

    def without_key(self, message: str) -> str:
        """The message with stars in the place of the key, and of what there is of it at the end of a message that was cut."""
        return without_key(message, os.environ.get(self.api_key_env, ""))

    def _words(self, error: BaseException) -> str:
        """What a failure of the connection says, without the URL: that may hold a key, or the proxy's password."""
        message = getattr(error, "message", None)
        message = message if isinstance(message, str) and message else str(error) or type(error).__name__
        return self.without_key(" ".join(message.split())[:200])


def http_library() -> Any:
    """The library that the installed openai sends by: httpx2 from version 3 on, httpx before, which some trainers pin."""
    import openai

    return importlib.import_module("httpx" if openai.__version__.startswith("2.") else "httpx2")


def _http_parts(url: str) -> SplitResult | None:
    """The parts of a URL with a host that HTTP can reach; None for anything else."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def _check_url(url: str) -> None:
    """Raises UsageError for a base URL that cannot be used; the message never repeats a password."""
    if (parts := _http_parts(url)) is None:
        where = repr(url) if "@" not in url and "?" not in url else "given"
        raise UsageError(f"the base URL {where} does not begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise UsageError("the base URL holds a user name or a password; put the key into the environment instead")


def _proxy(url: SplitResult) -> str | None:
    """The proxy that the environment names for a URL. Raises UsageError for one that calls cannot go through."""
    proxies = {} if urllib.request.proxy_bypass(url.netloc) else urllib.request.getproxies()
    name = url.scheme if proxies.get(url.scheme) else "all"
    if not (proxy := proxies.get(name)):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if _http_parts(proxy) is None:
        raise UsageError(f"the proxy in ${name}_proxy is not of the form http://HOST:PORT; mend it, or set $no_proxy")
    return proxy


def _trust(httpx: Any) -> Any:
    """The certificates that servers are held against. Raises UsageError where the environment names none that can be read."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(f"the certificates that $SSL_CERT_FILE or $SSL_CERT_DIR names cannot be read: {reason}") from None


async def _close_with_loop(client: openai.AsyncOpenAI, http: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await http.close()
        await client.close()
