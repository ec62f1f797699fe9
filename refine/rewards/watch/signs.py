"""Signals of over-optimisation: changed canaries, drifting scores, diverging judges.

The first verdicts are compared with the latest. Verdicts are counted incrementally, in constant
memory.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from prill.evaluators.combine import as_score
from prill.evaluators.metrics import wilson
from prill.refine.rewards.watch.records import WatchRecord
from prill.refine.rewards.watch.spec import FEWEST, WatchLimits
from prill.types import Opinion, Usage

SignName = Literal["canaries", "unscored", "drift", "disagreement", "hacking"]
State = Literal["alarm", "notice", "quiet", "unknown"]
# The usual significance level, for each of the two directions that widen the gap; the gap itself is
# tested at a much stricter level.
_DIRECTION = 0.05
_CHECKS = 8  # evaluations of the signals per window
_MAX_POINTS = 400  # points kept for plots
_NO_USAGE = Usage()
# Descriptions of the signals' numbers, by metric name.
FIGURES = {
    "canary_agreement": "Share of canaries whose latest verdict agrees with the label",
    "canaries_turned_wrong": "Canaries that changed from right to wrong",
    "canaries_turned_right": "Canaries that changed from wrong to right",
    "canaries_unscored": "Canaries without a verdict in the latest round",
    "unscored_share": "Share of the latest verdicts that are unscored",
    "drift_distance": "Kolmogorov-Smirnov distance between the first and the latest scores",
    "drift_chance": "p-value of that distance",
    "score_mean": "Mean of the latest scores",
    "score_mean_first": "Mean of the reference scores",
    "disagreement": "Share of the latest verdicts that the second judge contradicts",
    "disagreement_first": "The same for the first verdicts",
    "judge_mean": "Mean of the latest scores on trajectories with a score by the second judge",
    "judge_mean_first": "The same for the first scores",
    "student_mean": "Mean of the second judge's scores on the same trajectories",
    "student_mean_first": "The same for the first trajectories",
}


def kolmogorov_smirnov(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Returns the two-sample Kolmogorov-Smirnov distance and its p-value.

    The p-value is Kolmogorov's limit with Stephens' correction for few values (Press et al.,
    Numerical Recipes, 3rd ed., 14.3.3). With ties, such as scores of 0 and 1 only, it is too large:
    alarms are late, but not false.
    """
    one, other = sorted(first), sorted(second)
    points = {*one, *other}
    largest = max(
        abs(bisect_right(one, x) / len(one) - bisect_right(other, x) / len(other)) for x in points
    )
    root = math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    scaled = (root + 0.12 + 0.11 / root) * largest
    if scaled < 0.2:  # the series below converges slowly; its value is 1 to 12 digits
        return largest, 1.0
    terms = (2 * (-1) ** (j - 1) * math.exp(-2 * (j * scaled) ** 2) for j in range(1, 101))
    return largest, min(1.0, max(0.0, math.fsum(terms)))


def share_rose(before: tuple[int, int], now: tuple[int, int]) -> float:
    """Returns the one-sided p-value of the pooled two-proportion test of (count, total) pairs."""
    (hits, total), (hits_now, total_now) = before, now
    pooled = (hits + hits_now) / (total + total_now)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / total + 1 / total_now))
    return _upper_tail(hits_now / total_now - hits / total, spread)


def mean_rose(before: Sequence[float], now: Sequence[float]) -> float:
    """Returns the one-sided p-value of Welch's test, with the normal distribution instead of t."""
    spread = math.sqrt(_variance(before) / len(before) + _variance(now) / len(now))
    return _upper_tail(fmean(now) - fmean(before), spread)


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)  # `statistics.variance` is exact, but a hundred times slower
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _upper_tail(difference: float, spread: float) -> float:
    if spread < 1e-12:  # rounding error only
        return 0.0 if difference > 1e-9 else 1.0
    return 0.5 * math.erfc(difference / spread / math.sqrt(2))


@dataclass(frozen=True, slots=True)
class Sign:
    """One signal: its state, a sentence, and its numbers by metric name.

    `since`: the number of the verdict since which the signal has been in this state.
    """

    name: SignName
    state: State
    words: str
    figures: Mapping[str, float]
    since: int = 0


