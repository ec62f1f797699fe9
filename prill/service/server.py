"""Runs the service: binds, announces the URL, and drains on exit."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import traceback
from collections.abc import Callable
from typing import Any

from prill.errors import MissingExtraError
from prill.logs import FOR_USERS
from prill.refine.rewards import Reward
from prill.served import listen
from prill.service.app import Service, make_service
from prill.service.last_resort import LastResort
from prill.service.spec import ServiceSpec

_log = logging.getLogger("prill.service")
_EXIT_SECONDS = 2.0  # from the last response to the exit


def log_address(url: str) -> None:
    """Logs the address of a service."""
    _log.info("serving on %s", url, extra=FOR_USERS)


def serve(
    reward: Reward,
    spec: ServiceSpec | None = None,
    *,
    concurrency: int | None = None,
    announce: Callable[[str], None] = log_address,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves a reward until SIGINT or SIGTERM.

    After the signal, new requests get 503, and the process exits once all others are answered.

    A second signal ends it at once.

    Args:
        reward: The reward.
        spec: The settings. None: the defaults.
        concurrency: The maximum number of concurrent judgements. None: the concurrency of the
            judge's model.
        announce: Called with the service's address, which holds no token.
        ending: Called when the shutdown begins.

    Raises:
        UsageError: The port is in use, or the settings are incomplete.
        MissingExtraError: The packages of the extra `serve` are not installed.
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
    announce: Callable[[str], None] = log_address,
    ending: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serves a reward in a running event loop until a signal arrives or `stop` is set.

    The process is never killed: judgements that ignore their cancellation are left running.

    Args:
        reward: The reward.
        spec: The settings. None: the defaults.
        concurrency: The maximum number of concurrent judgements. None: the concurrency of the
            judge's model.
        announce: Called with the service's address, which holds no token.
        ending: Called when the shutdown begins.
        stop: An event; setting it starts the shutdown.

    Raises:
        UsageError: The port is in use, or the settings are incomplete.
        MissingExtraError: The packages of the extra `serve` are not installed.
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
    if last is not None:  # in a dedicated process, modules loaded so far stay loaded
        gc.freeze()  # so that collections, which pause everything, scan only objects of requests
    with listen(spec.host, spec.port) as listening:
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
        # all requests are answered: only judgements that ignore their cancellation are left
        last.exit_after(_EXIT_SECONDS, 0)


def make_server(
    service: Service,
    spec: ServiceSpec,
    ending: Callable[[], None] = lambda: None,
    started: Callable[[], None] = lambda: None,
    last: LastResort | None = None,
) -> Any:
    """Makes the uvicorn server, which drains on the first signal.

    `started` is called when it runs and handles signals, and `last` ends the process if nothing
    else does. Raises MissingExtraError.
    """
    try:
        from prill.service.draining import DrainingServer
    except ImportError:
        raise MissingExtraError("uvicorn", "serve") from None
    logging.getLogger("uvicorn.error").addFilter(_redact)
    return DrainingServer(service, spec, ending, started, last)


def _redact(record: logging.LogRecord) -> bool:
    """Reduces the log record of an uncaught error to its location.

    The message may quote what a client sent.
    """
    if record.exc_info and record.exc_info[0] is not None:
        kind, _, places = record.exc_info
        record.msg = (
            f"{record.getMessage().strip()}: "
            f"{kind.__name__}\n{''.join(traceback.format_tb(places))}"
        )
        record.args, record.exc_info, record.exc_text = (), None, None
    return True
