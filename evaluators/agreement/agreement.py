"""Agreement of verdicts with labels: pairs, figures with intervals, and disagreements."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from prill.datasets.inputs import iter_recordings
from prill.errors import UsageError
from prill.evaluators.agreement.figure import (
    HEADING,
    Figure,
    about_intervals,
    figure_row,
    value_row,
)
from prill.evaluators.fitted.calibration import expected_calibration_error, reliability
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution
from prill.evaluators.labels import cluster, task_names
from prill.evaluators.metrics import (
    FIGURES,
    Method,
    auc,
    auc_interval,
    choose_method,
    count_outcomes,
    figures,
    intervals,
    ratio_interval,
    sum_clusters,
    wilson,
)
from prill.io.joining import NOTHING_LEFT_OUT, JoinCounts, join, record_digest
from prill.io.store import read_labels, read_verdicts
from prill.io.tables import Table, Tabular, printable
from prill.io.truth import RULES, collect_labels, decide_truth, why_undecided
from prill.types import (
    EvaluatorInfo,
    Label,
    LabelRecord,
    Trajectory,
    UnscoredReason,
    Usage,
    Verdict,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Path = str | os.PathLike[str]

_GOOD: frozenset[Label] = frozenset({"towards", "reached"})  # labels of steps
_UNSCORED = 4  # the column after tp, fp, tn, fn in a table of counts
# The columns whose sum is the denominator of a figure that is a proportion.
_OUT_OF = {
    "accuracy": (0, 1, 2, 3),
    "precision": (0, 1),
    "recall": (0, 3),
    "specificity": (1, 2),
    "NPV": (2, 3),
    "accuracy, unscored as wrong": (0, 1, 2, 3, _UNSCORED),
}
Kind = Literal["false positive", "false negative", "unscored"]
_KINDS: tuple[Kind, ...] = ("false positive", "false negative", "unscored")


@dataclass(frozen=True, slots=True)
class Pair:
    """A verdict, possibly unscored, and the true success of its trajectory.

    `labels` are the labels of all its annotators.
    """

    verdict: Verdict
    truth: bool
    labels: tuple[LabelRecord, ...]

    @property
    def score(self) -> float:
        """The verdict's score; without a score, 1 for a success and 0 for a failure."""
        score = self.verdict.score
        return float(self.verdict.success or False) if score is None else score


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """One judge's verdicts paired with the decided labels of one source, and the unpaired ids.

    `truth` is the rule that decides labels (see `gold_labels`). `undecided` counts by kind the
    trajectories that it cannot decide; `undecided_ids` are their ids. `missing` are the ids with a
    decided label but no verdict, not even an unscored one. `joined` counts what was not used.
    """

    evaluator: EvaluatorInfo
    source: str
    truth: str = "majority"
    pairs: tuple[Pair, ...]
    missing: tuple[str, ...] = ()
    undecided: Mapping[str, int]
    undecided_ids: tuple[str, ...] = ()
    verdicts_without_label: int
    labels_without_verdict: int
    joined: JoinCounts = NOTHING_LEFT_OUT


@dataclass(frozen=True)
class Confusion:
    """Counts of trajectories that have both a verdict and a label. Positive is success."""

    tp: int
    fp: int
    tn: int
    fn: int


