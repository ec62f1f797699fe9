"""How this program's own processes talk: over a pair of sockets that nobody else has, in frames of eight bytes of length and
the bytes of a message."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable
from typing import Any, BinaryIO

_LENGTH = 8


def pickled(message: object) -> bytes:
    """The frame of a message, pickled. Raises what pickle raises."""
    return _framed(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def wait_for_pickle(end: BinaryIO) -> Any:
    """The next message, for a process or a thread that waits; None when the other end is gone."""
    try:
        length = int.from_bytes(end.read(_LENGTH))
        data = end.read(length)
    except (ConnectionError, ValueError):  # it was closed here meanwhile
        return None
    return pickle.loads(data) if length and len(data) == length else None


class Line(asyncio.Protocol):
    """One end, in an event loop. `take` gets the bytes of each message, and `lost` is called when the line is closed.

    Messages of one turn of the loop leave in one write, since each write wakes the other end.
    """

    def __init__(self, take: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._take, self._lost = take, lost
        self._transport: asyncio.WriteTransport | None = None
        self._rest = bytearray()
        self._frames: list[bytes] = []

    async def open(self, end: socket.socket) -> None:
        """Begins, over a connected socket, which is the line's from then on."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=end)

    def send(self, data: bytes) -> None:
        """Puts a message into the next write."""
        if not self._frames:
            asyncio.get_running_loop().call_soon(self._flush)
        self._frames.append(_framed(data))

    def close(self) -> None:
        """Closes this end, once what was sent is on its way."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        rest, start = self._rest, 0
        rest += data
        while len(rest) >= (begin := start + _LENGTH):
            if len(rest) < (end := begin + int.from_bytes(rest[start:begin])):
                break
            self._take(bytes(rest[begin:end]))
            start = end
        del rest[:start]

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio."""
        self._lost()

    def _flush(self) -> None:
        if self._frames and self._transport is not None:
            self._transport.write(b"".join(self._frames))
        self._frames.clear()


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH) + data
