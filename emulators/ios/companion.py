"""Manages a running idb_companion and fb-idb's client to it, with timeouts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from prill.emulators.processes import kill
from prill.errors import EnvironmentFailedError, MissingExtraError

T = TypeVar("T")
# Seconds that a companion gets to end before it is killed.
PATIENCE = 2.0
_logger = logging.getLogger("prill.ios")


class CompanionError(EnvironmentFailedError):
    """A failed request. `sent`: it may have reached the phone; `answered`: it was refused."""

    def __init__(self, message: str, *, sent: bool = True, answered: bool = False) -> None:
        super().__init__(message)
        self.sent, self.answered = sent, answered


class Companion:
    """A companion of one simulator, on a socket in `folder`. `timeout` limits its start and each
    request, in seconds.

    `read` and `act` may restart it once. It is not registered in idb's own folder of companions.
    """

    def __init__(self, command: Sequence[str], udid: str, folder: Path, *, timeout: float) -> None:
        self.udid = udid
        self._command, self._folder, self._timeout = command, folder, timeout
        self._process: asyncio.subprocess.Process | None = None
        self._open = AsyncExitStack()
        self._client: Any = None
        self._started = 0

    @property
    def alive(self) -> bool:
        """Whether the companion is known to run."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Starts or restarts the companion. Raises EnvironmentFailedError."""
        try:
            from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
        except ImportError:
            raise MissingExtraError("fb-idb", "ios") from None
        await self.end()
        self._started += 1
        wanted = self._folder / f"{self._started}.sock"
        # The socket of an earlier episode may exist; idb guarantees neither to remove nor to reuse
        # it.
        wanted.unlink(missing_ok=True)
        # The companion ends with its simulator, so deleting a killed run's simulators is enough.
        options = (
            "--udid",
            self.udid,
            "--grpc-domain-sock",
            str(wanted),
            "--only",
            "simulator",
            "--terminate-offline",
            "1",
        )
        try:
            with self._log.open("wb") as complaints:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    *options,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=complaints,
                    start_new_session=True,
                )
            assert self._process.stdout is not None
            async with asyncio.timeout(self._timeout):
                path = json.loads(await self._process.stdout.readline())["grpc_path"]
                self._client = await _connected(path, self.udid, self._open)
        except TimeoutError:
            raise EnvironmentFailedError(
                f"idb_companion for {self.udid} was not ready within {self._timeout:g} s"
            ) from None
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            GRPCError,
            ProtocolError,
            StreamTerminatedError,
        ) as error:
            raise EnvironmentFailedError(
                f"idb_companion for {self.udid} did not start: {await self._cause(error)}"
            ) from error

    async def ask(self, what: str, request: Callable[[Any], Awaitable[T]]) -> T:
        """Calls a method of the client; `what` names it in messages. Raises CompanionError."""
        from grpclib.exceptions import GRPCError
        from idb.common.types import IdbConnectionException, IdbException

        try:
            async with asyncio.timeout(self._timeout):
                return await request(self._client)
        except TimeoutError:
            raise CompanionError(
                f"{what}: no response from the simulator within {self._timeout:g} s"
            ) from None
        except IdbException as error:
            if isinstance(error.__cause__, GRPCError):
                raise CompanionError(
                    f"{what}: the simulator says: {error}", answered=True
                ) from error
            raise CompanionError(f"{what}: {await self._cause(error)}") from error
        except IdbConnectionException as error:
            # Without a connection there was nothing to send on.
            unsent = isinstance(error.__context__, ConnectionRefusedError | FileNotFoundError)
            raise CompanionError(f"{what}: {await self._cause(error)}", sent=not unsent) from error

    async def read(
        self, what: str, request: Callable[[Any], Awaitable[T]], *, may_refuse: bool = False
    ) -> T:
        """Like `ask`, for requests that change nothing: repeats the request once on a new companion
        if this one dies, hangs or fails.

        `may_refuse`: a refusal by the companion is not a failure.
        """
        try:
            return await self.ask(what, request)
        except CompanionError as failure:
            if may_refuse and failure.answered:
                raise
            await self._renew(failure)
        return await self.ask(what, request)

    async def act(self, what: str, request: Callable[[Any], Awaitable[object]]) -> None:
        """Like `ask`, but once more on a new companion if it cannot have reached the phone."""
        try:
            if not self.alive:
                raise CompanionError(f"{what}: idb_companion has exited", sent=False)
            await self.ask(what, request)
        except CompanionError as failure:
            if failure.sent:
                raise
            await self._renew(failure)
            await self.ask(what, request)

    async def end(self) -> None:
        """Ends the companion; safe to call twice."""
        self._client = None
        await self._open.aclose()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        try:
            os.killpg(process.pid, signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except (ProcessLookupError, TimeoutError):
            pass
        finally:
            await kill(process)

    async def _renew(self, failure: CompanionError) -> None:
        if self._started > 1:
            raise failure
        try:
            await self.start()
        except EnvironmentFailedError as second:
            raise EnvironmentFailedError(
                f"{failure}; restarting idb_companion did not help: {second}"
            ) from second

    @property
    def _log(self) -> Path:
        return self._folder / "companion.log"

    async def _cause(self, error: Exception) -> str:
        """Describes the cause: of an ended companion, its exit status and last output."""
        process = self._process
        if process is not None:
            try:
                # The connection breaks shortly before the process exits.
                await asyncio.wait_for(process.wait(), 0.5)
            except TimeoutError:
                return str(error) or type(error).__name__
            status = process.returncode or 0
            ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            last_line = (
                self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            )
            return f"idb_companion ended ({ended})" + (
                f": {last_line[0][:300]}" if last_line else ""
            )
        return str(error) or type(error).__name__


async def _connected(path: str, udid: str, opened: AsyncExitStack) -> Any:
    """Connects fb-idb's client to the socket; `opened` closes it.

    This replaces `Client.build`, which passes a deprecated argument to grpclib's channel and
    creates temporary files.
    """
    from grpclib.client import Channel
    from idb.common.types import CompanionInfo, DomainSocketAddress
    from idb.grpc.client import Client
    from idb.grpc.idb_grpc import CompanionServiceStub
    from idb.grpc.idb_pb2 import ConnectRequest

    stub = CompanionServiceStub(await opened.enter_async_context(Channel(path=path)))
    await stub.connect(ConnectRequest())
    address = DomainSocketAddress(path)
    return Client(
        stub, CompanionInfo(udid=udid, is_local=False, pid=None, address=address), _logger
    )
