"""A small language model in this process: llama.cpp with a GGUF file; no key, no network.

The bundled SmolLM2-135M is far too small for useful verdicts, unless an adapter was trained for
such runs (`prill train judge`).
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import http.client
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, Unpack
from urllib.parse import urlsplit

from msgspec import Meta

from prill.errors import (
    EndpointError,
    MissingExtraError,
    TransportError,
    UnparsableError,
    UsageError,
)
from prill.models.client import OpenAIModel
from prill.models.ledger import Ledger, Price
from prill.models.local.embedded_weights import adapter_gguf, bundled_gguf
from prill.models.options import CacheOption, RepetitionPenalty, Temperature, TopK, TopP
from prill.models.replies import GivenReply, ReplyFormat, WordFormat
from prill.models.request import sampling_options
from prill.protocols import Form, Image, Limits, Message, Reply, SamplingLimits

# SmolLM2 was trained for 8,192 tokens. Half of that is enough for a page and limits memory to about
# 250 MB per server.
_CONTEXT = 4096
# Maximum length of the reasoning. The bundled model writes without end, and its reasoning has no
# value, so its limit is low. A custom model may write a paragraph: about a minute on a CPU at four
# tokens a second.
_THOUGHT_CHARS, _OWN_THOUGHT_CHARS = 120, 1_000
_MAX_SERVERS = 4
_servers: dict[tuple[str, str, int, int], Any] = {}
_starting = threading.Lock()


class EmbeddedModel:
    """A GGUF model served by llama.cpp inside this process.

    Servers start with the first call and end with the process. The bundled model gets one server
    with one thread per core: the threads of one server busy-wait for each other, which becomes very
    slow when another program needs a core. A custom model gets one server with all cores but one.

    Raises:
        UsageError: A file does not exist, or the adapter does not fit the model.
    """

    def __init__(
        self,
        gguf: Annotated[
            str | None, Meta(description="GGUF file to use instead of the bundled one.")
        ] = None,
        *,
        adapter: Annotated[
            str | None,
            Meta(
                description="LoRA adapter of the model: a GGUF file, or a PEFT folder, "
                "which is converted once."
            ),
        ] = None,
        temperature: Temperature = None,
        top_p: TopP = None,
        top_k: TopK = None,
        repetition_penalty: RepetitionPenalty = None,
        cache: CacheOption = None,
    ) -> None:
        cores = os.cpu_count() or 1
        self.gguf = gguf or bundled_gguf()
        if not Path(self.gguf).is_file():
            raise UsageError(f"{self.gguf}: no such file")
        self.adapter = adapter
        self._adapter_file = adapter_gguf(adapter, self.gguf) if adapter else None
        self._small = gguf is None
        self._shape = (min(cores, _MAX_SERVERS), 1) if self._small else (1, max(1, cores - 1))
        self._cache = cache
        self.ledger = Ledger(_Embedded.PRICE, name="embedded")
        self._sampling = sampling_options(temperature, top_p, top_k, repetition_penalty)
        self._clients: list[OpenAIModel] = []
        self._load: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the settings only; servers start again in the other process."""
        return {**vars(self), "_clients": [], "_load": []}

    @property
    def name(self) -> str:
        """Returns `embedded/` and the names of file and adapter, with sampling settings other than
        temperature 0.
        """
        return f"{self._plain_name}{self._sampling.suffix}"

    @property
    def _plain_name(self) -> str:
        tuned = f"+{Path(self.adapter).resolve().stem}" if self.adapter else ""
        return f"embedded/{Path(self.gguf).stem}{tuned}"

    @property
    def concurrency(self) -> int:
        """Returns the maximum number of concurrent calls: one per server."""
        return self._shape[0]

    def sampled(self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]) -> Self:
        """Returns the same model at a sampling temperature; its servers are shared."""
        other = copy.copy(self)
        other._sampling, other._clients, other._load = (
            self._sampling.drawn(temperature, seed, limits),
            [],
            [],
        )
        return other

    async def limits(self) -> Limits:
        """Returns the limits of one request: from the options, then from the running server."""
        return await self._clients[0].limits() if self._clients else Limits(window=_CONTEXT)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Requests one answer.

        Raises:
            EndpointError: A message contains an image.
            UnscoredError: There is no usable answer to this call.
        """
        if any(isinstance(part, Image) for message in messages for part in message.parts):
            raise EndpointError(
                "the embedded model does not accept images; use a judge that reads text, "
                "or a vision model"
            )
        if isinstance(form, ReplyFormat):
            form = replace(form, max_chars=_THOUGHT_CHARS if self._small else _OWN_THOUGHT_CHARS)
        if not self._clients:
            await asyncio.to_thread(self._start)
        idlest = self._load.index(min(self._load))
        self._load[idlest] += 1
        try:
            if isinstance(form, GivenReply):
                url = self._clients[idlest].endpoint.base_url
                form = replace(form, tokens=await asyncio.to_thread(_tokens, url, form.text))
            reply = await self._clients[idlest].complete(
                messages, form=form, max_tokens=max_tokens, prompt=prompt
            )
        finally:
            self._load[idlest] -= 1
        if isinstance(form, GivenReply) and reply.tokens:  # without the token that ends the reply
            return replace(reply, tokens=reply.tokens[: len(form.tokens)])
        return reply

    def _start(self) -> None:
        count, threads = self._shape
        with _starting:
            if self._clients:
                return
            adapter = str(self._adapter_file or "")
            urls = [f"{_server(self.gguf, adapter, threads, n)}/v1" for n in range(count)]
            self._load = [0] * count
            clients = [self._client(url) for url in urls]
            for client in clients:
                # all servers run the same model, so one server's limits apply to all
                client.capabilities = clients[0].capabilities
            self._clients = clients

    def _client(self, url: str) -> OpenAIModel:
        # A prompt of 4,096 tokens takes about 30 s on a slow core, and other calls are queued
        # before it.
        name = self._plain_name
        limits: dict[str, Any] = {"concurrency": 1, "timeout": 600.0}
        kind = _WordFirst if self._small else _Embedded
        model = kind(name, base_url=url, cache=self._cache, **limits)
        model.endpoint.patience = 3600.0
        # Cached replies must not depend on the port, so the key uses the file's name and size,
        # which are enough to distinguish models.
        model.endpoint.origin = f"{name} {Path(self.gguf).stat().st_size}"
        if self._adapter_file:
            with self._adapter_file.open("rb") as file:
                model.endpoint.origin += f" {hashlib.file_digest(file, 'sha256').hexdigest()}"
        model._sampling = self._sampling
        return model


class _Embedded(OpenAIModel):
    """A model on a server of this process: its calls cost nothing."""

    PRICE = Price(0.0, 0.0)
    prefills_words: ClassVar[bool] = False

    def _request(
        self,
        messages: Sequence[Message],
        form: Form | None,
        max_tokens: int,
        code: str,
        tokens: int | None = None,
    ) -> tuple[tuple[Message, ...], dict[str, Any]]:
        request, fields = super()._request(messages, form, max_tokens, code, tokens)
        if isinstance(form, GivenReply):
            # A grammar of token numbers admits this one reply; the log-probabilities are those
            # from before it.
            fields["grammar"] = f"root ::= {' '.join(f'<[{token}]>' for token in form.tokens)}"
        elif (
            self.prefills_words
            and isinstance(form, WordFormat)
            and fields.pop("response_format", None)
        ):
            request = *request, Message("assistant", (f'{{"{form.verdict}": "',))
            choices = " | ".join(json.dumps(choice) for choice in form.choices)
            fields["grammar"] = f"root ::= {choices}"
        return request, fields


class _WordFirst(_Embedded):
    """A model without reasoning, whose replies of one word begin with a prefilled JSON object.

    It writes one token instead of fourteen. llama.cpp cannot prefill the answers of reasoning
    models.
    """

    prefills_words = True


def _tokens(url: str, text: str) -> tuple[int, ...]:
    """Returns the text's tokens in the vocabulary of the model on a server of this process.

    Raises UnparsableError if a token is a part of a character, which grammars cannot request, and
    TransportError.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        request = json.dumps({"content": text, "with_pieces": True})
        connection.request("POST", "/tokenize", request)
        tokens = json.loads(connection.getresponse().read())["tokens"]
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise TransportError(f"llama.cpp returned no tokens of a text: {error!r}") from None
    finally:
        connection.close()
    if not all(isinstance(token["piece"], str) for token in tokens):
        raise UnparsableError(
            "llama.cpp cannot measure this text, as its vocabulary lacks a character; use "
            "local:embedded"
        )
    return tuple(token["id"] for token in tokens)


def _server(gguf: str, adapter: str, threads: int, number: int) -> str:
    """Returns the address of a server on the loopback interface, starting it if necessary."""
    try:
        import xllamacpp
    except ImportError:
        raise MissingExtraError("xllamacpp", "embedded") from None
    server = _servers.get((gguf, adapter, threads, number))
    if server is None:
        params = xllamacpp.CommonParams()
        params.model.path = gguf
        if adapter:
            lora = xllamacpp.CommonAdapterLoraInfo()
            lora.path, lora.scale = adapter, 1.0
            params.lora_adapters = [lora]
        params.n_parallel, params.n_ctx = 1, _CONTEXT
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = 0
        params.port, params.verbosity = 0, -1
        try:
            server = xllamacpp.Server(params)
        except RuntimeError as error:
            files = f"{gguf} with {adapter}" if adapter else gguf
            raise EndpointError(f"{files} cannot be loaded by llama.cpp: {error}") from None
        _servers[gguf, adapter, threads, number] = server
    return str(server.listening_address)
