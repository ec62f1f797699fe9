"""The mock endpoint with embeddings: the counts of groups of words."""

from __future__ import annotations

import math
import re
import sys
import zlib
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from prill.testing import Faults, MockServer
from prill.testing.endpoint.replies import MockEndpoint
from prill.testing.endpoint.requests import count_tokens
from prill.testing.endpoint.server import main

if TYPE_CHECKING:
    from aiohttp import web


class EmbeddingEndpoint(MockEndpoint):
    """One model with embeddings, too."""

    def application(self) -> web.Application:
        """Returns the aiohttp application."""
        app = super().application()
        app.router.add_post("/v1/embeddings", self.embed)
        return app

    async def embed(self, http: web.Request) -> web.Response:
        """Returns a vector for each text. Texts that share words are near each other."""
        from aiohttp import web

        self.requests += 1
        request = msgspec.json.decode(await http.read())
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        rows = [
            {"object": "embedding", "index": i, "embedding": embedding(text)}
            for i, text in enumerate(texts)
        ]
        tokens = sum(map(count_tokens, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = {"object": "list", "model": request["model"], "data": rows, "usage": usage}
        return web.json_response(answer)


def embedding(text: str) -> list[float]:
    """Returns the counts of 64 groups of words in the text, as a vector of length 1."""
    counts = Counter(zlib.crc32(word.encode()) % 64 for word in re.findall(r"\w+", text.lower()))
    length = math.sqrt(sum(count * count for count in counts.values())) or 1.0
    return [counts[kind] / length for kind in range(64)]


class EmbeddingServer(MockServer):
    """That server, as a child process."""

    module = "tests.support.models.embedding_server"


if __name__ == "__main__":
    sys.exit(main(None, Faults, EmbeddingEndpoint))
