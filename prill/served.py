"""Sockets of servers, and local web sites, served from a thread inside a `with` block."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TextIO

from prill.errors import EnvironmentFailedError, PrillError, UsageError

if TYPE_CHECKING:
    from aiohttp import web


_START_TIMEOUT = 30.0


class LocalSite:
    """Base of local sites: `with Shop() as shop: shop.url`, or `async with`; can be reopened.

    `port` is the port of the first application; the others use the following ports. With 0, free
    ports are chosen. Raises UsageError for an invalid port, and EnvironmentFailedError if a port is
    in use.
    """

    _what: ClassVar[str]
    _ports: ClassVar[int] = 1

    def __init__(self, port: int) -> None:
        if not 0 <= port <= 65535 - self._ports:
            raise UsageError(f"port {port}: expected 0 or a number up to {65535 - self._ports}")
        self._port = port
        self._addresses: tuple[str, ...] = ()
        self._thread: threading.Thread | None = None
        self._end: Callable[[], object] | None = None

    @property
    def url(self) -> str:
        """Returns the address of the first page, without a trailing slash."""
        return self._address(0)

    @property
    def environ(self) -> dict[str, str]:
        """Returns the environment variables that clients of the site read."""
        raise NotImplementedError

    @property
    def shell_lines(self) -> Sequence[str]:
        """Returns the lines that `serve` prints."""
        return [f"export {name}={value}" for name, value in self.environ.items()]

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise UsageError(f"this {self._what} is already open")
        failed: list[OSError] = []
        started = threading.Event()
        name = f"prill-{self._what}"
        self._thread = threading.Thread(
            target=self._run, args=(started, failed), name=name, daemon=True
        )
        self._thread.start()
        if not started.wait(_START_TIMEOUT) or failed:
            self.close()
            raise EnvironmentFailedError(
                f"the {self._what} does not start: {failed[0] if failed else 'no response'}"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Stops the server; safe to call twice."""
        thread, self._thread = self._thread, None
        if self._end is not None:
            self._end()
        self._end, self._addresses = None, ()
        if thread is not None:
            thread.join(_START_TIMEOUT)

    def _applications(self) -> Sequence[web.Application]:
        """Returns the applications, one per port."""
        raise NotImplementedError

    def _address(self, index: int) -> str:
        if not self._addresses:
            raise UsageError(f"the {self._what} is not open; use it in a `with` block")
        return self._addresses[index]

    def _run(self, started: threading.Event, failed: list[OSError]) -> None:
        try:
            asyncio.run(self._serve(started))
        except OSError as error:
            failed.append(error)
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        from aiohttp import web

        runners = [
            web.AppRunner(each, access_log=None, shutdown_timeout=0.1)
            for each in self._applications()
        ]
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        try:
            addresses = []
            for number, runner in enumerate(runners):
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", self._port and self._port + number).start()
                addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
            self._addresses = tuple(addresses)
            self._end = lambda: loop.call_soon_threadsafe(end.set)
            started.set()
            await end.wait()
        finally:
            for runner in runners:
                await runner.cleanup()


def listen(host: str, port: int) -> socket.socket:
    """Binds a socket, and listens there: a client that connects before the server runs waits.

    `port` 0: any free port. Raises UsageError if the port cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(4096)
    except (OSError, OverflowError) as error:
        listening.close()
        raise UsageError(
            f"port {port} cannot be used at {host} ({error}); use port 0 for any free one",
            parameters=("port",),
        ) from None
    return listening


def serve(make: Callable[[], LocalSite], output: TextIO, errors: TextIO) -> int:
    """Serves a site until the process is interrupted, and prints what a shell may `eval`.

    Args:
        make: Creates the site.
        output: The stream for the shell lines.
        errors: The stream for the error message if the site does not start.

    Returns:
        The exit code: 0, or 2 if the site does not start.
    """
    signals = {signal.SIGINT, signal.SIGTERM}
    # Block the signals before the thread starts, which inherits the mask, so that only sigwait
    # receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with make() as served:
            output.write("".join(f"{line}\n" for line in served.shell_lines))
            output.flush()
            signal.sigwait(signals)
    except PrillError as error:
        errors.write(f"error: {error}\n")
        return 2
    return 0
