"""Anthropic's Message Batches API, and requests and results as it has them.

Request files are always in OpenAI's format. Fields that the Messages API lacks (log-probabilities,
seed, image detail) are dropped, as Anthropic's own OpenAI-compatible endpoint does. Scores are
therefore 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from prill.evaluators.scoring.batches.folder import BatchFolder, BatchState, RequestFile
from prill.io.lines import decode_json

if TYPE_CHECKING:
    import anthropic
    from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

# `stop_reason` of the Messages API -> `finish_reason` of chat completions; all others: stop.
_FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
# "type" of an error -> HTTP status, where it says something about the request; all others: 500.
_STATUS = {"invalid_request_error": 400, "request_too_large": 413}
_SAME = ("model", "temperature", "top_p", "top_k")
_CLOCKS = timedelta(minutes=5)  # maximum difference between the local and the server's clock


def message_params(body: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a body for `/chat/completions` to parameters of the Messages API."""
    from anthropic import transform_schema

    params: dict[str, Any] = {name: body[name] for name in _SAME if name in body}
    params["max_tokens"] = body.get("max_completion_tokens", body.get("max_tokens", 1024))
    turns = [(turn["role"], _blocks(turn["content"])) for turn in body["messages"]]
    if system := [block for role, blocks in turns if role == "system" for block in blocks]:
        params["system"] = system
    params["messages"] = [
        {"role": role, "content": blocks} for role, blocks in turns if role != "system"
    ]
    config: dict[str, Any] = {}
    if (form := body.get("response_format") or {}).get("type") == "json_schema":
        config["format"] = {
            "type": "json_schema",
            "schema": transform_schema(form["json_schema"]["schema"]),
        }
    if body.get("reasoning_effort") in ("low", "medium", "high"):
        config["effort"] = body["reasoning_effort"]
    return params | ({"output_config": config} if config else {})


def answer_line(batch: str, result: MessageBatchIndividualResponse) -> dict[str, Any]:
    """Converts a result to an answer line in OpenAI's format.

    The line's id contains the batch id, because a later batch may fail with the same text.
    """
    line: dict[str, Any] = {
        "id": f"{batch}-{result.custom_id}",
        "custom_id": result.custom_id,
        "response": None,
        "error": None,
    }
    outcome = result.result
    if outcome.type == "succeeded":
        return line | {"response": {"status_code": 200, "body": _completion(outcome.message)}}
    if outcome.type == "errored":
        error = outcome.error.error
        body = {"error": {"message": error.message, "type": error.type}}
        return line | {"response": {"status_code": _STATUS.get(error.type, 500), "body": body}}
    code = "batch_expired" if outcome.type == "expired" else "batch_cancelled"
    return line | {"error": {"code": code, "message": f"the request was {outcome.type}"}}


class AnthropicBatches:
    """Anthropic's batch API: `submit` returns a request file with its batch, `look` returns the
    state of a batch, and `download` writes the answers.
    """

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def submit(self, folder: BatchFolder, entry: RequestFile) -> RequestFile:
        """Creates the batch of a request file, or finds it if its id was lost."""
        path, batch = folder.path / entry.name, None
        if entry.upload is not None:  # creating a batch was started, but its id was not stored
            used = {other.batch for other in folder.manifest.files}
            batch = await self._created_since(datetime.fromisoformat(entry.upload), path, used)
        if batch is None:
            entry = replace(entry, upload=datetime.now(UTC).isoformat(timespec="seconds"))
            folder.update(entry)
            requests = [
                {"custom_id": request.custom_id, "params": message_params(request.body)}
                for request in _requests(path)
            ]
            # interrupted, it may still have created the batch: no second try
            once = self._client.with_options(max_retries=0)
            batch = await once.messages.batches.create(requests=requests)  # type: ignore[arg-type]
        return replace(entry, batch=batch.id, status=batch.processing_status)

    async def look(self, entry: RequestFile) -> BatchState:
        """Returns the state of a batch."""
        batch = await self._client.messages.batches.retrieve(entry.batch or "")
        counts = batch.request_counts
        failed = counts.errored + counts.canceled + counts.expired
        return BatchState(
            batch.processing_status,
            f", {counts.succeeded} done and {failed} failed of {entry.requests}",
            (batch.id,) if batch.results_url else (),
            "its results are no longer kept" if batch.archived_at else "",
        )

    async def download(self, id: str, target: Path) -> None:
        """Writes the results of an ended batch as answer lines."""
        with target.open("wb") as file:
            async for result in await self._client.messages.batches.results(id):
                file.write(msgspec.json.encode(answer_line(id, result)) + b"\n")

    async def _created_since(
        self, moment: datetime, path: Path, used: set[str | None]
    ) -> MessageBatch | None:
        """Finds the batch that was created for a request file after a given time.

        Only the results of a batch show its requests, so a running batch is matched by its number
        of requests alone; its results are refused later if they are of others.
        """
        ids = {request.custom_id for request in _requests(path)}
        async for batch in self._client.messages.batches.list(limit=100):  # newest first
            if batch.created_at < moment - _CLOCKS:
                return None
            if batch.id in used or sum(batch.request_counts.to_dict().values()) != len(ids):  # type: ignore[arg-type]
                continue
            if not batch.results_url:
                return batch
            async for result in await self._client.messages.batches.results(batch.id):
                if result.custom_id in ids:
                    return batch
                break
        return None


class _Request(msgspec.Struct):
    custom_id: str
    body: dict[str, Any]


def _requests(path: Path) -> Iterator[_Request]:
    with path.open("rb") as file:
        for line in file:
            yield decode_json(line, _Request, f"{path}: not a batch request", "start a new batch")


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_block(part) for part in parts]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    url = part["image_url"]["url"]
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _completion(message: anthropic.types.Message) -> dict[str, Any]:
    text = "".join(block.text for block in message.content if block.type == "text")
    thoughts = "".join(block.thinking for block in message.content if block.type == "thinking")
    usage = message.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    read = usage.input_tokens + cached
    return {
        "id": message.id,
        "object": "chat.completion",
        "model": message.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "reasoning_content": thoughts},
                "finish_reason": _FINISH.get(message.stop_reason or "", "stop"),
            }
        ],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": usage.output_tokens,
            "total_tokens": read + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens or 0},
        },
    }
