"""Verdicts and labels joined on id: what every figure of agreement starts from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prill.errors import UsageError
from prill.types import EvaluatorInfo, LabelRecord, Verdict


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


def gold_labels(labels: Iterable[LabelRecord], source: str | None = None) -> tuple[str, dict[str, bool | None]]:
    """The source, and for each id the success that its first decided annotator gave; None when none decided.

    Raises UsageError when there are several sources and none is chosen: people and oracles never share a figure.
    """
    source, by_id = labels_of(labels, source)
    return source, {id: _truth(records) for id, records in by_id.items()}


def labels_of(labels: Iterable[LabelRecord], source: str | None = None) -> tuple[str, dict[str, list[LabelRecord]]]:
    """The source, and for each id its labels of that source, in order. Raises UsageError like `gold_labels`."""
    records = list(labels)
    sources = sorted({record.source for record in records})
    if source is None:
        if len(sources) > 1:
            raise UsageError(f"the labels come from several sources ({', '.join(sources)}); choose one with --source")
        source = sources[0] if sources else ""
    elif source not in sources:
        raise UsageError(f"no label has source {source!r}; there are: {', '.join(sources) or 'no labels'}")
    by_id: dict[str, list[LabelRecord]] = {}
    for record in records:
        if record.source == source:
            by_id.setdefault(record.id, []).append(record)
    return source, by_id


def pair(verdicts: Iterable[Verdict], labels: Iterable[LabelRecord], source: str | None = None) -> Pairing:
    """Joins verdicts and labels; of several verdicts of an id the last counts.

    Raises UsageError when no id is in both, when no matching label is decided, or when several evaluators judged.
    """
    source, by_id = labels_of(labels, source)
    evaluator, latest = _latest(verdicts)
    common = [verdict for id, verdict in latest.items() if id in by_id]
    if not common:
        mine, theirs = next(iter(latest), "none"), next(iter(by_id), "none")
        raise UsageError(f"verdicts and labels have no id in common: a verdict has {mine!r}, a label has {theirs!r}")
    pairs, undecided = [], Counter[str]()
    for verdict in common:
        records = by_id[verdict.id]
        truth = _truth(records)
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
    for found in pairs:
        task = tasks.get(found.verdict.id)
        # The flag keeps an id that equals a task's name apart from that task.
        names.append((task is not None, found.verdict.id if task is None else task))
    return names


def _truth(records: Iterable[LabelRecord]) -> bool | None:
    return next((record.success for record in records if record.success is not None), None)


def _latest(verdicts: Iterable[Verdict]) -> tuple[EvaluatorInfo, dict[str, Verdict]]:
    """The evaluator of all verdicts, also of those that a later one of the same id replaces, and the last for each id."""
    first: EvaluatorInfo | None = None
    latest = {}
    for verdict in verdicts:
        if first is None:
            first = verdict.evaluator
        elif verdict.evaluator != first:
            shown = " and ".join(
                f"{e.name} {e.version} ({e.model}, {e.prompt}, {e.params})" for e in (first, verdict.evaluator)
            )
            raise UsageError(f"the verdicts come from several evaluators ({shown}); keep them in a file each")
        latest[verdict.id] = verdict
    if first is None:
        raise UsageError("there are no verdicts")
    return first, latest
