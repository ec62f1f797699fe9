"""A model served by a local vLLM server, started with the first call and stopped with the process.

A keeper process (`keeper.py`) stops the server however this process ends: by an error, Ctrl-C or
kill -9. The server listens on the loopback interface only, and requires a key that is generated for
each start.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Annotated, Any

from msgspec import Meta

from prill.errors import EndpointError, MissingExtraError, TransportError, UsageError
from prill.io.shards import packed_for
from prill.models import keeper
from prill.models.client import PIXEL_BUDGET, OpenAIModel
from prill.models.devices import expect_room, fit_together, register_server, register_user
from prill.models.ledger import Booking, Price, queued
from prill.models.local.trained import expect_trained, find_model
from prill.models.options import (
    DTYPE,
    AdapterOption,
    AttemptTimeoutOption,
    CacheOption,
    ConcurrencyOption,
    ImageFormat,
    MaxPixelsOption,
    RepetitionPenalty,
    RetriesOption,
    Temperature,
    TopK,
    TopP,
)
from prill.models.replies import Completion
from prill.models.transport import Endpoint, RequestStats

_HOST = "127.0.0.1"
_MODULE = ("-m", "vllm.entrypoints.openai.api_server")
_POLL = 0.25
_MAX_HEADER = 100_000_000  # bytes; the limit of safetensors itself
# Module names of the vision encoder and its connector in transformers' vision-language models.
_VISION = re.compile(r"\.(visual|vision\w*|image_\w+|multi_modal_projector|connector|merger)\.")
# The logged signs that vLLM 0.32 serves an adapter without some of its weights
# (vllm/lora/model_manager.py). The first two name the layer.
_NOT_TAKEN = (
    re.compile(r"(?i)punicawrapper.* (?P<layer>[\w.]+) will be ignored"),
    re.compile(r"(?i)lora target module (?P<layer>[\w.]+).* will be ignored"),
    re.compile(r"(?i)(?=.*lora)(?=.*(tower|connector)).*(will be ignored|disabl)"),
)
# Layers that vLLM merges from others, by the names of their parts.
_MERGED = {
    "qkv_proj": {"q_proj", "k_proj", "v_proj"},
    "gate_up_proj": {"gate_proj", "up_proj"},
    "merged_proj": {"gate_proj", "dense_h_to_4h"},
}
# The last line of a traceback, behind what vLLM's log puts before it; or argparse's. The first one
# is the cause of the others.
_ERROR = re.compile(r"^(\([^)]*\) *)?(ERROR [^\]]*\] *)?[\w.]*(Error|Exception)\b: *\S|: error: ")
_LOG = 16_000_000  # bytes of a log that are read
# LoRA ranks that vLLM supports.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


class VLLMModel(OpenAIModel):
    """A model served by `vllm serve`.

    This process starts the server with the first call that is not answered from the cache. It runs
    the `vllm` command of this environment or the PATH, or the module of another environment's
    interpreter (`serve_python`). Models with equal settings share a server, which is stopped by
    `close` or when the last of them is deleted. Log-probabilities are those after constrained
    decoding; the model's own sampling defaults are not used.

    Args:
        model: A folder, or a model name that vLLM downloads.
    """

    PRICE = Price(0.0, 0.0)

    def __init__(
        self,
        model: str,
        *,
        adapter: AdapterOption = None,
        dtype: Annotated[str | None, DTYPE] = None,
        max_model_len: Annotated[
            int | None, Meta(ge=1, description="Context window in tokens (default: the model's).")
        ] = None,
        images: Annotated[int, Meta(ge=0, description="Maximum number of images per call.")] = 16,
        serve_python: Annotated[
            str | None,
            Meta(description="Python interpreter of another environment with vLLM installed."),
        ] = None,
        serve_options: Annotated[
            str, Meta(description="Further options of `vllm serve`, in shell syntax.")
        ] = "",
        start_timeout: Annotated[
            float, Meta(gt=0, description="Maximum number of seconds until the server is ready.")
        ] = 1800.0,
        concurrency: ConcurrencyOption = 16,
        timeout: AttemptTimeoutOption = 600.0,
        retries: RetriesOption = 2,
        max_pixels: MaxPixelsOption = PIXEL_BUDGET,
        image_format: ImageFormat = None,
        temperature: Temperature = None,
        top_p: TopP = None,
        top_k: TopK = None,
        repetition_penalty: RepetitionPenalty = None,
        cache: CacheOption = None,
    ) -> None:
        folder = find_model(model)
        folder = folder and folder.resolve()
        name = f"vllm/{folder.name if folder else model}"
        settings: dict[str, object] = {
            "served_model_name": name,
            "dtype": dtype,
            "max_model_len": max_model_len,
            "limit_mm_per_prompt": json.dumps({"image": images, "video": 0}),
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            # without the latter, weak models fill the reply with the whitespace that JSON allows
            "structured_outputs_config": json.dumps(
                {"backend": "xgrammar", "disable_any_whitespace": True}
            ),
        }
        if adapter:
            name = f"{name}+{Path(adapter).resolve().name}"
            settings |= {
                "enable_lora": True,
                "lora_modules": f"{name}={adapter}",
                "max_lora_rank": _rank(Path(adapter)),
            }
            # Without it, vLLM ignores an adapter's weights in the vision encoder and only logs it.
            if any(_VISION.search(layer) for layer in _adapted_layers(Path(adapter))):
                settings["enable_tower_connector_lora"] = True
        options = (*_flags(settings), *_split_options(serve_options))
        served = str(folder) if folder else model
        command = (*_vllm(serve_python, served), *_flags({"host": _HOST}), *options)
        # The address is only known after the server's start.
        super().__init__(
            name,
            base_url=f"http://{_HOST}/v1",
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            max_pixels=max_pixels,
            image_format=image_format,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repetition_penalty=repetition_penalty,
            cache=cache,
        )
        self.endpoint.total_timeout = (retries + 1) * timeout
        weights = " ".join(
            fingerprint(path) for path in (folder, adapter and Path(adapter)) if path
        )
        origin = f"vllm {served} {weights} {options}"
        server = shared_server(command, name, start_timeout, adapter)
        register_server(server)
        self.endpoint = _ServedEndpoint(server, origin, self.endpoint)

    def close(self) -> None:
        """Stops the server; a later call starts a new one."""
        assert isinstance(self.endpoint, _ServedEndpoint)
        self.endpoint.server.stop()


class _ServedEndpoint(Endpoint):
    """The endpoint of a managed server, which is started by the first request."""

    def __init__(self, server: Server, origin: str, like: Endpoint) -> None:
        vars(self).update(vars(like))
        self.server = server
        self.origin = origin

    async def send(
        self, body: Callable[[], bytes], booking: Booking, stats: RequestStats
    ) -> Completion:
        """See `Endpoint.send`. Raises EndpointError if the server does not start, or has exited."""
        with self.server.in_use():
            with queued():  # the start does not count as the call's own time
                self.base_url = await self.server.ready()
            try:
                return await super().send(body, booking, stats)
            except (TransportError, EndpointError):
                await asyncio.sleep(2 * keeper.GLANCE)  # by then the keeper has reported the exit
                self.server.check()
                raise

    async def models(self) -> bytes:
        """Returns nothing: only a call starts the server, whose errors contain the window."""
        return b""

    async def why_unreachable(self) -> str:
        """Returns an empty text: only a call starts the server and reports its problems."""
        return ""

    def key(self) -> str:
        return self.server.key


class Server:
    """A `vllm serve` process on a free port; each process has its own.

    The servers of one process run one at a time unless each has a fraction of the device's memory:
    before one starts, idle ones are stopped. `share` is the fraction in the command.
    """

    def __init__(
        self, command: tuple[str, ...], name: str, timeout: float, adapter: str | None
    ) -> None:
        self.command, self.name, self.timeout, self.adapter = command, name, timeout, adapter
        self.share = _share(command)
        self.key = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._calls = 0
        register_user(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if packed_for() is not None:
            raise UsageError(
                "each process would start a vLLM server of its own; start one with `vllm "
                "serve`, and give its base URL"
            )
        return shared_server, (self.command, self.name, self.timeout, self.adapter)

    async def ready(self) -> str:
        """Returns the base URL once the server answers; the first caller starts the server.

        Raises EndpointError, UsageError.
        """
        run = self._run
        if run is None:
            run = await asyncio.to_thread(self._start)
        # An event instead of a future: a caller that is cancelled, or whose event loop ends, must
        # not affect the other callers.
        while not run.is_settled.is_set():
            await asyncio.sleep(_POLL / 2)
        run.check()
        return run.base_url

    def check(self) -> None:
        """Raises EndpointError with the end of the log if the server has exited."""
        if self._run is not None:
            self._run.check()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps the server from being stopped to free the device inside the block."""
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1

    def _start(self) -> _Run:
        """Starts a run, as soon as no other server blocks the device. Raises UsageError if one is
        in use.
        """
        with _turns:  # one at a time, so that two starting servers see each other
            if self._run is None:
                others = [
                    server
                    for server in list(_servers.values())
                    if server is not self and server._run is not None
                ]
                if not fit_together([*others, self]):
                    expect_room([*(server for server in others if server._calls), self])
                    for server in others:
                        server.stop()
                self._run = _Run(self)
            return self._run

    def free(self) -> None:
        """Stops the server, like `stop`."""
        self.stop()

    def stop(self) -> None:
        """Stops the server and waits; safe to call twice."""
        with self._lock:
            run, self._run = self._run, None
        if run is not None:
            run.end()