@dataclass(frozen=True, kw_only=True)
class Agreement(Tabular):
    """The comparison of one judge's verdicts with labels of one source.

    Main figures are also attributes: `kappa.value`, `kappa.low`, `kappa.high`. `print` shows the
    output of `prill agree`; `to_pandas()` returns a data frame.

    Args:
        evaluator: The judge.
        source: The source of the labels.
        truth: The rule for annotators who differ.
        judged: The number of labelled trajectories that the judge scored.
        confusion: The counts of right and wrong verdicts.
        figures: The figures, with 95 % intervals. The AUC uses the scores; a verdict without a
            score counts as 1 or 0.
        scores: The Brier score and the calibration error of the same scores. Empty where all scores
            are 0 or 1.
        majority: The accuracy of the better constant answer on the judged trajectories, in [0, 1].
        majority_answer: The better constant answer.
        unscored: The number of labelled trajectories that the judge did not score, by reason.
        missing: The number of labelled trajectories without any verdict. They also count as wrong
            in the last figure.
        undecided: The number of trajectories whose labels the rule cannot decide.
        undecided_by: The number of undecided trajectories by kind.
        verdicts_without_label: The number of verdicts without a label.
        labels_without_verdict: The number of labels without a verdict.
        clusters: The number of independent groups that the intervals resample.
        clustered_by: The type of the groups.
        fitted: Counts of the judged trajectories that the judge was fitted on. None: no part of the
            judge was fitted to labels.
        joined: The numbers of runs without a verdict, and of verdicts and labels of other runs.
        usage: The calls, tokens and cost of the verdicts on labelled trajectories, with those that
            are unscored.
    """

    evaluator: EvaluatorInfo
    source: str
    truth: str = "majority"
    judged: int
    confusion: Confusion
    figures: tuple[Figure, ...]
    scores: tuple[Figure, ...] = ()
    majority: float
    majority_answer: bool
    unscored: Mapping[UnscoredReason, int]
    missing: int = 0
    undecided: int
    undecided_by: Mapping[str, int]
    verdicts_without_label: int
    labels_without_verdict: int
    clusters: int
    clustered_by: Literal["task", "trajectory"]
    fitted: Overlap | None = None
    joined: JoinCounts = NOTHING_LEFT_OUT
    usage: Usage = field(default_factory=Usage)

    @property
    def accuracy(self) -> Figure:
        """Share of the judged trajectories whose verdict equals the label, in [0, 1]."""
        return self.figure("accuracy")

    @property
    def precision(self) -> Figure:
        """Share of label successes among the judge's successes, in [0, 1]."""
        return self.figure("precision")

    @property
    def recall(self) -> Figure:
        """Share of the label successes that the judge calls successes, in [0, 1]."""
        return self.figure("recall")

    @property
    def f1(self) -> Figure:
        """Harmonic mean of precision and recall, in [0, 1]."""
        return self.figure("F1")

    @property
    def kappa(self) -> Figure:
        """Cohen's kappa: agreement beyond chance, in [-1, 1]; 0 is chance."""
        return self.figure("kappa")

    @property
    def auc(self) -> Figure:
        """Chance that a success has a higher score than a failure, in [0, 1]; 0.5 is chance."""
        return self.figure("AUC")

    def table(self) -> Table:
        """Returns a row per figure: name, value, 95 % interval and method; null if undefined."""
        return figure_table((*self.figures, *self.scores))

    def __str__(self) -> str:
        constant = f"always {'success' if self.majority_answer else 'failure'} (no judge)"
        parts = (
            header_lines(self),
            (HEADING, *figure_rows(self), value_row(constant, self.majority)),
            count_rows(self),
            not_judged_rows(self),
            [conclusion(self)],
        )
        return "\n\n".join("\n".join(part) for part in parts)

    def _repr_html_(self) -> str:
        from html import escape

        def lines_html(rows: Iterable[str]) -> str:
            return f"<p>{'<br>'.join(map(escape, rows))}</p>"

        return f"<div>{lines_html(header_lines(self))}{self.table()._repr_html_()}{lines_html(not_judged_rows(self))}</div>"  # noqa: E501

    @property
    def cost_per_correct(self) -> tuple[float | None, float] | None:
        """Dollars (None: a price is unknown) and tokens per verdict that equals its label, with the
        cost of the others; None if no verdict does.
        """
        correct, used = self.confusion.tp + self.confusion.tn, self.usage
        if not correct:
            return None
        tokens = (used.prompt_tokens + used.completion_tokens) / correct
        return None if used.usd is None else used.usd / correct, tokens

    def figure(self, name: str) -> Figure:
        """Returns a figure by its name, such as `NPV`. Raises KeyError if there is none."""
        for figure in (*self.figures, *self.scores):
            if figure.name == name:
                return figure
        raise KeyError(name)


