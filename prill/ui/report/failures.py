"""Groups failed runs by cause, and by the words of their reasons."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prill.evaluators.citations import split_citations
from prill.evaluators.failures import (
    MAX_REASONS,
    Cause,
    cluster_failures,
    judged_cause,
    rule_cause,
)
from prill.types import Citation, Trajectory
from prill.ui.report.entries import MAX_TEXT, Judge, cut

_EXAMPLES = 20  # failed runs of a cause that are listed
_GOAL = 200  # characters of a goal
_NO_CAUSE = "no cause found"
_MIN_REASONS = 5  # fewer are not clustered
STABLE = 0.6  # lower stability: not a cluster (Hennig 2007, doi:10.1016/j.csda.2006.11.025)


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that failed according to the first judge that says so, or else its label."""

    id: str
    goal: str
    by: str
    reason: str
    cause: Cause | None
    citations: tuple[Citation, ...] = ()
    steps: int = 0

    @property
    def place(self) -> tuple[int, str] | None:
        """Returns the number of the step that shows the cause, from 1, and its name; None without
        one.
        """
        if self.cause is None or self.cause.step is None:
            return None
        number = self.cause.step + 1
        return number, f"step {number}" if number <= self.steps else "final state"

    @property
    def cause_words(self) -> str:
        """Returns the description of the cause."""
        return _NO_CAUSE if self.cause is None else self.cause.words

    @property
    def needs_rules(self) -> bool:
        """Returns whether the rules may find a cause that the judge did not find."""
        return self.cause is None or self.cause.code == "other"

    def with_rules(self, cause: Cause | None) -> FailedRun:
        """Returns the run with the cause that the rules found, if it needs one."""
        if cause is None or not self.needs_rules:
            return self
        return replace(self, cause=replace(cause, detail=cut(cause.detail, MAX_TEXT)))

    @property
    def parts(self) -> list[tuple[str, int | None]]:
        """Returns the reason in parts, each with the number of the step that it cites, from 1."""
        return [
            (text, None if one is None or one.status == "no_such_step" else one.step + 1)
            for text, one in split_citations(self.reason, self.citations)
        ]


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """The failed runs of one cause; `runs` are the first of them, `more` counts the rest.

    `code` is empty if no cause was found.
    """

    code: str
    words: str
    source: str
    count: int
    runs: Sequence[FailedRun]
    more: int


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Failed runs with similar reasons.

    `medoid` is the run whose reason is nearest to the others, `runs` are the first of them, and
    `more` counts the rest. `stability` is in [0, 1].
    """

    medoid: FailedRun
    stability: float
    count: int
    runs: Sequence[FailedRun]
    more: int

    @property
    def is_stable(self) -> bool:
        """Returns whether samples of the reasons have a similar group."""
        return self.stability >= STABLE


def failed_run(
    item: Trajectory, judges: Sequence[Judge], truth: bool | None, source: str
) -> FailedRun | None:
    """Returns the run as a failure; None if no judge and no label says that it failed."""
    failed = failed_row(item.id, item.task.goal, len(item.steps), judges, truth, source)
    return failed and (failed.with_rules(rule_cause(item)) if failed.needs_rules else failed)


def failed_row(
    id: str, goal: str, steps: int, judges: Sequence[Judge], truth: bool | None, source: str
) -> FailedRun | None:
    """Returns a run as a failure, without the rules, which need the run itself; None as in
    `failed_run`.
    """
    for judge in judges:
        short = judge.verdicts.get(id)
        if short is None or short.success is not False:
            continue
        if (verdict := judge.whole(id)) is not None:
            cause, by, reason = judged_cause(verdict), judge.name, verdict.reason
            citations = (verdict.findings and verdict.findings.citations) or ()
            break
    else:
        if truth is not False:
            return None
        cause, by, reason = None, f"{source} label", ""
        citations = ()
    goal = goal if len(goal) <= _GOAL else f"{goal[: _GOAL - 1]}…"
    return FailedRun(id, goal, by, cut(reason, MAX_TEXT), cause, citations, steps)


def cause_groups(failures: Sequence[FailedRun]) -> list[CauseGroup]:
    """Returns the causes, the most frequent first; runs without a cause come last."""
    by_cause: dict[tuple[str, str, str], list[FailedRun]] = {}
    for run in failures:
        cause = run.cause
        key = ("", "", "") if cause is None else (cause.source, cause.code, cause.words)
        by_cause.setdefault(key, []).append(run)
    return [
        CauseGroup(
            code,
            words or _NO_CAUSE,
            {"judge": "by the judge's findings", "rule": "by a rule"}.get(source, ""),
            len(runs),
            runs[:_EXAMPLES],
            max(0, len(runs) - _EXAMPLES),
        )
        for (source, code, words), runs in sorted(
            by_cause.items(), key=lambda pair: (not pair[0][0], -len(pair[1]))
        )
    ]


def reason_groups(failures: Sequence[FailedRun], clusters: int | None = None) -> list[ReasonGroup]:
    """Returns the groups of similar reasons, the largest first; empty for fewer than 5 reasons.

    Of more than 2,000 reasons, as many are drawn at random.

    Args:
        failures: The failed runs; those without a reason are left out.
        clusters: The number of groups. None: by the number of reasons.

    Raises:
        UsageError: `clusters` is less than 1.
    """
    runs = {run.id: run for run in failures if run.reason.strip()}
    if len(runs) < _MIN_REASONS:
        return []
    if len(runs) > MAX_REASONS:
        drawn = set(random.Random(0).sample(list(runs), MAX_REASONS))
        runs = {id: run for id, run in runs.items() if id in drawn}
    found = cluster_failures({id: run.reason for id, run in runs.items()}, clusters=clusters)
    return [
        ReasonGroup(
            runs[cluster.medoid],
            cluster.stability,
            len(cluster.ids),
            [runs[id] for id in cluster.ids[:_EXAMPLES]],
            max(0, len(cluster.ids) - _EXAMPLES),
        )
        for cluster in found
    ]
