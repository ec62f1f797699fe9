"""Assembles the service from its settings and shuts it down."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from prill.errors import MissingExtraError
from prill.refine.rewards import Reward, RewardResult
from prill.service.admission import AdmissionQueue
from prill.service.judge_queue import JudgeQueue
from prill.service.memory import ByteBudget, off_loop
from prill.service.request_parsing import RequestParser
from prill.service.spec import ServiceSpec

if TYPE_CHECKING:
    from prill.service.answers import Judging
    from prill.service.guard import Guard
    from prill.service.metrics import Metrics

_log = logging.getLogger("prill.service")


@dataclass(frozen=True)
class Service:
    """A reward behind HTTP, as `make_service` builds it.

    Args:
        app: The ASGI application.
        admission: The queue that admits requests.
        judge_queue: The queue in front of the judge.
        judging: Parses requests and runs jobs.
        metrics: The metrics.
        reward: The reward.
    """

    app: Guard
    admission: AdmissionQueue
    judge_queue: JudgeQueue
    judging: Judging
    metrics: Metrics
    reward: Reward

    async def drain(self, seconds: float = float("inf")) -> None:
        """Stops admitting requests and waits until every admitted request and job is answered.

        Args:
            seconds: The longest wait, in seconds. After it, waiting requests get an error and
                running judgements are cancelled.
        """
        self.admission.close()
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await self.admission.empty()
                await self.judging.finish_jobs()
        except TimeoutError:
            inside, jobs = self.admission.active + self.admission.waiting, self.judging.jobs_running
            _log.warning(
                "the grace period is over: %d requests and %d jobs are dropped", inside, jobs
            )
            self.admission.reject_waiting()
            self.judge_queue.close()
        if self.reward.watch is not None:
            await off_loop(self.reward.watch.close)


def make_service(
    reward: Reward, spec: ServiceSpec | None = None, *, concurrency: int | None = None
) -> Service:
    """Builds the HTTP service of a reward, without starting it.

    Args:
        reward: The reward. `on_unscored="raise"` becomes `"abstain"`, because the HTTP status
            reports the error.
        spec: The settings. None: the defaults.
        concurrency: The maximum number of concurrent judgements. None: the concurrency of the
            judge's model.

    Returns:
        The service; its `app` is an ASGI application.

    Raises:
        UsageError: The settings are incomplete.
        MissingExtraError: The packages of the extra `serve` are not installed.
    """
    try:
        from prill.service.answers import Judging
        from prill.service.guard import Guard
        from prill.service.metrics import Metrics
        from prill.service.routes import make_app
    except ImportError as missing:
        raise MissingExtraError(missing.name or "starlette", "serve") from None
    spec = spec or ServiceSpec()
    # over HTTP the status reports the error, also for an abstaining reward
    if reward.spec.on_unscored == "raise":
        reward = Reward(reward.judge, replace(reward.spec, on_unscored="abstain"), reward.watch)
    tokens = spec.tokens()
    if reward.watch is not None:
        reward.watch.open()
    metrics, budget = Metrics(reward.watch), ByteBudget(spec.max_memory)

    def judged(result: RewardResult | BaseException, waited: float, took: float) -> None:
        metrics.judged(result, waited, took)
        _log_judgement(result, spec)

    queue = JudgeQueue(
        reward,
        concurrency=concurrency,
        judge_seconds=spec.judge_timeout,
        budget=budget,
        judged=judged,
    )
    admission = AdmissionQueue(spec.max_active, spec.max_waiting, budget)
    judging = Judging(queue, _parser(spec), metrics, budget, spec)
    _add_gauges(metrics, queue, admission, judging, budget)
    guard = Guard(make_app(spec, judging, admission, metrics), spec, tokens, admission, metrics)
    return Service(guard, admission, queue, judging, metrics, reward)


def _parser(spec: ServiceSpec) -> RequestParser:
    root = None if spec.media_root is None else Path(spec.media_root)
    return RequestParser(
        root, spec.max_images, spec.max_pixels, spec.max_image_bytes, spec.max_request_pixels
    )


def _add_gauges(
    metrics: Metrics,
    queue: JudgeQueue,
    admission: AdmissionQueue,
    judging: Judging,
    budget: ByteBudget,
) -> None:
    metrics.gauge("waiting", "Trajectories waiting for the judge", lambda: queue.waiting)
    metrics.gauge("in_flight", "Trajectories being judged", lambda: queue.in_flight)
    metrics.gauge("hung", "Judgements that timed out and are still running", lambda: queue.hung)
    metrics.gauge("requests_inside", "Requests inside", lambda: admission.active)
    metrics.gauge("requests_outside", "Requests waiting for admission", lambda: admission.waiting)
    metrics.gauge("jobs_running", "Jobs in progress", lambda: judging.jobs_running)
    metrics.gauge(
        "held_bytes",
        "Estimated memory of requests and jobs in progress, in bytes",
        lambda: budget.used,
    )
    metrics.gauge(
        "concurrency", "Maximum number of trajectories judged at once", lambda: queue.concurrency
    )


def _log_judgement(result: RewardResult | BaseException, spec: ServiceSpec) -> None:
    if isinstance(result, BaseException):
        _log.warning("the judge failed: %s", type(result).__name__)
    elif spec.log == "verdicts":
        verdict = result.verdict
        word = verdict.unscored or ("success" if verdict.success else "failure")
        _log.info("%r %s reward %s: %r", verdict.id, word, result.reward, verdict.reason)
