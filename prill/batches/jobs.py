"""Submits batch files to an endpoint and fetches the answers."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from prill.batches.anthropic import belongs_to, create, created_since, now, write_results
from prill.batches.folder import URL, Api, BatchFolder, RequestFile
from prill.errors import EndpointError, InputError, MissingExtraError, UsageError
from prill.io.outputs import expect_file, part_path, write_errors
from prill.models.replies import error_message
from prill.models.transport import Endpoint, azure_header

if TYPE_CHECKING:
    import anthropic
    import openai

Say = Callable[[str], None]
# Final batch statuses of OpenAI and Anthropic.
ENDED = ("completed", "expired", "cancelled", "failed", "ended")
_SECONDS = 600.0  # timeout of one request: uploading a 200 MB file takes a while
# metadata key for the hash of a batch's file, which prevents a second batch for the same file
_TAG = "prill_requests"
_ANTHROPIC = "anthropic.com"


class BatchError(EndpointError):
    """Raised after all files were processed if some had problems; one line per problem.

    `under_way`: the number of other batches that are still running.
    """

    def __init__(self, problems: Mapping[str, str], under_way: int = 0) -> None:
        super().__init__("\n".join(problems.values()))
        self.problems, self.under_way = dict(problems), under_way


async def submit(
    folder: BatchFolder, say: Say = lambda words: None, *, api: Api | None = None
) -> int:
    """Submits the request files that have not been submitted yet.

    After any failure the next call resumes: no file becomes two batches. A file with a problem does
    not stop the others.

    Args:
        folder: An open batch folder.
        say: Called for each file with a sentence that contains its name, the number of requests and
            the batch.
        api: The batch API of the endpoint. None: the API used before for this address, else
            Anthropic's for Anthropic's address and OpenAI's for any other.

    Returns:
        The number of submitted files in the folder.

    Raises:
        BatchError: Some files had problems; raised after all were tried.
        MissingExtraError: The package of the batch API is not installed.
    """
    expect_file(folder.path, "a batch")  # submissions must be recorded
    problems, closed = dict[str, str](), set[_EndpointKey]()
    earlier = {file.base_url: file.api for file in folder.manifest.files if file.api is not None}
    for entry in folder.manifest.files:
        if entry.batch is not None or entry.fetched or _endpoint_key(entry) in closed:
            continue
        entry = replace(
            entry, api=api or entry.api or earlier.get(entry.base_url) or detect_api(entry.base_url)
        )
        try:
            async with _API[entry.api or "openai"](
                entry, f"{entry.name} cannot be submitted"
            ) as desk:
                entry = await desk.submit(folder, entry)
        except (EndpointError, InputError) as error:
            problems[entry.name] = str(error)
            if isinstance(error, _ClosedError | _NotThereError):
                closed.add(_endpoint_key(entry))
            continue
        folder.update(entry)
        say(f"{entry.name}: {entry.requests} requests, batch {entry.batch} ({entry.status})")
    if problems:
        raise BatchError(problems)
    return sum(entry.batch is not None for entry in folder.manifest.files)


async def fetch(folder: BatchFolder, say: Say = lambda words: None) -> int:
    """Downloads the answers of the batches that have ended.

    A batch with a problem does not stop the others.

    Args:
        folder: An open batch folder.
        say: Called for each batch with a sentence.

    Returns:
        The number of batches that are still running.

    Raises:
        BatchError: Some batches had problems; raised after all were tried.
        MissingExtraError: The package of the batch API is not installed.
    """
    expect_file(folder.path, "a batch")
    under_way, problems, closed = 0, dict[str, str](), set[_EndpointKey]()
    for entry in folder.manifest.files:
        if entry.batch is None or entry.fetched or _endpoint_key(entry) in closed:
            continue
        try:
            async with _API[entry.api or "openai"](
                entry, f"batch {entry.batch} cannot be downloaded"
            ) as desk:
                under_way += await _fetch(folder, entry, desk, say)
        except (EndpointError, InputError) as error:
            problems[entry.name] = str(error)
            if isinstance(error, _ClosedError):
                closed.add(_endpoint_key(entry))
    if problems:
        raise BatchError(problems, under_way)
    return under_way


async def _fetch(folder: BatchFolder, entry: RequestFile, desk: _Desk, say: Say) -> bool:
    """Fetches the answers of one batch; returns True if it is still running."""
    looked = await desk.look(folder, entry)
    say(f"{entry.name}: batch {entry.batch} {looked.status}{looked.done}")
    if looked.status not in ENDED:
        folder.update(replace(entry, status=looked.status))
        return True
    if looked.foreign:
        # The right batch may exist too: `submit` looks for it first.
        folder.update(replace(entry, batch=None, status=looked.status))
        problem = (
            f"batch {entry.batch} does not contain the requests of {entry.name}; it was "
            "matched by mistake after the batch's name was lost"
        )
        raise EndpointError(f"{problem}; submit {entry.name} again")
    if not looked.files:
        # No request was executed, so the file can be submitted again.
        folder.update(replace(entry, batch=None, upload=None, status=looked.status))
        reason = _endpoint(entry).without_key(looked.problem) or "no answers"
        raise EndpointError(
            f"batch {entry.batch} of {entry.name} {looked.status}: {reason}; submit it again"
        )
    for id in looked.files:
        part = part_path(folder.path / entry.name)  # the server's id is not safe as a file name
        try:
            with write_errors(part):
                await desk.download(id, part)
            for problem in folder.take(part) if part.stat().st_size else ():
                say(problem)
        finally:
            part.unlink(missing_ok=True)
    folder.update(replace(entry, status=looked.status, fetched=True))
    return False


def detect_api(base_url: str) -> Api:
    """Returns the batch API of an address."""
    host = urlsplit(base_url).hostname or ""
    return "anthropic" if host == _ANTHROPIC or host.endswith(f".{_ANTHROPIC}") else "openai"


@dataclass(frozen=True)
class _BatchState:
    """The state of a batch at its API.

    `done` is the progress as text. Once the batch has ended, the ids of the result files are known.
    `foreign`: the batch contains other requests.
    """

    status: str
    done: str
    files: tuple[str, ...]
    problem: str = ""
    foreign: bool = False


_EndpointKey = tuple[str, str, str]  # address, environment variable of the key, model


class _ClosedError(EndpointError):
    """The connection failed or the key was rejected.

    All other requests to the same endpoint will fail too.
    """


class _NotThereError(EndpointError):
    """The requested resource does not exist: a batch, or the whole batch API."""


def _endpoint_key(entry: RequestFile) -> _EndpointKey:
    return entry.base_url, entry.api_key_env, entry.model


class _OpenAI:
    """OpenAI's batch API. `look` returns the state of a batch; `download` writes an answer file, as
    lines in OpenAI's format.
    """

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def submit(self, folder: BatchFolder, entry: RequestFile) -> RequestFile:
        path = folder.path / entry.name
        # batches of files with the same requests that were written again later
        used = {other.batch for other in folder.manifest.files}
        tag = await asyncio.to_thread(_compute_hash, path)
        known = [
            batch
            async for batch in self._client.batches.list(limit=100)
            if (batch.metadata or {}).get(_TAG) == tag
        ]
        free = (batch for batch in known if batch.id not in used)
        batch = next(
            (batch for batch in free if batch.status not in ENDED or batch.output_file_id), None
        )
        if batch is None:
            if entry.upload is None:
                entry = replace(
                    entry, upload=(await self._client.files.create(file=path, purpose="batch")).id
                )
                folder.update(entry)
            batch = await self._client.batches.create(
                input_file_id=entry.upload or "",
                endpoint=URL,  # type: ignore[arg-type]
                completion_window="24h",
                metadata={_TAG: tag},
            )
        return replace(entry, batch=batch.id, status=batch.status)

    async def look(self, folder: BatchFolder, entry: RequestFile) -> _BatchState:
        batch = await self._client.batches.retrieve(entry.batch or "")
        counts = batch.request_counts
        done = (
            f", {counts.completed} done and {counts.failed} failed of {counts.total}"
            if counts
            else ""
        )
        files = () if batch.status == "failed" else (batch.output_file_id, batch.error_file_id)
        reasons = "; ".join(
            error.message or "" for error in (batch.errors.data if batch.errors else None) or ()
        )
        return _BatchState(batch.status, done, tuple(id for id in files if id), reasons)

    async def download(self, id: str, target: Path) -> None:
        async with self._client.files.with_streaming_response.content(id) as content:
            await content.stream_to_file(target)


class _Anthropic:
    """Anthropic's batch API, with the methods of `_OpenAI`."""

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def submit(self, folder: BatchFolder, entry: RequestFile) -> RequestFile:
        batch = None
        if entry.upload is not None:  # creating a batch was started, but its id was not stored
            used = [other.batch for other in folder.manifest.files]
            batch = await created_since(
                self._client, datetime.fromisoformat(entry.upload), folder.path / entry.name, used
            )
        if batch is None:
            entry = replace(entry, upload=now())
            folder.update(entry)
            batch = await create(self._client, folder.path / entry.name)
        return replace(entry, batch=batch.id, status=batch.processing_status)

    async def look(self, folder: BatchFolder, entry: RequestFile) -> _BatchState:
        batch = await self._client.messages.batches.retrieve(entry.batch or "")
        counts = batch.request_counts
        failed = counts.errored + counts.canceled + counts.expired
        done = f", {counts.succeeded} done and {failed} failed of {entry.requests}"
        files = (batch.id,) if batch.results_url else ()
        foreign = not await belongs_to(self._client, batch, folder.path / entry.name)
        lost = "its results are no longer kept" if batch.archived_at else ""
        return _BatchState(batch.processing_status, done, files, lost, foreign)

    async def download(self, id: str, target: Path) -> None:
        await write_results(self._client, id, target)


