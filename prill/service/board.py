"""What the service counts: for the status page, and as Prometheus metrics."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prill.models.transport import LEAST_CALLS
from prill.protocols import Evaluator, why_unreachable
from prill.refine.rewards import RewardResult, Watch, WatchReport
from prill.refine.rewards.watch.signs import FIGURES
from prill.types import Usage

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

# Seconds; a request may be held for minutes.
_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0)
SCORE_BINS = 10
_MAX_ID = 80  # characters of an id that are kept for the page
_NO_ANSWER = frozenset({"transport", "timeout"})
_ANSWERED = frozenset({None, "refusal", "truncated", "parse", "context"})  # the other reasons come before any call
_PROBE_EVERY, _PROBE_SECONDS = 10.0, 3.0
_UNREADY = 30.0  # seconds after a judgement broke; then requests may try the judge again, or nobody would ever find it back


@dataclass(slots=True)
class Times:
    """A histogram of seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Counts one."""
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants it: up to each bound."""
        sums, so_far = [], 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self.counts, strict=True):
            so_far += count
            sums.append((bound, float(so_far)))
        return sums


@dataclass(frozen=True, slots=True)
class Latest:
    """One verdict of the latest, without any of its words."""

    at: float
    id: str
    outcome: str
    score: float | None
    reward: float | None
    seconds: float


@dataclass(slots=True)
class Board:
    """The counts since the start. `gauges` tells what is the case now: names, values, and what they mean."""

    gauges: Callable[[], dict[str, tuple[float, str]]] = dict
    watch: Watch | None = None
    started: float = field(default_factory=time.monotonic)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    request_seconds: Times = field(default_factory=Times)
    queue_seconds: Times = field(default_factory=Times)
    judge_seconds: Times = field(default_factory=Times)
    outcomes: Counter[str] = field(default_factory=Counter)
    unscored: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    unanswered: int = 0
    answered_at: float = float("-inf")
    trouble: str = ""
    broke_at: float = 0.0
    usage: Usage = field(default_factory=Usage)
    scores: list[int] = field(default_factory=lambda: [0] * SCORE_BINS)
    latest: deque[Latest] = field(default_factory=lambda: deque(maxlen=50))
    finished: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self.requests[path, status] += 1
        self.request_seconds.add(seconds)

    def judged(self, result: RewardResult | BaseException, waited: float, took: float) -> None:
        """Counts a judgement; one that broke is trouble until another succeeds."""
        self.queue_seconds.add(waited)
        self.judge_seconds.add(took)
        self.finished.append(time.monotonic())
        if isinstance(result, BaseException):
            self.broken += 1
            self.trouble, self.broke_at = f"the latest judgement broke: {type(result).__name__}", time.monotonic()
            return
        verdict = result.verdict
        outcome = "unscored" if verdict.success is None else "success" if verdict.success else "failure"
        self.outcomes[outcome] += 1
        self.usage += verdict.usage
        if verdict.unscored is not None:
            self.unscored[verdict.unscored] += 1
        self._note_answer(verdict.unscored)
        if verdict.score is not None:
            self.scores[min(SCORE_BINS - 1, int(verdict.score * SCORE_BINS))] += 1
        self.latest.append(Latest(time.time(), verdict.id[:_MAX_ID], outcome, verdict.score, result.reward, took))

    def _note_answer(self, unscored: str | None) -> None:
        """Failures to answer are trouble once there are so many in a row that it is not what they ask."""
        if unscored in _ANSWERED:
            self.unanswered, self.trouble, self.answered_at = 0, "", time.monotonic()
        self.unanswered += unscored in _NO_ANSWER
        if unscored in _NO_ANSWER and self.unanswered >= LEAST_CALLS:
            words = f"the latest {self.unanswered:,} judgements had no answer ({unscored})"
            self.trouble, self.broke_at = words, time.monotonic()

    @property
    def success_share(self) -> float | None:
        """Successes among the verdicts; None while there are none."""
        scored = self.outcomes["success"] + self.outcomes["failure"]
        return self.outcomes["success"] / scored if scored else None

    @property
    def spent(self) -> Usage:
        """What all calls of models cost: those for rewards, for canaries and of the second judge."""
        return self.usage if self.watch is None else self.usage + self.watch.spent

    @property
    def just_broke(self) -> bool:
        """Whether the latest judgement broke, and not long ago."""
        return bool(self.trouble) and time.monotonic() - self.broke_at < _UNREADY

    @property
    def just_answered(self) -> bool:
        """Whether a judgement had an answer lately."""
        return time.monotonic() - self.answered_at < _UNREADY

    def rate(self, seconds: float = 60.0) -> float:
        """Judgements a second, of the latest so many seconds."""
        now = time.monotonic()
        since = max(now - seconds, self.started)
        return sum(at >= since for at in self.finished) / max(1.0, now - since)


