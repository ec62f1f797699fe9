"""The HTTP routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from prill.errors import InputError
from prill.refine.rewards import RewardResult
from prill.service.admission import AdmissionQueue
from prill.service.answers import INLINE, JobStatus, Judging, Results, ScoreRequest, decode, totals
from prill.service.contracts import (
    NemoGym,
    OpenRLHF,
    Slime,
    nemo_answer,
    nemo_failure,
    openrlhf_answer,
    slime_answer,
)
from prill.service.guard import CONTEXT, RequestContext, refusal
from prill.service.judge_queue import JudgeError
from prill.service.memory import BusyError, off_loop
from prill.service.metrics import Metrics, Probe
from prill.service.page import status_page
from prill.service.request_parsing import RequestParser
from prill.service.schemas import describe, document
from prill.service.spec import ServiceSpec
from prill.types import Trajectory

# Reasons that lie in the trajectory, not in the judge: the same request would fail again.
_OF_INPUT = frozenset({"input", "no_evidence"})


def make_app(
    spec: ServiceSpec, judging: Judging, admission: AdmissionQueue, metrics: Metrics
) -> Starlette:
    """Makes the ASGI application."""
    info = judging.judge_queue.reward.judge.info
    judge = info.name + (f" ({info.model})" if info.model else "")
    scores, trainers = _Scores(judging, judge), _Trainers(judging)
    status = _Status(spec, judging, admission, metrics, judge)
    described = (
        ("POST", "/v1/score", scores.score, describe("score", ScoreRequest, Results)),
        (
            "POST",
            "/v1/jobs",
            scores.begin_job,
            describe("begin_job", ScoreRequest, JobStatus, status=202),
        ),
        ("GET", "/v1/jobs/{job_id}", scores.job, describe("job", None, JobStatus, missing=True)),
        ("POST", "/get_reward", trainers.get_reward, describe("get_reward", OpenRLHF, None)),
        ("POST", "/rm", trainers.rm, describe("rm", Slime, None)),
        ("POST", "/verify", trainers.verify, describe("verify", NemoGym, None)),
        ("GET", "/healthz", status.healthz, describe("healthz", None, None)),
        ("GET", "/readyz", status.readyz, describe("readyz", None, None, busy=True)),
    )
    openapi = document(
        info.version, {path: {method.lower(): words} for method, path, _, words in described}
    )

    async def show_document(request: Request) -> Response:
        return _reply(openapi)

    routes = [Route(path, handler, methods=[method]) for method, path, handler, _ in described]
    routes += [
        Route("/metrics", status.metrics),
        Route("/", status.page),
        Route("/openapi.json", show_document),
    ]
    # Starlette raises again what only Exception covers, so that it is logged.
    kinds = (InputError, BusyError, JudgeError, HTTPException, Exception)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, _failed))


def _reply(record: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(record), status, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    """Returns the error response for an exception."""
    if isinstance(error, InputError):
        return refusal(422, "input", str(error))
    if isinstance(error, BusyError):
        return refusal(503, "busy", str(error), error.after)
    if isinstance(error, JudgeError):
        return refusal(503, "judge_unavailable", str(error), 10)
    if isinstance(error, HTTPException):
        what = f"{error.detail}; /openapi.json describes the routes"
        answer = refusal(error.status_code, "not_here", what)
        answer.headers.update(error.headers or {})
        return answer
    # Never include the exception's message: it may quote a request.
    return refusal(500, "internal", "an internal error of the service; see its log")


def _context(request: Request) -> RequestContext:
    found = request.scope[CONTEXT]
    assert isinstance(found, RequestContext)
    return found


class _Scores:
    """The service's own API."""

    def __init__(self, judging: Judging, judge: str) -> None:
        self._judging, self._judge = judging, judge

    async def score(self, request: Request) -> Response:
        context = _context(request)
        results = await self._judging.score(context.take(), context.reservation, context.deadline)
        return _reply(totals(results, self._judge))

    async def begin_job(self, request: Request) -> Response:
        context = _context(request)
        return _reply(await self._judging.begin(context.take(), context.reservation), 202)

    async def job(self, request: Request) -> Response:
        try:
            return _reply(self._judging.job(request.path_params["job_id"]))
        except KeyError:
            return refusal(404, "no_job", "unknown job; it may have expired")


