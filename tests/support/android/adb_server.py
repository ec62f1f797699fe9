"""A fake adb server: its phones, the ports forwarded to them, and the protocol of the adb binary
and compatible clients.
"""

from __future__ import annotations

import asyncio
import re
import struct

from tests.support.android import uia2
from tests.support.android.phone import Phone
from tests.support.android.shell import run
from tests.support.android.wire import HangupError, Listener, end_of, first_of, until

# protocol version: adb 1.0.41, unchanged since 2018; a client with another version stops the server
VERSION = b"0029"
REGULAR, CHUNK = 0o100644, 65536  # file transfer: the mode of a file, and the chunk size in bytes
_SERIAL = re.compile(
    r"host-serial:([\w.:-]+?):(features|get-|forward|killforward|list-forward|wait-for)"
)


class ServerRefusalError(Exception):
    """Raised for a request that the server answers with FAIL."""


class Connection:
    """A client's connection: requests to the server, or to a phone after the switch to it."""

    def __init__(
        self, server: AdbServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.target: Phone | None = None

    async def serve(self) -> None:
        """Handles requests until the connection ends."""
        more = True
        while more:
            request = (
                await self.reader.readexactly(int(await self.reader.readexactly(4), 16))
            ).decode()
            try:
                more = await (
                    self._host(request) if request.startswith("host") else self._service(request)
                )
            except ServerRefusalError as refusal:
                message = str(refusal).encode()
                await self._send(b"FAIL%04x%b" % (len(message), message))
                more = False

    async def _send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def _okay(self, data: bytes | None = None) -> None:
        await self._send(b"OKAY" + (b"" if data is None else b"%04x%b" % (len(data), data)))

    async def _host(self, request: str) -> bool:
        """Handles a request to the server. Returns True if a request to the phone follows."""
        match = _SERIAL.match(request)
        serial = match[1] if match else self.target.serial if self.target else ""
        what = (
            request[match.start(2) :]
            if match
            else re.sub(r"^host(-local|-usb|-any|-transport-id:\d+)?:", "", request)
        )
        kind, _, rest = what.partition(":")
        if what.startswith("tport:") or kind.startswith("transport"):
            name = (
                rest.partition(":")[2]
                if what.startswith("tport:serial")
                else rest
                if kind == "transport"
                else ""
            )
            self.target = self.server.phone(name)
            await self._send(b"OKAY" + (struct.pack("<Q", 1) if kind == "tport" else b""))
            return True
        if kind == "version":
            await self._okay(VERSION)
        elif kind == "kill":
            await self._okay()  # acknowledged but ignored: the test that started the fake ends it
        elif kind in ("devices", "devices-l"):
            await self._okay(self._list(long=kind == "devices-l"))
        elif kind == "track-devices":
            await self._track()
        elif kind in ("features", "host-features"):
            await self._okay(b"shell_v2,cmd")
        elif kind == "get-state":
            await self._okay(self.server.phone(serial).state.encode())
        elif kind == "get-serialno":
            await self._okay(self.server.phone(serial).serial.encode())
        elif kind.startswith("wait-for"):
            await self._okay()
            await first_of(until(lambda: self._waited(serial, kind)), end_of(self.reader))
            await self._okay()
        elif kind in ("forward", "killforward", "killforward-all", "list-forward"):
            await self._forwarding(serial, kind, rest)
        else:
            raise ServerRefusalError(f"unknown host service '{request}'")
        return False

    def _list(self, *, long: bool = False) -> bytes:
        more = "product:fake model:Fake_Phone device:fake transport_id:1"
        listed = [phone for phone in tuple(self.server.phones.values()) if phone.state]
        return "".join(
            f"{phone.serial:22} {phone.state} {more}\n"
            if long
            else f"{phone.serial}\t{phone.state}\n"
            for phone in listed
        ).encode()

    async def _track(self) -> None:
        await self._okay()
        while True:
            phones = self._list()
            await self._send(b"%04x%b" % (len(phones), phones))
            await first_of(until(lambda phones=phones: self._list() != phones), end_of(self.reader))  # type: ignore[misc]

    def _waited(self, serial: str, kind: str) -> bool:
        try:
            self.server.phone(serial)
        except ServerRefusalError:
            return kind.endswith("disconnect")
        return not kind.endswith("disconnect")

    async def _forwarding(self, serial: str, kind: str, rest: str) -> None:
        if kind == "list-forward":
            lines = [
                f"{owner} tcp:{local} tcp:{remote}\n"
                for local, (owner, remote, _) in self.server.forwards.items()
            ]
            return await self._okay("".join(lines).encode())
        phone = self.server.phone(serial)
        ports = [int(port) for port in re.findall(r"tcp:(\d+)", rest)]
        await self._okay()
        port_text: bytes | None = None
        if kind == "forward":
            local = await self.server.forward(phone.serial, ports[0], ports[1])
            port_text = str(local).encode() if ports[0] == 0 else None
        elif kind == "killforward-all":
            for local in list(self.server.forwards):
                await self.server.unforward(local)
        elif not await self.server.unforward(ports[0]):
            raise ServerRefusalError(f"listener 'tcp:{ports[0]}' not found")
        await self._okay(port_text)

    async def _service(self, request: str) -> bool:
        """Handles a request to the phone that the connection was switched to."""
        phone = self.target
        if phone is None:
            raise ServerRefusalError("closed")
        kind, _, rest = request.partition(":")
        install = re.search(r"-S\W+(\d+)", rest)
        if kind == "sync":
            await self._okay()
            await serve_files(phone.files, self.reader, self.writer)
        elif kind in ("exec", "abb_exec") and install:
            await self._okay()
            await self.reader.readexactly(int(install[1]))
            await self._send(b"Success\n")
        elif kind.partition(",")[0] in ("shell", "exec"):
            await self._okay()
            work = self._shell(phone, rest, packets=",v2" in kind)
            await first_of(work, end_of(self.reader), until(lambda: phone.state != "device"))
        else:
            raise ServerRefusalError("closed")
        return False

    async def _shell(self, phone: Phone, line: str, *, packets: bool) -> None:
        if "logcat" in line:
            await self._output(1, b"--------- beginning of main\n", packets)
        answer = await run(phone, line)
        await self._output(1, answer.out, packets)
        await self._output(2, answer.err, packets)
        if packets:
            await self._send(struct.pack("<BIB", 3, 1, answer.code))
        if phone.state != "device":
            raise HangupError

    async def _output(self, stream: int, data: bytes, packets: bool) -> None:
        """Writes output. Stream 1 is standard output, 2 standard error; only packets distinguish
        them.
        """
        if not packets:
            await self._send(data)
            return
        for start in range(0, len(data), 32768):
            part = data[start : start + 32768]
            await self._send(struct.pack("<BI", stream, len(part)) + part)


class AdbServer:
    """A server with several phones. While `down` is true it drops every connection."""

    def __init__(self) -> None:
        self.phones: dict[str, Phone] = {}
        self.down = False
        self.forwards: dict[int, tuple[str, int, Listener]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        if not self.down:
            await first_of(Connection(self, reader, writer).serve(), until(lambda: self.down))

    def phone(self, serial: str = "") -> Phone:
        """Returns the phone with this serial. Without a serial, returns the only phone. Raises
        ServerRefusalError.
        """
        listed = [phone for phone in tuple(self.phones.values()) if phone.state]
        if serial:
            listed = [phone for phone in listed if phone.serial == serial]
        if not listed:
            raise ServerRefusalError(
                f"device '{serial}' not found" if serial else "no devices/emulators found"
            )
        if len(listed) > 1:
            raise ServerRefusalError("more than one device/emulator")
        if listed[0].state == "offline":
            raise ServerRefusalError("device offline")
        return listed[0]

    async def forward(self, serial: str, local: int, remote: int) -> int:
        """Forwards a local port to a port of the phone and returns its number. Raises
        ServerRefusalError.
        """
        await self.unforward(local)

        async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            phone = self.phones.get(serial)
            if phone is not None and remote == uia2.DEVICE_PORT:
                await uia2.serve(phone, reader, writer)

        try:
            listener = await Listener(through).open(local)
        except OSError as error:
            raise ServerRefusalError(f"cannot bind listener: {error.strerror}") from None
        self.forwards[listener.port] = (serial, remote, listener)
        return listener.port

    async def unforward(self, local: int) -> bool:
        """Closes a forwarded port. Returns False if there is none."""
        forward = self.forwards.pop(local, None)
        if forward is not None:
            await forward[2].close()
        return forward is not None

    def remove(self, serial: str) -> None:
        """Removes a phone. Ports forwarded to it stay open but lead nowhere."""
        phone = self.phones.pop(serial, None)
        if phone is not None:
            phone.fault = "lost"

    def listeners(self) -> list[Listener]:
        """Returns the listeners of forwarded ports."""
        return [listener for _, _, listener in self.forwards.values()]


# File transfer


async def serve_files(
    files: dict[str, bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Handles the requests of one sync connection (push, pull and stat on a phone's files) until it
    quits.
    """
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
                name = path.rpartition(",")[0]  # the rest is the file mode
            elif kind == b"STAT":
                stat = (REGULAR, len(files[path]), 0) if path in files else (0, 0, 0)
                writer.write(struct.pack("<4sIII", b"STAT", *stat))
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