_COLUMNS: dict[str, type] = {
    "figure": str,
    "value": float,
    "low": float,
    "high": float,
    "method": str,
}


def figure_table(figures: Iterable[Figure]) -> Table:
    """Returns a row per figure: name, value, 95 % interval and method; null if undefined."""
    rows = tuple(
        (f.name, None if f.undefined else f.value, f.low, f.high, f.interval) for f in figures
    )
    return Table(tuple(_COLUMNS), rows, _COLUMNS)


def header_lines(result: Agreement, *, annotated: bool = False) -> Iterator[str]:
    """Yields lines with the judge, the labels and the rule for the truth.

    The rule is always included if several people `annotated`.
    """
    judge, unscored = result.evaluator, sum(result.unscored.values())
    yield f"Judge: {printable(judge.title)}"
    counts = f"{result.judged + unscored} trajectories; judged {result.judged}, unscored {unscored}"
    yield f"Labels: {printable(result.source)}, {counts}"
    if caution := fitted_caution(result.evaluator.name, result.fitted):
        yield f"Warning: {caution}"
    if annotated or result.truth != "majority":
        yield f"Truth: {RULES.get(result.truth, f'the labels of {printable(result.truth)}')}"


def figure_rows(result: Agreement) -> Iterator[str]:
    """Yields a line for each figure."""
    yield from map(figure_row, result.figures)
    yield from map(figure_row, result.scores)
    if not result.scores and result.judged:
        yield "Brier score and calibration error: undefined, as every score is 0 or 1"


def count_rows(result: Agreement) -> Iterator[str]:
    """Yields the lines of the confusion matrix."""
    c = result.confusion
    yield f"{'':<16}{'label success':>15}{'label failure':>15}"
    yield f"{'judged success':<16}{c.tp:>15}{c.fp:>15}"
    yield f"{'judged failure':<16}{c.fn:>15}{c.tn:>15}"


def not_judged_rows(result: Agreement) -> Iterator[str]:
    """Yields lines with the method of the intervals, and the trajectories not in any figure."""
    yield from about_intervals(result.figures, result.clusters, result.clustered_by)
    if result.unscored:
        yield "Unscored: " + ", ".join(
            f"{reason} {count}" for reason, count in result.unscored.items()
        )
    if result.missing:
        yield (
            f"Without a verdict: {result.missing} labelled trajectories, counted as wrong "
            "in the last accuracy"
        )
    if result.usage.calls and (cost := result.cost_per_correct):
        dollars = "price unknown" if cost[0] is None else f"${cost[0]:.3g}"
        yield f"Cost of a correct verdict: {dollars}, {cost[1]:.0f} tokens"
    yield from result.joined.lines()
    kinds = ", ".join(
        f"{count} {kind.replace('_', ' ')}" for kind, count in result.undecided_by.items()
    )
    counts = {
        "verdicts without label": result.verdicts_without_label,
        "labels without verdict": result.labels_without_verdict - result.missing,
        f"undecided labels ({kinds})": result.undecided,
    }
    if any(counts.values()):
        yield "Not compared: " + ", ".join(
            f"{count} {what}" for what, count in counts.items() if count
        )


