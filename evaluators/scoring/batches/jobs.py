"""Submits batch files to an endpoint and fetches the answers."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from prill.errors import EndpointError, InputError, MissingExtraError, UsageError
from prill.evaluators.scoring.batches.anthropic import AnthropicBatches
from prill.evaluators.scoring.batches.folder import (
    URL,
    Api,
    BatchFolder,
    BatchState,
    NotOursError,
    RequestFile,
)
from prill.io.outputs import part_path, write_errors
from prill.models.replies import error_message
from prill.models.transport import Endpoint, azure_header

if TYPE_CHECKING:
    import openai

_log = logging.getLogger("prill.runs")
# Final batch statuses of OpenAI and Anthropic.
ENDED = ("completed", "expired", "cancelled", "failed", "ended")
_SECONDS = 600.0  # timeout of one request: uploading a 200 MB file takes a while
# metadata key for the hash of a batch's file, which prevents a second batch for the same file
_TAG = "prill_requests"
_ANTHROPIC = "anthropic.com"


async def exchange(
    folder: BatchFolder, problems: dict[str, str], *, api: Api | None = None
) -> tuple[bool, int]:
    """Submits the request files that have no batch yet, and downloads the answers of batches that
    have ended.

    After any failure the next call resumes: no file becomes two batches. A file with a problem does
    not stop the others, but nothing more is submitted with a key to an address that
    refused a file.

    Args:
        folder: An open batch folder.
        problems: Messages by file; these files are skipped, and new problems are added.
        api: The batch API. None: the API used before for the address, else Anthropic's for
            Anthropic's address and OpenAI's for any other.

    Returns:
        Whether answers arrived, and the number of batches under way.

    Raises:
        MissingExtraError: The package of the batch API is not installed.
    """
    arrived, under_way, closed = False, 0, set[tuple[str, str]]()
    earlier = {file.base_url: file.api for file in folder.manifest.files if file.api is not None}
    for entry in folder.manifest.files:
        new, place = entry.batch is None, (entry.base_url, entry.api_key_env)
        if new:
            used = api or entry.api or earlier.get(entry.base_url) or detect_api(entry.base_url)
            entry = replace(entry, api=used)
        if entry.api == "none":
            folder.update(entry)
        if (
            entry.fetched
            or entry.name in problems
            or entry.api == "none"
            or (new and place in closed)
        ):
            continue
        what = f"{entry.name} cannot be submitted"
        try:
            async with _connected(
                entry, what if new else f"batch {entry.batch} cannot be downloaded"
            ) as desk:
                if new:
                    entry = await desk.submit(folder, entry)
                    folder.update(entry)
                    _log.info("%s: %s requests, batch %s", entry.name, entry.requests, entry.batch)
                fetched = not new and await _fetch(folder, entry, desk)
                arrived, under_way = arrived or fetched, under_way + (not fetched)
        except (EndpointError, InputError) as error:
            problems[entry.name] = str(error)
            if new:
                closed.add(place)
    return arrived, under_way


async def _fetch(folder: BatchFolder, entry: RequestFile, desk: _Desk) -> bool:
    """Fetches the answers of one batch; returns False if it is still running."""
    state, endpoint = await desk.look(entry), _endpoint(entry)
    entry = replace(entry, status=state.status)
    _log.info("%s: batch %s %s%s", entry.name, entry.batch, state.status, state.done)
    if state.status not in ENDED:
        folder.update(entry)
        return False
    if not state.files:
        # No request was executed, so the file can be submitted again.
        folder.update(replace(entry, batch=None, upload=None))
        reason = endpoint.without_key(state.problem) or "no answers"
        raise EndpointError(
            f"batch {entry.batch} of {entry.name} {state.status}: {reason}; the same command "
            "submits it again"
        )
    for id in state.files:
        part = part_path(folder.path / entry.name)  # the server's id is not safe as a file name
        try:
            with write_errors(part):
                await desk.download(id, part)
            for problem in folder.take(part, endpoint.hide_key):
                _log.info(problem)
        except NotOursError:
            # The right batch may exist too: the next submission looks for it first.
            folder.update(replace(entry, batch=None))
            raise EndpointError(
                f"batch {entry.batch} does not contain the requests of {entry.name}; it was "
                "matched by mistake after the batch's name was lost; the same command submits "
                "the file again"
            ) from None
        finally:
            part.unlink(missing_ok=True)
    folder.update(replace(entry, fetched=True))
    return True


def detect_api(base_url: str) -> Api:
    """Returns the batch API of an address."""
    host = urlsplit(base_url).hostname or ""
    return "anthropic" if host == _ANTHROPIC or host.endswith(f".{_ANTHROPIC}") else "openai"


class _OpenAI:
    """OpenAI's batch API, with the methods of `AnthropicBatches`."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def submit(self, folder: BatchFolder, entry: RequestFile) -> RequestFile:
        path = folder.path / entry.name
        # batches of files with the same requests that were written again later
        used = {other.batch for other in folder.manifest.files}
        with path.open("rb") as file:
            tag = await asyncio.to_thread(lambda: hashlib.file_digest(file, "sha256").hexdigest())
        async for batch in self._client.batches.list(limit=100):
            if (
                (batch.metadata or {}).get(_TAG) == tag
                and batch.id not in used
                and (batch.status not in ENDED or batch.output_file_id)
            ):
                break
        else:
            if entry.upload is None:
                uploaded = await self._client.files.create(file=path, purpose="batch")
                entry = replace(entry, upload=uploaded.id)
                folder.update(entry)
            batch = await self._client.batches.create(
                input_file_id=entry.upload or "",
                endpoint=URL,  # type: ignore[arg-type]
                completion_window="24h",
                metadata={_TAG: tag},
            )
        return replace(entry, batch=batch.id, status=batch.status)

    async def look(self, entry: RequestFile) -> BatchState:
        batch = await self._client.batches.retrieve(entry.batch or "")
        counts = batch.request_counts
        done = (
            f", {counts.completed} done and {counts.failed} failed of {counts.total}"
            if counts
            else ""
        )
        files = () if batch.status == "failed" else (batch.output_file_id, batch.error_file_id)
        errors = (batch.errors.data if batch.errors else None) or ()
        reasons = "; ".join(error.message or "" for error in errors)
        return BatchState(batch.status, done, tuple(id for id in files if id), reasons)

    async def download(self, id: str, target: Path) -> None:
        async with self._client.files.with_streaming_response.content(id) as content:
            await content.stream_to_file(target)


