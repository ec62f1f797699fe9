"""The service as a process: listens, announces its address, and ends without dropping what it accepted."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from prill.errors import MissingExtra, UsageError
from prill.logs import FOR_USERS
from prill.refine.rewards import Reward
from prill.service.app import Service, make_service
from prill.service.spec import ServiceSpec

if TYPE_CHECKING:
    from prill.service.connections import DrainingServer

_log = logging.getLogger("prill.service")
_KEEP_ALIVE = 75  # longer than the pools of the trainers' clients keep a connection, so that none is closed under a request
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
        server = make_server(service, spec, ending, lambda: announce(address), last)

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


def make_server(
    service: Service,
    spec: ServiceSpec,
    ending: Callable[[], None] = lambda: None,
    started: Callable[[], None] = lambda: None,
    last: LastResort | None = None,
) -> DrainingServer:
    """The uvicorn server; its first signal drains. `started` is called when it runs and hears signals, and `last` ends the
    process where nothing else does. Raises MissingExtra."""
    try:
        import uvicorn

        from prill.service.connections import SEND_SECONDS, DrainingServer, ImpatientProtocol, without_words
    except ImportError as missing:
        raise MissingExtra(missing.name or "uvicorn", "serve") from None
    # Of the grace period, what is left to end connections that nobody reads from, and then the process.
    spare = min(SEND_SECONDS, spec.grace / 4)
    logging.getLogger("uvicorn.error").addFilter(without_words)
    protocol = partial(ImpatientProtocol, guard=service.app, max_connections=spec.queue + spec.door + _SPARE)
    config = uvicorn.Config(
        service.app,
        http=cast("type[asyncio.Protocol]", protocol),  # uvicorn calls it, no more
        lifespan="off",
        log_config=None,
        access_log=False,  # its lines would show the addresses as they came, keys included
        server_header=False,
        backlog=4096,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, int(spare / 2)),  # from when all is answered: for clients that do not read it
    )
    end_within = (lambda seconds: None) if last is None else last.end_within
    return DrainingServer(config, service, spec.grace, spare, started=started, ending=ending, end_within=end_within)


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