def conclusion(result: Agreement, shortfall: str | None = None) -> str:
    """Returns one sentence on what the judge is usable for, by the ends of the intervals.

    Args:
        result: The judge's agreement with labels.
        shortfall: How it falls short of a rule without a judge: "worse than prior", say.
    """
    kappa, accuracy = result.kappa, result.accuracy
    if result.fitted is not None and result.fitted.flatters:
        return "In short: nothing is shown of other runs, as the judge was fitted on some of these."
    if kappa.undefined or kappa.low is None:
        return "In short: these runs are too few or too alike to tell the judge from chance."
    if kappa.low <= 0:
        return "In short: no better than chance, as far as these labels show."
    if shortfall is not None:
        return f"In short: better than chance, but {shortfall}: not for verdicts on single runs."
    if accuracy.low is not None and accuracy.low > result.majority:
        return "In short: usable for verdicts on single runs like these, with the errors above."
    return (
        "In short: better than chance, so usable with labels (`prill rate`); as single verdicts no "
        f"better than always {'success' if result.majority_answer else 'failure'}."
    )


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A trajectory whose verdict differs from its decided label or is unscored.

    `reason` is the judge's reason; `goal` is None if it is unknown.

    `label` is the decided label, and `annotators` has each annotator's label.
    """

    kind: Kind
    id: str
    goal: str | None
    label: bool
    score: float | None
    unscored: UnscoredReason | None
    reason: str
    annotators: tuple[LabelRecord, ...]


def pair(
    verdicts: Iterable[Verdict],
    labels: Iterable[LabelRecord],
    source: str | None = None,
    truth: str = "majority",
    runs: Mapping[str, str] | None = None,
) -> Pairing:
    """Joins verdicts and labels by id; of several verdicts of an id, the last counts.

    Args:
        verdicts: The verdicts of one judge.
        labels: The labels.
        source: The source of labels to use. None: the only source.
        truth: The rule for annotators who differ, as in `gold_labels`.
        runs: The digest of each judged run by id; verdicts and labels of other runs are not used.
            None: all count.

    Returns:
        The pairs, and the unpaired and undecided ids.

    Raises:
        UsageError: No id is in both, no matching label is decided, or the verdicts are by several
            judges.
    """
    known = list(labels)
    joined = join(verdicts, known, runs)
    source, by_id = collect_labels(joined.labels or known, source, truth)
    latest = joined.verdicts
    common = [verdict for id, verdict in latest.items() if id in by_id]
    if not common:
        verdict_id, label_id = next(iter(latest), "none"), next(iter(by_id), "none")
        raise UsageError(
            f"verdicts and labels have no id in common: a verdict has {verdict_id!r}, a label has "
            f"{label_id!r}"
        )
    pairs, undecided, undecided_ids = [], Counter[str](), []
    for verdict in common:
        records = by_id[verdict.id]
        success = decide_truth(records, truth)
        if success is None:
            undecided[why_undecided(records, truth)] += 1
            undecided_ids.append(verdict.id)
        else:
            pairs.append(Pair(verdict, success, tuple(records)))
    if not pairs:
        kinds = ", ".join(
            f"{count} {kind.replace('_', ' ')}" for kind, count in undecided.most_common()
        )
        raise UsageError(
            f"all {len(common)} labels of source {source!r} that match a verdict are undecided "
            f"({kinds})"
        )
    return Pairing(
        evaluator=joined.judge,
        source=source,
        truth=truth,
        pairs=tuple(pairs),
        missing=tuple(
            id
            for id, records in by_id.items()
            if id not in latest and decide_truth(records, truth) is not None
        ),
        undecided=dict(undecided.most_common()),
        undecided_ids=tuple(undecided_ids),
        verdicts_without_label=len(latest) - len(common),
        labels_without_verdict=len(by_id) - len(common),
        joined=joined.counts,
    )


def by_step(
    verdicts: Iterable[Verdict], labels: Iterable[LabelRecord]
) -> tuple[tuple[Verdict, ...], tuple[LabelRecord, ...]]:
    """Splits verdicts and labels into individual steps, with the ids `TRAJECTORY step N` (N from
    0).

    A step is a success if it moves towards the goal or reaches it. A label `not_sure` is undecided;
    a judge's `not_sure` is not a success, as in rewards. A step that the judge did not label is
    unscored, and so are all steps of an unscored trajectory.

    Args:
        verdicts: Verdicts of a step judge.
        labels: Labels with step labels.

    Returns:
        The verdicts and the labels of the labelled steps.

    Raises:
        UsageError: No label, or no verdict, has step labels.
    """
    known = list(labels)
    of_steps = tuple(
        LabelRecord(
            id=step_id(label.id, step.index),
            success=None if step.label == "not_sure" else step.label in _GOOD,
            source=label.source,
            annotator=label.annotator,
        )
        for label in known
        for step in label.steps or ()
    )
    if not of_steps:
        raise UsageError("no label has labels of single steps")
    labelled: dict[str, dict[int, None]] = defaultdict(dict)
    for label in known:
        labelled[label.id].update((step.index, None) for step in label.steps or ())
    judged = list(verdicts)
    if not any(verdict.steps for verdict in judged):
        raise UsageError("the verdicts have no labels of single steps; use the judge `steps`")
    return tuple(
        _of_step(verdict, i) for verdict in judged for i in labelled.get(verdict.id, ())
    ), of_steps


def step_id(id: str, index: int) -> str:
    """Returns the id of a step in figures of steps."""
    return f"{id} step {index}"


def _of_step(verdict: Verdict, index: int) -> Verdict:
    """Returns the verdict on one step, without the trajectory's score, rewards and cost."""
    id = step_id(verdict.id, index)
    step = next((step for step in verdict.steps or () if step.index == index), None)
    known = Verdict(
        id=id, unscored="parse", evaluator=verdict.evaluator, fitted_on=verdict.fitted_on
    )
    if step is None or step.flagged:
        reason = verdict.reason if step is None else step.reason
        return replace(known, unscored=verdict.unscored or "parse", reason=reason)
    return replace(known, unscored=None, success=step.label in _GOOD, reason=step.reason)


