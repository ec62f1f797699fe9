"""What each address does with a request that was let in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from prill.errors import InputError
from prill.refine.rewards import RewardResult
from prill.service.admission import AdmissionQueue, Busy
from prill.service.answers import INLINE, JobStatus, Judging, Results, ScoreRequest, decode, totals
from prill.service.board import Board, Probe, registry_of
from prill.service.contracts import NemoGym, OpenRLHF, Slime, nemo_answer, nemo_failure, openrlhf_answer, slime_answer
from prill.service.desk import JudgeBroke
from prill.service.guard import VISIT, Visit, problem
from prill.service.intake import Intake
from prill.service.memory import off_loop
from prill.service.page import status_page
from prill.service.schemas import components, describe
from prill.service.spec import ServiceSpec
from prill.types import Trajectory

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

# What is wrong with the trajectory, not with the judge: the same request would end the same way.
_OF_INPUT = frozenset({"input", "no_evidence"})


def make_app(spec: ServiceSpec, judging: Judging, admission: AdmissionQueue, board: Board, judge: str, version: str) -> FastAPI:
    """The application; `judge` is the name that pages and answers have for it. Raises ImportError without its packages."""
    from fastapi import FastAPI

    app = FastAPI(title="prill reward service", version=version, docs_url=None, redoc_url=None)
    document = app.openapi

    def described() -> dict[str, Any]:
        found = document()
        found.setdefault("components", {}).setdefault("schemas", {}).update(components())
        return found

    setattr(app, "openapi", described)  # noqa: B010 - a method, to type checkers
    _add_failures(app)
    scores, trainers = _Scores(judging, judge), _Trainers(judging)
    status = _Status(spec, judging, admission, board, judge)
    _add(app, "POST", "/v1/score", scores.score, **describe("score", ScoreRequest, Results))
    _add(app, "POST", "/v1/jobs", scores.begin_job, 202, **describe("begin_job", ScoreRequest, JobStatus, status=202))
    _add(app, "GET", "/v1/jobs/{job_id}", scores.job, **describe("job", None, JobStatus, missing=True))
    _add(app, "POST", "/get_reward", trainers.get_reward, **describe("get_reward", OpenRLHF, None))
    _add(app, "POST", "/rm", trainers.rm, **describe("rm", Slime, None))
    _add(app, "POST", "/verify", trainers.verify, **describe("verify", NemoGym, None))
    _add(app, "GET", "/healthz", status.healthz, **describe("healthz", None, None))
    _add(app, "GET", "/readyz", status.readyz, **describe("readyz", None, None, busy=True))
    _add(app, "GET", "/metrics", status.metrics, include_in_schema=False)
    _add(app, "GET", "/", status.page, include_in_schema=False)
    return app


def _add(
    app: FastAPI, method: str, path: str, handler: Callable[[Request], Awaitable[Response]], status: int = 200, **described: Any
) -> None:
    """FastAPI looks at a handler's annotations; ours wait, since its package is imported only where a service is made."""
    from fastapi import Request

    async def endpoint(request):  # type: ignore[no-untyped-def]
        return await handler(request)

    endpoint.__annotations__["request"] = Request
    app.add_api_route(path, endpoint, methods=[method], status_code=status, **described)


def _reply(record: object, status: int = 200) -> Response:
    from fastapi import Response

    return Response(msgspec.json.encode(record), status, media_type="application/json")


def _refusal(status: int, code: str, words: str, after: float | None = None) -> Response:
    from fastapi import Response

    headers = {} if after is None else {"retry-after": str(max(1, round(after)))}
    return Response(problem(code, words), status, headers, media_type="application/json")