class Probe:
    """Asks whether the judge's endpoint can be reached, once in so many seconds, however often that is wanted."""

    def __init__(self, judge: Evaluator) -> None:
        self._judge, self._asking = judge, asyncio.Lock()
        self._asked_at, self._trouble = float("-inf"), ""

    async def trouble(self) -> str:
        """Why it cannot; empty where it can, or nobody knows."""
        async with self._asking:
            if time.monotonic() - self._asked_at > _PROBE_EVERY:
                try:
                    async with asyncio.timeout(_PROBE_SECONDS):
                        self._trouble = await why_unreachable(self._judge)
                except TimeoutError:
                    self._trouble = f"the judge's endpoint did not answer within {_PROBE_SECONDS:g} s"
                self._asked_at = time.monotonic()
            return self._trouble


def registry_of(board: Board) -> CollectorRegistry:
    """The board as a Prometheus registry. Raises MissingExtra."""
    from prill.errors import MissingExtra

    try:
        from prometheus_client.registry import Collector, CollectorRegistry
    except ImportError:
        raise MissingExtra("prometheus-client", "serve") from None

    class Counts(Collector):
        def collect(self) -> Iterator[Any]:
            yield from _families(board)

    registry = CollectorRegistry()
    registry.register(Counts())
    return registry


def _families(board: Board) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    def counts(name: str, words: str, label: str, values: Counter[str]) -> Any:
        family = CounterMetricFamily(f"prill_{name}", words, labels=[label])
        for key, count in values.items():
            family.add_metric([key], count)
        return family

    requests = CounterMetricFamily("prill_requests", "Requests answered", labels=["path", "status"])
    for (path, status), count in board.requests.items():
        requests.add_metric([path, str(status)], count)
    yield requests
    yield counts("verdicts", "Verdicts made", "outcome", board.outcomes)
    yield counts("unscored", "Trajectories without a verdict", "reason", board.unscored)
    yield counts("answers", "Answers by where they came from: judged, shared or remembered", "source", board.sources)
    yield CounterMetricFamily("prill_judge_broken", "Judgements that ended in an error", value=board.broken)
    usage = board.spent
    yield CounterMetricFamily("prill_judge_calls", "Calls of models", value=usage.calls)
    tokens = Counter(prompt=usage.prompt_tokens, completion=usage.completion_tokens)
    yield counts("judge_tokens", "Tokens of models", "kind", tokens)
    if usage.usd is not None:
        yield CounterMetricFamily("prill_judge_usd", "What the models cost, in US dollars", value=usage.usd)
    for name, words, times in (
        ("request_seconds", "Seconds from a request to its answer", board.request_seconds),
        ("queue_seconds", "Seconds that trajectories waited for the judge", board.queue_seconds),
        ("judge_seconds", "Seconds at the judge", board.judge_seconds),
    ):
        yield HistogramMetricFamily(f"prill_{name}", words, buckets=times.buckets(), sum_value=times.total)
    so_far, buckets = 0, []
    for place, count in enumerate(board.scores):
        so_far += count
        buckets.append((str((place + 1) / SCORE_BINS), float(so_far)))
    total = sum((place + 0.5) / SCORE_BINS * count for place, count in enumerate(board.scores))
    yield HistogramMetricFamily(
        "prill_score",
        "Scores of verdicts",
        buckets=[*buckets[:-1], ("1.0", float(so_far)), ("+Inf", float(so_far))],
        sum_value=total,
    )
    for name, (value, words) in board.gauges().items():
        yield GaugeMetricFamily(f"prill_{name}", words, value=value)
    if board.watch is not None:
        yield from _of_watch(board.watch.report())


def _of_watch(report: WatchReport) -> Iterator[Any]:
    """What the watch found: an alarm for each sign, the figures behind them, and the canaries by what came of them."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    alarms = GaugeMetricFamily("prill_watch_alarm", "1 while a sign of a reward that goes wrong is an alarm", labels=["sign"])
    for sign in report.signs:
        alarms.add_metric([sign.name], float(sign.state == "alarm"))
    yield alarms
    for key, value in ((key, value) for sign in report.signs for key, value in sign.figures.items()):
        yield GaugeMetricFamily(f"prill_watch_{key}", FIGURES[key], value=value)
    canaries = CounterMetricFamily("prill_canaries", "Canaries judged, by what came of them", labels=["outcome"])
    for outcome in ("right", "wrong", "unscored"):
        canaries.add_metric([outcome], sum(getattr(one, outcome) for one in report.rounds))
    yield canaries
    yield CounterMetricFamily("prill_canary_rounds", "Rounds of canaries begun", value=len(report.rounds))
    yield CounterMetricFamily("prill_watch_lost", "Verdicts that the watch had no time to note", value=report.lost)
