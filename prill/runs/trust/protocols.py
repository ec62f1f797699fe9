"""Judges runs by published protocols side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from prill.captioner.registry import CaptionerLike
from prill.errors import UsageError
from prill.evaluators.labels import latest_verdicts
from prill.evaluators.meta.figure import (
    Figure,
    FigureCell,
    about_intervals,
    markdown_table,
    marked_interval,
    text_table,
)
from prill.evaluators.meta.protocols import (
    ProtocolAgreement,
    ProtocolLabels,
    ProtocolRate,
    measure_agreements,
    measure_labels,
    measure_rate,
)
from prill.evaluators.protocols.judge import ProtocolJudge
from prill.evaluators.protocols.presets import COMMON_DIFFERENCES, list_protocols, load_protocol
from prill.evaluators.registry import JudgeConfig, make_run_judge
from prill.io.cache import without_disk_cache
from prill.io.outputs import Content, check_output, expect_file, write_output
from prill.io.store import TrajectoryReader, encode, read_labels, read_verdicts
from prill.io.tables import Table, Tabular, markdown_cell, printable
from prill.io.truth import SourceOption, TruthOption, collect_labels
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.models.registry import ModelConfig, ModelLike, make_run_model, model_options, price_table
from prill.runs.base import (
    JudgeLimitOption,
    Printed,
    RecordingsConfig,
    ResumeVerdictsOption,
    RetryUnscoredOption,
    count_lines,
    opened_trajectories,
    run_budget,
    synchronous,
)
from prill.runs.plan import JudgingPlan, RunPlan, plan_judging, total_usage
from prill.runs.trust.agree import KnownRuns
from prill.scoring.scorer import Tally, lasting_keys, score_files
from prill.transcripts import transcript_folder
from prill.types import Trajectory, Usage, Verdict
from prill.ui.report.lines import figure_chart

_FILES: dict[str, Content] = {
    "protocols.json": "protocol figures",
    "protocols.md": "protocol figures",
    "protocols.svg": "a diagram",
}
_REPLIES = "replies"  # the folder for replies, which protocols share
_COLUMNS: dict[str, type] = {
    **{"protocol": str, "runs": int, "scored": int},
    **{f"rate{end}": float for end in ("", "_low", "_high")},
    **{f"official{end}": float for end in ("", "_low", "_high")},
    **{"labelled": int, "unscored": int, "calls": int, "prompt_tokens": int},
    **{"completion_tokens": int, "images": int, "usd": float, "citation": str},
}
_LABEL_COLUMNS: dict[str, type] = {
    "with_label": int,
    **{f"accuracy{end}": float for end in ("", "_low", "_high")},
    **{f"kappa{end}": float for end in ("", "_low", "_high")},
}
_RATES = (
    *("protocol", "scored", "success", "95 % interval", "official", "of", "unscored", "calls"),
    "cost",
)
# Called with the current protocol, the verdicts so far, and the expected number.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class ProtocolsConfig(RecordingsConfig):
    """Configuration of `prill protocols`: published judge protocols on the same runs."""

    output: Annotated[
        str | Path,
        Meta(
            description="Output folder for verdicts, protocols.json, .md and .svg. An "
            "interrupted run resumes there."
        ),
    ]
    model: Annotated[ModelLike, Meta(description="Model that all protocols call.")]
    protocols: Annotated[
        Sequence[str],
        Meta(description=f"Presets to compare (default: all; {', '.join(list_protocols())})."),
    ] = ()
    captioner: Annotated[
        CaptionerLike | None,
        Meta(
            description="Captioner that describes states, instead of screenshots (default: as "
            "published)."
        ),
    ] = None
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 16
    limit: JudgeLimitOption = None
    labels: Annotated[
        str | Path | None,
        Meta(description="Label file. The agreement of each protocol with it is reported, too."),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    resume: ResumeVerdictsOption = True
    retry_unscored: RetryUnscoredOption = False
    transcripts: Annotated[
        bool, Meta(description="Keep prompts and replies of models in the folder.")
    ] = True

    def check(self) -> None:
        """Validates the names of the protocols.

        Raises:
            UsageError: A protocol is unknown or named twice.
        """
        for name in self.protocols:
            load_protocol(name)
        if len(set(self.protocols)) < len(self.protocols):
            raise UsageError("protocols: a protocol is listed twice", parameters=("protocols",))

    @property
    def presets(self) -> tuple[str, ...]:
        """Returns the names of the presets to run."""
        return tuple(self.protocols) or list_protocols()


@dataclass(frozen=True, kw_only=True)
class ProtocolsResult(Printed, Tabular):
    """Success rates by protocol; printing them shows what `prill protocols` prints.

    Args:
        rates: The rate of each protocol.
        agreements: The agreement of each two protocols.
        with_labels: The agreement of each protocol with the labels; empty without labels.
        runs: The number of trajectories.
        tasks: The number of their tasks.
        unread: The number of inputs that could not be read.
        shared: Whether equal replies were shared between protocols.
        stopped: Whether the run was stopped before its end.
        output: The folder.
    """

    rates: tuple[ProtocolRate, ...]
    agreements: tuple[ProtocolAgreement, ...]
    with_labels: tuple[ProtocolLabels, ...] = ()
    runs: int
    tasks: int
    unread: int = 0
    shared: bool = True
    stopped: bool = False
    output: str = ""

    @property
    def unscored(self) -> int:
        """Returns the number of unscored verdicts of all protocols."""
        return sum(sum(rate.unscored.values()) for rate in self.rates)

    def table(self) -> Table:
        """Returns one row per protocol; null where undefined."""
        rows = []
        for rate in self.rates:
            usage = rate.usage
            rows.append(
                (
                    *(rate.protocol, rate.runs, rate.scored),
                    *_ends(rate.rate),
                    *_ends(rate.official),
                    *(rate.labelled, sum(rate.unscored.values()), usage.calls),
                    *(usage.prompt_tokens, usage.completion_tokens, usage.images, usage.usd),
                    rate.citation,
                )
            )
        if not self.with_labels:
            return Table(tuple(_COLUMNS), tuple(rows), _COLUMNS)
        types = {**_COLUMNS, **_LABEL_COLUMNS}
        figures = [
            (one.judged, *_ends(one.accuracy), *_ends(one.kappa)) for one in self.with_labels
        ]
        joined = ((*row, *more) for row, more in zip(rows, figures, strict=True))
        return Table(tuple(types), tuple(joined), types)

    def svg(self) -> str:
        """Returns the chart of the success rates by protocol, as SVG text."""
        series = {
            "scored runs, with 95 % interval": [rate.rate for rate in self.rates],
            "official label, by the authors' rule": [rate.official for rate in self.rates],
        }
        names = [rate.protocol for rate in self.rates]
        return figure_chart("Success rate by judge protocol", names, series)

    def markdown(self) -> str:
        """Returns the table, the citations and the differences as Markdown."""
        return "\n".join(_markdown(self))

    def __str__(self) -> str:
        return "\n".join(_page(self))


async def compare_protocols_async(
    config: ProtocolsConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Progress = lambda protocol, done, expected: None,
) -> ProtocolsResult:
    """Judges trajectories by published protocols, and compares the protocols.

    Verdicts already in the output folder are kept, so the same configuration resumes a stopped run.

    Args:
        config: The trajectories, the protocols and the model.
        stop: An event; once it is set, no further trajectory is started.
        progress: Called after every verdict with the protocol, the verdicts so far, and the
            expected number.

    Returns:
        Rates and agreements; the folder also holds them as JSON, Markdown and SVG.

    Raises:
        UsageError: The configuration is invalid, or nothing could be read.
        EndpointError: The model's endpoint accepts no call.
    """
    folder, tallies = Path(config.output), dict[str, Tally]()
    with opened_trajectories(config) as paths:
        await asyncio.to_thread(_prepare, config, paths)
        # an unclear reply that was kept would only be read again
        afresh = without_disk_cache() if config.retry_unscored else nullcontext()
        with run_budget(config.budget_usd, folder=folder, begin_again=not config.resume), afresh:
            judges = _make_judges(config, paths, folder)
            expected = len(judges) * await asyncio.to_thread(count_lines, paths, config.limit)
            for name, judge in judges.items():
                file = folder / f"{name}.jsonl"

                def show(tally: Tally, name: str = name) -> None:
                    earlier = sum(one.read for one in tallies.values())
                    progress(name, earlier + tally.skipped + tally.made, expected)

                tallies[name] = await score_files(
                    paths,
                    judge,
                    file,
                    concurrency=config.concurrency,
                    limit=config.limit,
                    resume=config.resume,
                    retry_unscored=config.retry_unscored,
                    transcripts=transcript_folder(file) if config.transcripts else None,
                    stop=stop,
                    progress=show,
                )
                if tallies[name].stopped:
                    break
        stopped = any(tally.stopped for tally in tallies.values())
        return await asyncio.to_thread(_measured, config, paths, judges, stopped)


compare_protocols = synchronous(compare_protocols_async)
"""Runs `compare_protocols_async` with the same parameters, for scripts and notebooks."""


def plan_protocols(config: ProtocolsConfig) -> RunPlan:
    """Plans the run without calling a model. Raises UsageError.

    A call that several protocols or runs have in common, such as the grade of a frame, counts once
    if the model keeps replies.
    """
    with opened_trajectories(config) as paths:
        _prepare(config, paths)
        folder = Path(config.output)
        with run_budget(
            config.budget_usd, folder=folder, begin_again=not config.resume, planned=True
        ):
            judges = _make_judges(config, paths, folder)
        shared = _keeps_replies(config)
        seen = set[str]()
        plans, lines, again = [], [], 0
        prices = price_table(config.model)
        for name, judge in judges.items():
            file = folder / f"{name}.jsonl"
            keys = lasting_keys(file, retry_unscored=config.retry_unscored) if config.resume else {}
            counted = _Counted(judge, seen if shared else None)
            plan = plan_judging(
                judge,
                paths,
                estimate=counted.estimate,
                limit=config.limit,
                keys=keys,
                prices=prices,
            )
            plans.append(plan)
            usd = "" if plan.usage is None or plan.usage.usd is None else f", ${plan.usage.usd:.2f}"
            known = f", {counted.known} more shared" if counted.known else ""
            lines.append(f"{name}: {counted.calls} calls{known}{usd}")
            again += counted.known
        if again:
            lines.append(f"{again} calls are shared: another protocol or run already made them")
        total = JudgingPlan(
            sum(plan.todo for plan in plans),
            sum(plan.done for plan in plans),
            total_usage(plan.usage for plan in plans),
            False,
            plans[0].problems,
        )
        lines.append(f"would be written to {config.output}")
        runs = plans[0].todo + plans[0].done
        run_plan = total.run_plan(*lines, verdicts=total.todo, shared=again)
        first = (
            f"{runs} runs x {len(plans)} protocols: {total.todo} verdicts to make, {total.done} "
            f"done; {len(total.problems)} inputs that cannot be used"
        )
        counts = {**run_plan.counts, "trajectories": runs}
        return replace(run_plan, work=(first, *lines), counts=counts)


@dataclass
class _Counted:
    """The calls of a judge, apart from those that were counted before."""

    judge: ProtocolJudge
    seen: set[str] | None
    calls: int = 0
    known: int = 0

    def estimate(self, trajectory: Trajectory) -> Usage:
        usage = Usage()
        for call in self.judge.calls(trajectory):
            if self.seen is not None and call.key in self.seen:
                self.known += 1
                continue
            if self.seen is not None:
                self.seen.add(call.key)
            self.calls, usage = self.calls + 1, usage + call.usage
        return usage


def _prepare(config: ProtocolsConfig, paths: Sequence[str]) -> None:
    """Validates the files before any call is made."""
    expect_file(config.output, "a folder")
    inputs = [*paths, config.labels]
    for name, content in _FILES.items():
        check_output(Path(config.output) / name, content, inputs)
    for name in config.presets:
        check_output(
            Path(config.output) / f"{name}.jsonl", "verdicts", inputs, continued=config.resume
        )
    if config.labels is not None:  # before any call is made
        collect_labels(read_labels(config.labels), config.source, config.truth)


def _make_judges(
    config: ProtocolsConfig, paths: Sequence[str], folder: Path
) -> dict[str, ProtocolJudge]:
    """Returns the judge of each protocol; all ask one model, which keeps its replies."""
    usual = {"concurrency": config.concurrency, "cache": str(folder / _REPLIES)}
    model = make_run_model(config.model, usual)
    judges = {}
    captioner = {} if config.captioner is None else {"captioner": config.captioner}
    for name in config.presets:
        judge = make_run_judge(
            JudgeConfig("protocol", protocol=name, **captioner),
            model=model,
            concurrency=config.concurrency,
            trajectories=paths,
        )
        assert isinstance(judge, ProtocolJudge)
        judges[name] = judge
    return judges


def _keeps_replies(config: ProtocolsConfig) -> bool:
    described = ModelConfig.read(config.model, "model")
    if isinstance(described, ModelConfig):
        return "cache" in model_options(described)
    return getattr(described, "cache", None) is not None


def _read_runs(paths: Sequence[str], limit: int | None) -> tuple[KnownRuns, int]:
    """Returns what the trajectory files say about the runs, and the number of unreadable lines."""
    runs, unread = KnownRuns(), 0
    with closing(TrajectoryReader(paths, limit)) as reader:
        for _, item in reader:
            if isinstance(item, Trajectory):
                runs.add(item)
            else:
                unread += 1
    return runs, unread


def _measured(
    config: ProtocolsConfig,
    paths: Sequence[str],
    judges: Mapping[str, ProtocolJudge],
    stopped: bool,
) -> ProtocolsResult:
    folder, (runs, unread) = Path(config.output), _read_runs(paths, config.limit)
    verdicts: dict[str, dict[str, Verdict]] = {}
    for name in judges:
        file = folder / f"{name}.jsonl"
        read = list(read_verdicts(file)) if file.exists() and file.stat().st_size else []
        latest = latest_verdicts(read)[1] if read else {}
        verdicts[name] = {id: latest[id] for id in runs.tasks if id in latest}
    labels = [] if config.labels is None else list(read_labels(config.labels))
    result = ProtocolsResult(
        with_labels=tuple(
            measure_labels(
                judge.protocol.name,
                verdicts[name].values(),
                labels,
                runs.tasks,
                config.source,
                config.truth,
            )
            for name, judge in judges.items()
            if labels
        ),
        rates=tuple(
            measure_rate(judge.protocol, verdicts[name], runs.tasks, citation=judge.citation)
            for name, judge in judges.items()
        ),
        agreements=measure_agreements(verdicts, runs.tasks, runs.agents),
        runs=len(runs.tasks),
        tasks=len(set(runs.tasks.values())),
        unread=unread,
        shared=_keeps_replies(config),
        stopped=stopped,
        output=str(config.output),
    )
    texts = (encode(result.to_dict()), f"{result.markdown()}\n".encode(), result.svg().encode())
    for name, data in zip(_FILES, texts, strict=True):
        write_output(folder / name, data)
    return result


def _ends(figure: Figure) -> tuple[float | None, float | None, float | None]:
    value = None if figure.undefined else figure.value
    return value, figure.low, figure.high


# The figures as text


def _page(result: ProtocolsResult) -> Iterator[str]:
    rates = result.rates
    yield from text_table(_RATES, map(_rate_cells, rates))
    yield ""
    yield "official: the rate by the authors' own rule, over the runs that it labels"
    if result.shared:
        yield "Replies shared by protocols are requested once, and counted for the first of them"
    yield from about_intervals([rate.rate for rate in rates], result.tasks, "task")
    if result.unread:
        yield f"Left out: {result.unread} inputs that could not be read"
    for rate in rates:
        if rate.unscored:
            reasons = ", ".join(f"{reason} {count}" for reason, count in rate.unscored.items())
            yield f"Unscored by {rate.protocol}: {reasons}"
    yield from _labelled(result)
    yield from _matrices(result)
    yield ""
    yield "To cite:"
    for rate in rates:
        yield f"  {printable(rate.citation)}"


def _labelled(result: ProtocolsResult) -> Iterator[str]:
    """Yields the agreement of each protocol with the labels."""
    if not result.with_labels:
        return
    yield ""
    yield f"Agreement with the labels ({printable(result.with_labels[0].source)})"
    heading = ("protocol", "judged", "unscored", "accuracy", "kappa", "95 % interval")
    figures = attrgetter("protocol", "judged", "unscored", "accuracy", "kappa")
    rows = ((*figures(one), marked_interval(one.kappa)) for one in result.with_labels)
    yield from text_table(heading, rows)


def _matrices(result: ProtocolsResult) -> Iterator[str]:
    """Yields the kappas, and Kendall's taus if there are several agents, as triangles."""
    names = [rate.protocol for rate in result.rates]
    pairs = {(pair.first, pair.second): pair for pair in result.agreements}
    if not pairs:
        return
    agents = max(pair.agents for pair in result.agreements)
    kappas = {
        key: None if pair.kappa.undefined else pair.kappa.value for key, pair in pairs.items()
    }
    tables: list[tuple[str, Mapping[tuple[str, str], float | None]]] = [
        ("kappa, on the runs that both score", kappas)
    ]
    if agents > 1:
        taus = {key: pair.tau for key, pair in pairs.items()}
        tables.append((f"Kendall's tau-b of the ranking of {agents} agents", taus))
    for title, values in tables:
        yield from ("", title)
        rows = (
            (
                f"{row + 1} {name}",
                *(values[other, name] for other in names[:row]),
                *[""] * (len(names) - 1 - row),
            )
            for row, name in enumerate(names)
        )
        yield from text_table(("", *map(str, range(1, len(names)))), rows)


