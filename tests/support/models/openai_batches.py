"""The files and batches API of OpenAI, as the mock server implements it.

A batch is done after `batch_polls` status requests. A fraction `batch_expired` of its requests is
never executed, and a fraction `batch_failed` fails; both go to the error file, as with OpenAI.
Batches with such requests end as expired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tests.support.models.batch_server import Answer, BatchFaults, json_answer

if TYPE_CHECKING:
    from aiohttp import web


_encode = msgspec.json.encode


@dataclass
class _Batch:
    id: str
    input: str
    metadata: dict[str, str]
    polls: int
    status: str = "validating"
    output: str | None = None
    errors: str | None = None
    counts: dict[str, int] = field(
        default_factory=lambda: {"total": 0, "completed": 0, "failed": 0}
    )
    problem: str | None = None

    def record(self) -> dict[str, Any]:
        """Returns the batch as the API shows it."""
        errors = {"object": "list", "data": [{"message": self.problem}]} if self.problem else None
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": self.input,
            "completion_window": "24h",
            "created_at": 1_700_000_000,
            "status": self.status,
            "output_file_id": self.output,
            "error_file_id": self.errors,
            "request_counts": self.counts,
            "metadata": self.metadata,
            "errors": errors,
        }


class BatchAPI:
    """The files and batches of one server."""

    def __init__(
        self,
        faults: BatchFaults,
        answer: Answer,
        refusal: Callable[[web.Request], web.Response | None],
    ) -> None:
        self._faults, self._answer, self._refusal = faults, answer, refusal
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, _Batch] = {}

    def add_routes(self, app: web.Application) -> None:
        """Adds the routes to an application."""
        app.router.add_post("/v1/files", self.upload)
        app.router.add_get("/v1/files/{id}/content", self.content)
        app.router.add_post("/v1/batches", self.create)
        app.router.add_get("/v1/batches", self.list)
        app.router.add_get("/v1/batches/{id}", self.get)

    async def upload(self, http: web.Request) -> web.Response:
        """Handles a file upload."""
        from aiohttp import web

        if (refusal := self._refusal(http)) is not None:
            return refusal
        form = await http.post()
        part = form.get("file")
        if not isinstance(part, web.FileField) or form.get("purpose") != "batch":
            return _refused(400, "give a file, and the purpose batch")
        data = part.file.read()
        id = self._keep(data)
        record = {"id": id, "object": "file", "bytes": len(data), "created_at": 1_700_000_000}
        return json_answer(
            {**record, "filename": part.filename, "purpose": "batch", "status": "processed"}
        )

    async def content(self, http: web.Request) -> web.Response:
        """Returns the content of a file."""
        from aiohttp import web

        data = self._files.get(http.match_info["id"])
        return _refused(404, "no such file") if data is None else web.Response(body=data)

    async def create(self, http: web.Request) -> web.Response:
        """Creates a batch."""
        request = msgspec.json.decode(await http.read())
        if (
            request.get("input_file_id") not in self._files
            or request.get("endpoint") != "/v1/chat/completions"
        ):
            return _refused(400, "no such file or endpoint")
        batch = _Batch(
            f"batch_{len(self._batches) + 1}",
            request["input_file_id"],
            request.get("metadata") or {},
            self._faults.batch_polls,
        )
        self._batches[batch.id] = batch
        return json_answer(batch.record())

    async def list(self, http: web.Request) -> web.Response:
        """Returns all batches."""
        if (refusal := self._refusal(http)) is not None:
            return refusal
        return json_answer(
            {
                "object": "list",
                "data": [batch.record() for batch in self._batches.values()],
                "has_more": False,
            }
        )

    async def get(self, http: web.Request) -> web.Response:
        """Returns one batch, which is executed at the last status request that it waits for."""
        batch = self._batches.get(http.match_info["id"])
        if batch is None:
            return _refused(404, "no such batch")
        batch.polls -= 1
        if batch.polls <= 0 and batch.status in ("validating", "in_progress"):
            self._execute(batch)
        elif batch.status == "validating":
            batch.status = "in_progress"
        return json_answer(batch.record())

    def _execute(self, batch: _Batch) -> None:
        lines = self._files[batch.input].splitlines()
        requests = [msgspec.json.decode(line, type=_Request) for line in lines]
        ids = [request.custom_id for request in requests]
        if (
            len(set(ids)) < len(ids)
            or len({msgspec.json.decode(request.body)["model"] for request in requests}) > 1
        ):
            batch.status, batch.problem = (
                "failed",
                "The custom_id of each request must be unique, and the model the same.",
            )
            return
        output, errors = bytearray(), bytearray()
        expired = 0
        for number, request in enumerate(requests):
            outcome = self._faults.outcome(batch.id, number)
            line: dict[str, Any] = {
                "id": f"batch_req_{batch.id}_{number}",
                "custom_id": request.custom_id,
            }
            if outcome == "expired":
                expired += 1
                error = {
                    "code": "batch_expired",
                    "message": "This request could not be executed before it expired.",
                }
                errors += _encode({**line, "response": None, "error": error}) + b"\n"
                continue
            status, body = self._answer(bytes(request.body))
            if outcome == "failed":
                status, body = (
                    500,
                    _encode(
                        {"error": {"message": "The server had an error.", "type": "server_error"}}
                    ),
                )
            answered = {
                "status_code": status,
                "request_id": f"req_{number}",
                "body": msgspec.Raw(body),
            }
            (output if status == 200 else errors).extend(
                _encode({**line, "response": answered, "error": None}) + b"\n"
            )
        failed = errors.count(b"\n")
        batch.counts = {
            "total": len(requests),
            "completed": len(requests) - failed,
            "failed": failed,
        }
        batch.output = self._keep(bytes(output)) if output else None
        batch.errors = self._keep(bytes(errors)) if errors else None
        batch.status = "expired" if expired else "completed"

    def _keep(self, data: bytes) -> str:
        id = f"file-{len(self._files) + 1}"
        self._files[id] = data
        return id


@dataclass(frozen=True)
class _Request:
    custom_id: str
    body: msgspec.Raw


def _refused(status: int, message: str) -> web.Response:
    return json_answer(
        {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
        status,
    )