class _Run:
    """One run of a server, from its start to its end."""

    def __init__(self, server: Server) -> None:
        with socket.socket() as free:
            free.bind((_HOST, 0))
            port = free.getsockname()[1]
        self.name, self.timeout, self._key = server.name, server.timeout, server.key
        self._adapter = server.adapter
        self.base_url = f"http://{_HOST}:{port}/v1"
        self.is_settled = threading.Event()
        self._failure = ""
        # An unnamed file, so that nothing remains, however this process ends. The server's
        # processes write to it directly.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        environment = {
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            **os.environ,
            "VLLM_API_KEY": server.key,
        }
        self._process = keeper.begin(
            (*server.command, *_flags({"port": port})), self._log, environment
        )
        self.end = weakref.finalize(self, _end, self._process, self._log, os.getpid())
        # A daemon thread, so that an interrupted run does not wait for the start.
        threading.Thread(
            target=_watch_start, args=(weakref.ref(self),), name="prill-vllm-start", daemon=True
        ).start()

    def check(self) -> None:
        """Raises EndpointError if the run has failed or ended."""
        if not self.end.alive and not self._failure:
            self._failure = "the server was stopped"
        if not self._failure and (code := self._process.poll()) is not None:
            self._failure = f"vLLM exited with status {code}{self._kept_log()}"
        if self._failure:
            raise EndpointError(f"{self.name}: {self._failure}")

    def look(self, seconds: float) -> bool:
        """Waits some seconds; returns whether the start has ended: ready, exited, or timed out."""
        if self._process.poll() is None:
            if not self._answers():
                if seconds < self.timeout:
                    return False
                self._failure = (
                    f"vLLM was not ready after {self.timeout:g} s (start_timeout sets the "
                    f"limit){self._kept_log()}"
                )
            elif self._adapter and (sign := _not_taken(self._output(), Path(self._adapter))):
                self._failure = (
                    f"vLLM does not serve the adapter {self._adapter} whole: it logged "
                    f"{sign!r}. Train an adapter of the language model alone (targets), or merge "
                    "it into the model"
                )
            if self._failure:
                self.end()
        self.is_settled.set()
        return True

    def _answers(self) -> bool:
        """Returns whether this server is listening: it accepts the key and serves the model."""
        request = urllib.request.Request(
            f"{self.base_url}/models", headers={"Authorization": f"Bearer {self._key}"}
        )
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request, timeout=5
            ) as response:
                return self.name in response.read().decode()
        # HTTPException: another program uses the port and does not speak HTTP
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def last_lines(self, *most: int) -> list[str]:
        """Returns the last lines of the server's log, sanitised for display; empty once it is
        closed.
        """
        try:
            return keeper.last_lines(self._log, *most, secret=self._key)
        except (OSError, ValueError):  # closed by another thread
            return []

    def _output(self) -> list[str]:
        """Returns the whole log, sanitised for display."""
        return keeper.last_lines(self._log, sys.maxsize, tail=_LOG, secret=self._key)

    def _kept_log(self) -> str:
        """Keeps the log in a file; returns the end of a message: its path, the first error and the
        last lines.
        """
        lines = self._output()
        if not lines:
            return keeper.last_output(lines)
        with tempfile.NamedTemporaryFile(prefix="prill-vllm-", suffix=".log", delete=False) as kept:
            data = os.pread(self._log.fileno(), _LOG, 0)
            kept.write(data.replace(self._key.encode(), b"***"))
        first = next((line for line in lines if _ERROR.search(line)), "")
        return (
            f"; its log is in {kept.name}"
            + (f"; the first error in it: {first}" if first else "")
            + keeper.last_output(lines[-keeper.LINES :])
        )


