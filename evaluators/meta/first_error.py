"""Measures how often a step judge finds the first wrong step of a run, as ProcessBench does.

Source: arXiv 2412.06559.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prill.evaluators.metrics import wilson
from prill.types import Label, LabelRecord, Verdict

GOOD: frozenset[Label] = frozenset({"towards", "reached"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstErrors:
    """Counts of runs in which a judge does or does not find the first wrong step; shares are in [0,
    1].

    A label marks a step as wrong with `away`; the judge with any label except `towards` and
    `reached`, as in rewards. Only labelled steps count.

    Attributes:
        wrong: The judged runs with a labelled wrong step.
        found: The runs of `wrong` in which the judge finds the same step.
        right: The judged runs whose labelled steps are all right.
        passed: The runs of `right` in which the judge finds no wrong step.
        undecided: Excluded runs, because a step before the first wrong one is labelled `not_sure`,
            or annotators differ on it.
        unscored: Excluded runs, because the judge did not label a required step.
    """

    wrong: int
    found: int
    right: int
    passed: int
    undecided: int = 0
    unscored: int = 0

    @property
    def accuracy(self) -> float | None:
        """The share of runs with a wrong step in which the judge finds it; None without any."""
        return self.found / self.wrong if self.wrong else None

    @property
    def accuracy_right(self) -> float | None:
        """The share of runs without a wrong step in which the judge finds none."""
        return self.passed / self.right if self.right else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both accuracies; None if one is missing."""
        both = self.accuracy, self.accuracy_right
        if both[0] is None or both[1] is None:
            return None
        return 2 * both[0] * both[1] / (both[0] + both[1]) if any(both) else 0.0

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `accuracy` (Wilson); None without such runs."""
        return wilson(self.found / self.wrong, self.wrong) if self.wrong else None


def first_errors(
    verdicts: Iterable[Verdict], labels: Iterable[LabelRecord], source: str
) -> FirstErrors | None:
    """Counts the runs in which the judge finds the first wrong step; None if no label has step
    labels. Of several verdicts on a run, the last counts.
    """
    of_steps: dict[str, dict[int, Label | None]] = {}
    for label in labels:
        if label.source != source or not label.steps:
            continue
        known = of_steps.setdefault(label.id, {})
        for step in label.steps:
            same = known.setdefault(step.index, step.label) == step.label
            known[step.index] = step.label if same else None
    if not of_steps:
        return None
    judged = {verdict.id: verdict for verdict in verdicts}
    counts = dict.fromkeys(("wrong", "found", "right", "passed", "undecided", "unscored"), 0)
    for id, known in of_steps.items():
        if (verdict := judged.get(id)) is None:
            continue
        order = sorted(known)
        gold = _first(order, {i: known[i] for i in order if known[i] not in (None, "not_sure")})
        steps = {} if verdict.unscored else {step.index: step for step in verdict.steps or ()}
        if gold == _UNKNOWN:
            counts["undecided"] += 1
            continue
        given = {i: steps[i].label for i in order if i in steps and not steps[i].flagged}
        index = _first(order, given)
        if index == _UNKNOWN:
            counts["unscored"] += 1
            continue
        kind, right = ("right", "passed") if gold is None else ("wrong", "found")
        counts[kind] += 1
        counts[right] += index == gold
    return FirstErrors(**counts)


_UNKNOWN = -1  # a required step is undecided or missing


def _first(order: Sequence[int], labels: Mapping[int, Label | None]) -> int | None:
    """Returns the first wrong step; None: none; `_UNKNOWN`: an earlier one is undecided."""
    for i in order:
        if i not in labels:
            return _UNKNOWN
        if labels[i] not in GOOD:
            return i
    return None