def _rate_cells(rate: ProtocolRate) -> Sequence[FigureCell]:
    usd, unscored = rate.usage.usd, sum(rate.unscored.values())
    successes = rate.scored, rate.rate, marked_interval(rate.rate), rate.official, rate.labelled
    cost = "-" if usd is None else f"${usd:.2f}"
    return rate.protocol, *successes, unscored, rate.usage.calls, cost


def _markdown(result: ProtocolsResult) -> Iterator[str]:
    yield markdown_table(_RATES, map(_rate_cells, result.rates))
    if result.with_labels:
        yield ""
        heading = ("protocol", "with a label", "accuracy", "kappa", "95 % interval")
        figures = attrgetter("protocol", "judged", "accuracy", "kappa")
        rows = ((*figures(one), marked_interval(one.kappa)) for one in result.with_labels)
        yield markdown_table(heading, rows)
    for rate in result.rates:
        sources = f"Source: {', '.join(rate.source)}."
        yield from ("", f"## {rate.protocol}", "", markdown_cell(rate.citation), "")
        yield from (markdown_cell(sources), "", "Differences:", "")
        yield from (f"* {markdown_cell(difference)}" for difference in rate.differences)
    yield from ("", "## All protocols", "", "Differences:", "")
    yield from (f"* {difference}" for difference in COMMON_DIFFERENCES)
