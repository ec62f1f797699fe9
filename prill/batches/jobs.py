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
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from prill.batches.folder import URL, Api, BatchFolder, RequestFile
from prill.errors import EndpointError, InputError, MissingExtraError, UsageError
from prill.io.outputs import expect_place, failures, part_path
from prill.models.replies import error_message
from prill.models.transport import Endpoint, azure_header

if TYPE_CHECKING:
    import anthropic
    import openai

Say = Callable[[str], None]
# What ends a batch, in OpenAI's words and in Anthropic's.
ENDED = ("completed", "expired", "cancelled", "failed", "ended")
_SECONDS = 600.0  # for one request: a file of 200 MB takes a while
# in a batch's metadata: the hash of its file, so that no file becomes two batches
_TAG = "prill_requests"
_ANTHROPIC = "anthropic.com"


class BatchError(EndpointError):
    """Errors of some files, one line each; the others were handled.

    `under_way`: how many batches of the others go on.
    """

    def __init__(self, problems: Mapping[str, str], under_way: int = 0) -> None:
        super().__init__("\n".join(problems.values()))
        self.problems, self.under_way = dict(problems), under_way


async def submit(
    folder: BatchFolder, say: Say = lambda words: None, *, api: Api | None = None
) -> int:
    """Submits the request files that are not submitted yet.

    After any failure the next call resumes: no file becomes two batches. A file with a problem does
    not stop the others.

    Args:
        folder: An open batch folder.
        say: Called with a sentence for each file: its name, the number of requests and the batch.
        api: The batch API of the endpoint. None: that of earlier files for this address, else
            Anthropic's where the address is Anthropic's, and OpenAI's elsewhere.

    Returns:
        How many files of the folder are submitted by now.

    Raises:
        BatchError: Some files had problems; raised after all were tried.
        MissingExtraError: The package of the batch API is not installed.
    """
    expect_place(folder.path, "a batch")  # what is submitted must be noted
    problems, closed = dict[str, str](), set[_Door]()
    earlier = {file.base_url: file.api for file in folder.manifest.files if file.api is not None}
    for entry in folder.manifest.files:
        if entry.batch is not None or entry.fetched or _door(entry) in closed:
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
                closed.add(_door(entry))
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
        say: Called with a sentence for each batch.

    Returns:
        How many batches are still running.

    Raises:
        BatchError: Some batches had problems; raised after all were tried.
        MissingExtraError: The package of the batch API is not installed.
    """
    expect_place(folder.path, "a batch")
    under_way, problems, closed = 0, dict[str, str](), set[_Door]()
    for entry in folder.manifest.files:
        if entry.batch is None or entry.fetched or _door(entry) in closed:
            continue
        try:
            async with _API[entry.api or "openai"](
                entry, f"batch {entry.batch} cannot be fetched"
            ) as desk:
                under_way += await _fetch(folder, entry, desk, say)
        except (EndpointError, InputError) as error:
            problems[entry.name] = str(error)
            if isinstance(error, _ClosedError):
                closed.add(_door(entry))
    if problems:
        raise BatchError(problems, under_way)
    return under_way


async def _fetch(folder: BatchFolder, entry: RequestFile, desk: _Desk, say: Say) -> bool:
    """Fetches the answers of one batch; True when it is still under way."""
    looked = await desk.look(folder, entry)
    say(f"{entry.name}: batch {entry.batch} {looked.status}{looked.done}")
    if looked.status not in ENDED:
        folder.update(replace(entry, status=looked.status))
        return True
    if looked.foreign:
        # Its own batch may be there beside it: submitting looks for that one first.
        folder.update(replace(entry, batch=None, status=looked.status))
        problem = (
            f"batch {entry.batch} is of other requests than {entry.name}: it was taken for "
            "one whose name was lost"
        )
        raise EndpointError(f"{problem}; submit {entry.name} again")
    if not looked.files:
        # Nothing was carried out: it is submitted again.
        folder.update(replace(entry, batch=None, upload=None, status=looked.status))
        reason = _endpoint(entry).without_key(looked.problem) or "no answers"
        raise EndpointError(
            f"batch {entry.batch} of {entry.name} {looked.status}: {reason}; submit it again"
        )
    for id in looked.files:
        part = part_path(folder.path / entry.name)  # the id is a server's, and no name of a file
        try:
            with failures(part):
                await desk.download(id, part)
            for problem in folder.take(part) if part.stat().st_size else ():
                say(problem)
        finally:
            part.unlink(missing_ok=True)
    folder.update(replace(entry, status=looked.status, fetched=True))
    return False


def detect_api(base_url: str) -> Api:
    """Whose batch API there is at an address."""
    host = urlsplit(base_url).hostname or ""
    return "anthropic" if host == _ANTHROPIC or host.endswith(f".{_ANTHROPIC}") else "openai"


@dataclass(frozen=True)
class _Looked:
    """What a batch API says of a batch: `done` in words, and the ids of what can be downloaded once
    it has ended.

    `foreign`: it answers other requests.
    """

    status: str
    done: str
    files: tuple[str, ...]
    problem: str = ""
    foreign: bool = False


_Door = tuple[str, str, str]  # an address, what holds the key for it, and a model there


class _ClosedError(EndpointError):
    """No connection came about, or the key is not accepted: so it is with whatever else is to go
    there.
    """


class _NotThereError(EndpointError):
    """What was asked for is not there: a batch, or the whole batch API."""


def _door(entry: RequestFile) -> _Door:
    return entry.base_url, entry.api_key_env, entry.model


class _Desk(Protocol):
    """A batch API."""

    async def submit(self, folder: BatchFolder, entry: RequestFile) -> RequestFile:
        """The entry with the name of the batch that its file has become."""
        ...

    async def look(self, folder: BatchFolder, entry: RequestFile) -> _Looked:
        """The state of the batch."""
        ...

    async def download(self, id: str, target: Path) -> None:
        """Writes a file of answers, as lines in OpenAI's form."""
        ...


