"""The adb server: its phones, and the ports that lead to them."""

from __future__ import annotations

import asyncio

from prill.fakes.android import uia2
from prill.fakes.android.adb_connection import Connection, Refused
from prill.fakes.android.phone import Phone
from prill.fakes.android.wire import Listener, first_of, until


class AdbServer:
    """Several phones under one server. While `down` is true it drops every connection."""

    def __init__(self) -> None:
        self.phones: dict[str, Phone] = {}
        self.down = False
        self.forwards: dict[int, tuple[str, int, Listener]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        if not self.down:
            await first_of(Connection(self, reader, writer).serve(), until(lambda: self.down))

    def phone(self, serial: str = "") -> Phone:
        """The phone with this serial; without one the only phone there is. Raises Refused."""
        listed = [phone for phone in tuple(self.phones.values()) if phone.state]
        if serial:
            listed = [phone for phone in listed if phone.serial == serial]
        if not listed:
            raise Refused(f"device '{serial}' not found" if serial else "no devices/emulators found")
        if len(listed) > 1:
            raise Refused("more than one device/emulator")
        if listed[0].state == "offline":
            raise Refused("device offline")
        return listed[0]

    async def forward(self, serial: str, local: int, remote: int) -> int:
        """Opens the port that leads to a port of the phone, and gives its number. Raises Refused."""
        await self.unforward(local)

        async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            phone = self.phones.get(serial)
            if phone is not None and remote == uia2.DEVICE_PORT:
                await uia2.serve(phone, reader, writer)

        try:
            listener = await Listener(through).open(local)
        except OSError as error:
            raise Refused(f"cannot bind listener: {error.strerror}") from None
        self.forwards[listener.port] = (serial, remote, listener)
        return listener.port

    async def unforward(self, local: int) -> bool:
        """Closes a forwarded port; false when there is none."""
        known = self.forwards.pop(local, None)
        if known is not None:
            await known[2].close()
        return known is not None

    def remove(self, serial: str) -> None:
        """The phone is gone; a port that led to it leads nowhere."""
        phone = self.phones.pop(serial, None)
        if phone is not None:
            phone.fault = "lost"

    def listeners(self) -> list[Listener]:
        """Those of forwarded ports."""
        return [listener for _, _, listener in self.forwards.values()]