def _watch_start(run_of: Callable[[], _Run | None]) -> None:
    """Reports the progress of the start on stderr until it has ended or the server is no longer
    needed.
    """
    from tqdm import tqdm

    start = time.monotonic()
    shape = "{desc} {elapsed}{postfix}"
    pause = 1.0 if sys.stderr.isatty() else 30.0
    with tqdm(
        desc="vLLM starts",
        bar_format=shape,
        mininterval=pause,
        dynamic_ncols=True,
        file=sys.stderr,
        delay=1.0,
    ) as bar:
        while (run := run_of()) is not None and not run.look(time.monotonic() - start):
            bar.set_postfix_str(" ".join(run.last_lines(1)).strip(), refresh=False)
            bar.update(1)
            del run
            time.sleep(_POLL)


def _end(process: subprocess.Popen[bytes], log: IO[bytes], owner: int) -> None:
    """Tells the keeper to stop the server, and waits for it."""
    if os.getpid() != owner:  # a forked child of the owner
        return
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    log.close()


_servers: weakref.WeakValueDictionary[tuple[object, ...], Server] = weakref.WeakValueDictionary()
_sharing = threading.Lock()
_turns = threading.Lock()


def shared_server(
    command: tuple[str, ...], name: str, timeout: float, adapter: str | None
) -> Server:
    """Returns the server with these settings, shared by all callers."""
    with _sharing:
        server = _servers.get((command, name))
        if server is None:
            server = _servers[command, name] = Server(command, name, timeout, adapter)
        return server