class _OpenAI:
    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def submit(self, folder: BatchFolder, entry: RequestFile) -> RequestFile:
        path = folder.path / entry.name
        # of files with the same requests, written again since
        taken = {other.batch for other in folder.manifest.files}
        tag = await asyncio.to_thread(_compute_hash, path)
        known = [
            batch
            async for batch in self._client.batches.list(limit=100)
            if (batch.metadata or {}).get(_TAG) == tag
        ]
        free = (batch for batch in known if batch.id not in taken)
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

    async def look(self, folder: BatchFolder, entry: RequestFile) -> _Looked:
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
        return _Looked(batch.status, done, tuple(id for id in files if id), reasons)

    async def download(self, id: str, target: Path) -> None:
        async with self._client.files.with_streaming_response.content(id) as content:
            await content.stream_to_file(target)


class _Anthropic:
    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def submit(self, folder: BatchFolder, entry: RequestFile) -> RequestFile:
        from prill.batches.anthropic import create, created_since, now

        batch = None
        if entry.upload is not None:  # a batch was to be made, and its name is not here
            taken = [other.batch for other in folder.manifest.files]
            batch = await created_since(
                self._client, datetime.fromisoformat(entry.upload), folder.path / entry.name, taken
            )
        if batch is None:
            entry = replace(entry, upload=now())
            folder.update(entry)
            batch = await create(self._client, folder.path / entry.name)
        return replace(entry, batch=batch.id, status=batch.processing_status)

    async def look(self, folder: BatchFolder, entry: RequestFile) -> _Looked:
        from prill.batches.anthropic import belongs_to

        batch = await self._client.messages.batches.retrieve(entry.batch or "")
        counts = batch.request_counts
        failed = counts.errored + counts.canceled + counts.expired
        done = f", {counts.succeeded} done and {failed} failed of {entry.requests}"
        files = (batch.id,) if batch.results_url else ()
        foreign = not await belongs_to(self._client, batch, folder.path / entry.name)
        gone = "its results are no longer kept" if batch.archived_at else ""
        return _Looked(batch.processing_status, done, files, gone, foreign)

    async def download(self, id: str, target: Path) -> None:
        from prill.batches.anthropic import write_results

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
    # of the endpoint that speaks OpenAI's language
    base_url = endpoint.base_url.removesuffix("/v1")
    async with (
        AsyncAnthropic(api_key=key, base_url=base_url, timeout=_SECONDS) as client,
        _reported("anthropic", endpoint, problem),
    ):
        yield _Anthropic(client)


_API: Mapping[Api, Callable[[RequestFile, str], AbstractAsyncContextManager[_Desk]]]
_API = {"openai": _openai, "anthropic": _anthropic}


def _endpoint(entry: RequestFile) -> Endpoint:
    return Endpoint(entry.base_url, entry.api_key_env, 4, _SECONDS, 6 * _SECONDS, 0)


async def _client(endpoint: Endpoint, problem: str) -> openai.AsyncOpenAI:
    """OpenAI's SDK for an endpoint. Calls to models do without it: its files and batches are what
    nothing else here has.
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
        # sends nothing, and raises what is wrong with key, proxy or certificates
        await endpoint.connection()
        return endpoint.key()
    except UsageError as error:
        raise _ClosedError(f"{problem}: {error}") from None


@asynccontextmanager
async def _reported(library: str, endpoint: Endpoint, problem: str) -> AsyncIterator[None]:
    """What the library raises inside becomes an EndpointError that begins with the problem."""
    # both are made by the same generator, and name their errors alike
    sdk = importlib.import_module(library)
    try:
        yield
    except sdk.APIStatusError as error:
        message = endpoint.without_key(error_message(error.body, error.response.reason_phrase))
        advice = (
            "; without a batch API there, carry the files out yourself and give the answers "
            "to collect"
        )
        said = f"{endpoint.place} answers HTTP {error.status_code}: {message}"
        kind = {401: _ClosedError, 403: _ClosedError, 404: _NotThereError}.get(
            error.status_code, EndpointError
        )
        raise kind(f"{problem}: {said}{advice if error.status_code == 404 else ''}") from None
    except sdk.APIConnectionError as error:
        if (refused := _refused_certificate(error)) is not None:
            raise _ClosedError(f"{problem}: {endpoint.no_trust(refused)}") from None
        why = endpoint.without_key(str(error.__cause__ or error))
        raise _ClosedError(f"{problem}: cannot reach {endpoint.place} ({why})") from None
    except _http_library().HTTPError as error:  # while a file comes: it is handed on as it is
        why = endpoint.without_key(str(error) or type(error).__name__)
        raise EndpointError(
            f"{problem}: the connection to {endpoint.place} broke ({why})"
        ) from None
    except OSError as error:  # of the file of requests
        raise InputError(
            f"{problem}: {error.filename}: {error.strerror}; write a new batch"
        ) from None
    # a page of a proxy, say: the libraries go on with it as it is
    except (AttributeError, ValueError) as error:
        raise EndpointError(
            f"{problem}: {endpoint.place} does not answer as a batch API does"
        ) from error


def _http_library() -> Any:
    """The library that the installed SDK sends by: httpx2 from version 3 on, httpx before, which
    some trainers pin.
    """
    import openai

    return importlib.import_module("httpx" if openai.__version__.startswith("2.") else "httpx2")


def _refused_certificate(error: BaseException | None) -> BaseException | None:
    """What says, among the causes of an error, that a certificate was not accepted; None where
    nothing does.
    """
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return getattr(error, "certificate_error", error)


def _compute_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