_Desk = _OpenAI | AnthropicBatches


def _endpoint(entry: RequestFile) -> Endpoint:
    return Endpoint(entry.base_url, entry.api_key_env, 4, _SECONDS, 0)


@asynccontextmanager
async def _connected(entry: RequestFile, problem: str) -> AsyncIterator[_Desk]:
    """Yields the batch API of a request file. Its errors become EndpointError, after `problem`.

    The SDKs' exceptions have the same names: both come from the same generator.
    """
    endpoint, api = _endpoint(entry), entry.api or "openai"
    try:
        sdk: Any = importlib.import_module(api)
    except ImportError:
        raise MissingExtraError(api, "batch") from None
    # httpx or httpx2, by the version; its errors reach us during a download
    http: Any = importlib.import_module(sdk.Timeout.__init__.__module__.partition(".")[0])
    url, place = urlsplit(endpoint.base_url), endpoint.place
    try:
        # sends nothing, but raises if the key, proxy or certificates are invalid
        await endpoint.connection()
        key = endpoint.key()
        if api == "anthropic":
            # the configured address is that of the OpenAI-compatible endpoint
            base_url = endpoint.base_url.removesuffix("/v1")
            client = sdk.AsyncAnthropic(api_key=key, base_url=base_url, timeout=_SECONDS)
        else:
            client = sdk.AsyncOpenAI(
                base_url=url._replace(query="").geturl(),
                api_key=key,
                timeout=_SECONDS,
                default_query=dict(parse_qsl(url.query)),
                default_headers=azure_header(url, key),
            )
        async with client:
            yield AnthropicBatches(client) if api == "anthropic" else _OpenAI(client)
    except sdk.APIStatusError as error:
        message = endpoint.without_key(error_message(error.body, error.response.reason_phrase))
        why = f"{place} answers HTTP {error.status_code}: {message}"
        if error.status_code == 404:
            why += "; if it has no batch API, run the requests yourself and name the answers"
    except (sdk.APIConnectionError, http.HTTPError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
            cause = cause.__cause__ or cause.__context__
        reason = endpoint.without_key(str(error.__cause__ or error) or type(error).__name__)
        why = str(endpoint.no_trust(cause)) if cause else f"cannot reach {place} ({reason})"
    except UsageError as error:
        why = str(error)
    except OSError as error:  # reading the request file failed
        raise InputError(
            f"{problem}: {error.filename}: {error.strerror}; write a new batch"
        ) from None
    # for example a proxy's HTML page, which the SDKs pass on unchanged
    except (AttributeError, ValueError):
        why = f"{place} does not answer like a batch API"
    else:
        return
    raise EndpointError(f"{problem}: {why}")
