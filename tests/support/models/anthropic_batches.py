"""The Message Batches API of Anthropic, as the mock server implements it.

As with the original, requests are validated when the batch is executed: an invalid one gives an
errored result. `batch_polls`, `batch_expired` and `batch_failed` work as in OpenAI's batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tests.support.models.batch_server import Answer, BatchFaults, json_answer

if TYPE_CHECKING:
    from aiohttp import web

_PATH = "/v1/messages/batches"
_KNOWN = {
    "model", "max_tokens", "messages", "system", "temperature", "top_p", "top_k", "output_config",
}  # fmt: skip
_NEEDED = ("model", "max_tokens", "messages")
# JSON Schema keywords that structured outputs reject (Anthropic's documentation, "JSON Schema
# limitations").
_BOUNDS = {"minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems"}
_STOPPED = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_encode = msgspec.json.encode


class _InvalidRequestError(Exception):
    """An invalid request, with the API's error message."""


@dataclass
class _Batch:
    requests: list[dict[str, Any]]
    polls: int
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    results: list[dict[str, Any]] | None = None


class MessagesDesk:
    """The message batches of one server.

    Requests must have a key (`Authorization`, or `x-api-key` as older clients send it) and
    `anthropic-version`.
    """

    def __init__(self, faults: BatchFaults, answer: Answer) -> None:
        self._faults, self._answer = faults, answer
        self._batches: dict[str, _Batch] = {}

    def add_routes(self, app: web.Application) -> None:
        """Adds the routes to an application."""
        app.router.add_post(_PATH, self.create)
        app.router.add_get(_PATH, self.list)
        app.router.add_get(_PATH + "/{id}", self.look)
        app.router.add_get(_PATH + "/{id}/results", self.results)

    async def create(self, http: web.Request) -> web.Response:
        """Creates a batch."""
        if (refusal := self._refusal(http)) is not None:
            return refusal
        requests = msgspec.json.decode(await http.read()).get("requests") or []
        ids = [request["custom_id"] for request in requests]
        if not ids or len(set(ids)) < len(ids) or any(not 0 < len(id) <= 64 for id in ids):
            return _refused(
                400,
                "requests: give at least one; custom_id must be unique and of 1 to 64 characters",
            )
        id = f"msgbatch_{len(self._batches) + 1}"
        self._batches[id] = _Batch(requests, self._faults.batch_polls)
        return json_answer(self._record(http, id))

    async def list(self, http: web.Request) -> web.Response:
        """Returns all batches, the newest first."""
        if (refusal := self._refusal(http)) is not None:
            return refusal
        records = [self._record(http, id) for id in reversed(self._batches)]
        return json_answer({"data": records, "has_more": False, "first_id": None, "last_id": None})

    async def look(self, http: web.Request) -> web.Response:
        """Returns one batch, which is executed at the last status request that it waits for."""
        if (refusal := self._refusal(http)) is not None:
            return refusal
        id = http.match_info["id"]
        if (batch := self._batches.get(id)) is None:
            return _refused(404, "no such batch")
        batch.polls -= 1
        if batch.polls <= 0 and batch.results is None:
            batch.results = [
                self._result(id, number, request) for number, request in enumerate(batch.requests)
            ]
        return json_answer(self._record(http, id))

    async def results(self, http: web.Request) -> web.Response:
        """Returns the results in reverse order, because the API guarantees no order."""
        from aiohttp import web

        if (refusal := self._refusal(http)) is not None:
            return refusal
        batch = self._batches.get(http.match_info["id"])
        if batch is None or batch.results is None:
            return _refused(404, "no results")
        return web.Response(
            body=b"".join(_encode(result) + b"\n" for result in reversed(batch.results))
        )

    def _refusal(self, http: web.Request) -> web.Response | None:
        if self._faults.refuse_key or not {"authorization", "x-api-key"} & {
            name.lower() for name in http.headers
        }:
            return _refused(401, "invalid API key", "authentication_error")
        if "anthropic-version" not in http.headers:
            return _refused(400, "anthropic-version: header is required")
        return None

    def _result(self, batch: str, number: int, request: Mapping[str, Any]) -> dict[str, Any]:
        outcome = self._faults.outcome(batch, number)
        if outcome == "expired":
            result: dict[str, Any] = {"type": "expired"}
        elif outcome == "failed":
            result = _errored("api_error", "Internal server error")
        else:
            result = self._outcome(request["params"])
        return {"custom_id": request["custom_id"], "result": result}

    def _outcome(self, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            status, data = self._answer(_encode(_as_completion(params)))
        except _InvalidRequestError as wrong:
            return _errored("invalid_request_error", str(wrong))
        answer = msgspec.json.decode(data)
        if status != 200:
            return _errored(
                "invalid_request_error" if status < 500 else "api_error", answer["error"]["message"]
            )
        choice, usage = answer["choices"][0], answer["usage"]
        reply = choice["message"]
        content, refused = reply["content"], reply.get("refusal") is not None
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": params["model"],
            "content": [{"type": "text", "text": content}] if content else [],
            "stop_reason": "refusal" if refused else _STOPPED[choice["finish_reason"]],
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
            },
        }
        return {"type": "succeeded", "message": message}

    def _record(self, http: web.Request, id: str) -> dict[str, Any]:
        batch = self._batches[id]
        kinds = [result["result"]["type"] for result in batch.results or ()]
        counts = {
            kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled", "expired")
        }
        return {
            "id": id,
            "type": "message_batch",
            "processing_status": "in_progress" if batch.results is None else "ended",
            "request_counts": counts | {"processing": len(batch.requests) - len(kinds)},
            "created_at": batch.created,
            "expires_at": batch.created,
            "ended_at": None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": None
            if batch.results is None
            else f"{http.url.origin()}{_PATH}/{id}/results",
        }


