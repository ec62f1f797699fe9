"""Rules without a judge, which a judge has to beat that reads a run: the better constant answer,
the number of steps, and `prior`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prill.errors import UsageError
from prill.evaluators.agreement.agreement import Pair, Pairing
from prill.evaluators.agreement.comparison import Comparison, compare
from prill.evaluators.agreement.figure import text_table
from prill.evaluators.fitted.features import Reading, read
from prill.evaluators.fitted.regression import FitExample, cross_validated, expect_enough
from prill.evaluators.labels import make_task
from prill.types import EvaluatorInfo, Trajectory, Verdict

_RULE = EvaluatorInfo("rule", "1")
_FOLDS = 5


@dataclass(frozen=True)
class Telemetry:
    """What rules read of trajectories, by id, in order."""

    tasks: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)

    def add(self, run: Trajectory) -> None:
        """Adds a trajectory."""
        self.tasks[run.id] = make_task(run)
        self.lengths[run.id] = len(run.steps)
        if run.steps:
            self.readings[run.id] = read(run, "prior", True)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A rule beside a judge, on the runs that the judge scored.

    Args:
        name: The rule.
        accuracy: Its accuracy; of a fitted rule, fitted without the tasks that it judges. None: see
            `missing`.
        comparison: The judge's accuracy minus the rule's, paired, with an interval over tasks.
        missing: Why there are no figures.
    """

    name: str
    accuracy: float | None = None
    comparison: Comparison | None = None
    missing: str = ""

    @property
    def difference(self) -> str:
        """Returns the judge's accuracy minus the rule's, with its interval."""
        if self.comparison is None:
            return "-"
        ends = self.comparison.interval
        between = ", without an interval" if ends is None else " [{:+.3f}, {:+.3f}]".format(*ends)
        return f"{self.comparison.difference:+.3f}{between}"

    @property
    def shortfall(self) -> str | None:
        """Returns how the judge falls short of the rule; None if it is better, or unknown."""
        if self.comparison is None:
            return None
        ends = self.comparison.interval
        if ends is None:
            return None if self.comparison.difference else "no better"
        if ends[0] > 0:
            return None
        return "worse" if ends[1] < 0 else "not shown to be better"


Baselines = tuple[Baseline, ...]


def shortfall(baselines: Baselines) -> str | None:
    """Returns how a judge falls short of a rule other than the constant answer; None if of none."""
    words = ((one.shortfall, one.name) for one in baselines[1:])
    return next((f"{how} than {name}" for how, name in words if how), None)


def baseline_lines(baselines: Baselines) -> Iterator[str]:
    """Yields a table of the rules beside a judge, and whether the judge beats the best of them."""
    if not baselines:
        return
    heading = ("no judge", "accuracy", "the judge above it")
    rows = ((one.name, one.accuracy, one.missing or one.difference) for one in baselines)
    yield from text_table(heading, rows)
    yield against_best(baselines)


def against_best(baselines: Baselines) -> str:
    """Returns one sentence on whether a judge is better than the best rule, and by how much."""
    how, best = compared_with_best(baselines)
    return f"{how.capitalize()} the best rule, {best.name}: accuracy {best.difference}."


def compared_with_best(baselines: Baselines) -> tuple[str, Baseline]:
    """Returns whether a judge is better than the rule that is right most often, and that rule."""
    best = max(baselines, key=lambda one: -1.0 if one.accuracy is None else one.accuracy)
    ends = best.comparison and best.comparison.interval
    return (
        f"{best.shortfall} than" if best.shortfall else "better than" if ends else "against",
        best,
    )


def compare_with_baselines(
    pairings: Sequence[Pairing], telemetry: Telemetry | None
) -> tuple[Baselines, ...]:
    """Compares judges with rules that read no page.

    Args:
        pairings: Verdicts of each judge and labels, joined by `pair`.
        telemetry: What the rules read; None: only the constant answer is compared. Fitted rules
            judge a run by labels of other tasks: thresholds of steps are fitted to the runs that
            the judge scored, `prior` to all labelled runs.

    Returns:
        The rules beside each judge, the constant answer first; none where it scored no run.
    """
    prior: Mapping[str, bool] | str = {}
    if telemetry is not None:
        truths = {p.verdict.id: p.truth for pairing in pairings for p in pairing.pairs}
        prior = _prior(telemetry, truths)
    return tuple(_baselines(pairing, telemetry, prior) for pairing in pairings)