def agreement(
    verdicts: Iterable[Verdict] | _Path,
    labels: Iterable[LabelRecord] | _Path,
    *,
    source: str | None = None,
    truth: str = "majority",
    trajectories: Iterable[Trajectory] | _Path | None = None,
    tasks: Mapping[str, str] | None = None,
) -> Agreement:
    """Computes the agreement of a judge with labels, with the figures of `prill agree`.

    Example: `prill.agreement("v.jsonl", "l.jsonl").kappa`.

    Verdicts and labels are joined on id. Of several verdicts of an id, the last counts; several
    labels are decided by `truth`.

    Args:
        verdicts: Verdicts of one judge, or the path of a verdict file.
        labels: Labels by people or an oracle, or the path of a label file.
        source: The source of labels to compare with; required if there are several, which are never
            pooled.
        truth: The rule for annotators who differ: `majority`, `unanimous`, `first`, or the name of
            an annotator.
        trajectories: The judged trajectories, or the path of their file. The 95 % intervals then
            resample whole tasks, not trajectories, because runs of one task are not independent.
        tasks: The task of each trajectory id, instead of `trajectories`
            (`prill.evaluators.task_names`). A judged id without a task is its own task. A label
            without a verdict counts as wrong in the last figure if `tasks` has its id
            or is None.

    Returns:
        The figures as attributes, each with `value`, `low` and `high`; and the numbers of
        trajectories that the judge scored (`judged`), that it did not score (`unscored`, by
        reason), and that have no label, no verdict or no decided label.

    Raises:
        UsageError: No id is in both, the verdicts are by several judges, or there are several
            sources and none is chosen.
        InputError: A line of a file is invalid; the message has the file and the line number.
    """
    digests: dict[str, str] | None = None
    if trajectories is not None:
        if tasks is not None:
            raise UsageError("trajectories and tasks: both name the tasks of runs; give only one")
        runs = (
            iter_recordings(trajectories)
            if isinstance(trajectories, str | os.PathLike)
            else trajectories
        )
        known = list(runs)
        tasks = task_names(known)
        digests = {run.id: record_digest(run) for run in known}
    verdicts = read_verdicts(verdicts) if isinstance(verdicts, str | os.PathLike) else verdicts
    labels = read_labels(labels) if isinstance(labels, str | os.PathLike) else labels
    return measure_agreement(pair(verdicts, labels, source, truth, digests), tasks)


