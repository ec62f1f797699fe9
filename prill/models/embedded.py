"""A small language model in this process: llama.cpp with a GGUF file, no key, no network.

The bundled SmolLM2-135M proves the pipeline and is far too small for its verdicts to mean anything.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self, Unpack

from msgspec import Meta

from prill.errors import EndpointError, MissingExtraError, UsageError
from prill.io.cache import DiskCache
from prill.models.client import OpenAIModel
from prill.models.ledger import Ledger, Price
from prill.models.local.embedded_weights import bundled_gguf, eight_bit_gguf
from prill.models.replies import ReplyFormat, WordFormat
from prill.models.request import RepetitionPenalty, Temperature, TopK, TopP, sampling_options
from prill.protocols import Form, Image, Limits, Message, Reply, SamplingLimits

# SmolLM2 was trained for 8,192 tokens; half of that is enough for a page and keeps memory at about
# 250 MB a server.
_CONTEXT = 4096
# The bundled model rambles until it is cut; what it says has no value, that it ends has. On a CPU a
# model of one's own, too, is to come to an end: it has a paragraph, which takes about a minute at
# four tokens a second.
_THOUGHT_CHARS, _OWN_THOUGHT_CHARS = 120, 1_000
_MAX_SERVERS = 4
_servers: dict[tuple[str, int, int], Any] = {}
_starting = threading.Lock()


class EmbeddedModel:
    """A GGUF model served by llama.cpp inside this process; servers start with the first call and
    end with the process.

    The bundled model gets a server with one thread for each core: threads of one server wait for
    each other actively, and two of them crawl as soon as something else wants a core. Its weights,
    of four bits, are written to prill's cache folder with eight, once, which llama.cpp is faster
    with. A model of your own is taken as it is, by one server with all cores but one.

    Raises:
        UsageError: The file does not exist.
    """

    def __init__(
        self,
        gguf: Annotated[
            str | None, Meta(description="another GGUF file than the bundled one")
        ] = None,
        *,
        temperature: Temperature = None,
        top_p: TopP = None,
        top_k: TopK = None,
        repetition_penalty: RepetitionPenalty = None,
        cache: Annotated[
            DiskCache | None, Meta(description="folder to keep replies in, for reuse")
        ] = None,
    ) -> None:
        cores = os.cpu_count() or 1
        self.gguf = gguf or bundled_gguf()
        if not Path(self.gguf).is_file():
            raise UsageError(f"{self.gguf}: no such file")
        self._small = gguf is None
        self._shape = (min(cores, _MAX_SERVERS), 1) if self._small else (1, max(1, cores - 1))
        self._cache = cache
        self.ledger = Ledger(_Embedded.PRICE, name="embedded")
        self._sampling = sampling_options(temperature, top_p, top_k, repetition_penalty)
        self._clients: list[OpenAIModel] = []
        self._load: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: the settings; servers start again there."""
        return {**vars(self), "_clients": [], "_load": []}

    @property
    def name(self) -> str:
        """`embedded/` and the file's name, and how it is sampled where that is not at temperature
        0.
        """
        return f"{self._plain_name}{self._sampling.suffix}"

    @property
    def _plain_name(self) -> str:
        return f"embedded/{Path(self.gguf).stem}{'-as-Q8_0' if self._small else ''}"

    @property
    def concurrency(self) -> int:
        """Most calls at once: one a server."""
        return self._shape[0]

    def sampled(self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]) -> Self:
        """The same model, drawn from at a temperature; its servers are shared."""
        other = copy.copy(self)
        other._sampling, other._clients, other._load = (
            self._sampling.drawn(temperature, seed, limits),
            [],
            [],
        )
        return other

    async def limits(self) -> Limits:
        """Limits of one request: by the start options, then by the running server."""
        return await self._clients[0].limits() if self._clients else Limits(window=_CONTEXT)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """One answer.

        Raises:
            EndpointError: A message holds an image.
            UnscoredError: There is no usable answer to this call.
        """
        if any(isinstance(part, Image) for message in messages for part in message.parts):
            raise EndpointError(
                "the embedded model takes no images; use a judge that reads text, or a model with "
                "vision"
            )
        if isinstance(form, ReplyFormat):
            form = replace(form, max_chars=_THOUGHT_CHARS if self._small else _OWN_THOUGHT_CHARS)
        if not self._clients:
            await asyncio.to_thread(self._start)
        idlest = self._load.index(min(self._load))
        self._load[idlest] += 1
        try:
            return await self._clients[idlest].complete(
                messages, form=form, max_tokens=max_tokens, prompt=prompt
            )
        finally:
            self._load[idlest] -= 1

    def _start(self) -> None:
        count, threads = self._shape
        with _starting:
            if self._clients:
                return
            gguf = self._weights()
            urls = [f"{_server(gguf, threads, number)}/v1" for number in range(count)]
            self._load = [0] * count
            clients = [self._client(url) for url in urls]
            for client in clients:
                # one model: what one server says of its window holds for all
                client.capabilities = clients[0].capabilities
            self._clients = clients

    def _weights(self) -> str:
        """The file that is served."""
        return str(eight_bit_gguf(self.gguf)) if self._small else self.gguf

    def _client(self, url: str) -> OpenAIModel:
        # A prompt of 4,096 tokens takes about 30 s on a slow core, and others wait before it.
        name = self._plain_name
        limits: dict[str, Any] = {
            "concurrency": 1,
            "timeout": 600.0,
            "total_timeout": 1800.0,
            "patience": 3600.0,
        }
        kind = _WordFirst if self._small else _Embedded
        model = kind(name, base_url=url, cache=self._cache, **limits)
        # Kept replies outlive the port. The file's content tells one model from another; its size
        # is enough for that.
        model.endpoint.origin = f"{name} {Path(self.gguf).stat().st_size}"
        model._sampling = self._sampling
        return model


class _Embedded(OpenAIModel):
    """A model at a server of this process: it costs nothing."""

    PRICE = Price(0.0, 0.0)


class _WordFirst(_Embedded):
    """Begins the object of a `WordFormat` for the model, which then writes one token instead of
    fourteen.

    Only for a model that does not think: llama.cpp begins no answer for those that do.
    """

    def _request(
        self,
        messages: Sequence[Message],
        form: Form | None,
        max_tokens: int,
        code: str,
        tokens: int | None = None,
    ) -> tuple[tuple[Message, ...], dict[str, Any]]:
        request, fields = super()._request(messages, form, max_tokens, code, tokens)
        if isinstance(form, WordFormat) and fields.pop("response_format", None):
            request = *request, Message("assistant", (f'{{"{form.verdict}": "',))
            fields["grammar"] = (
                f"root ::= {' | '.join(json.dumps(choice) for choice in form.choices)}"
            )
        return request, fields


def _server(gguf: str, threads: int, number: int) -> str:
    """The address of a server on the loopback interface, started when there is none yet."""
    try:
        import xllamacpp
    except ImportError:
        raise MissingExtraError("xllamacpp", "embedded") from None
    server = _servers.get((gguf, threads, number))
    if server is None:
        params = xllamacpp.CommonParams()
        params.model.path = gguf
        params.n_parallel, params.n_ctx = 1, _CONTEXT
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = 0
        params.port, params.verbosity = 0, -1
        try:
            server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise EndpointError(f"{gguf} cannot be loaded by llama.cpp: {error}") from None
        _servers[gguf, threads, number] = server
    return str(server.listening_address)
