"""The service's connections: none is held for ever, and the first signal lets nobody in any more."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from prill.service.app import Service
from prill.service.guard import Guard, problem

_HEAD_SECONDS = 20.0  # that a client may take to send the first lines of a request
SEND_SECONDS = 30  # that a client may take to read the rest of its answer when its connection is to end
_FORCED_SECONDS = 2.0  # from a second signal to the end


class ImpatientProtocol(H11Protocol):
    """A connection that has to begin a request in time, and to be read from: otherwise half a line a minute would hold
    it for ever, and an answer that nobody reads the end of the service.

    What uvicorn itself would refuse in plain words, too many connections and what is no HTTP, is refused as all else is.
    """

    _ending: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, guard: Guard, max_connections: int, **more: Any) -> None:
        super().__init__(*args, **more)
        self._guard, self._max_connections = guard, max_connections

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        is_crowded = len(self.connections) >= self._max_connections
        self.app = self._guard.crowded if is_crowded else self._guard
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
        self._ending = self.loop.call_later(SEND_SECONDS, self.transport.abort)

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


class DrainingServer(uvicorn.Server):
    """A server whose first signal lets nobody in any more, and whose second ends it at once."""

    _drain: asyncio.Task[None] | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        grace: float,
        spare: float,
        *,
        started: Callable[[], None],
        ending: Callable[[], None],
        end_within: Callable[[float], None],
    ) -> None:
        super().__init__(config)
        self._service, self._grace, self._spare = service, grace, spare
        self._started, self._announce_end, self._end_within = started, ending, end_within

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()  # not sooner: who reads the address may send a signal at once, and uvicorn listens to them only now

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._service.admission.closed:
            self.should_exit = self.force_exit = True
            self._end_within(_FORCED_SECONDS)
        else:
            self._service.admission.close()
            self._end_within(0.95 * self._grace)
            asyncio.get_running_loop().call_soon_threadsafe(self._begin)  # it may be early: the server is still starting

    def _begin(self) -> None:
        self._drain = asyncio.create_task(self._service.drain(self._grace - self._spare))
        self._drain.add_done_callback(self._drained)
        self._announce_end()  # last: its words may have nowhere to go, where a terminal was closed say

    def _drained(self, task: asyncio.Task[None]) -> None:
        self.should_exit = True


def without_words(record: logging.LogRecord) -> bool:
    """An error that nobody caught is logged as where it happened: its message may quote what a client sent."""
    if record.exc_info and record.exc_info[0] is not None:
        kind, _, places = record.exc_info
        record.msg = f"{record.getMessage().strip()}: {kind.__name__}\n{''.join(traceback.format_tb(places))}"
        record.args, record.exc_info, record.exc_text = (), None, None
    return True
