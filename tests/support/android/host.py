"""Runs the fake adb server, its phones and its control port in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from prill.errors import EnvironmentFailedError, UsageError
from tests.support.android.adb_server import AdbServer
from tests.support.android.console import console
from tests.support.android.phone import Fault, Phone, known_fault
from tests.support.android.wire import (
    Listener,
    Request,
    end_of,
    first_of,
    read_request,
    until,
    write_response,
)


class Control:
    """The control port: reads state and sets faults from outside, and lets the fake `emulator`
    program add its phone.

    GET /state; POST /reset[/SERIAL], /fault/KIND[/SERIAL], /save/SNAPSHOT[/SERIAL],
    /load/SNAPSHOT[/SERIAL]; and POST /attach/SERIAL, whose connection holds the phone.
    """

    def __init__(self, adb: FakeAdb) -> None:
        self.adb = adb

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
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
            await write_response(
                writer, 200, {"down": self.adb.server.down, "phones": self._state()}
            )

    def _do(self, method: str, what: str, first: str, second: str) -> None:
        if (method, what) == ("POST", "reset"):
            self.adb.reset(first)
        elif (method, what) == ("POST", "fault"):
            self.adb.fault(first, second)
        elif method == "POST" and what in ("save", "load"):
            self.adb.snapshot(what, unquote(first), second)
        elif (method, what) != ("GET", "state"):
            usage = (
                "GET /state, POST /reset, /fault/KIND, /save/SNAPSHOT, /load/SNAPSHOT, "
                "/attach/SERIAL"
            )
            raise UsageError(f"{method} /{what} is not known: {usage}")

    def _state(self) -> dict[str, object]:
        return {phone.serial: phone.summary() for phone in self.adb.phones}

    async def _attached(
        self,
        request: Request,
        serial: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Keeps a phone while the emulator program holds this connection. The phone disappears with
        the connection.
        """
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
            await first_of(
                end_of(reader), until(lambda: adb.server.phones.get(serial) is not phone)
            )
        finally:
            adb.server.remove(serial)


SERIAL_START = "emulator-"


