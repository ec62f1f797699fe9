"""Lists failed runs by cause, and groups their reasons by words, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.io.store import read_labels, read_trajectories
from prill.io.tables import Table, Tabular, printable
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.runs.base import Printed, asynchronous, opened_folders
from prill.ui.report.entries import read_judges
from prill.ui.report.failures import (
    STABLE,
    CauseGroup,
    FailedRun,
    ReasonGroup,
    cause_groups,
    failed_run,
    reason_groups,
)

_COLUMNS: dict[str, type] = {
    **{"id": str, "goal": str, "by": str, "cause": str, "source": str, "step": int},
    **{"detail": str, "reason": str},
}
_EXAMPLES = 5  # ids of a cause that are printed
_REASON = 300  # characters of a reason that are printed


@dataclass(frozen=True, kw_only=True)
class FailuresConfig(Config):
    """Configuration of `prill failures`: causes of failed runs, and groups of similar reasons."""

    trajectories: Annotated[
        Sequence[str | Path], Meta(min_length=1, description="Trajectory files or folders.")
    ]
    verdicts: Annotated[
        Sequence[str | Path],
        Meta(description="Verdict files. The first judge that calls a run a failure counts."),
    ] = ()
    labels: Annotated[
        Sequence[str | Path],
        Meta(description="Label files, used for runs that no judge calls a failure."),
    ] = ()
    source: SourceOption = None
    truth: TruthOption = "majority"
    clusters: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Number of groups of reasons (default: by the number of reasons, at "
            "most 12).",
        ),
    ] = None

    def check(self) -> None:
        """Validates that something says which runs failed.

        Raises:
            UsageError: There are neither verdicts nor labels.
        """
        if not self.verdicts and not self.labels:
            raise UsageError(
                "nothing says which runs failed: give verdicts or labels", parameters=("verdicts",)
            )


@dataclass(frozen=True, kw_only=True)
class FailuresResult(Printed, Tabular):
    """The failed runs; printing it shows what `prill failures` prints.

    Args:
        runs: The number of runs.
        failed: The failed runs, in the order of the files.
        causes: The runs by cause, the most frequent first.
        reasons: The runs by similar reasons, the largest group first; empty for fewer than 5.
    """

    runs: int
    failed: tuple[FailedRun, ...]
    causes: tuple[CauseGroup, ...]
    reasons: tuple[ReasonGroup, ...]

    def table(self) -> Table:
        """Returns one row per failed run; `step` counts from 1, as in the report."""
        rows = tuple(
            (
                *(run.id, run.goal, run.by),
                *(
                    (None, None, None, None)
                    if run.cause is None
                    else (
                        run.cause.code,
                        run.cause.source,
                        run.place and run.place[0],
                        run.cause.detail,
                    )
                ),
                run.reason,
            )
            for run in self.failed
        )
        return Table(tuple(_COLUMNS), rows, _COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        return {
            "runs": self.runs,
            "failed": self.table().to_rows(),
            "causes": [{"code": group.code or None, "count": group.count} for group in self.causes],
            "reasons": [
                {
                    "medoid": group.medoid.id,
                    "reason": group.medoid.reason,
                    "stability": round(group.stability, 4),
                    "count": group.count,
                    "ids": [run.id for run in group.runs],
                }
                for group in self.reasons
            ],
        }

    def __str__(self) -> str:
        return "\n".join(_page(self))


def failures(config: FailuresConfig) -> FailuresResult:
    """Finds the causes of failed runs, and groups their reasons by words.

    Args:
        config: The runs, and what says that they failed.

    Returns:
        The failed runs with their causes and groups.

    Raises:
        UsageError: A file cannot be read, or the labels have several sources.
        InputError: A verdict or a label is broken; the message names its line.
    """
    judges = read_judges(config.verdicts, transcripts=False)
    labels = [label for path in config.labels for label in read_labels(path)]
    source, gold = gold_labels(labels, config.source, config.truth) if labels else ("", {})
    runs, failed = 0, []
    for path in opened_folders(config.trajectories):
        for item in read_trajectories(path, on_error="skip"):
            runs += 1
            if (one := failed_run(item, judges, gold.get(item.id), source)) is not None:
                failed.append(one)
    return FailuresResult(
        runs=runs,
        failed=tuple(failed),
        causes=tuple(cause_groups(failed)),
        reasons=tuple(reason_groups(failed, config.clusters)),
    )


failures_async = asynchronous(failures)
"""Runs `failures` in a thread, with the same parameters, for programs with an event loop."""


def _page(result: FailuresResult) -> Iterator[str]:
    yield f"Failed: {len(result.failed)} of {result.runs} runs"
    if not result.causes:
        return
    yield ""
    yield "Causes: what can be seen, which is not always the first mistake"
    for group in result.causes:
        source = f" ({group.source})" if group.source else ""
        yield f"{group.count:>6}  {group.code or '-':<19} {group.words}{source}"
        more = group.count - _EXAMPLES
        names = [
            f"{run.id} ({run.place[1]})" if run.place else run.id for run in group.runs[:_EXAMPLES]
        ]
        yield printable(f"{'':>8}{', '.join(names)}{f', and {more} more' if more > 0 else ''}")
    if not result.reasons:
        return
    yield ""
    yield "Similar reasons, by their words: count, stability from 0 to 1, the most central reason"
    for similar in result.reasons:
        reason = " ".join(similar.medoid.reason.split())
        reason = reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…"
        mark = " " if similar.is_stable else "!"
        yield printable(
            f"{similar.count:>6}  {similar.stability:.2f}{mark} {similar.medoid.id}: {reason}"
        )
    if not all(similar.is_stable for similar in result.reasons):
        yield f"! stability below {STABLE:g}: the group may be chance"
