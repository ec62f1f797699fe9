"""A uvicorn server with idle-connection limits that drains on the first signal.

Only `prill.service.server` imports it, since uvicorn comes with the extra `serve`.
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

_HEAD_SECONDS = 20.0  # that a client may take to send the first lines of a request
# longer than the pools of the trainers' clients keep a connection, so that none is closed under a
# request
_KEEP_ALIVE = 75
# that a client may take to read the rest of its answer when its connection is to end
_SEND_SECONDS = 30
_FORCED_SECONDS = 2.0  # from a second signal to the end
_SPARE = 256  # connections beyond those that requests may wait on: for probes, metrics and the page


class BoundedConnection(H11Protocol):
    """A connection that has to begin a request in time, and to be read from: otherwise half a line
    a minute would hold it for ever, and an answer that nobody reads the end of the service.

    What uvicorn itself would refuse in plain words, too many connections and what is no HTTP, is
    refused as all else is.
    """

    def __init__(self, *args: Any, service: Service, limit: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._service, self._limit = service, limit
        self._ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """It has to send a request in time."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Hands what came to the service, or to what refuses where there are too many
        connections.
        """
        self.app = (
            self._service.app if len(self.connections) < self._limit else self._service.app.crowded
        )
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no HTTP."""
        body = problem("http", "this is no HTTP request that can be read")
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
        """Nothing is left to be waited for."""
        super().connection_lost(exc)
        if self._ending is not None:
            self._ending.cancel()

    def on_response_complete(self) -> None:
        """The answer is sent, as far as the client reads it."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_unread()

    def timeout_keep_alive_handler(self) -> None:
        """No other request came."""
        super().timeout_keep_alive_handler()
        self._end_unread()

    def _end_unread(self) -> None:
        """A closed connection waits for what its client has not read, for ever where it never
        does.
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
        # between two requests: that has a limit of its own
        idle = self.timeout_keep_alive_task is not None
        if not idle and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


class DrainingServer(uvicorn.Server):
    """A server whose first signal lets nobody in any more, and whose second ends it at once."""

    def __init__(
        self,
        service: Service,
        spec: ServiceSpec,
        ending: Callable[[], None],
        started: Callable[[], None],
        last: LastResort | None,
    ) -> None:
        # Of the grace period, what is left to end connections that nobody reads from, and then the
        # process.
        spare = min(_SEND_SECONDS, spec.grace / 4)
        super().__init__(_settings(service, spec, spare))
        self._service, self._ending, self._begun, self._last = service, ending, started, last
        self._forced_after, self._drain_seconds = 0.95 * spec.grace, spec.grace - spare
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen, and says so."""
        await super().startup(sockets)
        # not sooner: who reads the address may send a signal at once, and uvicorn listens to them
        # only now
        self._begun()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to end."""
        if self._service.admission.closed:
            self.should_exit = self.force_exit = True
            if self._last is not None:
                self._last.end_within(_FORCED_SECONDS)
        else:
            self._service.admission.close()
            if self._last is not None:
                self._last.end_within(self._forced_after)
            # it may be early: the server is still starting
            asyncio.get_running_loop().call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._drain = asyncio.create_task(self._service.drain(self._drain_seconds))
        self._drain.add_done_callback(self._drained)
        self._ending()  # last: its words may have nowhere to go, where a terminal was closed say

    def _drained(self, task: asyncio.Task[None]) -> None:
        self.should_exit = True


def _settings(service: Service, spec: ServiceSpec, spare: float) -> uvicorn.Config:
    connection = partial(BoundedConnection, service=service, limit=spec.queue + spec.door + _SPARE)
    return uvicorn.Config(
        service.app,
        http=connection,  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        access_log=False,  # its lines would show the addresses as they came, keys included
        server_header=False,
        backlog=4096,
        timeout_keep_alive=_KEEP_ALIVE,
        # from when all is answered: for clients that do not read it
        timeout_graceful_shutdown=max(1, int(spare / 2)),
    )