class FakeAdb:
    """Fake phones for the real adb: `with FakeAdb(("emulator-5554",)) as adb:` … `adb -P {adb.port}
    devices`.

    Args:
        serials: The phones' serial numbers.
        port: The server's port. 0: a free one.
        control_port: The port of the control address. 0: a free one.
        size: Width and height of the screens, in pixels.
        frames: How many moving screenshots follow each change of page.
        adb_keyboard: Install the ADB keyboard.
        start_fault: The fault of phones that the fake `emulator` program adds.
        consoles: Each phone also answers `adb emu`, on the port in its serial number.
    """

    def __init__(
        self,
        serials: Sequence[str] = ("emulator-5554",),
        *,
        port: int = 0,
        control_port: int = 0,
        size: tuple[int, int] = (720, 1600),
        frames: int = 2,
        adb_keyboard: bool = False,
        start_fault: Fault = "none",
        consoles: bool = False,
    ) -> None:
        self.server = AdbServer()
        self.start_fault: Fault = known_fault(start_fault)
        self.size, self.frames, self.adb_keyboard = size, frames, adb_keyboard
        self.port, self.control_port = port, control_port
        self._consoles = consoles
        self._thread: threading.Thread | None = None
        self._end: Callable[[], None] = lambda: None
        for serial in serials:
            self.make(serial)

    @property
    def control_url(self) -> str:
        """The URL of the control port: GET /state, POST /reset, /fault/KIND, /save/SNAPSHOT,
        /load/SNAPSHOT and /attach/SERIAL.
        """
        return f"http://127.0.0.1:{self.control_port}"

    @property
    def phones(self) -> tuple[Phone, ...]:
        """All current phones, including lost ones."""
        return tuple(self.server.phones.values())

    def phone(self, serial: str = "") -> Phone:
        """Returns a phone.

        Args:
            serial: Its serial number. Empty: the first one.

        Returns:
            The phone.

        Raises:
            UsageError: There is no such phone.
        """
        for phone in self.phones:
            if serial in ("", phone.serial):
                return phone
        raise UsageError(
            f"no fake phone is called {serial!r}; there are: "
            f"{', '.join(self.server.phones) or 'none'}"
        )

    def make(
        self,
        serial: str,
        *,
        size: tuple[int, int] | None = None,
        userdata: Path | None = None,
        read_only: bool = False,
        avd: str = "",
        fault: Fault = "none",
    ) -> Phone:
        """Adds a phone, which is listed at once.

        Args:
            serial: Its serial number.
            size: Width and height of the screen, in pixels. None: that of the others.
            userdata: The file that its state is kept in. None: the state ends with the phone.
            read_only: Its state cannot be written.
            avd: The name of its AVD.
            fault: Its fault.

        Returns:
            The phone.

        Raises:
            UsageError: The serial number is taken or not valid.
        """
        if not (serial.startswith(SERIAL_START) and serial.removeprefix(SERIAL_START).isdecimal()):
            raise UsageError(f"{serial!r} is no serial of an emulator: give one like emulator-5554")
        if serial in self.server.phones:
            raise UsageError(f"there is already a phone called {serial}")
        phone = Phone(
            serial,
            size or self.size,
            self.frames,
            fault,
            userdata,
            read_only,
            avd,
            adb_keyboard=self.adb_keyboard,
        )
        self.server.phones[serial] = phone
        return phone

    def fault(self, kind: str, serial: str = "") -> None:
        """Sets the fault of one phone or of all.

        Args:
            kind: The fault. `adb-down` is one of the server: it drops every connection until
                `none`.
            serial: The phone. Empty: all.
        """
        if kind == "adb-down":
            self.server.down = True
            return
        fault = known_fault(kind)
        self.server.down = False
        for phone in self.phones if not serial else (self.phone(serial),):
            phone.fault = fault

    def snapshot(self, what: str, name: str, serial: str = "") -> None:
        """Saves or restores the state of one phone, or of all.

        Args:
            what: `save` or `load`.
            name: The snapshot's name.
            serial: The phone. Empty: all.

        Raises:
            UsageError: There is no such phone or snapshot.
        """
        if what not in ("save", "load") or not name:
            raise UsageError(f"a snapshot is saved or loaded by its name, not {what!r} {name!r}")
        for phone in self.phones if not serial else (self.phone(serial),):
            phone.save(name) if what == "save" else phone.load(name)

    def reset(self, serial: str = "") -> None:
        """Resets phones to their factory state, without faults.

        Args:
            serial: The phone. Empty: all.
        """
        self.server.down = False
        for phone in self.phones if not serial else (self.phone(serial),):
            phone.reset()

    def __enter__(self) -> Self:
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="prill-fake-adb", daemon=True
        )
        self._thread.start()
        ready.result(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server and all its connections. It may be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end()
            thread.join(30)
            if thread.is_alive():
                raise EnvironmentFailedError("the fake adb server did not end")

    async def _snapshot(self, serial: str, what: str, name: str) -> None:
        self.snapshot(what, name, serial)

    async def _serve(self, ready: Future[None]) -> None:
        listeners: list[Listener] = []
        try:
            try:
                listeners.append(await Listener(self.server.serve).open(self.port))
                listeners.append(await Listener(Control(self).serve).open(self.control_port))
                for phone in self.phones if self._consoles else ():
                    serve = console(
                        phone.avd,
                        partial(self.server.remove, phone.serial),
                        partial(self._snapshot, phone.serial),
                    )
                    listeners.append(
                        await Listener(serve).open(int(phone.serial.removeprefix(SERIAL_START)))
                    )
            except OSError as error:
                ready.set_exception(
                    EnvironmentFailedError(f"the fake adb server does not start: {error}")
                )
                return
            self.port, self.control_port = listeners[0].port, listeners[1].port
            loop, ended = asyncio.get_running_loop(), asyncio.Event()

            def end() -> None:
                loop.call_soon_threadsafe(ended.set)

            self._end = end
            ready.set_result(None)
            await ended.wait()
        finally:
            for listener in (*listeners, *self.server.listeners()):
                await listener.close()
