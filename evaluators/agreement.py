"""How far verdicts agree with labels: figures with intervals, the confusion table, and what was not judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import UsageError
from prill.evaluators.intervals import FIGURES, bootstrap, figures, wilson
from prill.types import EvaluatorInfo, LabelRecord, UnscoredReason, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    `unscored` counts, by reason, labelled trajectories without a verdict of the judge; `undecided` those whose label is null.
    `majority` is the accuracy of the better constant answer, `majority_answer`, on the judged trajectories.
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
    verdicts_without_label: int
    labels_without_verdict: int
    clusters: int
    clustered_by: Literal["task", "trajectory"]


def gold_labels(labels: Iterable[LabelRecord], source: str | None = None) -> tuple[str, dict[str, bool | None]]:
    """The source, and for each id the success that its first decided annotator gave; None when none decided.

    Raises UsageError when there are several sources and none is chosen: people and oracles never share a figure.
    """
    records = list(labels)
    sources = sorted({record.source for record in records})
    if source is None:
        if len(sources) > 1:
            raise UsageError(f"the labels come from several sources ({', '.join(sources)}); choose one with --source")
        source = sources[0] if sources else ""
    elif source not in sources:
        raise UsageError(f"no label has source {source!r}; there are: {', '.join(sources) or 'no labels'}")
    gold: dict[str, bool | None] = {}
    for record in records:
        if record.source == source and gold.get(record.id) is None:
            gold[record.id] = record.success
    return source, gold


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
    source, gold = gold_labels(labels, source)
    latest = {verdict.id: verdict for verdict in verdicts}
    evaluator = _only_evaluator(latest.values())
    common = [verdict for id, verdict in latest.items() if id in gold]
    if not common:
        mine, theirs = next(iter(latest), "none"), next(iter(gold), "none")
        raise UsageError(f"verdicts and labels have no id in common: a verdict has {mine!r}, a label has {theirs!r}")
    decided = [verdict for verdict in common if gold[verdict.id] is not None]
    if not decided:
        raise UsageError(f"all {len(common)} labels of source {source!r} that match a verdict are undecided")
    if tasks is not None and not any(verdict.id in tasks for verdict in decided):
        raise UsageError(f"the trajectories are others than those judged: none has id {decided[0].id!r}")
    clusters = _tables(decided, gold, tasks or {})
    tp, fp, tn, fn = (int(n) for n in clusters.sum(axis=0)[:_UNSCORED])
    judged = tp + fp + tn + fn
    return Agreement(
        evaluator=evaluator,
        source=source,
        judged=judged,
        confusion=Confusion(tp, fp, tn, fn),
        figures=_with_intervals(clusters),
        majority=max(tp + fn, tn + fp) / judged if judged else 0.0,
        majority_answer=tp + fn > tn + fp,
        unscored=dict(Counter(v.unscored for v in decided if v.unscored is not None).most_common()),
        undecided=len(common) - len(decided),
        verdicts_without_label=len(latest) - len(common),
        labels_without_verdict=len(gold) - len(common),
        clusters=len(clusters),
        clustered_by="task" if tasks is not None else "trajectory",
    )


def _only_evaluator(verdicts: Iterable[Verdict]) -> EvaluatorInfo:
    first: EvaluatorInfo | None = None
    for verdict in verdicts:
        if first is None:
            first = verdict.evaluator
        elif verdict.evaluator != first:
            shown = " and ".join(f"{e.name} {e.version} ({e.model}, {e.prompt})" for e in (first, verdict.evaluator))
            raise UsageError(f"the verdicts come from several evaluators ({shown}); keep them in a file each")
    if first is None:
        raise UsageError("there are no verdicts")
    return first


def _tables(verdicts: list[Verdict], gold: Mapping[str, bool | None], tasks: Mapping[str, str]) -> NDArray[Any]:
    """One row of counts (tp, fp, tn, fn, unscored) for each cluster."""
    import numpy as np

    row_of: dict[tuple[bool, str], int] = {}
    rows, columns = [], []
    for verdict in verdicts:
        task = tasks.get(verdict.id)
        # The flag keeps an id that equals a task's name apart from that task.
        rows.append(row_of.setdefault((task is not None, verdict.id if task is None else task), len(row_of)))
        columns.append(_column(verdict.success, gold[verdict.id]))
    tables = np.zeros((len(row_of), 5), dtype=np.int64)
    np.add.at(tables, (rows, columns), 1)
    return tables


def _column(success: bool | None, truth: bool | None) -> int:
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