def _as_completion(params: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the request to a completion request.

    Raises _InvalidRequestError with the Messages API's message.
    """
    if unknown := sorted(params.keys() - _KNOWN):
        raise _InvalidRequestError(f"{unknown[0]}: Extra inputs are not permitted")
    if missing := [name for name in _NEEDED if name not in params]:
        raise _InvalidRequestError(f"{missing[0]}: Field required")
    if wrong := [
        message["role"]
        for message in params["messages"]
        if message["role"] not in ("user", "assistant")
    ]:
        raise _InvalidRequestError(
            f"messages: role '{wrong[0]}' is not allowed; use the top-level `system` parameter"
        )
    messages = [
        {"role": message["role"], "content": [_part(b) for b in message["content"]]}
        for message in params["messages"]
    ]
    if system := params.get("system"):
        messages.insert(0, {"role": "system", "content": [_part(block) for block in system]})
    body = {
        name: params[name]
        for name in ("model", "max_tokens", "temperature", "top_p")
        if name in params
    }
    if form := params.get("output_config", {}).get("format"):
        if bounds := sorted(_names(form["schema"]) & _BOUNDS):
            raise _InvalidRequestError(
                f"output_config.format.schema: property '{bounds[0]}' is not supported"
            )
        schema = {"name": "verdict", "strict": True, "schema": form["schema"]}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body | {"messages": messages}


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    source = block["source"]
    url = (
        source["url"]
        if source["type"] == "url"
        else f"data:{source['media_type']};base64,{source['data']}"
    )
    return {"type": "image_url", "image_url": {"url": url}}


def _names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_names, schema))
    return (
        {*schema, *set().union(*map(_names, schema.values()))}
        if isinstance(schema, dict)
        else set()
    )


def _errored(kind: str, message: str) -> dict[str, Any]:
    return {
        "type": "errored",
        "error": {"type": "error", "error": {"type": kind, "message": message}, "request_id": None},
    }


def _refused(status: int, message: str, kind: str = "invalid_request_error") -> web.Response:
    return json_answer({"type": "error", "error": {"type": kind, "message": message}}, status)
