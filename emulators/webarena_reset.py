"""Brings WebArena's sites back to their first state, by a shell command or through the web."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from urllib.parse import SplitResult, urlsplit

from prill.errors import EnvironmentFailure

_POLL = 0.5
_READY = "Ready for duty!"


async def reset_sites(command: str, limit: float, secret: tuple[str, ...] = ()) -> None:
    """Runs the command, or asks for the address when it is one, and waits for the end, `limit` seconds at most.

    An address is that of a reset server such as BrowserGym's: `http://host:7565/reset`, next to which /status says
    `Ready for duty!` once it is done; a server without a /status is done when it answers. Raises EnvironmentFailure; words
    in `secret` never appear in it, nor does more of an address than its host.
    """
    if command.startswith(("http://", "https://")):
        parts = urlsplit(command)
        server = parts._replace(netloc=parts.netloc.rpartition("@")[2], path="", query="", fragment="").geturl()
        try:
            async with asyncio.timeout(limit):
                await _ask(parts, server)
        except TimeoutError:
            raise EnvironmentFailure(f"the reset at {server} is not done after {limit:g} s") from None
    else:
        await _run(command, limit, secret)


async def _ask(parts: SplitResult, server: str) -> None:
    import aiohttp

    path = parts.path.rstrip("/") or "/reset"
    status = parts._replace(path=f"{path.rpartition('/')[0]}/status").geturl()
    try:
        # The caller bounds all of it; aiohttp would give up after five minutes.
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            async with session.get(parts._replace(path=path).geturl()) as answer:
                # 418: BrowserGym's server is at it already.
                if not (answer.ok or answer.status == 418):
                    raise EnvironmentFailure(f"the reset at {server} was refused: status {answer.status}")
            while True:
                async with session.get(status) as answer:
                    if answer.status == 404 or (answer.ok and _READY in await answer.text()):
                        return
                await asyncio.sleep(_POLL)
    except aiohttp.ClientError as error:
        raise EnvironmentFailure(f"the reset at {server} failed: {type(error).__name__}") from None


async def _run(command: str, limit: float, secret: tuple[str, ...]) -> None:
    # A file and not a pipe: servers that the command leaves running keep its outputs open.
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit):
                await process.wait()
        except TimeoutError:
            raise EnvironmentFailure(f"the reset command is not done after {limit:g} s and was ended") from None
        finally:
            if process.returncode is None:
                # The whole group: what a shell started outlives the shell otherwise.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            said.seek(0)
            last = (said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1][:200]
            for word in secret:
                last = last.replace(word, "…")
            raise EnvironmentFailure(f"the reset command ended with status {process.returncode}: {last}")
