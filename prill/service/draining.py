"""A uvicorn server with idle-connection limits that drains on the first signal.

Only `prill.service.server` imports this module, because uvicorn is installed with the extra
`serve`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from prill.service.app import Service
from prill.service.guard import problem
from prill.service.last_resort import LastResort
from prill.service.spec import ServiceSpec

_HEAD_SECONDS = 20.0  # in which a client must send the request line and headers
# longer than the connection pools of trainers' clients keep a connection, so that none is closed
# during a request
_KEEP_ALIVE = 75
# in which a client must read the rest of its response when its connection is closing
_SEND_SECONDS = 30
_FORCED_SECONDS = 2.0  # from a second signal to the exit
_SPARE = 256  # connections beyond those of requests: for probes, metrics and the page


class BoundedConnection(H11Protocol):
    """A connection with time limits for sending a request and for reading the response.

    Without them, a slow sender could hold a connection forever, and an unread response could block
    shutdown.

    Uvicorn's own plain-text refusals (too many connections, malformed HTTP) become JSON errors like
    all others.
    """

    def __init__(self, *args: Any, service: Service, limit: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._service, self._limit = service, limit
        self._ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the timer for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Passes data to the service, or to the refusing application if there are too many
        connections.
        """
        self.app = (
            self._service.app if len(self.connections) < self._limit else self._service.app.crowded
        )
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Rejects malformed HTTP."""
        body = problem("http", "malformed HTTP request")
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for part in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timer."""
        super().connection_lost(exc)
        if self._ending is not None:
            self._ending.cancel()

    def on_response_complete(self) -> None:
        """Starts the timer for an unread response after the response was sent."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_unread()

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that sent no further request."""
        super().timeout_keep_alive_handler()
        self._end_unread()

    def _end_unread(self) -> None:
        """Closes a connection whose client does not read the response; otherwise it would stay
        open.
        """
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
        # between two requests, where a separate limit applies
        idle = self.timeout_keep_alive_task is not None
        if not idle and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


class DrainingServer(uvicorn.Server):
    """A server that stops accepting requests at the first signal and exits at the second."""

    def __init__(
        self,
        service: Service,
        spec: ServiceSpec,
        ending: Callable[[], None],
        started: Callable[[], None],
        last: LastResort | None,
    ) -> None:
        # The part of the grace period that is reserved for closing unread connections and then
        # ending the process.
        spare = min(_SEND_SECONDS, spec.grace / 4)
        super().__init__(_settings(service, spec, spare))
        self._service, self._ending, self._begun, self._last = service, ending, started, last
        self._forced_after, self._drain_seconds = 0.95 * spec.grace, spec.grace - spare
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen, and announces the address."""
        await super().startup(sockets)
        # Announce the address only now: a caller may send a signal at once, and uvicorn handles
        # signals from here on.
        self._begun()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal to shut down."""
        if self._service.admission.closed:
            self.should_exit = self.force_exit = True
            if self._last is not None:
                self._last.exit_after(_FORCED_SECONDS)
        else:
            self._service.admission.close()
            if self._last is not None:
                self._last.exit_after(self._forced_after)
            # the signal may arrive while the server is still starting
            asyncio.get_running_loop().call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._drain = asyncio.create_task(self._service.drain(self._drain_seconds))
        self._drain.add_done_callback(self._drained)
        self._ending()  # last: writing the message may fail, for example if the terminal was closed

    def _drained(self, task: asyncio.Task[None]) -> None:
        self.should_exit = True


def _settings(service: Service, spec: ServiceSpec, spare: float) -> uvicorn.Config:
    connection = partial(
        BoundedConnection, service=service, limit=spec.max_active + spec.max_waiting + _SPARE
    )
    return uvicorn.Config(
        service.app,
        http=connection,  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        access_log=False,  # its lines would contain the request URLs, including keys
        server_header=False,
        backlog=4096,
        timeout_keep_alive=_KEEP_ALIVE,
        # after all responses: for clients that do not read them
        timeout_graceful_shutdown=max(1, int(spare / 2)),
    )