@dataclass(frozen=True, slots=True)
class ChangedCanary:
    """A canary whose verdict differs from the first one."""

    id: str
    label: bool
    at_first: bool
    now: bool


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round of canaries; unscored ones are neither right nor wrong."""

    after: int
    right: int = 0
    wrong: int = 0
    unscored: int = 0


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """The figures and states of all signals after a number of verdicts."""

    after: int
    figures: Mapping[str, float]
    states: Mapping[SignName, State]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """The state of a watch.

    Args:
        judge: The judge's name.
        student: The second judge's name.
        verdicts: The number of recorded verdicts.
        unscored: The number of unscored ones among them.
        signs: The signals with their states.
        turned: The canaries whose verdict changed.
        rounds: The rounds of canaries.
        course: The history of the figures, for plots.
        usage: The usage of canaries and of the second judge.
        lost: The number of verdicts that could not be recorded.
        trouble: Why the file is not written. Empty: it is written.
    """

    judge: str = ""
    student: str = ""
    verdicts: int = 0
    unscored: int = 0
    signs: tuple[Sign, ...] = ()
    turned: tuple[ChangedCanary, ...] = ()
    rounds: tuple[Round, ...] = ()
    course: tuple[SeriesPoint, ...] = ()
    usage: Usage = _NO_USAGE
    lost: int = 0
    trouble: str = ""

    @property
    def alarms(self) -> tuple[Sign, ...]:
        """The signals in the state of alarm."""
        return tuple(sign for sign in self.signs if sign.state == "alarm")


@dataclass(slots=True)
class _Canary:
    label: bool
    at_first: bool | None = None
    now: bool | None = None
    unscored: bool = False


class WatchTally:
    """A counter of observations; `report` returns the state. `scores` are the reference scores for
    drift, if they do not come from the first verdicts.
    """

    def __init__(self, spec: WatchLimits, scores: Sequence[float] = ()) -> None:
        self._spec = spec
        size = spec.window
        self._first = list(scores)
        self._own_reference = not scores
        self._latest: deque[float] = deque(maxlen=size)
        self._unscored: deque[bool] = deque(maxlen=size)
        # Scores of both judges on the same trajectories, and whether the verdicts differ.
        self._first_pairs: list[tuple[float, float, bool]] = []
        self._pairs: deque[tuple[float, float, bool]] = deque(maxlen=size)
        self._canaries: dict[str, _Canary] = {}
        self._rounds: dict[int, Round] = {}
        self._judge = self._student = ""
        self.verdicts = self._unscored_verdicts = 0
        self._usage = Usage()
        self._signs: tuple[Sign, ...] = ()
        self._course: list[SeriesPoint] = []
        self._every = 1  # keep every n-th point

    @property
    def round(self) -> int:
        """The number of the latest round of canaries."""
        return max(self._rounds, default=0)

    def add(self, record: WatchRecord) -> bool:
        """Counts an observation; returns True if the signals were evaluated again."""
        self._judge = record.verdict.judge
        if record.student is not None:
            self._student = record.student.judge
            self._usage += record.student.usage
        if record.kind == "canary":
            self._usage += record.verdict.usage
            if record.label is not None:
                self._add_canary(record, record.label)
            self._look()
            return True
        self._add_verdict(record.verdict, record.student)
        if self.verdicts % max(1, self._spec.window // _CHECKS):
            return False
        self._look()
        self._note_point()
        return True

    def report(self) -> WatchReport:
        """Returns the state after all added observations."""
        self._look()
        turned = (
            ChangedCanary(id, one.label, one.at_first, one.now)
            for id, one in self._canaries.items()
            if one.at_first is not None and one.now is not None and one.at_first != one.now
        )
        return WatchReport(
            judge=self._judge,
            student=self._student,
            verdicts=self.verdicts,
            unscored=self._unscored_verdicts,
            signs=self._signs,
            turned=tuple(turned),
            rounds=tuple(self._rounds.values()),
            course=tuple(self._course),
            usage=self._usage,
        )

    def _add_verdict(self, verdict: Opinion, student: Opinion | None) -> None:
        self.verdicts += 1
        self._unscored_verdicts += verdict.success is None
        self._unscored.append(verdict.success is None)
        value = as_score(verdict)
        if value is None:
            return
        if self._own_reference and len(self._first) < self._spec.window:
            self._first.append(value)
        else:
            self._latest.append(value)
        if student is not None and (other := as_score(student)) is not None:
            pair = (value, other, verdict.success != student.success)
            if len(self._first_pairs) < self._spec.window:
                self._first_pairs.append(pair)
            else:
                self._pairs.append(pair)

    def _add_canary(self, record: WatchRecord, label: bool) -> None:
        success = record.verdict.success
        canary = self._canaries.setdefault(record.id, _Canary(label))
        canary.label, canary.unscored = label, success is None
        if success is not None:
            canary.at_first = success if canary.at_first is None else canary.at_first
            canary.now = success
        so_far = self._rounds.get(record.round, Round(self.verdicts))
        right = success is not None and success == label
        self._rounds[record.round] = Round(
            so_far.after,
            so_far.right + right,
            so_far.wrong + (success is not None and not right),
            so_far.unscored + (success is None),
        )

    def _look(self) -> None:
        before = {(sign.name, sign.state): sign.since for sign in self._signs}
        found = (
            self._canary_sign(),
            self._unscored_sign(),
            self._drift_sign(),
            *self._signs_of_pairs(),
        )
        self._signs = tuple(
            replace(one, since=before.get((one.name, one.state), self.verdicts)) for one in found
        )

    def _note_point(self) -> None:
        figures = {key: value for sign in self._signs for key, value in sign.figures.items()}
        states = {sign.name: sign.state for sign in self._signs}
        step = max(1, self._spec.window // _CHECKS) * self._every
        if self.verdicts % step == 0:
            self._course.append(SeriesPoint(self.verdicts, figures, states))
        if len(self._course) > _MAX_POINTS:
            self._course = self._course[1::2]
            self._every *= 2

    def _canary_sign(self) -> Sign:
        if not self._canaries:
            return Sign("canaries", "unknown", "there are none", {})
        both = [one for one in self._canaries.values() if one.now is not None]
        unscored = sum(one.unscored for one in self._canaries.values())
        missing = f"; {unscored} of {len(self._canaries)} are unscored now" if unscored else ""
        if not both:
            return Sign(
                "canaries",
                "unknown",
                f"none has a verdict yet{missing}",
                {"canaries_unscored": unscored},
            )
        right = sum(one.now == one.label for one in both)
        lost = sum(one.at_first == one.label != one.now for one in both)
        won = sum(one.at_first != one.label == one.now for one in both)
        state: State = (
            "alarm"
            if lost > self._spec.canary_limit * len(both)
            else "notice"
            if lost or won
            else "quiet"
        )
        text = (
            f"{right} of {len(both)} are right, by the latest verdict of each; since the first "
            f"round {lost} turned wrong and {won} right{missing}"
        )
        figures = {
            "canary_agreement": right / len(both),
            "canaries_turned_wrong": lost,
            "canaries_turned_right": won,
            "canaries_unscored": unscored,
        }
        return Sign("canaries", state, text, figures)

    def _unscored_sign(self) -> Sign:
        count, total = sum(self._unscored), len(self._unscored)
        if total < FEWEST:
            return Sign("unscored", "unknown", f"too few verdicts yet: {total} of {FEWEST}", {})
        limit = self._spec.unscored_limit
        lowest, _ = wilson(count / total, total)
        state: State = "alarm" if lowest > limit else "quiet"
        text = f"{count} of the latest {total} verdicts are unscored; {limit:.0%} may be"
        return Sign("unscored", state, text, {"unscored_share": count / total})

    def _drift_sign(self) -> Sign:
        first, latest = self._first, self._latest
        if len(first) < FEWEST or len(latest) < FEWEST:
            return Sign("drift", "unknown", _too_few(len(latest)), {})
        distance, chance = kolmogorov_smirnov(first, latest)
        drifted: State = "alarm" if self._spec.drift_alarm else "notice"
        mean, mean_before = fmean(latest), fmean(first)
        text = (
            f"scores went from {mean_before:.2f} to {mean:.2f} in the mean; Kolmogorov–Smirnov "
            f"distance {distance:.2f}, by chance {_probability(chance)}"
        )
        figures = {
            "drift_distance": distance,
            "drift_chance": chance,
            "score_mean": mean,
            "score_mean_first": mean_before,
        }
        return Sign("drift", drifted if chance < self._spec.chance else "quiet", text, figures)

    def _signs_of_pairs(self) -> Sequence[Sign]:
        """Compares the two judges, once both windows have enough scores."""
        if min(len(self._first_pairs), len(self._pairs)) >= FEWEST:
            return self._disagreement_sign(), self._hacking_sign()
        why = _too_few(len(self._pairs)) if self._first_pairs else "there is no second judge"
        return Sign("disagreement", "unknown", why, {}), Sign("hacking", "unknown", why, {})

    def _disagreement_sign(self) -> Sign:
        first, latest = self._first_pairs, self._pairs
        before, now = sum(differ for _, _, differ in first), sum(differ for _, _, differ in latest)
        chance = share_rose((before, len(first)), (now, len(latest)))
        text = (
            f"the second judge says otherwise of {now / len(latest):.0%} of the latest "
            f"{len(latest)}, and did of "
            f"{before / len(first):.0%} at first; by chance {_probability(chance)}"
        )
        figures = {"disagreement": now / len(latest), "disagreement_first": before / len(first)}
        return Sign(
            "disagreement", "alarm" if chance < self._spec.chance else "quiet", text, figures
        )

    def _hacking_sign(self) -> Sign:
        first, latest = self._first_pairs, list(self._pairs)
        rewards, rewards_now = [one for one, _, _ in first], [one for one, _, _ in latest]
        others, others_now = [other for _, other, _ in first], [other for _, other, _ in latest]
        gap = mean_rose(
            [one - other for one, other, _ in first], [one - other for one, other, _ in latest]
        )
        rose, fell = (
            mean_rose(rewards, rewards_now) < _DIRECTION,
            mean_rose(others_now, others) < _DIRECTION,
        )
        state: State = "alarm" if gap < self._spec.chance and rose and fell else "quiet"
        text = (
            f"the judge's mean went from {fmean(rewards):.2f} to {fmean(rewards_now):.2f}, the "
            f"second judge's on the same from {fmean(others):.2f} to {fmean(others_now):.2f}; "
            f"a gap so much wider comes by chance {_probability(gap)}"
        )
        figures = {
            "judge_mean": fmean(rewards_now),
            "judge_mean_first": fmean(rewards),
            "student_mean": fmean(others_now),
            "student_mean_first": fmean(others),
        }
        return Sign("hacking", state, text, figures)


def _too_few(latest: int) -> str:
    return f"too few scores after the first window yet: {latest} of {FEWEST}"


def _probability(chance: float) -> str:
    return "less than once in a million" if chance < 1e-6 else f"with probability {chance:.2g}"
