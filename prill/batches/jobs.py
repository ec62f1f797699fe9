"""Batches at an endpoint: files of requests carried there, and their answers fetched, by OpenAI's files and batches API."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from prill.batches.folder import URL, BatchFolder, RequestFile
from prill.errors import EndpointError
from prill.files.outputs import failures, part_of
from prill.models.transport import Endpoint, http_library
from prill.models.wire import error_message

if TYPE_CHECKING:
    import openai

# What ends a batch, in OpenAI's words; all but the first may leave requests that were never carried out.
ENDED = ("completed", "expired", "cancelled", "failed")
_SECONDS = 600.0  # for one request: a file of 200 MB takes a while
_TAG = "prill_requests"  # in a batch's metadata: the hash of its file, so that no file becomes two batches


async def submit(folder: BatchFolder, say: Callable[[str], None] = lambda words: None) -> int:
    """Makes batches of the files that are none yet, and says of each what it is called; gives how many there are in all.

    Whatever breaks, the next call goes on from there: no file becomes two batches. Raises EndpointError.
    """
    for entry in folder.manifest.files:
        if entry.batch is not None or entry.fetched:
            continue
        path = folder.path / entry.name
        taken = {other.batch for other in folder.manifest.files}  # of files with the same requests, written anew since
        async with _api(entry, f"{entry.name} cannot be submitted") as client:
            tag = await asyncio.to_thread(_hash_of, path)
            known = [batch async for batch in client.batches.list(limit=100) if (batch.metadata or {}).get(_TAG) == tag]
            free = (batch for batch in known if batch.id not in taken)
            batch = next((batch for batch in free if batch.status not in ENDED or batch.output_file_id), None)
            if batch is None:
                if entry.upload is None:
                    entry = replace(entry, upload=(await client.files.create(file=path, purpose="batch")).id)
                    folder.update(entry)
                batch = await client.batches.create(
                    input_file_id=entry.upload or "",
                    endpoint=URL,  # type: ignore[arg-type]
                    completion_window="24h",
                    metadata={_TAG: tag},
                )
        folder.update(replace(entry, batch=batch.id, status=batch.status))
        say(f"{entry.name}: {entry.requests} requests, batch {batch.id} ({batch.status})")
    return sum(entry.batch is not None for entry in folder.manifest.files)


async def fetch(folder: BatchFolder, say: Callable[[str], None] = lambda words: None) -> int:
    """Fetches the answers of the batches that have ended, and gives how many are still under way. Raises EndpointError."""
    under_way = 0
    for entry in folder.manifest.files:
        if entry.batch is None or entry.fetched:
            continue
        async with _api(entry, f"batch {entry.batch} cannot be fetched") as client:
            batch = await client.batches.retrieve(entry.batch)
            counts = batch.request_counts
            done = f", {counts.completed} done and {counts.failed} failed of {counts.total}" if counts else ""
            say(f"{entry.name}: batch {batch.id} {batch.status}{done}")
            if batch.status not in ENDED:
                under_way += 1
                folder.update(replace(entry, status=batch.status))
                continue
            files = [id for id in (batch.output_file_id, batch.error_file_id) if id]
            if batch.status == "failed" or not files:
                # Nothing was carried out: it is submitted anew.
                folder.update(replace(entry, batch=None, upload=None, status=batch.status))
                reasons = "; ".join(error.message or "" for error in (batch.errors.data if batch.errors else None) or ())
                raise EndpointError(
                    f"batch {batch.id} of {entry.name} {batch.status}: {reasons or 'no answers'}; submit it again"
                )
            for id in files:
                part = part_of(folder.path / id)
                try:
                    with failures(part):
                        async with client.files.with_streaming_response.content(id) as content:
                            await content.stream_to_file(part)
                    for problem in folder.take(part) if part.stat().st_size else ():
                        say(problem)
                finally:
                    part.unlink(missing_ok=True)
        folder.update(replace(entry, status=batch.status, fetched=True))
    return under_way


@asynccontextmanager
async def _api(entry: RequestFile, problem: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """The client for a file's endpoint; what it raises is an EndpointError that begins with the problem."""
    import aiohttp
    import openai

    endpoint = Endpoint(entry.base_url, entry.api_key_env, 4, _SECONDS, 6 * _SECONDS, 0)
    connection = await endpoint.connection()
    try:
        yield connection.client.with_options(max_retries=2)
    except openai.APIStatusError as error:
        message = endpoint.without_key(error_message(error.body, error.response.reason_phrase))
        advice = "; without a batch API there, carry the files out yourself and give the answers to collect"
        said = f"{endpoint.place} answers HTTP {error.status_code}: {message}"
        raise EndpointError(f"{problem}: {said}{advice if error.status_code == 404 else ''}") from None
    except openai.APIConnectionError as error:
        raise EndpointError(f"{problem}: cannot reach {endpoint.place} ({error.__cause__ or error})") from None
    except (aiohttp.ClientError, http_library().HTTPError) as error:  # while a file comes: openai hands these on as they are
        raise EndpointError(f"{problem}: the connection to {endpoint.place} broke ({error or type(error).__name__})") from None


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
