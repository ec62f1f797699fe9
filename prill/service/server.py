"""The service as a process: listens, announces its address, and ends without dropping what it accepted."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from prill.errors import MissingExtra, UsageError
from prill.logs import FOR_USERS
from prill.refine.rewards import Reward
from prill.service.app import Service, make_service
from prill.service.guard import problem
from prill.service.spec import ServiceSpec

_log = logging.getLogger("prill.service")
_HEAD_SECONDS = 20.0  # that a client may take to send the first lines of a request
_KEEP_ALIVE = 75  # longer than the pools of the trainers' clients keep a connection, so that none is closed under a request
_SEND_SECONDS = 30  # that a client may take to read the rest of its answer when its connection is to end
_FORCED_SECONDS = 2.0  # from a second signal to the end
_LEFT_SECONDS = 2.0  # from the last answer to the end
_SPARE = 256  # connections beyond those that requests may wait on: for probes, metrics and the page


def say(url: str) -> None:
    """Logs the address of a service."""
    _log.info("serving on %s", url, extra=FOR_USERS)


def serve(
    reward: Reward,
    spec: ServiceSpec | None = None,
    *,
    concurrency: int | None = None,
    announce: Callable[[str], None] = say,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves a reward until SIGINT or SIGTERM. New requests then get 503, and the process ends when all others are answered.

    A second signal ends it at once.

    Args:
        reward: The reward.
        spec: The settings. None: the defaults.
        concurrency: The most judgements at once. None: as many as the judge's model takes.
        announce: Called with the service's address, which holds no token.
        ending: Called when the service begins to stop.

    Raises:
        UsageError: The port is taken, or the settings are incomplete.
        MissingExtra: The packages of the extra `serve` are not installed.
    """
    last = LastResort()
    try:
        asyncio.run(_serve(reward, spec or ServiceSpec(), concurrency, announce, ending, last))
    finally:
        last.stop()