def fingerprint(path: Path) -> str:
    """Returns an identifier of a folder's weights: names, sizes and modification times of its
    files.
    """
    files = [
        file for file in sorted(path.iterdir()) if file.suffix in (".json", ".safetensors", ".bin")
    ]
    facts = [(file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _rank(adapter: Path) -> int:
    """Returns the LoRA rank to reserve in vLLM. Raises UsageError."""
    expect_trained(adapter)
    try:
        rank = int(json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["r"])
        return next(room for room in _RANKS if room >= rank)
    except (OSError, ValueError, KeyError, TypeError, StopIteration, OverflowError, RecursionError):
        raise UsageError(
            f"{adapter}: not a LoRA adapter folder of PEFT with a rank of at most {_RANKS[-1]}"
        ) from None


def _adapted_layers(adapter: Path) -> list[str]:
    """Returns the names of the weights of a PEFT adapter, from the header of its file.

    Raises UsageError for an incomplete file.
    """
    path = adapter / "adapter_model.safetensors"
    if not path.exists():
        return []
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return list(json.loads(file.read(min(length, _MAX_HEADER))))
    except (OSError, ValueError, TypeError, RecursionError):
        raise UsageError(f"{path}: incomplete safetensors file") from None


def _not_taken(log: Sequence[str], adapter: Path) -> str | None:
    """Returns the line of a server's log that says that it left out weights of the adapter.

    vLLM writes such lines also of layers that the adapter does not change.
    """
    changed = _adapted_layers(adapter)
    eyes = [layer for layer in changed if _VISION.search(layer)]
    for line in log:
        found = next(filter(None, (sign.search(line) for sign in _NOT_TAKEN)), None)
        if found is None:
            continue
        layer = found.groupdict().get("layer")
        if layer is None:
            if eyes:
                return line
            continue
        last = layer.rpartition(".")[2]
        names = _MERGED.get(last, {last})
        own = eyes if _VISION.search(f".{layer}.") else [x for x in changed if x not in eyes]
        if any(x.partition(".lora_")[0].rpartition(".")[2] in names for x in own):
            return line
    return None


def _vllm(python: str | None, model: str) -> tuple[str, ...]:
    """Returns the command that starts vLLM with a model. Raises MissingExtraError, UsageError."""
    if python is not None:
        found = shutil.which(str(Path(python).expanduser()))
        if found is None:
            raise UsageError(
                f"serve_python: {python} is not a Python interpreter; give that of an "
                "environment with vLLM installed"
            )
        return found, *_MODULE, *_flags({"model": model})
    search_path = os.pathsep.join(
        (os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent))
    )
    if (command := shutil.which("vllm", path=search_path)) is not None:
        return command, "serve", model
    if find_spec("vllm") is not None:
        return sys.executable, *_MODULE, *_flags({"model": model})
    raise MissingExtraError("vllm", "vllm")


def _flags(settings: Mapping[str, object]) -> Iterator[str]:
    """Yields vLLM settings as command-line arguments; settings that are None are omitted."""
    for name, value in settings.items():
        if value is not None:
            yield f"--{name.replace('_', '-')}"
            if value is not True:
                yield str(value)


def _share(command: Sequence[str]) -> float | None:
    """Returns the fraction of the device's memory in a command's arguments, in either spelling."""
    found = None
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name.lstrip("-").replace("_", "-") == "gpu-memory-utilization":
            try:
                found = float(value if equals else following)
            except ValueError:  # vLLM reports the error at its start
                found = None
    return found


def _split_options(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:
        raise UsageError(f"serve_options: {error}, in {options!r}") from None
