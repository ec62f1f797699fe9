"""Estimates success rates from verdicts on all runs and labels on some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution
from prill.evaluators.labels import cluster, latest_verdicts
from prill.evaluators.meta.comparison import NONE
from prill.evaluators.meta.figure import (
    HEADING,
    FigureCell,
    figure_row,
    interval,
    text_table,
    value_row,
)
from prill.evaluators.meta.rate import RateEstimate, Unscored, estimate_rate
from prill.io.outputs import check_output, write_output
from prill.io.store import read_labels, read_verdicts
from prill.io.tables import Table, Tabular, printable
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.runs.base import Printed, asynchronous
from prill.runs.trust.agree import read_runs
from prill.types import EvaluatorInfo, LabelRecord
from prill.ui.report.lines import figure_chart

_MAX_ROWS = 30  # of a table by slices
_FIGURES = ("ppi", "rogan_gladen", "labels_alone")
_COLUMNS: dict[str, type] = {
    **{"by": str, "value": str, "n": int, "labelled": int, "clusters": int, "unscored": int},
    **{"judged": float, "weight": float},
    **{f"{name}{end}": float for name in _FIGURES for end in ("", "_low", "_high")},
    **{"more_labels": int, "more_labels_alone": int, "labels_differ": bool, "small": bool},
}


@dataclass(frozen=True, kw_only=True)
class RateConfig(Config):
    """Configuration of `prill rate`: the success rate, corrected for the judge's errors."""

    verdicts: Annotated[str | Path, Meta(description="Verdict file of one judge on all runs.")]
    labels: Annotated[
        str | Path,
        Meta(
            description="Label file for some of the runs, sampled at random or in the "
            "informative order of `prill annotate`."
        ),
    ]
    trajectories: Annotated[
        str | Path | None,
        Meta(
            description="Trajectory file that was judged. It shows which runs exist and "
            "which share a task; intervals are then clustered by task."
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    by: Annotated[
        Sequence[str],
        Meta(
            description="Also estimate the rate per group: site, agent, platform, task, or "
            "a key of the trajectories' metadata."
        ),
    ] = ()
    unscored: Annotated[
        Unscored,
        Meta(
            description="Treatment of runs without a verdict. reweighted: they count with "
            "the label-corrected mean of the judge. left-out: the rate is over scored "
            "runs. Bounds are reported with both."
        ),
    ] = "reweighted"
    width: Annotated[
        float | None,
        Meta(
            gt=0,
            lt=1,
            description="Report how many more labels are needed for an interval of this width.",
        ),
    ] = None
    plot: Annotated[
        str | Path | None,
        Meta(description="Chart of the rates with their intervals to write (SVG)."),
    ] = None

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
        if self.by and not self.trajectories:
            raise UsageError(
                "by needs trajectories, because verdicts do not contain the groups",
                parameters=("trajectories",),
            )


@dataclass(frozen=True, kw_only=True)
class RateResult(Printed, Tabular):
    """Success rates; printing them shows what `prill rate` prints.

    Args:
        evaluator: The judge.
        source: The source of the labels.
        all: The rate of all runs.
        parts: The slices for each key of `by`, the largest first.
        unscored: The number of runs the judge did not score, by reason; `no verdict` means that
            there is no verdict at all.
        undecided: The number of undecided labels, which are ignored.
        strangers: The number of decided labels on other runs.
        clustered_by: The unit that intervals treat as independent: `task` or `trajectory`.
        fitted: The number of labelled runs that the judge was fitted on.
        weighted: Whether labels are weighted by the inverse of their inclusion probability.
        config: The configuration of the run.
    """

    evaluator: EvaluatorInfo
    source: str
    all: RateEstimate
    parts: Mapping[str, tuple[RateEstimate, ...]] = field(default_factory=dict)
    unscored: Mapping[str, int]
    undecided: int
    strangers: int
    clustered_by: str
    fitted: Overlap | None
    weighted: bool = False
    config: RateConfig

    def table(self) -> Table:
        """Returns one row for all runs and one per slice; null where undefined."""
        rows = [self.all, *(part for parts in self.parts.values() for part in parts)]
        return Table(tuple(_COLUMNS), tuple(map(_row, rows)), _COLUMNS)

    def svg(self) -> str:
        """Returns the chart of the rates with their intervals, by slice, as SVG text."""
        parts = [self.all, *(part for parts in self.parts.values() for part in parts[:_MAX_ROWS])]
        names = [f"{part.by}: {part.value}" if part.by else "all" for part in parts]
        series = {
            "corrected, PPI++": [part.ppi for part in parts],
            "labels alone": [part.labels_alone for part in parts],
        }
        return figure_chart("Success rate, corrected by labels", names, series)

    def __str__(self) -> str:
        return "\n".join(_page(self))


def rate(config: RateConfig) -> RateResult:
    """Estimates success rates from verdicts on all runs and labels on some.

    Args:
        config: The files, the slices, and the treatment of unscored runs.

    Returns:
        The rate by PPI++, by Rogan and Gladen, and by labels alone, with 95 % intervals.

    Raises:
        UsageError: No run has a label, or a file cannot be read or written.
        InputError: A verdict or a label is broken; the message names its line.
    """
    if config.plot is not None:
        inputs = [config.verdicts, config.labels, config.trajectories]
        check_output(config.plot, "a diagram", inputs, parameter="plot")
    evaluator, latest = latest_verdicts(read_verdicts(config.verdicts))
    records = list(read_labels(config.labels))
    source, truths = gold_labels(records, config.source, config.truth)
    runs = read_runs(config.trajectories, config.by) if config.trajectories else None
    ids = list(latest if runs is None else runs.tasks)
    if not any(id in latest for id in ids):
        raise UsageError(
            f"the trajectories do not match the verdicts: none has the id {next(iter(latest))!r}"
        )
    labelled = [id for id in ids if truths.get(id) is not None]
    if not labelled:
        raise UsageError(
            f"no run has a decided label; ids of runs look like {ids[0]!r}, ids of labels "
            f"like {next(iter(truths), 'none')!r}"
        )
    verdicts = {id: latest[id].success if id in latest else None for id in ids}
    tasks = None if runs is None else runs.tasks
    chances = _chances(config, [r for r in records if r.source == source], set(labelled))

    def estimate(ids: Sequence[str]) -> RateEstimate:
        return estimate_rate(
            [verdicts[id] for id in ids],
            [truths.get(id) for id in ids],
            [cluster(id, tasks) for id in ids],
            unscored=config.unscored,
            width=config.width,
            chances=None if chances is None else [chances.get(id) for id in ids],
        )

    parts: dict[str, tuple[RateEstimate, ...]] = {}
    for by in config.by:
        groups: dict[str, list[str]] = {}
        for id in ids:
            groups.setdefault(runs.parts[by].get(id, NONE) if runs else NONE, []).append(id)
        order = sorted(groups.items(), key=lambda g: (g[0] == NONE, -len(g[1]), g[0]))
        parts[by] = tuple(replace(estimate(group), by=by, value=value) for value, group in order)
    result = RateResult(
        evaluator=evaluator,
        source=source,
        all=estimate(ids),
        parts=parts,
        unscored=dict(
            Counter(
                str(latest[id].unscored) if id in latest else "no verdict"
                for id in ids
                if verdicts[id] is None
            ).most_common()
        ),
        undecided=sum(id in verdicts and truth is None for id, truth in truths.items()),
        strangers=sum(id not in verdicts and truth is not None for id, truth in truths.items()),
        clustered_by="trajectory" if runs is None else "task",
        fitted=find_overlap(latest[id] for id in labelled if id in latest),
        weighted=chances is not None,
        config=config,
    )
    if config.plot is not None:
        write_output(config.plot, result.svg().encode())
    return result


rate_async = asynchronous(rate)
"""Runs `rate` in a thread, with the same parameters, for programs with an event loop."""


def _chances(
    config: RateConfig, records: Sequence[LabelRecord], labelled: set[str]
) -> dict[str, float] | None:
    """Returns the inclusion probability of each labelled run; None if no label has one.

    Raises UsageError if labels of one draw are mixed with others.
    """
    found: dict[str, set[float | None]] = {}
    for record in records:
        if record.id in labelled:
            found.setdefault(record.id, set()).add(record.inclusion or None)
    chances = {id: chance for id, values in found.items() for chance in values if chance}
    if not chances:
        return None
    for id, values in found.items():
        if len(values) > 1 or None in values:
            raise UsageError(
                f"{config.labels}: labels of one sample are needed, but some have a "
                f"sampling probability (`inclusion`) and {id!r} has none, or has two; keep "
                "each sample in a file of its own"
            )
        if not 0 < chances[id] <= 1:
            raise UsageError(
                f"{config.labels}: {id!r}: inclusion: expected a number above 0 and up to 1"
            )
    if config.width is not None:
        raise UsageError(
            "width: only available for labels that were drawn with equal probabilities",
            parameters=("width",),
        )
    return chances


def _row(part: RateEstimate) -> tuple[Any, ...]:
    cells = asdict(part)
    for name in _FIGURES:
        figure = cells.pop(name)
        cells[name] = None if figure["undefined"] else figure["value"]
        cells |= {f"{name}_{end}": figure[end] for end in ("low", "high")}
    return tuple(cells[name] for name in _COLUMNS)


def _page(result: RateResult) -> Iterator[str]:
    whole, judge, config = result.all, result.evaluator, result.config
    units = "tasks" if result.clustered_by == "task" else "trajectories"
    yield f"Judge: {printable(judge.title)}"
    yield (
        f"Labels: {printable(result.source)}, {whole.labelled} of {whole.n} trajectories, of "
        f"{whole.clusters} {units}"
    )
    if caution := fitted_caution(judge.name, result.fitted):
        yield f"Warning: {caution}"
    if result.weighted:
        yield (
            "Labels were drawn with unequal probabilities; each is weighted by the inverse "
            "of its probability"
        )
    if whole.labels_differ:
        yield (
            "Warning: the judge's success rate differs between labelled runs and the rest; "
            "these rates are only valid if the labels are a random sample of the runs"
        )
    if whole.small:
        yield "Warning: fewer than 30 labels"
    yield ""
    yield HEADING.replace(f"{'':<12}", "success rate", 1)
    if whole.judged is not None:
        yield value_row("judge, uncorrected", whole.judged, "-")
    yield figure_row(whole.ppi, "corrected, PPI++")
    yield figure_row(whole.rogan_gladen, "corrected, Rogan-Gladen")
    yield figure_row(whole.labels_alone)
    yield ""
    yield f"Weight of the verdicts in PPI++ (lambda): {whole.weight:.3f}"
    yield (
        f"Intervals: beta distribution (Rogan-Gladen: t), clustered by {whole.clusters} {units} "
        "with a label"
    )
    yield from _unscored(result)
    apart = {"undecided labels": result.undecided, "labels of other runs": result.strangers}
    if any(apart.values()):
        yield "Not used: " + ", ".join(f"{count} {what}" for what, count in apart.items() if count)
    if config.width is not None:
        more, alone = (
            "not possible with these runs" if count is None else f"{count} more labels"
            for count in (whole.more_labels, whole.more_labels_alone)
        )
        yield f"For an interval of width {config.width:g}: {more}; without verdicts: {alone}"
    for by, parts in result.parts.items():
        yield from ("", *_parts(by, parts))


def _unscored(result: RateResult) -> Iterator[str]:
    whole = result.all
    if whole.bounds is None:
        return
    reasons = ", ".join(f"{reason} {count}" for reason, count in result.unscored.items())
    yield f"Unscored: {whole.unscored} ({reasons}), {whole.unscored_labelled} of them labelled"
    yield (
        "  left out: rates are over the scored runs"
        if result.config.unscored == "left-out"
        else (
            "  reweighted: PPI++ and labels alone are rates over all runs, Rogan-Gladen over "
            "scored runs"
        )
    )
    if not whole.unscored_labelled and result.config.unscored == "reweighted":
        yield "  none of them has a label, so they are assumed to be like the others"
    low, high = whole.bounds
    yield (
        f"  bounds for all runs: {low:.3f} if they failed, {high:.3f} if they succeeded; with "
        f"intervals {interval(whole.bounds_interval)}"
    )


def _parts(by: str, parts: Sequence[RateEstimate]) -> Iterator[str]:
    heading = (f"By {by}", "n", "labels", "judge", "PPI++", "95 % interval", "alone", "")
    yield from text_table(heading, map(_cells, parts[:_MAX_ROWS]))
    if len(parts) > _MAX_ROWS:
        yield f"… and {len(parts) - _MAX_ROWS} more; the JSON output lists all"
    if any(part.small for part in parts):
        yield "! fewer than 30 labels: unreliable"


def _cells(part: RateEstimate) -> Sequence[FigureCell]:
    ppi, mark = part.ppi, "!" if part.small else ""
    counts = part.value, part.n, part.labelled, part.judged
    return *counts, ppi, interval(ppi.ends), part.labels_alone, mark
