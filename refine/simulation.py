"""Simulates how good a judge must be for retries to help.

Attempts at a task are drawn independently, from a success rate or from recordings. A verdict
depends only on the attempt's true success. The results are a guide: in practice, lessons improve
later attempts, and a judge's errors on one task are correlated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Annotated, NamedTuple

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.fitted.calibration import Calibration
from prill.refine.retries import AttemptsOption, answer_among
from prill.types import Verdict
from prill.ui.report.lines import PlotLine, PlotPoint, line_chart

WAYS = {
    "plain": "until the judge accepts",
    "keep best": "the same, and the result is the attempt with the best score",
    "second opinion": "a second judge of the same quality is asked before an attempt is discarded",
    "second opinion, keep best": "both",
    "perfect judge": "until an attempt truly succeeds",
}


@dataclass(frozen=True, kw_only=True)
class SimulationSpec(Config):
    """Options of a simulation of `runs` runs of `tasks` tasks; bands contain 95 % of the runs."""

    success: Annotated[
        float,
        Meta(ge=0, le=1, description="Success rate of attempts, if none are recorded."),
    ] = 0.15
    false_positives: Annotated[
        float, Meta(ge=0, le=1, description="Share of failures that the judge calls a success.")
    ] = 0.1
    false_negatives: Annotated[
        float, Meta(ge=0, le=1, description="Share of successes that the judge calls a failure.")
    ] = 0.2
    unscored: Annotated[
        float, Meta(ge=0, le=1, description="Share of attempts that the judge leaves unscored.")
    ] = 0.0
    attempts: AttemptsOption = 4
    tasks: Annotated[
        int, Meta(ge=1, le=100_000, description="Number of tasks per run, if none are recorded.")
    ] = 100
    runs: Annotated[int, Meta(ge=40, le=100_000, description="Number of simulated runs.")] = 400
    seed: Annotated[int, Meta(description="Seed of the random numbers.")] = 0


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A model of a judge: the scores of true successes and of true failures to sample from (None:
    unscored).

    A score of at least `threshold` is a success.
    """

    successes: Sequence[float | None]
    failures: Sequence[float | None]
    threshold: float = 0.5

    def draw(self, truth: bool, random: Random) -> float | None:
        """Draws a score for an attempt."""
        return random.choice(self.successes if truth else self.failures)

    @property
    def rates(self) -> tuple[float, float, float]:
        """Returns the false positive rate, the false negative rate, and the unscored share."""
        fp = [score >= self.threshold for score in self.failures if score is not None]
        fn = [score < self.threshold for score in self.successes if score is not None]
        every = [*self.failures, *self.successes]
        return fmean(fp) if fp else 0.0, fmean(fn) if fn else 0.0, every.count(None) / len(every)


class Outcome(NamedTuple):
    """Success after a number of retries: the mean over runs, and the band that contains 95 %."""

    retries: int
    success: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RecordedTruths:
    """The truths of a task's recorded attempts. `in_order`: use them in order, and draw at random
    only after the last one.
    """

    truths: Sequence[bool]
    in_order: bool = False

    def draw(self, count: int, random: Random) -> list[bool]:
        """Draws the truths of `count` attempts."""
        known = list(self.truths[:count]) if self.in_order else []
        return known + [random.choice(self.truths) for _ in range(count - len(known))]


def judge_from_rates(spec: SimulationSpec) -> JudgeModel:
    """Makes the model of a yes-or-no judge with these error rates, rounded to a thousandth."""

    def scores(yes: float) -> list[float | None]:
        unscored = round(1000 * spec.unscored)
        right = round((1000 - unscored) * yes)
        return [None] * unscored + [1.0] * right + [0.0] * (1000 - unscored - right)

    return JudgeModel(scores(1 - spec.false_negatives), scores(spec.false_positives))


def judge_from_verdicts(
    verdicts: Sequence[Verdict],
    truth: Mapping[str, bool | None],
    calibration: Calibration | None = None,
) -> JudgeModel:
    """Makes the model of a judge from its verdicts and labels. A calibration converts the scores
    and sets the threshold.

    Raises UsageError if there is no labelled success or no labelled failure.
    """
    sides: dict[bool, list[float | None]] = {True: [], False: []}
    for verdict in verdicts:
        label = truth.get(verdict.id)
        if label is not None:
            score = as_score(verdict)
            if score is not None and calibration is not None:
                score = calibration(score)
            sides[label].append(score)
    for label, scores in sides.items():
        if not any(score is not None for score in scores):
            raise UsageError(
                f"no verdict is on a labelled {'success' if label else 'failure'}, so the "
                "judge's errors are unknown"
            )
    return JudgeModel(
        sides[True], sides[False], 0.5 if calibration is None else calibration.threshold
    )