@asynccontextmanager
async def _openai(entry: RequestFile, problem: str) -> AsyncIterator[_OpenAI]:
    endpoint = _endpoint(entry)
    async with await _client(endpoint, problem) as client, _reported("openai", endpoint, problem):
        yield _OpenAI(client)


@asynccontextmanager
async def _anthropic(entry: RequestFile, problem: str) -> AsyncIterator[_Anthropic]:
    try:
        from anthropic import AsyncAnthropic
    except ImportError:
        raise MissingExtraError("anthropic", "anthropic") from None
    endpoint = _endpoint(entry)
    key = await _key(endpoint, problem)
    # the configured address is that of the OpenAI-compatible endpoint
    base_url = endpoint.base_url.removesuffix("/v1")
    async with (
        AsyncAnthropic(api_key=key, base_url=base_url, timeout=_SECONDS) as client,
        _reported("anthropic", endpoint, problem),
    ):
        yield _Anthropic(client)


_Desk = _OpenAI | _Anthropic
_API: Mapping[Api, Callable[[RequestFile, str], AbstractAsyncContextManager[_Desk]]]
_API = {"openai": _openai, "anthropic": _anthropic}


def _endpoint(entry: RequestFile) -> Endpoint:
    return Endpoint(entry.base_url, entry.api_key_env, 4, _SECONDS, 6 * _SECONDS, 0)


