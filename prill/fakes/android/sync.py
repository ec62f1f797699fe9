"""adb's file transfer: push, pull and stat on the files of one phone."""

from __future__ import annotations

import asyncio
import struct

REGULAR = 0o100644
CHUNK = 65536


async def serve(files: dict[str, bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The requests of one sync connection, until it quits."""
    name, content = "", b""
    while True:
        kind, size = struct.unpack("<4sI", await reader.readexactly(8))
        if kind == b"QUIT":
            return
        if kind == b"DATA":
            content += await reader.readexactly(size)
        elif kind == b"DONE":
            files[name], content = content, b""
            writer.write(struct.pack("<4sI", b"OKAY", 0))
        else:
            path = (await reader.readexactly(size)).decode()
            if kind == b"SEND":
                name = path.rpartition(",")[0]  # the rest is its mode
            elif kind == b"STAT":
                found = (REGULAR, len(files[path]), 0) if path in files else (0, 0, 0)
                writer.write(struct.pack("<4sIII", b"STAT", *found))
            elif kind == b"RECV" and path in files:
                data = files[path]
                for start in range(0, len(data), CHUNK):
                    part = data[start : start + CHUNK]
                    writer.write(struct.pack("<4sI", b"DATA", len(part)) + part)
                writer.write(struct.pack("<4sI", b"DONE", 0))
            else:
                message = b"No such file or directory"
                writer.write(struct.pack("<4sI", b"FAIL", len(message)) + message)
        await writer.drain()
