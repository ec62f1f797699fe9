"""How far verdicts agree with labels: the pairs of both, figures with intervals, and the trajectories on which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import UsageError
from prill.evaluators.labels import labels_of, latest_verdicts, truth_of
from prill.evaluators.metrics import FIGURES, auc, auc_interval, bootstrap, figures, wilson
from prill.types import EvaluatorInfo, LabelRecord, UnscoredReason, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray


_UNSCORED = 4  # the column of a table of counts behind tp, fp, tn, fn
Kind = Literal["false positive", "false negative", "unscored"]
_KINDS: tuple[Kind, ...] = ("false positive", "false negative", "unscored")


@dataclass(frozen=True, slots=True)
class Pair:
    """A verdict, which may be unscored, and the truth about the same trajectory; `labels` are those of all its annotators."""

    verdict: Verdict
    truth: bool
    labels: tuple[LabelRecord, ...]

    @property
    def score(self) -> float:
        """The verdict's score; a verdict without one ranks as 1 or 0, by its success."""
        score = self.verdict.score
        return float(self.verdict.success or False) if score is None else score


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """One evaluator's verdicts beside the decided labels of one source, and what has no counterpart.

    `undecided` counts by kind the trajectories whose labels all lack a decision.
    """

    evaluator: EvaluatorInfo
    source: str
    pairs: tuple[Pair, ...]
    undecided: Mapping[str, int]
    verdicts_without_label: int
    labels_without_verdict: int


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


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """One trajectory with a decided label and another verdict, or none. `reason` is the judge's, `goal` None when not known.

    `label` is the truth that counts, `annotators` what each of them said.
    """

    kind: Kind
    id: str
    goal: str | None
    label: bool
    score: float | None
    unscored: UnscoredReason | None
    reason: str
    annotators: tuple[LabelRecord, ...]


def pair(verdicts: Iterable[Verdict], labels: Iterable[LabelRecord], source: str | None = None) -> Pairing:
    """Joins verdicts and labels; of several verdicts of an id the last counts.

    Raises UsageError when no id is in both, when no matching label is decided, or when several evaluators judged.
    """
    source, by_id = labels_of(labels, source)
    evaluator, latest = latest_verdicts(verdicts)
    common = [verdict for id, verdict in latest.items() if id in by_id]
    if not common:
        mine, theirs = next(iter(latest), "none"), next(iter(by_id), "none")
        raise UsageError(f"verdicts and labels have no id in common: a verdict has {mine!r}, a label has {theirs!r}")
    pairs, undecided = [], Counter[str]()
    for verdict in common:
        records = by_id[verdict.id]
        truth = truth_of(records)
        if truth is None:
            undecided[next((r.undecided for r in records if r.undecided), "no reason given")] += 1
        else:
            pairs.append(Pair(verdict, truth, tuple(records)))
    if not pairs:
        raise UsageError(f"all {len(common)} labels of source {source!r} that match a verdict are undecided")
    return Pairing(
        evaluator=evaluator,
        source=source,
        pairs=tuple(pairs),
        undecided=dict(undecided.most_common()),
        verdicts_without_label=len(latest) - len(common),
        labels_without_verdict=len(by_id) - len(common),
    )


def clusters_of(pairs: Iterable[Pair], tasks: Mapping[str, str]) -> list[tuple[bool, str]]:
    """What stands or falls together: the task of each trajectory, or the trajectory itself where `tasks` lacks it."""
    names = []
    for pair in pairs:
        task = tasks.get(pair.verdict.id)
        # The flag keeps an id that equals a task's name apart from that task.
        names.append((task is not None, pair.verdict.id if task is None else task))
    return names


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
    values = _with_intervals(tables)
    return Agreement(
        evaluator=pairing.evaluator,
        source=pairing.source,
        judged=judged,
        confusion=Confusion(tp, fp, tn, fn),
        # Before the last, which is about the unscored ones.
        figures=(*values[:-1], _auc(pairs, clusters), values[-1]),
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
    rows = []
    for name, value, lower, upper in zip(FIGURES, *(column.tolist() for column in (values, low, high)), strict=True):
        if isnan(value):
            rows.append(Figure(name, 0.0, undefined=True))
        elif lower < upper:
            rows.append(Figure(name, value, lower, upper, "bootstrap"))
        elif name.startswith("accuracy"):
            # A judge that is always right, or a single cluster, leaves the bootstrap nothing to vary.
            rows.append(Figure(name, value, *wilson(value, len(clusters)), "wilson"))
        else:
            rows.append(Figure(name, value))
    return tuple(rows)


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


def disagreements(pairing: Pairing, goals: Mapping[str, str] | None = None) -> tuple[Disagreement, ...]:
    """False positives, then false negatives, then the unscored; within a kind those the judge was surest of come first."""
    records = []
    for pair in pairing.pairs:
        verdict = pair.verdict
        if verdict.success == pair.truth:
            continue
        kind: Kind = "unscored" if verdict.success is None else "false positive" if verdict.success else "false negative"
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