def measure_agreement(pairing: Pairing, tasks: Mapping[str, str] | None = None) -> Agreement:
    """Compares the verdicts of a judge with labels.

    Args:
        pairing: Verdicts and labels, joined by `pair`.
        tasks: The task of each trajectory id (`prill.evaluators.task_names`). Intervals then
            resample tasks instead of trajectories, since runs of one task are not independent. An
            id without a task is its own task. None: resample trajectories.

    Returns:
        The figures, most in [0, 1], with 95 % intervals. A label without a verdict counts as wrong
        in the last figure, if `tasks` has its id or is None.

    Raises:
        UsageError: `tasks` has none of the judged ids.
    """
    pairs = pairing.pairs
    if tasks is not None and not any(p.verdict.id in tasks for p in pairs):
        raise UsageError(
            f"the trajectories do not match the verdicts: none has the id {pairs[0].verdict.id!r}"
        )
    clusters = [cluster(pair.verdict.id, tasks) for pair in pairs]
    calls, truths = [p.verdict.success for p in pairs], [p.truth for p in pairs]
    tables = count_outcomes(clusters, calls, truths)
    tp, fp, tn, fn = (int(n) for n in tables.sum(axis=0)[:_UNSCORED])
    judged = tp + fp + tn + fn
    values = _with_intervals(tables)
    missing = [id for id in pairing.missing if tasks is None or id in tasks]
    unscored_as_wrong = values[-1]
    if missing:  # they count as unscored, and affect only the last figure
        every = [*clusters, *(cluster(id, tasks) for id in missing)]
        calls, truths = [*calls, *[None] * len(missing)], [*truths, *[False] * len(missing)]
        unscored_as_wrong = _with_intervals(count_outcomes(every, calls, truths))[-1]
    return Agreement(
        evaluator=pairing.evaluator,
        source=pairing.source,
        truth=pairing.truth,
        judged=judged,
        confusion=Confusion(tp, fp, tn, fn),
        figures=(*values[:-1], _auc(pairs, clusters), unscored_as_wrong),
        scores=_score_figures(pairs, clusters),
        majority=max(tp + fn, tn + fp) / judged if judged else 0.0,
        majority_answer=tp + fn > tn + fp,
        unscored=dict(
            Counter(
                p.verdict.unscored for p in pairs if p.verdict.unscored is not None
            ).most_common()
        ),
        missing=len(missing),
        undecided=sum(pairing.undecided.values()),
        undecided_by=pairing.undecided,
        verdicts_without_label=pairing.verdicts_without_label,
        labels_without_verdict=pairing.labels_without_verdict,
        clusters=len(tables),
        clustered_by="task" if tasks is not None else "trajectory",
        fitted=find_overlap(p.verdict for p in pairs if p.verdict.success is not None),
        joined=pairing.joined,
        usage=sum((p.verdict.usage for p in pairs), start=Usage()),
    )


def _with_intervals(clusters: NDArray[Any]) -> tuple[Figure, ...]:
    value = figures(clusters.sum(axis=0, keepdims=True))[0]
    trials = {
        name: int((clusters[:, columns].sum(axis=1) > 0).sum()) for name, columns in _OUT_OF.items()
    }
    return name_figures(FIGURES, value, *intervals(clusters), trials, choose_method(len(clusters)))


def shares(names: Sequence[str], table: NDArray[Any]) -> tuple[Figure, ...]:
    """Returns a proportion and its interval for each name.

    Each row of the table, a cluster, has two numbers for a name: the numerator and the denominator.
    """
    import numpy as np

    def statistic(sums: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums[:, ::2] / sums[:, 1::2])

    value = statistic(table.sum(axis=0, keepdims=True))[0]
    trials = dict(zip(names, (table[:, 1::2] > 0).sum(axis=0).tolist(), strict=True))
    ends = intervals(table, statistic, (0.0,) * len(names))
    return name_figures(names, value, *ends, trials, choose_method(len(table)))