class _Trainers:
    """The APIs of OpenRLHF, slime and NeMo-Gym."""

    def __init__(self, judging: Judging) -> None:
        self._judging = judging

    async def get_reward(self, request: Request) -> Response:
        def batch(data: bytes, parser: RequestParser) -> list[Trajectory]:
            wanted = decode(data, OpenRLHF)
            self._judging.check_count(len(wanted.query))
            return wanted.trajectories(parser)

        results = await self._results(_context(request), batch)
        failed = next((result for result in results if result.reward is None), None)
        return _reply(openrlhf_answer(results)) if failed is None else _without_reward(failed)

    async def rm(self, request: Request) -> Response:
        def single(data: bytes, parser: RequestParser) -> list[Trajectory]:
            return [decode(data, Slime).trajectory(parser)]

        [result] = await self._results(_context(request), single)
        if result.reward is None:
            return _without_reward(result)
        return _reply(
            slime_answer(
                result, detail=request.query_params.get("detail", "") not in ("", "0", "false")
            )
        )

    async def verify(self, request: Request) -> Response:
        def both(data: bytes, parser: RequestParser) -> tuple[Trajectory, dict[str, Any]]:
            return decode(data, NemoGym).made(parser), decode(data, dict[str, Any])

        context = _context(request)
        data = context.take()
        is_large = len(data) > INLINE
        trajectory, row = await self._judging.read(data, context.reservation, both)
        del data
        try:
            [result] = await self._judging.results(
                [trajectory], context.client, context.deadline, is_large=is_large
            )
            answer = nemo_answer(row, result)
        except JudgeError as error:
            answer = nemo_failure(row, str(error))
        return await off_loop(lambda: _reply(answer), is_large=True) if is_large else _reply(answer)

    async def _results(
        self, context: RequestContext, work: Callable[[bytes, RequestParser], list[Trajectory]]
    ) -> list[RewardResult]:
        data = context.take()
        is_large = len(data) > INLINE
        trajectories = await self._judging.read(data, context.reservation, work, lambda made: made)
        del data
        return await self._judging.results(
            trajectories, context.client, context.deadline, is_large=is_large
        )


def _without_reward(result: RewardResult) -> Response:
    code = result.verdict.unscored or "no_reward"
    return refusal(422 if code in _OF_INPUT else 502, code, result.problem)


class _Status:
    """The service's status: for probes, Prometheus and people."""

    def __init__(
        self,
        spec: ServiceSpec,
        judging: Judging,
        admission: AdmissionQueue,
        metrics: Metrics,
        judge: str,
    ) -> None:
        self._spec, self._judge_queue, self._admission, self._metrics, self._judge = (
            spec,
            judging.judge_queue,
            admission,
            metrics,
            judge,
        )
        self._probe = Probe(judging.judge_queue.reward.judge)

    async def healthz(self, request: Request) -> Response:
        return _reply({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        if self._admission.closed:
            return refusal(503, "ending", "the service is shutting down", 30)
        if trouble := await self._trouble():
            return refusal(503, "judge_unavailable", trouble, 10)
        return _reply({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def page(self, request: Request) -> Response:
        seconds = request.query_params.get("refresh", "")
        page = status_page(
            self._metrics,
            self._judge,
            ending=self._admission.closed,
            refresh=max(1, int(seconds)) if seconds.isascii() and seconds.isdigit() else None,
        )
        return Response(page, media_type="text/html")

    async def _trouble(self) -> str:
        if self._judge_queue.is_stalled(self._spec.longest_timeout):
            return (
                f"no judgement has finished for {self._spec.longest_timeout:g} s, and all "
                "slots are in use"
            )
        if self._metrics.health.just_broke:
            return self._metrics.health.trouble
        if not self._metrics.health.just_answered and await self._probe.trouble():
            return "the judge's endpoint cannot be reached"  # no address: any client may ask
        return ""
