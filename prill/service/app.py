"""The service as one thing: its parts, made from the settings, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from prill.errors import MissingExtra
from prill.refine.rewards import Reward, RewardResult
from prill.service.admission import AdmissionQueue
from prill.service.answers import Judging
from prill.service.board import Board
from prill.service.desk import Desk
from prill.service.guard import Guard, log
from prill.service.intake import Intake
from prill.service.memory import ByteBudget, off_loop
from prill.service.routes import make_app
from prill.service.spec import ServiceSpec


@dataclass(frozen=True)
class Service:
    """A reward behind HTTP, as `make_service` builds it.

    Args:
        app: The ASGI application.
        admission: Which requests are inside, and which wait.
        desk: Asks the judge.
        judging: Reads requests and keeps jobs.
        board: The metrics.
        reward: The reward.
    """

    app: Guard
    admission: AdmissionQueue
    desk: Desk
    judging: Judging
    board: Board
    reward: Reward

    async def drain(self, seconds: float = float("inf")) -> None:
        """Admits no more requests, and waits until every request inside and every job has its answer.

        Args:
            seconds: The longest wait, in seconds. After it, waiting requests are answered that the service ends, and judgements
                under way are cancelled.
        """
        self.admission.close()
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await self.admission.empty()
                await self.judging.finish_jobs()
        except TimeoutError:
            inside, jobs = self.admission.inside + self.admission.outside, self.judging.jobs_running
            log.warning("the grace period is over: %d requests and %d jobs are given up", inside, jobs)
            self.admission.turn_away()
            self.desk.close()
        if self.reward.watch is not None:
            await off_loop(self.reward.watch.close)


def make_service(reward: Reward, spec: ServiceSpec | None = None, *, concurrency: int | None = None) -> Service:
    """Builds the HTTP service of a reward, without starting it.

    Args:
        reward: The reward. `on_unscored="raise"` becomes `"abstain"`: over HTTP the status says it.
        spec: The settings. None: the defaults.
        concurrency: The most judgements at once. None: as many as the judge's model takes.

    Returns:
        The service; its `app` is an ASGI application.

    Raises:
        UsageError: The settings are incomplete.
        MissingExtra: The packages of the extra `serve` are not installed.
    """
    spec = spec or ServiceSpec()
    if reward.spec.on_unscored == "raise":  # over HTTP the error is the status, which abstaining brings too
        reward = Reward(reward.judge, replace(reward.spec, on_unscored="abstain"), reward.watch)
    tokens = spec.tokens()
    if reward.watch is not None:
        reward.watch.open()
    board, budget = Board(watch=reward.watch), ByteBudget(spec.max_held)
    desk = Desk(reward, concurrency=concurrency, judge_seconds=spec.judge_timeout, budget=budget, judged=_noting(board, spec))
    admission = AdmissionQueue(spec.queue, spec.door, budget)
    judging = _judging(spec, desk, board, budget)
    board.gauges = lambda: _gauges(desk, admission, judging, budget)
    info = reward.judge.info
    judge = info.name + (f" ({info.model})" if info.model else "")
    try:
        app = make_app(spec, judging, admission, board, judge, info.version)
    except ImportError as missing:
        raise MissingExtra(missing.name or "fastapi", "serve") from None
    holds = {
        "/v1/score": spec.hold,
        "/v1/jobs": spec.hold,
        "/verify": spec.hold,
        "/get_reward": spec.hold_openrlhf,
        "/rm": spec.hold_slime,
    }
    return Service(Guard(app, spec, tokens, admission, board, holds), admission, desk, judging, board, reward)


def _judging(spec: ServiceSpec, desk: Desk, board: Board, budget: ByteBudget) -> Judging:
    root = None if spec.media_root is None else Path(spec.media_root)
    intake = Intake(root, spec.max_images, spec.max_pixels, spec.max_image_bytes, spec.max_request_pixels)
    return Judging(desk, intake, board, budget, spec.max_items, spec.max_values, spec.max_jobs, spec.max_results)


def _gauges(desk: Desk, admission: AdmissionQueue, judging: Judging, budget: ByteBudget) -> dict[str, tuple[float, str]]:
    return {
        "waiting": (desk.waiting, "Trajectories that wait for the judge"),
        "in_flight": (desk.in_flight, "Trajectories at the judge"),
        "hung": (desk.hung, "Judgements that were given up and have not ended"),
        "requests_inside": (admission.inside, "Requests inside"),
        "requests_outside": (admission.outside, "Requests that wait at the door"),
        "jobs_running": (judging.jobs_running, "Jobs under way"),
        "held_bytes": (budget.used, "Bytes of memory for requests and jobs, estimated"),
        "concurrency": (desk.concurrency, "Trajectories judged at a time at most"),
    }


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