async def serve_async(
    reward: Reward,
    spec: ServiceSpec | None = None,
    *,
    concurrency: int | None = None,
    announce: Callable[[str], None] = say,
    ending: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serves a reward until a signal comes or `stop` is set, in an event loop that others use, too.

    The process is never ended by force: what does not listen to its end is left.

    Args:
        reward: What requests get.
        spec: Where the service listens, and what it refuses.
        concurrency: Judgements at once; None: as many calls as the judge's model takes.
        announce: Is told the address, without any token, once it is served.
        ending: Called when the end begins.
        stop: Begins the end once it is set.

    Raises:
        UsageError: The port is taken, or settings are not enough.
        MissingExtra: The packages of the extra `serve` are not installed.
    """
    await _serve(reward, spec or ServiceSpec(), concurrency, announce, ending, None, stop)


async def _serve(
    reward: Reward,
    spec: ServiceSpec,
    concurrency: int | None,
    announce: Callable[[str], None],
    ending: Callable[[], None],
    last: LastResort | None,
    stop: asyncio.Event | None = None,
) -> None:
    service = make_service(reward, spec, concurrency=concurrency)
    if last is not None:  # a process of its own: what is loaded by now stays
        gc.freeze()  # collections, which stop everything, look at what requests bring
    listening = _listen(spec)
    with listening:
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        server = server_of(service, spec, ending, lambda: announce(address), last)

        async def stopping(stop: asyncio.Event) -> None:
            await stop.wait()
            server.handle_exit(signal.SIGTERM, None)

        waiting = None if stop is None else asyncio.create_task(stopping(stop))
        try:
            await server.serve(sockets=[listening])
        finally:
            if waiting is not None:
                waiting.cancel()
    if last is not None:
        last.end_within(_LEFT_SECONDS, 0)  # all is answered: what is left are judgements that do not listen to their end


class LastResort:
    """Ends the process at the time that was set, by a thread: also where a judge holds the event loop, or does not listen to
    its cancellation, or keeps a thread that the interpreter would wait for."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def end_within(self, seconds: float, code: int = 1) -> None:
        """The process ends after so many seconds, with that exit code, unless `stop` is called before."""
        threading.Thread(target=self._wait, args=(seconds, code), name="prill-last-resort", daemon=True).start()

    def stop(self) -> None:
        """The end came by itself."""
        self._stopped.set()

    def _wait(self, seconds: float, code: int) -> None:
        if not self._stopped.wait(seconds):
            os.write(2, b"prill serve: something does not end; the process ends now\n")
            os._exit(code)


def server_of(
    service: Service,
    spec: ServiceSpec,
    ending: Callable[[], None] = lambda: None,
    started: Callable[[], None] = lambda: None,
    last: LastResort | None = None,
) -> Any:
    """The uvicorn server; its first signal drains. `started` is called when it runs and hears signals, and `last` ends the
    process where nothing else does. Raises MissingExtra."""
    try:
        import h11
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
    except ImportError:
        raise MissingExtra("uvicorn", "serve") from None

    # Of the grace period, what is left to end connections that nobody reads from, and then the process.
    spare = min(_SEND_SECONDS, spec.grace / 4)
    most = spec.queue + spec.door + _SPARE

    class Impatient(H11Protocol):
        """A connection that has to begin a request in time, and to be read from: otherwise half a line a minute would hold
        it for ever, and an answer that nobody reads the end of the service.

        What uvicorn itself would refuse in plain words, too many connections and what is no HTTP, is refused as all else is.
        """

        _ending: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            self.app = service.app if len(self.connections) < most else service.app.crowded
            super().data_received(data)
            self._watch()

        def send_400_response(self, msg: str) -> None:
            body = problem("http", "this is no HTTP request that can be read")
            headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
            for part in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(part) or b"")
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._ending is not None:
                self._ending.cancel()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.transport.is_closing():
                self._end_unread()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._end_unread()

        def _end_unread(self) -> None:
            """A closed connection waits for what its client has not read, for ever where it never does."""
            if self._ending is not None:
                self._ending.cancel()
            self._ending = self.loop.call_later(_SEND_SECONDS, self.transport.abort)

        def _watch(self) -> None:
            under_way = self.cycle is not None and not self.cycle.response_complete
            if under_way and self._ending is not None:
                self._ending.cancel()
                self._ending = None
            elif not under_way and self._ending is None:
                self._ending = self.loop.call_later(_HEAD_SECONDS, self._end)

        def _end(self) -> None:
            self._ending = None
            idle = self.timeout_keep_alive_task is not None  # between two requests: that has a limit of its own
            if not idle and (self.cycle is None or self.cycle.response_complete):
                self.transport.abort()

    class Draining(uvicorn.Server):
        """A server whose first signal lets nobody in any more, and whose second ends it at once."""

        _drain: asyncio.Task[None] | None = None

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()  # not sooner: who reads the address may send a signal at once, and uvicorn listens to them only now

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if service.admission.closed:
                self.should_exit = self.force_exit = True
                if last is not None:
                    last.end_within(_FORCED_SECONDS)
            else:
                service.admission.close()
                if last is not None:
                    last.end_within(0.95 * spec.grace)
                asyncio.get_running_loop().call_soon_threadsafe(self._begin)  # it may be early: the server is still starting

        def _begin(self) -> None:
            self._drain = asyncio.create_task(service.drain(spec.grace - spare))
            self._drain.add_done_callback(self._drained)
            ending()  # last: its words may have nowhere to go, where a terminal was closed say

        def _drained(self, task: asyncio.Task[None]) -> None:
            self.should_exit = True

    logging.getLogger("uvicorn.error").addFilter(_without_words)
    config = uvicorn.Config(
        service.app,
        http=Impatient,
        lifespan="off",
        log_config=None,
        access_log=False,  # its lines would show the addresses as they came, keys included
        server_header=False,
        backlog=4096,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, int(spare / 2)),  # from when all is answered: for clients that do not read it
    )
    return Draining(config)


def _without_words(record: logging.LogRecord) -> bool:
    """An error that nobody caught is logged as where it happened: its message may quote what a client sent."""
    if record.exc_info and record.exc_info[0] is not None:
        kind, _, places = record.exc_info
        record.msg = f"{record.getMessage().strip()}: {kind.__name__}\n{''.join(traceback.format_tb(places))}"
        record.args, record.exc_info, record.exc_text = (), None, None
    return True


def _listen(spec: ServiceSpec) -> socket.socket:
    family = socket.AF_INET6 if ":" in spec.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((spec.host, spec.port))
        listening.listen(4096)  # a client that comes before the server runs waits here
    except OSError as error:
        listening.close()
        raise UsageError(
            f"{spec.host}:{spec.port} cannot be used ({error.strerror}); port 0 takes any that is free", parameters=("port",)
        ) from None
    return listening
