"""A test double of `vllm serve`: the mock server with vLLM's flags and model list.

    VLLM_API_KEY=k python -m tests.support.models.vllm serve MODEL --port 8000 --served-model-name
    NAME

A script named `vllm` on the path that runs this module serves `vllm:MODEL`. The repeatable option
`--fault name=value` sets a field of `prill.testing.Faults`. Flags that only the real vLLM needs are
ignored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.replies import MockEndpoint

if TYPE_CHECKING:
    from aiohttp import web


async def serve(
    faults: Faults, host: str, port: int, names: Sequence[str], key: str | None
) -> None:
    """Serves until it is cancelled."""
    from aiohttp import web

    @web.middleware
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        if key and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if request.path == "/v1/models":
            return web.json_response(
                {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
            )
        if request.path == "/v1/chat/completions" and (await request.json())["model"] not in names:
            return web.json_response(
                {"error": {"message": "The model does not exist.", "code": 404}}, status=404
            )
        response: web.StreamResponse = await handler(request)
        return response

    app = MockEndpoint(faults).application()
    app.middlewares.append(guarded)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=4096).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves with the flags of `vllm serve` that matter to a client."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.models.vllm", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name")
    parser.add_argument("--lora-modules", nargs="*", default=[])
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=VALUE")
    args, _ = parser.parse_known_args(arguments)
    faults = msgspec.convert(
        dict(fault.split("=", 1) for fault in args.fault), Faults, strict=False
    )
    names = [
        args.served_model_name or args.model,
        *(adapter.partition("=")[0] for adapter in args.lora_modules),
    ]
    print("test double of vLLM:", json.dumps(vars(args)), flush=True)
    asyncio.run(serve(faults, args.host, args.port, names, os.environ.get("VLLM_API_KEY")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
