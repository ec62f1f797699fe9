"""Runs the programs that environments need, with time limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Printed:
    """The output and exit status of a command."""

    out: bytes
    err: bytes
    status: int

    @property
    def text(self) -> str:
        """Standard output."""
        return self.out.decode("utf-8", "replace")

    @property
    def last_line(self) -> str:
        """The last line of output for messages, from standard error if it is not empty."""
        lines = (self.err.strip() or self.out.strip()).decode("utf-8", "replace").splitlines()
        return lines[-1].strip()[:300] if lines else f"exit status {self.status}"


async def run_program(command: Sequence[str], timeout: float, stdin: bytes = b"") -> Printed:
    """Runs a command in a session of its own, so that its children can be killed with it, and
    Ctrl-C does not reach it directly. Raises OSError if it does not start, and TimeoutError after
    `timeout` seconds.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(stdin)
    finally:
        await kill(process)
    return Printed(out, err, process.returncode or 0)


async def kill(process: asyncio.subprocess.Process) -> None:
    """Kills the process and its children unless it has ended, and waits for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
