"""Prometheus metrics of the service."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from prill.refine.rewards import RewardResult

# A request may take minutes.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0)
SCORE_BOUNDS = tuple(tenth / 10 for tenth in range(1, 11))


class Metrics:
    """The counters since the start, in a registry of their own."""

    def __init__(self) -> None:
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
        self.calls = counter("judge_calls", "Calls of models")
        self.tokens = counter("judge_tokens", "Tokens of models", "kind")
        self.usd = counter("judge_usd", "Cost in US dollars of the models with a known price")
        self.request_seconds = times("request", "Seconds from a request to its response")
        self.queue_seconds = times("queue", "Seconds that trajectories waited for the judge")
        self.judge_seconds = times("judge", "Seconds of judging")
        self.scores = Histogram(
            "prill_score", "Scores of verdicts", buckets=SCORE_BOUNDS, registry=registry
        )

    def gauges(self, **gauges: tuple[str, Callable[[], float]]) -> None:
        """Adds gauges, each with its description, whose values are computed when metrics are
        collected.
        """
        for name, (description, value) in gauges.items():
            Gauge(f"prill_{name}", description, registry=self.registry).set_function(value)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self.requests.labels(path, str(status)).inc()
        self.request_seconds.observe(seconds)

    def judged(self, result: RewardResult | BaseException, waited: float, took: float) -> None:
        """Counts a judgement."""
        self.queue_seconds.observe(waited)
        self.judge_seconds.observe(took)
        if isinstance(result, BaseException):
            self.broken.inc()
            return
        verdict, usage = result.verdict, result.verdict.usage
        self.verdicts.labels(
            "unscored" if verdict.success is None else "success" if verdict.success else "failure"
        ).inc()
        self.calls.inc(usage.calls)
        self.tokens.labels("prompt").inc(usage.prompt_tokens)
        self.tokens.labels("completion").inc(usage.completion_tokens)
        self.usd.inc(usage.usd or 0.0)
        if verdict.unscored is not None:
            self.unscored.labels(verdict.unscored).inc()
        if verdict.score is not None:
            self.scores.observe(verdict.score)