def judge_from_calibration(calibration: Calibration) -> JudgeModel:
    """Makes the model of a judge from its calibration: the scores of held-out labelled runs, and
    the threshold.

    Raises UsageError for a file of an earlier version, which has no such scores.
    """
    known = calibration.held_out
    if known is None:
        raise UsageError(
            "the calibration was made by an earlier version and does not contain the "
            "judge's error rates; make it again with `prill calibrate`, or give verdicts "
            "and labels as well",
            parameters=("calibration", "verdicts", "labels"),
        )
    successes = [*known.successes, *[None] * known.unscored_successes]
    return JudgeModel(
        successes, [*known.failures, *[None] * known.unscored_failures], calibration.threshold
    )


def simulate(
    spec: SimulationSpec, judge: JudgeModel | None = None, recorded: Sequence[RecordedTruths] = ()
) -> dict[str, list[Outcome]]:
    """Simulates success after each number of retries, for each retry strategy. Results are
    reproducible for a seed.
    """
    judge = judge_from_rates(spec) if judge is None else judge
    random = Random(spec.seed)
    count = len(recorded) or spec.tasks
    shares: dict[str, list[list[float]]] = {way: [[] for _ in range(spec.attempts)] for way in WAYS}
    for _ in range(spec.runs):
        solved = {way: [0] * spec.attempts for way in WAYS}
        for task in range(count):
            if recorded:
                truths = recorded[task].draw(spec.attempts, random)
            else:
                truths = [random.random() < spec.success for _ in range(spec.attempts)]
            for way, scores in _scores(judge, truths, random):
                threshold = 0.5 if way == "perfect judge" else judge.threshold
                for retries in range(spec.attempts):
                    answer = _answer(scores[: retries + 1], threshold, keep_best="keep best" in way)
                    solved[way][retries] += truths[answer]
        for way, counts in solved.items():
            for retries, number in enumerate(counts):
                shares[way][retries].append(number / count)
    return {
        way: [_outcome(retries, drawn) for retries, drawn in enumerate(rows)]
        for way, rows in shares.items()
    }


def simulation_lines(
    outcomes: Mapping[str, Sequence[Outcome]], rates: tuple[float, float, float]
) -> Iterator[str]:
    """Yields the figures as a Markdown table, and whether retries help."""
    ways = list(outcomes)
    yield (
        f"judge: false positives {rates[0]:.1%}, false negatives {rates[1]:.1%}, unscored "
        f"{rates[2]:.1%}"
    )
    yield ""
    yield "| retries | " + " | ".join(ways) + " |"
    yield "| ---: |" + " ---: |" * len(ways)
    for retries in range(len(outcomes[ways[0]])):
        cells = (outcomes[way][retries] for way in ways)
        yield (
            f"| {retries} | "
            + " | ".join(f"{o.success:.1%} ({o.low:.1%} to {o.high:.1%})" for o in cells)
            + " |"
        )
    yield ""
    for way in ways[:-1]:
        first, last = outcomes[way][0], outcomes[way][-1]
        word = (
            "helps"
            if last.low > first.success
            else "hurts"
            if last.high < first.success
            else "may help or harm"
        )
        yield (
            f"{way}: {word} ({first.success:.1%} without retries, {last.success:.1%} with "
            f"{last.retries})"
        )
    yield (
        "With independent attempts, plain retries help as long as the two error rates together "
        "are below 100 %."
    )


def simulation_chart(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Draws success against retries, with bands, as an SVG file."""
    lines = [
        PlotLine(
            way,
            [
                PlotPoint(
                    float(o.retries),
                    o.success,
                    o.low,
                    o.high,
                    f"{o.retries} retries: {o.success:.1%}",
                )
                for o in rows
            ],
        )
        for way, rows in outcomes.items()
    ]
    return line_chart("Success against retries", "retries", lines, whole=True)


def _scores(
    judge: JudgeModel, truths: Sequence[bool], random: Random
) -> Iterator[tuple[str, list[float | None]]]:
    """Returns the score of each attempt for each strategy."""
    first = [judge.draw(truth, random) for truth in truths]
    second = [judge.draw(truth, random) for truth in truths]
    # As in the cascade, the second judge also reviews attempts that the first left unscored.
    either = [
        one if one is not None and one >= judge.threshold else other
        for one, other in zip(first, second, strict=True)
    ]
    yield from (
        ("plain", first),
        ("keep best", first),
        ("second opinion", either),
        ("second opinion, keep best", either),
    )
    yield "perfect judge", [float(truth) for truth in truths]


def _answer(scores: Sequence[float | None], threshold: float, *, keep_best: bool) -> int:
    """Returns the answer's index among attempts that end with the accepted or unscored one."""
    ends = (i for i, score in enumerate(scores) if score is None or score >= threshold)
    played = scores[: next(ends, len(scores) - 1) + 1]
    answer = answer_among([True] * len(played), played, keep_best=keep_best)
    assert answer is not None
    return answer


def _outcome(retries: int, shares: Sequence[float]) -> Outcome:
    ranked = sorted(shares)
    cut = len(ranked) // 40  # 2.5 % at each side
    return Outcome(retries, fmean(ranked), ranked[cut], ranked[-1 - cut])
