"""The console of an emulator: the port for `adb emu` and telnet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from prill.errors import UsageError
from tests.support.android.wire import Serve

WELCOME = (
    b"Android Console: Authentication required\r\nAndroid Console: type 'auth <auth_token>' "
    b"to authenticate\r\nOK\r\n"
)
# adb skips everything up to the second OK. Without a token file it sends no `auth`, and this
# console does not require it.
LET_IN = b"Android Console: type 'help' for a list of commands\r\nOK\r\n"
SNAPSHOT = "avd snapshot "
BLAND = ("help", "ping", "avd status", "auth ")


def console(
    avd: str, kill: Callable[[], None], snapshot: Callable[[str, str], Awaitable[None]]
) -> Serve:
    """Serves one console connection. `kill` is called after the command of that name was answered.

    `snapshot` gets "save" or "load" and a name, and raises UsageError on failure.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WELCOME)
        line = (await reader.readline()).decode(errors="replace").strip()
        writer.write(LET_IN)
        if line.startswith("auth "):
            line = (await reader.readline()).decode(errors="replace").strip()
        while line and line != "quit":
            if line == "kill":
                writer.write(b"OK: killing emulator, bye bye\r\n")
                await writer.drain()
                return kill()
            if line == "avd name":
                writer.write(f"{avd}\r\nOK\r\n".encode())
            elif line.startswith(SNAPSHOT):
                what, _, name = line.removeprefix(SNAPSHOT).partition(" ")
                try:
                    await snapshot(what, name)
                    writer.write(b"OK\r\n")
                except UsageError as error:
                    writer.write(f"KO: {error}\r\n".encode())
            else:
                writer.write(b"OK\r\n" if line.startswith(BLAND) else b"KO: unknown command\r\n")
            await writer.drain()
            line = (await reader.readline()).decode(errors="replace").strip()

    return serve
