"""The HTTP application: routes with their OpenAPI document, reading of requests, the whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from prill.errors import InputError
from prill.io.lines import check_values
from prill.refine.rewards import Reward
from prill.refine.rewards.service import contracts
from prill.refine.rewards.service.contracts import (
    NemoGym,
    OpenRLHF,
    Refusal,
    ScoreItem,
    ScoreRequest,
    Slime,
)
from prill.refine.rewards.service.guard import Guard, log, refusal
from prill.refine.rewards.service.judgements import (
    RETRY_AFTER,
    JudgeError,
    Judgements,
    Outcome,
    RefusedError,
    off_loop,
)
from prill.refine.rewards.service.metrics import Metrics
from prill.refine.rewards.service.request_parsing import RequestParser
from prill.refine.rewards.service.spec import ServiceSpec
from prill.types import Trajectory, Usage

_T = TypeVar("_T")
_S = TypeVar("_S")
MAX_VALUES = 400_000  # JSON values of one request
_INLINE = 64_000  # bytes; larger requests are parsed in a thread
_BODY_SECONDS = 60.0  # that a client may take to send a request
# Trainers' clients handle their timeouts (180 s and 120 s) badly, so a request is held slightly
# shorter than its client waits.
_OPENRLHF_SECONDS, _SLIME_SECONDS = 170.0, 110.0


@dataclass(frozen=True)
class Service:
    """A reward behind HTTP, as `make_service` builds it.

    Args:
        app: The ASGI application.
        judgements: The judgements under way.
        metrics: The metrics.
    """

    app: Starlette
    judgements: Judgements
    metrics: Metrics


_JUDGE_TIMEOUT = 600.0  # seconds of one verdict


def assemble(reward: Reward, spec: ServiceSpec, concurrency: int | None) -> Service:
    """Builds the service of `make_service`."""
    limit = reward.spec.judge_timeout or _JUDGE_TIMEOUT
    policy = "abstain" if reward.spec.on_unscored == "raise" else reward.spec.on_unscored
    # The time limit is kept by the judgements, whose slots it frees.
    reward = Reward(reward.judge, replace(reward.spec, on_unscored=policy, judge_timeout=None))
    tokens, metrics = spec.tokens(), Metrics()

    def judged(outcome: Outcome, waited: float, took: float) -> None:
        metrics.judged(outcome, waited, took)
        if isinstance(outcome, BaseException):
            log.warning("the judge failed: %s", type(outcome).__name__)
        elif spec.log == "verdicts":
            verdict = outcome.verdict
            word = verdict.unscored or ("success" if verdict.success else "failure")
            log.info("%r %s reward %s: %r", verdict.id, word, outcome.reward, verdict.reason)

    judgements = Judgements(
        reward,
        concurrency=concurrency,
        limit=spec.max_active,
        judge_seconds=limit,
        stalled_seconds=spec.request_timeout,
        judged=judged,
    )
    metrics.gauges(
        waiting=("Trajectories waiting for the judge", lambda: judgements.waiting),
        in_flight=("Trajectories being judged", lambda: judgements.in_flight),
        active=("Trajectories that requests wait for", lambda: judgements.active),
        concurrency=("Trajectories judged at once, at most", lambda: judgements.concurrency),
    )
    app = Starlette(
        routes=_Handlers(spec, judgements, metrics).routes(),
        middleware=[Middleware(Guard, spec=spec, tokens=tokens, metrics=metrics)],
        exception_handlers={HTTPException: _no_route},
    )
    return Service(app, judgements, metrics)


def _reply(record: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(record), status, media_type="application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{error.detail}; /openapi.json describes the routes"
    answer = refusal(error.status_code, "not_here", what)
    answer.headers.update(error.headers or {})
    return answer


class Operation(NamedTuple):
    """What a path does: its handler, and the types of its request's body, if any, and answer."""

    path: str
    handler: Callable[[Request], Awaitable[Response]]
    request: Any
    answer: Any

    @property
    def method(self) -> str:
        """POST if there is a body, else GET."""
        return "GET" if self.request is None else "POST"


