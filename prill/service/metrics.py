"""Prometheus metrics and the figures of the status page."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prill.models.flow_control import MIN_CALLS
from prill.protocols import Evaluator, why_unreachable
from prill.refine.rewards import RewardResult, Watch, WatchReport
from prill.refine.rewards.watch.signs import FIGURES
from prill.types import Usage

# A request may take minutes.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0)
SCORE_BOUNDS = tuple(tenth / 10 for tenth in range(1, 11))
_MAX_ID = 80  # characters of an id on the status page
_NO_ANSWER = frozenset({"transport", "timeout"})
# the other reasons occur before any call
_ANSWERED = frozenset({None, "refusal", "truncated", "parse", "context"})
_PROBE_EVERY, _PROBE_SECONDS = 10.0, 3.0
# Seconds after a failed judgement during which the service reports itself as not ready; afterwards
# requests may try the judge again.
_UNREADY = 30.0


@dataclass(frozen=True, slots=True)
class Latest:
    """A recent verdict, without its text."""

    at: float
    id: str
    outcome: str
    score: float | None
    reward: float | None
    seconds: float


@dataclass(slots=True)
class JudgeHealth:
    """The outcomes of recent judgements.

    `trouble` describes the current problem; it is empty if there is none.
    """

    started: float = field(default_factory=time.monotonic)
    trouble: str = ""
    broke_at: float = 0.0
    answered_at: float = float("-inf")
    unanswered: int = 0
    finished: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))

    def note(self, result: RewardResult | BaseException) -> None:
        """Records a judgement.

        An error is a problem until another judgement succeeds; missing replies are, once there are
        so many in a row that the requests cannot be the cause.
        """
        now = time.monotonic()
        self.finished.append(now)
        if isinstance(result, BaseException):
            self.trouble, self.broke_at = (
                f"the latest judgement failed: {type(result).__name__}",
                now,
            )
            return
        unscored = result.verdict.unscored
        if unscored in _ANSWERED:
            self.unanswered, self.trouble, self.answered_at = 0, "", now
        self.unanswered += unscored in _NO_ANSWER
        if unscored in _NO_ANSWER and self.unanswered >= MIN_CALLS:
            self.trouble, self.broke_at = (
                f"the latest {self.unanswered:,} judgements got no response ({unscored})",
                now,
            )

    @property
    def just_broke(self) -> bool:
        """Returns whether the latest judgement failed, a short time ago."""
        return bool(self.trouble) and time.monotonic() - self.broke_at < _UNREADY

    @property
    def just_answered(self) -> bool:
        """Returns whether a judgement received a reply recently."""
        return time.monotonic() - self.answered_at < _UNREADY

    def rate(self, seconds: float = 60.0) -> float:
        """Returns the judgements per second over the last seconds."""
        now = time.monotonic()
        since = max(now - seconds, self.started)
        return sum(at >= since for at in self.finished) / max(1.0, now - since)


class Probe:
    """Checks whether the judge's endpoint can be reached, at most once per interval."""

    def __init__(self, judge: Evaluator) -> None:
        self._judge, self._lock = judge, asyncio.Lock()
        self._asked_at, self._trouble = float("-inf"), ""

    async def trouble(self) -> str:
        """Returns why the endpoint is unreachable; empty if it is reachable or its state is
        unknown.
        """
        async with self._lock:
            if time.monotonic() - self._asked_at > _PROBE_EVERY:
                try:
                    async with asyncio.timeout(_PROBE_SECONDS):
                        self._trouble = await why_unreachable(self._judge)
                except TimeoutError:
                    self._trouble = (
                        f"the judge's endpoint did not respond within {_PROBE_SECONDS:g} s"
                    )
                self._asked_at = time.monotonic()
            return self._trouble