def _baselines(
    pairing: Pairing, telemetry: Telemetry | None, prior: Mapping[str, bool] | str
) -> Baselines:
    scored = [p for p in pairing.pairs if p.verdict.success is not None]
    if not scored:
        return ()
    tasks = telemetry.tasks if telemetry else None
    answer = sum(p.truth for p in scored) * 2 > len(scored)
    constant = "always success" if answer else "always failure"
    found = [_baseline(constant, pairing, [_ruled(p, answer) for p in scored], tasks)]
    if telemetry is None:
        return tuple(found)
    if ruled := step_rule_verdicts(pairing, telemetry.lengths, telemetry.tasks):
        least, many = _fit(
            [telemetry.lengths[p.verdict.id] for p in ruled], [p.truth for p in ruled]
        )
        name = f"number of steps ({f'{least} or more' if many else f'fewer than {least}'})"
        found.append(_baseline(name, pairing, ruled, tasks))
    else:
        found.append(Baseline(name="number of steps", missing="runs of two tasks are needed"))
    if isinstance(prior, str):
        found.append(Baseline(name="prior", missing=prior))
    elif known := [_ruled(p, prior[p.verdict.id]) for p in scored if p.verdict.id in prior]:
        found.append(_baseline("prior", pairing, known, tasks))
    return tuple(found)


def _baseline(
    name: str, pairing: Pairing, ruled: Sequence[Pair], tasks: Mapping[str, str] | None
) -> Baseline:
    rule = replace(pairing, evaluator=replace(_RULE, name=name), pairs=tuple(ruled))
    return Baseline(
        name=name,
        accuracy=sum(p.verdict.success is p.truth for p in ruled) / len(ruled),
        comparison=compare(pairing, rule, tasks),
    )


def _ruled(pair: Pair, success: bool) -> Pair:
    return Pair(Verdict(id=pair.verdict.id, success=success, evaluator=_RULE), pair.truth, ())


def _prior(telemetry: Telemetry, truths: Mapping[str, bool]) -> Mapping[str, bool] | str:
    """Judges labelled runs by priors fitted without their tasks; why not, if there are too few."""
    runs = [
        FitExample(id=id, reading=reading, success=truths[id], task=telemetry.tasks[id])
        for id, reading in telemetry.readings.items()
        if id in truths
    ]
    try:
        expect_enough(runs)
        found = cross_validated(runs, 0)
    except UsageError as error:
        return str(error)
    return {run.id: p >= 0.5 for run, p in zip(runs, found, strict=True) if p is not None}


def step_rule_verdicts(
    pairing: Pairing, steps: Mapping[str, int], tasks: Mapping[str, str]
) -> tuple[Pair, ...]:
    """Judges the runs of a pairing that have a verdict by their number of steps.

    Args:
        pairing: Verdicts and labels, joined by `pair`.
        steps: The number of steps of each trajectory id.
        tasks: The task of each trajectory id. The threshold for a run is that of other tasks.

    Returns:
        The verdicts, with the labels; none with runs of fewer than two tasks.
    """
    pairs = [p for p in pairing.pairs if p.verdict.success is not None and p.verdict.id in steps]
    by_digest = sorted({tasks[p.verdict.id] for p in pairs}, key=_digest)
    folds = {task: i % _FOLDS for i, task in enumerate(by_digest)}
    if len(folds) < 2:
        return ()
    counts = [steps[p.verdict.id] for p in pairs]
    fold_of = [folds[tasks[p.verdict.id]] for p in pairs]
    ruled: list[Pair] = []
    for fold in range(min(_FOLDS, len(folds))):
        outside = [i for i, other in enumerate(fold_of) if other != fold]
        least, many = _fit([counts[i] for i in outside], [pairs[i].truth for i in outside])
        for i, pair in enumerate(pairs):
            if fold_of[i] == fold:
                ruled.append(_ruled(pair, (counts[i] >= least) is many))
    return tuple(ruled)


def _fit(counts: Sequence[int], truths: Sequence[bool]) -> tuple[int, bool]:
    """Returns the least number of steps, and whether runs from there are the successes, that are
    right most often. Constant answers are among the rules.
    """
    best = (-1, 0, True)
    for least in sorted({*counts, max(counts) + 1}):
        right = sum((count >= least) is truth for count, truth in zip(counts, truths, strict=True))
        for many, score in ((True, right), (False, len(counts) - right)):
            if score > best[0]:
                best = score, least, many
    return best[1:]


def _digest(task: str) -> bytes:
    return hashlib.sha256(task.encode("utf-8", "surrogatepass")).digest()