class _Handlers:
    """The handlers of all routes, whose docstrings are descriptions in the OpenAPI document."""

    def __init__(self, spec: ServiceSpec, judgements: Judgements, metrics: Metrics) -> None:
        self._spec, self._judgements, self._metrics = spec, judgements, metrics
        self._parser = RequestParser(
            None if spec.media_root is None else Path(spec.media_root), spec.max_images
        )
        info = judgements.reward.judge.info
        self._judge = info.name + (f" ({info.model})" if info.model else "")
        row = dict[str, Any]
        self._operations = (
            Operation("/v1/score", self.score, ScoreRequest, contracts.Results),
            Operation("/get_reward", self.get_reward, OpenRLHF, contracts.OpenRLHFAnswer),
            Operation("/rm", self.rm, Slime, float | row),
            Operation("/verify", self.verify, NemoGym, row),
            Operation("/healthz", self.healthz, None, row),
            Operation("/readyz", self.readyz, None, row),
        )
        self._openapi = document(info.version, self._operations)

    def routes(self) -> list[Route]:
        """Returns the routes."""
        return [
            *(Route(one.path, one.handler, methods=[one.method]) for one in self._operations),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
        ]

    async def score(self, request: Request) -> Response:
        """Judges trajectories. Results are in the order of the items; an invalid item has an error
        in its result.
        """
        seconds = self._spec.request_timeout
        found, outcomes = await self._judged(request, ScoreRequest, ScoreRequest.read, seconds)
        if all(isinstance(outcome, JudgeError) for outcome in outcomes):
            raise outcomes[0]  # type: ignore[misc]
        results = [contracts.scored(id, one) for (id, _), one in zip(found, outcomes, strict=True)]
        usage = sum((one.usage for one in results), Usage())
        return _reply(contracts.Results(results, self._judge, usage))

    async def get_reward(self, request: Request) -> Response:
        """The contract of OpenRLHF (remote_url). An unscored trajectory is an error status, never a
        reward.
        """
        _, outcomes = await self._judged(request, OpenRLHF, OpenRLHF.read, _OPENRLHF_SECONDS)
        return _reply(contracts.openrlhf_answer(contracts.rewards(outcomes)))

    async def rm(self, request: Request) -> Response:
        """The contract of slime (remote_rm): a number; with ?detail=1 a table for its reward
        key.
        """
        _, outcomes = await self._judged(request, Slime, Slime.read, _SLIME_SECONDS)
        detail = request.query_params.get("detail", "") not in ("", "0", "false")
        return _reply(contracts.slime_answer(*contracts.rewards(outcomes), detail=detail))

    async def verify(self, request: Request) -> Response:
        """The contract of NeMo-Gym: the row with `reward`, or with `_ng_failure_class` if there is
        no verdict.
        """
        seconds = self._spec.request_timeout
        [(row, _)], [outcome] = await self._judged(
            request, msgspec.Raw, contracts.read_row, seconds
        )
        return _reply(contracts.nemo_answer(row, outcome))

    async def healthz(self, request: Request) -> Response:
        """Whether the process is alive."""
        return _reply({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Whether a judgement can finish."""
        if trouble := await self._judgements.trouble():
            return refusal(503, "judge_unavailable", trouble, RETRY_AFTER)
        return _reply({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        return _reply(self._openapi)

    async def _judged(
        self,
        request: Request,
        kind: type[_T],
        read: Callable[[_T, RequestParser], list[tuple[_S, Trajectory | Exception]]],
        seconds: float,
    ) -> tuple[list[tuple[_S, Trajectory | Exception]], list[contracts.Outcome]]:
        """Reads a request and judges the trajectories that `read` finds in it, each with a name.

        Returns both, in order. A request has one place among the judgements under way before it is
        read, and then one for each trajectory. Raises RefusedError, also at the end of the seconds,
        and InputError.
        """
        seconds = min(seconds, self._spec.request_timeout)
        deadline = asyncio.get_running_loop().time() + seconds
        with self._judgements.admitted():
            data = await self._body(request)

            def work() -> list[tuple[_S, Trajectory | Exception]]:
                try:
                    check_values(data, MAX_VALUES)
                except msgspec.ValidationError as error:
                    raise InputError(f"{error}, or send fewer trajectories at once") from None
                return read(contracts.decode(data, kind), self._parser.for_request())

            is_slow = len(data) > _INLINE or self._spec.media_root is not None
            found = await off_loop(work) if is_slow else work()
            limit = self._judgements.limit
            if not 0 < len(found) <= limit:
                raise InputError(
                    f"{len(found)} items; expected at least 1, and the limit is {limit}"
                )
            with self._judgements.admitted(len(found) - 1):
                outcomes = await asyncio.gather(*(self._outcome(one, deadline) for _, one in found))
        for outcome in outcomes:
            if isinstance(outcome, RefusedError) and not isinstance(outcome, JudgeError):
                raise outcome
        return found, outcomes

    async def _outcome(self, found: Trajectory | Exception, deadline: float) -> contracts.Outcome:
        if isinstance(found, Exception):
            return found
        try:
            answer = await self._judgements.result(found, deadline)
        except (InputError, RefusedError) as error:
            return error
        self._metrics.sources.labels(answer.source).inc()
        return answer

    async def _body(self, request: Request) -> bytes:
        headers, limit = request.headers, self._spec.max_body
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "not_json", "send JSON, with Content-Type: application/json")
        if headers.get("content-encoding", "identity") != "identity":
            problem = "compressed requests are not supported; send the request uncompressed"
            raise RefusedError(415, "packed", problem)
        large = f"the request has more than {limit:,} bytes, which is the limit"
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > limit:
            raise RefusedError(413, "too_large", large)
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > limit:
                        raise RefusedError(413, "too_large", large)
        except TimeoutError:
            problem = f"the request was not received within {_BODY_SECONDS:g} s"
            raise RefusedError(408, "slow", problem) from None
        return bytes(body)


def document(version: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """Returns the OpenAPI document."""
    kinds = [kind for one in operations for kind in (one.request, one.answer) if kind is not None]
    schemas, parts = msgspec.json.schema_components(
        [*kinds, ScoreItem, Trajectory, Refusal], ref_template="#/components/schemas/{name}"
    )
    # after their first line, descriptions concern Python
    for part in parts.values():
        if "description" in part:
            part["description"] = part["description"].partition("\n")[0]
    of_kinds, refusal = iter(schemas), _content("A refusal", schemas[-1])
    paths = {}
    for one in operations:
        described: dict[str, Any] = {"operationId": one.path.strip("/").replace("/", "_")}
        described["description"] = " ".join((one.handler.__doc__ or "").split())
        if one.request is not None:
            described["requestBody"] = {"required": True, **_content("", next(of_kinds))}
        answer = _content("The answer", next(of_kinds))
        described["responses"] = {"200": answer, "default": refusal}
        paths[one.path] = {one.method.lower(): described}
    return {
        "openapi": "3.1.0",
        "info": {"title": "prill reward service", "version": version},
        "paths": paths,
        "components": {"schemas": parts},
    }


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