def _add_failures(app: FastAPI) -> None:
    """Each error that a handler raises, as the refusal that it is."""
    from starlette.exceptions import HTTPException

    async def broken_input(request: Request, error: Exception) -> Response:
        return _refusal(422, "input", str(error))

    async def busy(request: Request, error: Exception) -> Response:
        return _refusal(503, "busy", str(error), error.after if isinstance(error, Busy) else None)

    async def judge_broke(request: Request, error: Exception) -> Response:
        return _refusal(503, "judge_unavailable", str(error), 10)

    async def not_here(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        answer = _refusal(error.status_code, "not_here", f"{error.detail}: /openapi.json describes what there is")
        answer.headers.update(error.headers or {})
        return answer

    async def broken(request: Request, error: Exception) -> Response:
        # Never what it said: it may quote a request.
        return _refusal(500, "internal", "an error of the service: its log says where")

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        InputError: broken_input,
        Busy: busy,
        JudgeBroke: judge_broke,
        HTTPException: not_here,
        Exception: broken,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _visit(request: Request) -> Visit:
    found = request.scope[VISIT]
    assert isinstance(found, Visit)
    return found


class _Scores:
    """The service's own contract."""

    def __init__(self, judging: Judging, judge: str) -> None:
        self._judging, self._judge = judging, judge

    async def score(self, request: Request) -> Response:
        visit = _visit(request)
        results = await self._judging.score(visit.take(), visit.held, visit.deadline)
        return _reply(totals(results, self._judge))

    async def begin_job(self, request: Request) -> Response:
        visit = _visit(request)
        return _reply(await self._judging.begin(visit.take(), visit.held), 202)

    async def job(self, request: Request) -> Response:
        try:
            return _reply(self._judging.job(request.path_params["job_id"]))
        except KeyError:
            return _refusal(404, "no_job", "there is no such job, or it was finished long ago")


class _Trainers:
    """The contracts of OpenRLHF, slime and NeMo-Gym."""

    def __init__(self, judging: Judging) -> None:
        self._judging = judging

    async def get_reward(self, request: Request) -> Response:
        def batch(data: bytes, intake: Intake) -> list[Trajectory]:
            wanted = decode(data, OpenRLHF)
            self._judging.check_count(len(wanted.query))
            return wanted.trajectories(intake)

        results = await self._results(_visit(request), batch)
        failed = next((result for result in results if result.reward is None), None)
        return _reply(openrlhf_answer(results)) if failed is None else _without_reward(failed)

    async def rm(self, request: Request) -> Response:
        def single(data: bytes, intake: Intake) -> list[Trajectory]:
            return [decode(data, Slime).trajectory(intake)]

        [result] = await self._results(_visit(request), single)
        if result.reward is None:
            return _without_reward(result)
        return _reply(slime_answer(result, detail=request.query_params.get("detail", "") not in ("", "0", "false")))

    async def verify(self, request: Request) -> Response:
        def both(data: bytes, intake: Intake) -> tuple[Trajectory, dict[str, Any]]:
            return decode(data, NemoGym).made(intake), decode(data, dict[str, Any])

        visit = _visit(request)
        data = visit.take()
        is_large = len(data) > INLINE
        trajectory, row = await self._judging.read(data, visit.held, both)
        del data
        try:
            [result] = await self._judging.results([trajectory], visit.client, visit.deadline, is_large=is_large)
            answer = nemo_answer(row, result)
        except JudgeBroke as error:
            answer = nemo_failure(row, str(error))
        return await off_loop(lambda: _reply(answer), is_large=True) if is_large else _reply(answer)

    async def _results(self, visit: Visit, work: Callable[[bytes, Intake], list[Trajectory]]) -> list[RewardResult]:
        data = visit.take()
        is_large = len(data) > INLINE
        trajectories = await self._judging.read(data, visit.held, work, lambda made: made)
        del data
        return await self._judging.results(trajectories, visit.client, visit.deadline, is_large=is_large)


def _without_reward(result: RewardResult) -> Response:
    code = result.verdict.unscored or "no_reward"
    return _refusal(422 if code in _OF_INPUT else 502, code, result.problem)


class _Status:
    """How the service is: for probes, Prometheus and people."""

    def __init__(self, spec: ServiceSpec, judging: Judging, admission: AdmissionQueue, board: Board, judge: str) -> None:
        self._spec, self._desk, self._admission, self._board, self._judge = spec, judging.desk, admission, board, judge
        self._probe = Probe(judging.desk.reward.judge)
        self._registry = registry_of(board)

    async def healthz(self, request: Request) -> Response:
        return _reply({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        if self._admission.closed:
            return _refusal(503, "ending", "the service is ending", 30)
        if trouble := await self._trouble():
            return _refusal(503, "judge_unavailable", trouble, 10)
        return _reply({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        from fastapi import Response
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def page(self, request: Request) -> Response:
        from fastapi import Response

        page = status_page(self._board, self._judge, ending=self._admission.closed)
        return Response(page, media_type="text/html")

    async def _trouble(self) -> str:
        if self._desk.is_stalled(self._spec.longest_hold):
            return f"no judgement has ended for {self._spec.longest_hold:g} s, and all slots are taken"
        if self._board.just_broke:
            return self._board.trouble
        if not self._board.just_answered and await self._probe.trouble():
            return "the judge's endpoint cannot be reached"  # not where it is: anybody may ask
        return ""
