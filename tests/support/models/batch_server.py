"""The mock endpoint with the batch APIs of OpenAI and Anthropic.

A request of a batch gets the reply that a direct request gets, but for connection faults.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from prill.testing import Faults, MockServer
from prill.testing.endpoint.faults import fate
from prill.testing.endpoint.replies import MockEndpoint
from prill.testing.endpoint.requests import (
    decode_request,
    find_rejection,
    in_form,
    problem,
    read_prompt,
)
from prill.testing.endpoint.server import main

if TYPE_CHECKING:
    from aiohttp import web

# Maps the body of a request to a status and a response body.
Answer = Callable[[bytes], tuple[int, bytes]]


@dataclass(frozen=True, kw_only=True)
class BatchFaults(Faults):
    """The settings of the mock endpoint, and those of its batches."""

    batch_polls: int = 1  # status requests until a batch is done
    batch_expired: float = 0.0  # rate of requests of a batch that are never carried out
    batch_failed: float = 0.0  # rate of requests of a batch that fail

    def outcome(self, batch: str, number: int) -> str:
        """Returns what becomes of a request: `expired`, `failed` or `ok`; equal for equal seeds."""
        key = f"{self.seed} {batch} {number}".encode()
        share = int.from_bytes(hashlib.blake2b(key, digest_size=16).digest()[:8]) / 2**64
        if share < self.batch_expired:
            return "expired"
        return "failed" if share < self.batch_expired + self.batch_failed else "ok"


class BatchEndpoint(MockEndpoint):
    """One model behind an OpenAI-compatible interface, with batches."""

    faults: BatchFaults

    def application(self) -> web.Application:
        """Returns the aiohttp application."""
        from tests.support.models.anthropic_batches import MessagesDesk
        from tests.support.models.openai_batches import BatchAPI

        app = super().application()
        BatchAPI(self.faults, self.answer_line, self.key_refusal).add_routes(app)
        MessagesDesk(self.faults, self.answer_line).add_routes(app)
        return app

    def answer_line(self, data: bytes) -> tuple[int, bytes]:
        """Returns status and body for a request of a batch."""
        try:
            request = decode_request(data)
            prompt = read_prompt(request)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return 400, problem(f"We could not parse the body of your request: {error}")
        self.requests += 1
        self.prompts[prompt.hash] += 1
        outcome, detail = fate(self.faults, prompt.hash, self.prompts[prompt.hash])
        if (rejection := find_rejection(self.faults, request, prompt)) is not None:
            self.outcomes[rejection.outcome] += 1
            return rejection.status, in_form(rejection, self.faults.error_form)
        self.outcomes[outcome] += 1
        return 200, self.answer(request, prompt, self.reply(request, prompt, outcome, detail))


class BatchServer(MockServer):
    """The mock server with batches, as a child process."""

    module = "tests.support.models.batch_server"
    settings = BatchFaults


def json_answer(record: Mapping[str, Any], status: int = 200) -> web.Response:
    """Returns a JSON response."""
    from aiohttp import web

    return web.Response(
        body=msgspec.json.encode(record), status=status, content_type="application/json"
    )


if __name__ == "__main__":
    sys.exit(main(None, BatchFaults, BatchEndpoint))
