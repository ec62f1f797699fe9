"""Sockets for the fakes: listeners that clean up all connections, and the parts of HTTP that the
tools need.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Self

from tests.support.android.phone import PATIENCE

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]
GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class HangupError(Exception):
    """Raised by a handler to close the connection without an answer."""


class Listener:
    """A port of 127.0.0.1 and all its connections. Each is closed when `serve` returns."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self, port: int = 0) -> Self:
        """Starts to listen. Port 0 selects a free port. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def close(self) -> None:
        """Stops listening and ends every connection."""
        if self._server is not None:
            # Python 3.11 leaks a connection that was accepted but has no transport when its server
            # closes.
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            await _rounds()
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await _rounds()  # transports close their sockets in the next iteration of the event loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._one(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (*GONE, HangupError, OSError):
            writer.transport.abort()
        self._writers.discard(writer)


async def _rounds() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def first_of(*jobs: Coroutine[None, None, None]) -> None:
    """Runs the coroutines together until one is done, then cancels the rest. Raises the exception
    of the first one.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds."""
    while not condition():
        await asyncio.sleep(PATIENCE)


async def end_of(reader: asyncio.StreamReader) -> None:
    """Returns once the peer has closed the connection. Incoming data is dropped."""
    with contextlib.suppress(*GONE):
        while await reader.read(65536):
            pass


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `body` is its JSON object, empty if there is none."""

    method: str
    path: str
    body: dict[str, object]


Respond = Callable[[Request], Awaitable[tuple[int, object]]]


async def http(
    respond: Respond, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: Request
) -> None:
    """Answers all requests of the connection with a status and JSON each."""
    request = first
    while True:
        status, value = await respond(request)
        await write_response(writer, status, value)
        request = await read_request(reader)


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Reads the next request. Raises IncompleteReadError at the end of the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, *_ = head[0].split(" ")
    fields = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
    }
    body = await reader.readexactly(int(fields.get("content-length") or 0))
    content = json.loads(body) if body.strip() else {}
    return Request(method, path, content if isinstance(content, dict) else {})


async def write_response(writer: asyncio.StreamWriter, status: int, value: object) -> None:
    """Writes a response with a JSON body."""
    body = json.dumps(value).encode()
    head = (
        f"HTTP/1.1 {status} -\r\nContent-Type: application/json; "
        f"charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