async def _client(endpoint: Endpoint, problem: str) -> openai.AsyncOpenAI:
    """Returns OpenAI's SDK client for an endpoint.

    Only the file and batch APIs use the SDK; calls to models do not.
    """
    import openai

    key, url = await _key(endpoint, problem), urlsplit(endpoint.base_url)
    return openai.AsyncOpenAI(
        base_url=url._replace(query="").geturl(),
        api_key=key,
        timeout=_SECONDS,
        default_query=dict(parse_qsl(url.query)),
        default_headers=azure_header(url, key),
    )


async def _key(endpoint: Endpoint, problem: str) -> str:
    try:
        # sends nothing, but raises if the key, proxy or certificates are invalid
        await endpoint.connection()
        return endpoint.key()
    except UsageError as error:
        raise _ClosedError(f"{problem}: {error}") from None


@asynccontextmanager
async def _reported(library: str, endpoint: Endpoint, problem: str) -> AsyncIterator[None]:
    """Converts the library's exceptions inside the block to EndpointError.

    The message begins with `problem`.
    """
    # both SDKs come from the same generator and have the same error names
    sdk = importlib.import_module(library)
    try:
        yield
    except sdk.APIStatusError as error:
        message = endpoint.without_key(error_message(error.body, error.response.reason_phrase))
        advice = (
            "; if it has no batch API, run the requests yourself and pass the answers to collect"
        )
        answer = f"{endpoint.place} answers HTTP {error.status_code}: {message}"
        kind = {401: _ClosedError, 403: _ClosedError, 404: _NotThereError}.get(
            error.status_code, EndpointError
        )
        raise kind(f"{problem}: {answer}{advice if error.status_code == 404 else ''}") from None
    except sdk.APIConnectionError as error:
        if (refused := _refused_certificate(error)) is not None:
            raise _ClosedError(f"{problem}: {endpoint.no_trust(refused)}") from None
        why = endpoint.without_key(str(error.__cause__ or error))
        raise _ClosedError(f"{problem}: cannot reach {endpoint.place} ({why})") from None
    except (
        _http_library().HTTPError
    ) as error:  # the SDKs do not wrap errors that occur during a download
        why = endpoint.without_key(str(error) or type(error).__name__)
        raise EndpointError(
            f"{problem}: the connection to {endpoint.place} broke ({why})"
        ) from None
    except OSError as error:  # reading the request file failed
        raise InputError(
            f"{problem}: {error.filename}: {error.strerror}; write a new batch"
        ) from None
    # for example a proxy's HTML page, which the SDKs pass on unchanged
    except (AttributeError, ValueError) as error:
        raise EndpointError(
            f"{problem}: {endpoint.place} does not answer like a batch API"
        ) from error


def _http_library() -> Any:
    """Returns the HTTP library of the installed SDK: httpx2 from version 3 on, httpx before.

    Some trainers pin older SDK versions.
    """
    import openai

    return importlib.import_module("httpx" if openai.__version__.startswith("2.") else "httpx2")


def _refused_certificate(error: BaseException | None) -> BaseException | None:
    """Returns the certificate error among an exception's causes, or None."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return getattr(error, "certificate_error", error)


def _compute_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
