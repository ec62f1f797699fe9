"""Converts requests and results to and from Anthropic's Message Batches API.

Request files are always in OpenAI's format. Fields that the Messages API lacks (log-probabilities,
seed, image detail) are dropped, as Anthropic's own OpenAI-compatible endpoint does. Scores are
therefore 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from prill.errors import InputError
from prill.io.lines import UNREADABLE

if TYPE_CHECKING:
    import anthropic
    from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

# `stop_reason` of the Messages API -> `finish_reason` of chat completions.
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
# "type" of an error, as Anthropic's package and documentation list them -> HTTP status.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_SAME = ("model", "temperature", "top_p", "top_k")
_CLOCKS = timedelta(minutes=5)  # maximum difference between the local and the server's clock


def message_params(body: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a body for `/chat/completions` to parameters of the Messages API.

    Raises InputError for content that the API does not accept.
    """
    from anthropic import transform_schema

    params: dict[str, Any] = {name: body[name] for name in _SAME if name in body}
    params["max_tokens"] = body.get("max_completion_tokens", body.get("max_tokens", 1024))
    system = [
        block for m in body["messages"] if m["role"] == "system" for block in _blocks(m["content"])
    ]
    if system:
        params["system"] = system
    params["messages"] = [
        {"role": m["role"], "content": _blocks(m["content"])}
        for m in body["messages"]
        if m["role"] != "system"
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


async def create(client: anthropic.AsyncAnthropic, path: Path) -> MessageBatch:
    """Submits a request file once.

    If it is interrupted, the batch may still have been created.
    """
    requests = [_wanted(path, number, request) for number, request in _requests(path)]
    return await client.with_options(max_retries=0).messages.batches.create(requests=requests)  # type: ignore[arg-type]


async def created_since(
    client: anthropic.AsyncAnthropic, moment: datetime, path: Path, used: Iterable[str | None]
) -> MessageBatch | None:
    """Finds the batch that was created for a request file after a given time, if its id was lost.

    Batches in `used` are skipped. Only the results of a batch show its requests, so a running
    batch is matched by its number of requests alone; `belongs_to` verifies it later.
    """
    known, requests = set(used), len(_ids(path))
    async for batch in client.messages.batches.list(limit=100):  # newest first
        if batch.created_at < moment - _CLOCKS:
            return None
        counts = batch.request_counts
        total = (
            counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
        )
        if total == requests and batch.id not in known and await belongs_to(client, batch, path):
            return batch
    return None


async def belongs_to(client: anthropic.AsyncAnthropic, batch: MessageBatch, path: Path) -> bool:
    """Returns whether an ended batch belongs to a request file; True as long as that is unknown."""
    if not batch.results_url:
        return True
    results = await client.messages.batches.results(batch.id)
    try:
        async for result in results:
            return result.custom_id in _ids(path)
    finally:
        await results.close()
    return True


async def write_results(client: anthropic.AsyncAnthropic, id: str, target: Path) -> None:
    """Writes the results of an ended batch as answer lines."""
    with target.open("wb") as file:
        async for result in await client.messages.batches.results(id):
            file.write(msgspec.json.encode(answer_line(id, result)) + b"\n")


def now() -> str:
    """Returns the current time in the format that the batch folder stores."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Request(msgspec.Struct):
    custom_id: str
    body: msgspec.Raw


def _requests(path: Path) -> Iterator[tuple[int, _Request]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, msgspec.json.decode(line, type=_Request)
            except UNREADABLE as error:
                raise InputError(
                    f"{path}:{number}: not a batch request ({error}); write a new batch"
                ) from None


def _ids(path: Path) -> set[str]:
    return {request.custom_id for _, request in _requests(path)}


def _wanted(path: Path, number: int, request: _Request) -> dict[str, Any]:
    try:
        return {
            "custom_id": request.custom_id,
            "params": message_params(msgspec.json.decode(request.body)),
        }
    except InputError as error:
        raise InputError(f"{path}:{number}: {error}") from None


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_block(part) for part in parts]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    if part["type"] != "image_url":
        raise InputError(
            f"Anthropic's batch API does not accept message parts of type {part['type']!r}"
        )
    url = part["image_url"]["url"]
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _completion(message: anthropic.types.Message) -> dict[str, Any]:
    text = "".join(block.text for block in message.content if block.type == "text")
    thoughts = "".join(block.thinking for block in message.content if block.type == "thinking")
    turn = {"role": "assistant", "content": text} | (
        {"reasoning_content": thoughts} if thoughts else {}
    )
    usage = message.usage
    read = (
        usage.input_tokens
        + (usage.cache_read_input_tokens or 0)
        + (usage.cache_creation_input_tokens or 0)
    )
    return {
        "id": message.id,
        "object": "chat.completion",
        "model": message.model,
        "choices": [
            {
                "index": 0,
                "message": turn,
                "finish_reason": _FINISH.get(message.stop_reason or "", "stop"),
            }
        ],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": usage.output_tokens,
            "total_tokens": read + usage.output_tokens,
        },
    }