def name_figures(
    names: Sequence[str],
    value: NDArray[Any],
    low: NDArray[Any],
    high: NDArray[Any],
    trials: Mapping[str, int],
    method: Method,
) -> tuple[Figure, ...]:
    """Returns the figures with their intervals; NaN is undefined.

    Args:
        names: The names of the figures.
        value: Their values.
        low: The lower ends of the intervals; not below the upper ends: there is no interval.
        high: The upper ends.
        trials: For a proportion, the number of clusters in it, for Wilson's interval.
        method: The method of the intervals.
    """
    rows = []
    for name, middle, lower, upper in zip(
        names, *(column.tolist() for column in (value, low, high)), strict=True
    ):
        if isnan(middle):
            rows.append(Figure(name, 0.0, undefined=True))
        elif lower < upper:
            rows.append(Figure(name, middle, lower, upper, method))
        elif name in trials:
            # A share that is 0, 1 or equal in all clusters has no variance; use each cluster as one
            # trial.
            rows.append(Figure(name, middle, *wilson(middle, trials[name]), "wilson"))
        else:
            rows.append(Figure(name, middle))
    return tuple(rows)


def judged_scores(pairs: Iterable[Pair]) -> tuple[list[float], list[bool]]:
    """Returns the scores and true outcomes of the judged trajectories, for figures and plots."""
    judged = [(p.score, p.truth) for p in pairs if p.verdict.success is not None]
    return [score for score, _ in judged], [truth for _, truth in judged]


def _auc(pairs: Sequence[Pair], clusters: Sequence[Hashable]) -> Figure:
    scores, truths = judged_scores(pairs)
    value = auc(scores, truths)
    if value is None:
        return Figure("AUC", 0.0, undefined=True)
    groups = [
        cluster for p, cluster in zip(pairs, clusters, strict=True) if p.verdict.success is not None
    ]
    interval = auc_interval(scores, truths, groups)
    if interval is None or interval[0] == interval[1]:
        return Figure("AUC", value)
    return Figure("AUC", value, *interval, choose_method(len(set(groups))))


def _score_figures(pairs: Sequence[Pair], clusters: Sequence[Hashable]) -> tuple[Figure, ...]:
    """Returns the Brier score and the calibration error; nothing if every score is 0 or 1."""
    scores, truths = judged_scores(pairs)
    if all(score in (0.0, 1.0) for score in scores):
        return ()
    groups = [
        cluster for p, cluster in zip(pairs, clusters, strict=True) if p.verdict.success is not None
    ]
    distances = [((score - truth) ** 2, 1.0) for score, truth in zip(scores, truths, strict=True)]
    sums = sum_clusters(groups, distances)
    value = float(sums[:, 0].sum() / len(scores))
    ends = ratio_interval(sums, 0.0)
    brier = (
        Figure("Brier score", value, *ends, choose_method(len(sums)))
        if ends
        else Figure("Brier score", value)
    )
    # There is no interval: the figure is biased upwards by chance, and more so with fewer runs per
    # bin.
    return brier, Figure(
        "calibration error", expected_calibration_error(reliability(scores, truths))
    )


def disagreements(
    pairing: Pairing, goals: Mapping[str, str] | None = None
) -> tuple[Disagreement, ...]:
    """Returns false positives, false negatives, then unscored runs, each by confidence."""
    records = []
    for pair in pairing.pairs:
        verdict = pair.verdict
        if verdict.success == pair.truth:
            continue
        kind: Kind = (
            "unscored"
            if verdict.success is None
            else "false positive"
            if verdict.success
            else "false negative"
        )
        surest = 0.0 if verdict.success is None else -abs(pair.score - 0.5)
        record = Disagreement(
            kind=kind,
            id=verdict.id,
            goal=(goals or {}).get(verdict.id),
            label=pair.truth,
            score=verdict.score,
            unscored=verdict.unscored,
            reason=verdict.reason,
            annotators=pair.labels,
        )
        records.append((_KINDS.index(kind), surest, record))
    return tuple(record for _, _, record in sorted(records, key=lambda item: item[:2]))
