"""The control port: state and faults from outside, and the door through which the fake `emulator` program adds its phone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from prill.errors import UsageError
from prill.fakes.android.wire import Request, end_of, first_of, read_request, until, write_response

if TYPE_CHECKING:
    from prill.fakes.android.host import FakeAdb


class Control:
    """GET /state; POST /reset[/SERIAL], /fault/KIND[/SERIAL], /save/SNAPSHOT[/SERIAL], /load/SNAPSHOT[/SERIAL]; and
    POST /attach/SERIAL, whose connection holds the phone.
    """

    def __init__(self, adb: FakeAdb) -> None:
        self.adb = adb

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        while True:
            request = await read_request(reader)
            parts = [*request.path.partition("?")[0].strip("/").split("/"), "", ""][:3]
            try:
                if (request.method, parts[0]) == ("POST", "attach"):
                    return await self._attached(request, parts[1], reader, writer)
                self._do(request.method, *parts)
            except UsageError as error:
                await write_response(writer, 400, {"error": str(error)})
                continue
            await write_response(writer, 200, {"down": self.adb.server.down, "phones": self._state()})

    def _do(self, method: str, what: str, first: str, second: str) -> None:
        if (method, what) == ("POST", "reset"):
            self.adb.reset(first)
        elif (method, what) == ("POST", "fault"):
            self.adb.fault(first, second)
        elif method == "POST" and what in ("save", "load"):
            self.adb.snapshot(what, unquote(first), second)
        elif (method, what) != ("GET", "state"):
            known = "GET /state, POST /reset, /fault/KIND, /save/SNAPSHOT, /load/SNAPSHOT, /attach/SERIAL"
            raise UsageError(f"{method} /{what} is not known: {known}")

    def _state(self) -> dict[str, object]:
        return {phone.serial: phone.summary() for phone in self.adb.phones}

    async def _attached(
        self, request: Request, serial: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Holds a phone for as long as the emulator program holds this connection: however it ends, its phone goes too."""
        body, adb = request.body, self.adb
        size = body.get("size")
        phone = adb.make(
            serial,
            size=(int(size[0]), int(size[1])) if isinstance(size, list) else None,
            userdata=Path(str(body["userdata"])),
            read_only=bool(body.get("read_only")),
            avd=str(body.get("avd", "")),
            fault=adb.start_fault,
        )
        try:
            await write_response(writer, 200, {"serial": serial})
            await first_of(end_of(reader), until(lambda: adb.server.phones.get(serial) is not phone))
        finally:
            adb.server.remove(serial)
