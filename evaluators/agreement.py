"""How far verdicts agree with labels: figures with intervals, the confusion table, and what was not judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import UsageError
from prill.evaluators.intervals import FIGURES, bootstrap, figures, wilson
from prill.evaluators.pairing import Pair, Pairing, clusters_of, gold_labels, pair
from prill.evaluators.ranking import auc, auc_interval
from prill.types import EvaluatorInfo, LabelRecord, UnscoredReason, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Agreement", "Confusion", "Figure", "agreement", "agreement_of", "confusion_counts", "gold_labels"]

_UNSCORED = 4  # the column of a table of counts behind tp, fp, tn, fn


@dataclass(frozen=True)
class Figure:
    """One figure with its 95 % interval, and how that was found; all three are None where the data give no interval.

    `undefined`: the denominator is 0, and `value` is 0 by convention.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    interval: Literal["bootstrap", "wilson"] | None = None
    undefined: bool = False


@dataclass(frozen=True)
class Confusion:
    """Counts of trajectories that have both a verdict and a label. Positive is success."""

    tp: int
    fp: int
    tn: int
    fn: int


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The comparison of one evaluator's verdicts with labels of one source.

    `unscored` counts, by reason, labelled trajectories without a verdict of the judge; `undecided` those whose label is null,
    and `undecided_by` the same by kind. `majority` is the accuracy of the better constant answer, `majority_answer`, on the
    judged trajectories. The AUC is that of the scores of the judged trajectories; a verdict without a score counts as 1 or 0.
    """

    evaluator: EvaluatorInfo
    source: str
    judged: int
    confusion: Confusion
    figures: tuple[Figure, ...]
    majority: float
    majority_answer: bool
    unscored: Mapping[UnscoredReason, int]
    undecided: int
    undecided_by: Mapping[str, int]
    verdicts_without_label: int
    labels_without_verdict: int
    clusters: int
    clustered_by: Literal["task", "trajectory"]


def agreement(
    verdicts: Iterable[Verdict],
    labels: Iterable[LabelRecord],
    *,
    source: str | None = None,
    tasks: Mapping[str, str] | None = None,
) -> Agreement:
    """Compares verdicts with labels, joined on id; of several verdicts of an id the last counts.

    `tasks` maps ids to tasks: the intervals then draw tasks, not rows, because runs of one task stand or fall together.
    An id that it lacks is a task of its own. Raises UsageError when no id is in both, or when several evaluators judged.
    """
    return agreement_of(pair(verdicts, labels, source), tasks)


def agreement_of(pairing: Pairing, tasks: Mapping[str, str] | None = None) -> Agreement:
    """Like `agreement`, for what is joined already."""
    pairs = pairing.pairs
    if tasks is not None and not any(p.verdict.id in tasks for p in pairs):
        raise UsageError(f"the trajectories are others than those judged: none has id {pairs[0].verdict.id!r}")
    clusters = clusters_of(pairs, tasks or {})
    tables = _tables(pairs, clusters)
    tp, fp, tn, fn = (int(n) for n in tables.sum(axis=0)[:_UNSCORED])
    judged = tp + fp + tn + fn
    found = _with_intervals(tables)
    return Agreement(
        evaluator=pairing.evaluator,
        source=pairing.source,
        judged=judged,
        confusion=Confusion(tp, fp, tn, fn),
        # Before the last, which is about the unscored ones.
        figures=(*found[:-1], _auc(pairs, clusters), found[-1]),
        majority=max(tp + fn, tn + fp) / judged if judged else 0.0,
        majority_answer=tp + fn > tn + fp,
        unscored=dict(Counter(p.verdict.unscored for p in pairs if p.verdict.unscored is not None).most_common()),
        undecided=sum(pairing.undecided.values()),
        undecided_by=pairing.undecided,
        verdicts_without_label=pairing.verdicts_without_label,
        labels_without_verdict=pairing.labels_without_verdict,
        clusters=len(tables),
        clustered_by="task" if tasks is not None else "trajectory",
    )


def confusion_counts(pairs: Iterable[Pair]) -> tuple[int, int, int, int, int]:
    """True positives, false positives, true negatives, false negatives, unscored."""
    counts = Counter(_column(p.verdict.success, p.truth) for p in pairs)
    return counts[0], counts[1], counts[2], counts[3], counts[_UNSCORED]


def _tables(pairs: Sequence[Pair], clusters: Sequence[Hashable]) -> NDArray[Any]:
    """One row of counts (tp, fp, tn, fn, unscored) for each cluster."""
    import numpy as np

    row_of: dict[Hashable, int] = {}
    rows = [row_of.setdefault(cluster, len(row_of)) for cluster in clusters]
    tables = np.zeros((len(row_of), 5), dtype=np.int64)
    np.add.at(tables, (rows, [_column(p.verdict.success, p.truth) for p in pairs]), 1)
    return tables


def _column(success: bool | None, truth: bool) -> int:
    if success is None:
        return _UNSCORED
    if success:
        return 0 if truth else 1
    return 3 if truth else 2


def _with_intervals(clusters: NDArray[Any]) -> tuple[Figure, ...]:
    values = figures(clusters.sum(axis=0, keepdims=True))[0]
    low, high = bootstrap(clusters)
    found = []
    for name, value, lower, upper in zip(FIGURES, *(column.tolist() for column in (values, low, high)), strict=True):
        if isnan(value):
            found.append(Figure(name, 0.0, undefined=True))
        elif lower < upper:
            found.append(Figure(name, value, lower, upper, "bootstrap"))
        elif name.startswith("accuracy"):
            # A judge that is always right, or a single cluster, leaves the bootstrap nothing to vary.
            found.append(Figure(name, value, *wilson(value, len(clusters)), "wilson"))
        else:
            found.append(Figure(name, value))
    return tuple(found)


def _auc(pairs: Sequence[Pair], clusters: Sequence[Hashable]) -> Figure:
    judged = [i for i, p in enumerate(pairs) if p.verdict.success is not None]
    scores, truths = [pairs[i].score for i in judged], [pairs[i].truth for i in judged]
    value = auc(scores, truths)
    if value is None:
        return Figure("AUC", 0.0, undefined=True)
    interval = auc_interval(scores, truths, [clusters[i] for i in judged])
    if interval is None or interval[0] == interval[1]:
        return Figure("AUC", value)
    return Figure("AUC", value, *interval, "bootstrap")
