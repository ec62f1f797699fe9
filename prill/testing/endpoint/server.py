"""The mock OpenAI-compatible server; deterministic for a seed.

    python -m prill.testing.endpoint.server --port 0 --latency 0.2 --seed 7 --rate-limit 0.10
    --retry-after 0.05 --drop 0.03

prints its base URL and serves POST /v1/chat/completions, GET /v1/models and GET /stats until it is
interrupted. The fate of a request depends only on the seed, its messages and how often these were
sent before. The verdict is the one that the user's text requests by `truth=success` or
`truth=failure`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields

import msgspec

from prill.errors import UsageError
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.replies import MockEndpoint


@asynccontextmanager
async def serving(
    faults: Faults, port: int = 0, kind: type[MockEndpoint] = MockEndpoint
) -> AsyncIterator[tuple[MockEndpoint, str]]:
    """Serves an endpoint on 127.0.0.1 in this event loop and yields it with its base URL.

    It starts faster than a separate process.
    """
    from aiohttp import web

    endpoint = kind(faults)
    # Handlers are cancelled when their client disconnects: otherwise a stall would count as in
    # flight long after its timeout.
    runner = web.AppRunner(
        endpoint.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        yield endpoint, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def serve(
    faults: Faults,
    port: int = 0,
    kind: type[MockEndpoint] = MockEndpoint,
    *,
    until_eof: bool = False,
) -> None:
    """Serves on 127.0.0.1 and prints the base URL once it listens.

    It ends on SIGINT, SIGTERM or, if requested, the end of stdin.
    """
    async with serving(faults, port, kind) as (_, url):
        print(url, flush=True)
        await _end(until_eof)


async def _end(until_eof: bool) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    if until_eof:
        # The pipe from the parent is closed when the parent ends, even if it is killed.
        await loop.connect_read_pipe(lambda: _EndOfInput(ended), sys.stdin)
    await ended.wait()


class _EndOfInput(asyncio.Protocol):
    def __init__(self, ended: asyncio.Event) -> None:
        self.ended = ended

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


def main(
    arguments: Sequence[str] | None = None,
    faults: type[Faults] = Faults,
    kind: type[MockEndpoint] = MockEndpoint,
) -> int:
    """Serves with the settings of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m prill.testing.endpoint.server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free port (default: 0)")
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="end with standard input, and so with the parent process",
    )
    for field in fields(faults):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, nargs="?", const="true", default=argparse.SUPPRESS)
    options = vars(parser.parse_args(arguments))
    port, until_eof = options.pop("port"), options.pop("until_eof")
    gc.set_threshold(10_000)  # each collection scans all requests in progress
    try:
        made = msgspec.convert(options, faults, strict=False)
        asyncio.run(serve(made, port, kind, until_eof=until_eof))
    except (UsageError, msgspec.ValidationError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
