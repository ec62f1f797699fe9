"""Picks the best of several attempts at each task by a judge, and estimates the value of such
picks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution
from prill.evaluators.labels import cluster, latest_verdicts
from prill.evaluators.meta.best import BestPoint, Pick, best_of_n, pick_best, rank
from prill.evaluators.meta.figure import about_intervals, figure_ends, interval
from prill.io.outputs import check_output, write_output
from prill.io.store import read_labels, read_trajectories, read_verdicts, write_trajectories
from prill.io.tables import Table, Tabular, printable
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.runs.base import asynchronous, preformatted
from prill.runs.trust.agree import read_runs
from prill.types import EvaluatorInfo
from prill.ui.report.lines import PlotLine, PlotPoint, line_chart

_COLUMNS: dict[str, type] = {
    **{"task": str, "id": str, "value": float, "success": bool},
    **{"tied": int, "attempts": int, "unscored": int},
}


@dataclass(frozen=True, kw_only=True)
class BestConfig(Config):
    """Configuration of `prill best`: the best of several attempts at a task by a judge."""

    verdicts: Annotated[str | Path, Meta(description="Verdict file of one judge on all attempts.")]
    trajectories: Annotated[
        str | Path,
        Meta(description="Trajectory file that was judged. It shows which attempts share a task."),
    ]
    output: Annotated[
        str | Path | None, Meta(description="File for the best attempt at each task.")
    ] = None
    labels: Annotated[
        str | Path | None,
        Meta(
            description="Label file, used to report the success rate of the best of N attempts "
            "for each N."
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    attempts: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Largest N, over the tasks with that many labelled attempts "
            "(default: the smallest number of attempts at any task).",
        ),
    ] = None
    plot: Annotated[
        str | Path | None,
        Meta(description="Chart of the true success rate by N to write (SVG). Requires labels."),
    ] = None

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
        for name in ("attempts", "plot"):
            if getattr(self, name) is not None and self.labels is None:
                raise UsageError(f"{name} needs labels", parameters=("labels",))


@dataclass(frozen=True, kw_only=True)
class BestResult(Tabular):
    """The picks; printing it shows what `prill best` prints.

    Args:
        evaluator: The judge.
        picks: The pick of each task, in the order of the file.
        curve: The true success of the best of N attempts; empty without labels.
        tasks: The number of tasks behind the curve.
        unlabelled: The number of attempts without a decided label, which the curve excludes.
        fitted: The number of labelled attempts that the judge was fitted on.
        output: The file of the picked attempts.
    """

    evaluator: EvaluatorInfo
    picks: tuple[Pick, ...]
    curve: tuple[BestPoint, ...] = ()
    tasks: int = 0
    unlabelled: int = 0
    fitted: Overlap | None = None
    output: str | None = None

    def table(self) -> Table:
        """Returns one row per task."""
        rows = tuple(
            (p.task, p.id, p.value, p.success, len(p.tied), p.attempts, p.unscored)
            for p in self.picks
        )
        return Table(tuple(_COLUMNS), rows, _COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        return {part.name: msgspec.to_builtins(getattr(self, part.name)) for part in fields(self)}

    def svg(self) -> str:
        """Returns the chart of the curve with its intervals, as SVG text."""
        lines = [
            PlotLine(
                name,
                [
                    PlotPoint(point.n, *figure_ends(figure), f"{name}, N {point.n}: {figure}")
                    for point in self.curve
                    if not (figure := getattr(point, key)).undefined
                ],
            )
            for key, name in (("pick", "best of N by the judge"), ("passed", "pass@N"))
        ]
        return line_chart("True success of the best of N attempts", "N", lines, whole=True)

    def __str__(self) -> str:
        return "\n".join(_page(self))

    def _repr_html_(self) -> str:
        chart = self.svg() if self.curve else ""
        return f"<div>{chart}{preformatted(str(self))}</div>"


def best(config: BestConfig) -> BestResult:
    """Picks the best attempt at each task by a judge's verdicts.

    Args:
        config: The files, and the largest N of the curve.

    Returns:
        The picks and, with labels, the true success of the best of N attempts.

    Raises:
        UsageError: No attempt has a verdict, none has a label, or a file cannot be read or written.
        InputError: A verdict or a label is broken; the message names its line.
    """
    inputs = [config.verdicts, config.trajectories, config.labels]
    if config.output is not None:
        check_output(config.output, "trajectories", inputs)
    if config.plot is not None:
        check_output(config.plot, "a diagram", [*inputs, config.output], parameter="plot")
    evaluator, latest = latest_verdicts(read_verdicts(config.verdicts))
    names = read_runs(config.trajectories, ()).tasks
    if not latest.keys() & names.keys():
        raise UsageError(
            f"the trajectories do not match the verdicts: none has the id {next(iter(latest))!r}"
        )
    tasks: dict[tuple[bool, str], list[str]] = {}
    for id in names:
        tasks.setdefault(cluster(id, names), []).append(id)
    picks = tuple(
        pick_best(name.removeprefix("/"), {id: latest.get(id) for id in ids})
        for (_, name), ids in tasks.items()
    )
    curve: tuple[BestPoint, ...] = ()
    labelled: list[list[tuple[float | None, bool]]] = []
    fitted, unlabelled = None, 0
    if config.labels is not None:
        _, truths = gold_labels(read_labels(config.labels), config.source, config.truth)
        known = {id: truth for id in names if (truth := truths.get(id)) is not None}
        labelled = [
            attempts
            for ids in tasks.values()
            if (attempts := [(rank(latest.get(id)), known[id]) for id in ids if id in known])
        ]
        if not labelled:
            raise UsageError("no attempt has a decided label", parameters=("labels",))
        curve = best_of_n(labelled, config.attempts)
        labelled = [attempts for attempts in labelled if len(attempts) >= len(curve)]
        unlabelled = len(names) - len(known)
        fitted = find_overlap(latest[id] for id in known if id in latest)
    if config.output is not None:
        chosen = {pick.id for pick in picks}
        runs = read_trajectories(config.trajectories, on_error="skip")
        write_trajectories(config.output, (run for run in runs if run.id in chosen))
    result = BestResult(
        evaluator=evaluator,
        picks=picks,
        curve=curve,
        tasks=len(labelled),
        unlabelled=unlabelled,
        fitted=fitted,
        output=str(config.output) if config.output is not None else None,
    )
    if config.plot is not None:
        write_output(config.plot, result.svg().encode())
    return result


best_async = asynchronous(best)
"""Runs `best` in a thread, with the same parameters, for programs with an event loop."""


def _page(result: BestResult) -> Iterator[str]:
    judge, picks = result.evaluator, result.picks
    names = (f"{judge.name} {judge.version}", judge.model)
    yield f"Judge: {printable(', '.join(name for name in names if name))}"
    if caution := fitted_caution(judge.name, result.fitted):
        yield f"Warning: {caution}"
    picked = [pick for pick in picks if pick.id is not None]
    yield (
        f"Picked: {len(picked)} of {len(picks)} tasks, from "
        f"{sum(p.attempts for p in picks)} attempts; "
        f"{sum(bool(pick.success) for pick in picked)} picks are successes according to "
        "the judge"
    )
    yield (
        f"Ties: {sum(bool(pick.tied) for pick in picks)} tasks, in which the first "
        f"attempt is picked; unscored: {sum(pick.unscored for pick in picks)} attempts, "
        "never picked"
    )
    if result.output is not None:
        yield f"Written: {result.output}"
    if not result.curve:
        return
    yield ""
    yield f"{'N':>4}{'best of N':>11}   {'95 % interval':<18}{'pass@N':>8}   {'95 % interval':<18}"
    for point in result.curve:
        cells = [f"{point.n:>4}"]
        for figure, width in ((point.pick, 11), (point.passed, 8)):
            value = "-" if figure.undefined else f"{figure.value:.3f}"
            ends = None if figure.low is None else (figure.low, figure.high or 0.0)
            cells.append(f"{value:>{width}}   {interval(ends):<18}")
        yield "".join(cells).rstrip() + ("" if point.picked > 1 - 1e-9 else " !")
    yield ""
    yield from about_intervals([], result.tasks, "task")
    if any(point.picked <= 1 - 1e-9 for point in result.curve):
        yield "! leaves out samples in which every attempt is unscored"
    if result.unlabelled:
        yield f"Left out: {result.unlabelled} attempts without a decided label"
