"""Groups the failed runs of a page by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prill.evaluators.failures import Cause, find_cause
from prill.types import Trajectory
from prill.ui.report.entries import MAX_TEXT, Judge, cut

_EXAMPLES = 20  # failed runs of a cause that are listed


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that failed according to the first judge that says so, or else its label."""

    id: str
    goal: str
    by: str
    reason: str
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """The failed runs of one cause; `runs` are the first of them, `more` counts the rest."""

    words: str
    source: str
    count: int
    runs: Sequence[FailedRun]
    more: int


def failed_run(
    item: Trajectory, judges: Sequence[Judge], truth: bool | None, source: str
) -> FailedRun | None:
    """Returns the run as a failure; None if no judge and no label says that it failed."""
    for judge in judges:
        verdict = judge.verdicts.get(item.id)
        if verdict is not None and verdict.success is False:
            cause, by, reason = find_cause(item, verdict), judge.name, verdict.reason
            break
    else:
        if truth is not False:
            return None
        cause, by, reason = find_cause(item), f"{source} label", ""
    return FailedRun(item.id, cut(item.task.goal, 200), by, cut(reason, MAX_TEXT), cause)


def cause_groups(failures: Sequence[FailedRun]) -> list[CauseGroup]:
    """Returns the causes, the most frequent first; runs without a cause come last."""
    by_cause: dict[tuple[str, str], list[FailedRun]] = {}
    for run in failures:
        key = ("", "") if run.cause is None else (run.cause.source, run.cause.words)
        by_cause.setdefault(key, []).append(run)
    return [
        CauseGroup(
            words or "no cause found",
            {"judge": "by the judge's findings", "rule": "by a rule"}.get(source, ""),
            len(runs),
            runs[:_EXAMPLES],
            max(0, len(runs) - _EXAMPLES),
        )
        for (source, words), runs in sorted(
            by_cause.items(), key=lambda pair: (not pair[0][0], -len(pair[1]))
        )
    ]