class Metrics:
    """The counters since the start, in a registry of their own."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch, self.health, self.usage = watch, JudgeHealth(), Usage()
        self.latest: deque[Latest] = deque(maxlen=50)
        self.gauges: list[tuple[str, Callable[[], float]]] = []  # current values
        self.registry = registry = CollectorRegistry()

        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(f"prill_{name}", description, labels, registry=registry)

        def times(name: str, description: str) -> Histogram:
            return Histogram(
                f"prill_{name}_seconds", description, buckets=_SECONDS, registry=registry
            )

        self.requests = counter("requests", "Requests answered", "path", "status")
        self.verdicts = counter("verdicts", "Verdicts made", "outcome")
        self.unscored = counter("unscored", "Trajectories without a verdict", "reason")
        self.sources = counter("answers", "Results by origin: judged, shared or cached", "source")
        self.broken = counter("judge_broken", "Judgements that ended in an error")
        self.request_seconds = times("request", "Seconds from a request to its response")
        self.queue_seconds = times("queue", "Seconds that trajectories waited for the judge")
        self.judge_seconds = times("judge", "Seconds of judging")
        self.scores = Histogram(
            "prill_score", "Scores of verdicts", buckets=SCORE_BOUNDS, registry=registry
        )
        registry.register(_Spending(self))

    def gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Adds a gauge whose value is computed when metrics are collected."""
        Gauge(f"prill_{name}", description, registry=self.registry).set_function(value)
        self.gauges.append((description, value))

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self.requests.labels(path, str(status)).inc()
        self.request_seconds.observe(seconds)

    def judged(self, result: RewardResult | BaseException, waited: float, took: float) -> None:
        """Counts a judgement."""
        self.queue_seconds.observe(waited)
        self.judge_seconds.observe(took)
        self.health.note(result)
        if isinstance(result, BaseException):
            self.broken.inc()
            return
        verdict = result.verdict
        outcome = (
            "unscored" if verdict.success is None else "success" if verdict.success else "failure"
        )
        self.verdicts.labels(outcome).inc()
        self.usage += verdict.usage
        if verdict.unscored is not None:
            self.unscored.labels(verdict.unscored).inc()
        if verdict.score is not None:
            self.scores.observe(verdict.score)
        self.latest.append(
            Latest(time.time(), verdict.id[:_MAX_ID], outcome, verdict.score, result.reward, took)
        )

    @property
    def spent(self) -> Usage:
        """The usage of all model calls: rewards, canaries and second judge."""
        return self.usage if self.watch is None else self.usage + self.watch.spent


def counts(metric: Counter | Histogram, suffix: str = "_total") -> dict[str, float]:
    """Returns the counts of a metric by the value of its label; the key is empty if it has no
    label.
    """
    samples = [
        sample
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith(suffix)
    ]
    return {next(iter(sample.labels.values()), ""): sample.value for sample in samples}


class _Spending(Collector):
    """Collects figures that other objects count: model usage, and the results of a watch."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        usage = self._metrics.spent
        yield CounterMetricFamily("prill_judge_calls", "Calls of models", value=usage.calls)
        tokens = CounterMetricFamily("prill_judge_tokens", "Tokens of models", labels=["kind"])
        tokens.add_metric(["prompt"], usage.prompt_tokens)
        tokens.add_metric(["completion"], usage.completion_tokens)
        yield tokens
        if usage.usd is not None:
            yield CounterMetricFamily(
                "prill_judge_usd", "Cost of the models in US dollars", value=usage.usd
            )
        if self._metrics.watch is not None:
            yield from _watch_metrics(self._metrics.watch.report())


def _watch_metrics(report: WatchReport) -> Iterator[Metric]:
    """Yields the metrics of a watch: an alarm for each sign, the figures behind them, and canaries
    by outcome.
    """
    alarms = GaugeMetricFamily(
        "prill_watch_alarm",
        "1 while a sign of reward hacking or drift is an alarm",
        labels=["sign"],
    )
    for sign in report.signs:
        alarms.add_metric([sign.name], float(sign.state == "alarm"))
    yield alarms
    for key, value in (
        (key, value) for sign in report.signs for key, value in sign.figures.items()
    ):
        yield GaugeMetricFamily(f"prill_watch_{key}", FIGURES[key], value=value)
    canaries = CounterMetricFamily(
        "prill_canaries", "Canaries judged, by result", labels=["outcome"]
    )
    for outcome in ("right", "wrong", "unscored"):
        canaries.add_metric([outcome], sum(getattr(one, outcome) for one in report.rounds))
    yield canaries
    yield CounterMetricFamily(
        "prill_canary_rounds", "Rounds of canaries started", value=len(report.rounds)
    )
    yield CounterMetricFamily(
        "prill_watch_lost",
        "Verdicts that the monitor dropped because it was too slow",
        value=report.lost,
    )
