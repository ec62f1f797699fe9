"""The application: what each address does, and its description as OpenAPI.

Annotations of the handlers are looked at by FastAPI while they are defined, so this module has none that wait.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from prill.errors import InputError, MissingExtra
from prill.refine.rewards import Reward, RewardResult
from prill.service.answers import JobStatus, Judging, Results, ScoreRequest, totals
from prill.service.board import Board, registry_of
from prill.service.contracts import NemoGym, OpenRLHF, Slime, nemo_answer, nemo_failure, openrlhf_answer, slime_answer
from prill.service.desk import Busy, Desk, Door, JudgeBroke
from prill.service.guard import VISIT, Guard, Visit, log, problem
from prill.service.intake import Intake
from prill.service.page import status_page
from prill.service.schemas import components, describe
from prill.service.spec import ServiceSpec

_T = TypeVar("_T")
# What is wrong with the trajectory, not with the judge: the same request would end the same way.
_OF_INPUT = frozenset({"input", "no_evidence"})


@dataclass(frozen=True)
class Service:
    """A reward behind HTTP: `app` is the ASGI application, the rest what its end and its tests look at."""

    app: Guard
    door: Door
    desk: Desk
    judging: Judging
    board: Board
    reward: Reward

    async def drain(self) -> None:
        """Lets nobody in any more, and returns when everybody inside and every job has its answer, all noted by the watch."""
        self.door.close()
        await self.door.empty()
        await self.judging.finish_jobs()
        if self.reward.watch is not None:
            await asyncio.to_thread(self.reward.watch.close)


def make_service(reward: Reward, spec: ServiceSpec | None = None, *, concurrency: int | None = None) -> Service:
    """The service of a reward. Raises UsageError where the settings are not enough, MissingExtra without its packages."""
    try:
        from fastapi import FastAPI, Request, Response
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
        from starlette.exceptions import HTTPException
    except ImportError as missing:
        raise MissingExtra(missing.name or "fastapi", "serve") from None

    spec = spec or ServiceSpec()
    if reward.spec.on_unscored == "raise":  # over HTTP the error is the status, which abstaining brings too
        reward = Reward(reward.judge, replace(reward.spec, on_unscored="abstain"), reward.watch)
    token = spec.token()
    if reward.watch is not None:
        reward.watch.open()
    board = Board(watch=reward.watch)
    desk = Desk(reward, concurrency=concurrency, judged=_noting(board, spec))
    door = Door(spec.queue, spec.door)
    intake = Intake(spec.media_root, spec.max_images, spec.max_pixels)
    judging = Judging(desk, intake, board, spec.max_items, spec.max_jobs)
    board.gauges = lambda: {
        "waiting": (desk.waiting, "Trajectories that wait for the judge"),
        "in_flight": (desk.in_flight, "Trajectories at the judge"),
        "requests_inside": (door.inside, "Requests inside"),
        "requests_outside": (door.outside, "Requests that wait at the door"),
        "jobs_running": (judging.jobs_running, "Jobs under way"),
        "concurrency": (desk.concurrency, "Trajectories judged at a time at most"),
    }
    registry = registry_of(board)
    info = reward.judge.info
    judge = info.name + (f" ({info.model})" if info.model else "")

    class Described(FastAPI):
        def openapi(self) -> dict[str, Any]:
            document = super().openapi()
            document.setdefault("components", {}).setdefault("schemas", {}).update(components())
            return document

    app = Described(title="prill reward service", version=info.version, docs_url=None, redoc_url=None)

    def reply(record: object, status: int = 200) -> Response:
        return Response(msgspec.json.encode(record), status, media_type="application/json")

    def refusal(status: int, code: str, words: str, after: float | None = None) -> Response:
        headers = {} if after is None else {"retry-after": str(max(1, round(after)))}
        return Response(problem(code, words), status, headers, media_type="application/json")

    @app.exception_handler(InputError)
    async def broken_input(request: Request, error: InputError) -> Response:
        return refusal(422, "input", str(error))

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> Response:
        return refusal(503, "busy", str(error), error.after)

    @app.exception_handler(JudgeBroke)
    async def judge_broke(request: Request, error: JudgeBroke) -> Response:
        return refusal(503, "judge_unavailable", str(error), 10)

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> Response:
        answer = refusal(error.status_code, "not_here", f"{error.detail}: /openapi.json describes what there is")
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return refusal(500, "internal", "an error of the service: its log says where")  # never what it said: it may quote

    def without_reward(result: RewardResult) -> Response:
        code = result.verdict.unscored or "no_reward"
        return refusal(422 if code in _OF_INPUT else 502, code, result.problem)

    def visit(request: Request) -> Visit:
        found = request.scope[VISIT]
        assert isinstance(found, Visit)
        return found

    def decode(data: bytes, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"the request is not what is wanted here: {error}") from None

    async def read(request: Request, kind: type[_T], work: Callable[[_T], Any]) -> Any:
        data = await request.body()
        return await judging.read(lambda: work(decode(data, kind)), len(data))

    @app.post("/v1/score", **describe("score", ScoreRequest, Results))
    async def score(request: Request) -> Response:
        data, who = await request.body(), visit(request)
        wanted = await judging.read(lambda: decode(data, ScoreRequest), len(data))
        results = await judging.score(wanted, len(data), who.client, who.deadline)
        return reply(totals(results, judge))

    @app.post("/v1/jobs", status_code=202, **describe("begin_job", ScoreRequest, JobStatus, status=202))
    async def begin_job(request: Request) -> Response:
        data, who = await request.body(), visit(request)
        wanted = await judging.read(lambda: decode(data, ScoreRequest), len(data))
        return reply(judging.begin(wanted, len(data), who.client), 202)

    @app.get("/v1/jobs/{job_id}", **describe("job", None, JobStatus, missing=True))
    async def job(request: Request, job_id: str) -> Response:
        try:
            return reply(judging.job(job_id))
        except KeyError:
            return refusal(404, "no_job", "there is no such job, or it was finished long ago")

    @app.post("/get_reward", **describe("get_reward", OpenRLHF, None))
    async def get_reward(request: Request) -> Response:
        def batch(wanted: OpenRLHF) -> Any:
            judging.check_count(len(wanted.query))
            return wanted.trajectories(intake)

        trajectories = await read(request, OpenRLHF, batch)
        who = visit(request)
        results = await judging.results(trajectories, who.client, who.deadline)
        failed = next((result for result in results if result.reward is None), None)
        return reply(openrlhf_answer(results)) if failed is None else without_reward(failed)

    @app.post("/rm", **describe("rm", Slime, None))
    async def rm(request: Request) -> Response:
        trajectory = await read(request, Slime, lambda wanted: wanted.trajectory(intake))
        who = visit(request)
        [result] = await judging.results([trajectory], who.client, who.deadline)
        if result.reward is None:
            return without_reward(result)
        return reply(slime_answer(result, detail=request.query_params.get("detail", "") not in ("", "0", "false")))

    @app.post("/verify", **describe("verify", NemoGym, None))
    async def verify(request: Request) -> Response:
        def both(wanted: NemoGym) -> Any:
            return wanted.made(intake), decode(data, dict[str, Any])

        data, who = await request.body(), visit(request)
        trajectory, row = await read(request, NemoGym, both)
        try:
            [result] = await judging.results([trajectory], who.client, who.deadline)
            answer = nemo_answer(row, result)
        except JudgeBroke as error:
            answer = nemo_failure(row, str(error))
        written: Response = await judging.read(lambda: reply(answer), len(data))
        return written

    @app.get("/healthz", **describe("healthz", None, None))
    async def healthz() -> Response:
        return reply({"status": "ok"})

    @app.get("/readyz", **describe("readyz", None, None, busy=True))
    async def readyz() -> Response:
        if door.closed:
            return refusal(503, "ending", "the service is ending", 30)
        if board.just_broke:
            return refusal(503, "judge_unavailable", board.trouble, 10)
        return reply({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(status_page(board, judge, ending=door.closed), media_type="text/html")

    holds = {
        "/v1/score": spec.hold,
        "/v1/jobs": spec.hold,
        "/verify": spec.hold,
        "/get_reward": spec.hold_openrlhf,
        "/rm": spec.hold_slime,
    }
    return Service(Guard(app, spec, token, door, board, holds), door, desk, judging, board, reward)


def _noting(board: Board, spec: ServiceSpec) -> Callable[[RewardResult | BaseException, float, float], None]:
    def note(result: RewardResult | BaseException, waited: float, took: float) -> None:
        board.judged(result, waited, took)
        if isinstance(result, BaseException):
            log.warning("the judge broke: %s", type(result).__name__)
        elif spec.log == "verdicts":
            verdict = result.verdict
            word = verdict.unscored or ("success" if verdict.success else "failure")
            log.info("%r %s reward %s: %r", verdict.id, word, result.reward, verdict.reason)

    return note
