"""Compares verdicts or answers with labels, or predicted actions with recorded ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from prill.config.shared import JUDGED, ByOption
from prill.datasets.inputs import RecordingsConfig, iter_recordings
from prill.datasets.webarena_tasks import load_configs, task_parts
from prill.errors import UsageError
from prill.evaluators.agreement.agreement import (
    Agreement,
    Disagreement,
    Pairing,
    by_step,
    conclusion,
    count_rows,
    disagreements,
    figure_rows,
    figure_table,
    header_lines,
    measure_agreement,
    not_judged_rows,
    pair,
    step_id,
)
from prill.evaluators.agreement.aitw import ActionMatching, match_actions
from prill.evaluators.agreement.annotators import AnnotatorAgreement, annotator_agreement
from prill.evaluators.agreement.answers import AnswersAgreement, measure_answers
from prill.evaluators.agreement.comparison import (
    AgentRanking,
    AgentRate,
    JudgePair,
    JudgeRow,
    Slice,
    compare_judges,
    krippendorff_alpha,
    measure_judge,
    rank_agents,
    slice_value,
    slices,
)
from prill.evaluators.agreement.corrections import (
    Corrected,
    SuccessRate,
    correct,
    load_corrections,
    success_rates,
)
from prill.evaluators.agreement.figure import (
    HEADING,
    Figure,
    FigureCell,
    about_intervals,
    figure_row,
    interval,
    marked_interval,
    part_table,
    text_table,
    value_row,
)
from prill.evaluators.agreement.trivial import (
    Baselines,
    Telemetry,
    against_best,
    baseline_lines,
    compare_with_baselines,
    shortfall,
)
from prill.evaluators.fitted.overlap import fitted_caution
from prill.evaluators.labels import latest_verdicts, make_task, unequal_chances
from prill.io.joining import JoinCounts, join, record_digest
from prill.io.outputs import check_output, write_output
from prill.io.shards import id_digest
from prill.io.store import encode, read_labels, read_verdicts
from prill.io.tables import Table, printable
from prill.io.truth import RULES, SourceOption, TruthOption
from prill.io.verdict_files import warn_missing
from prill.running import Printed, as_run, log
from prill.types import LabelRecord, Trajectory, Verdict

if TYPE_CHECKING:
    import pandas

# Columns of a table by slices: names and widths. "success" is the fraction of label successes.
_OF_SLICE = (
    *("n", "unscored", "success", "accuracy", "balanced_accuracy", "precision", "recall"),
    "kappa",
)
# The DataFrame columns of a slice.
_SLICE_TYPES: dict[str, type] = {
    "by": str,
    "value": str,
    **dict.fromkeys(("n", "unscored"), int),
    "success": float,
    **dict.fromkeys(("tp", "fp", "tn", "fn"), int),
    **dict.fromkeys(("accuracy", "balanced_accuracy", "precision", "recall", "kappa"), float),
    "small": bool,
}
# Options that apply to verdicts and labels only.
_OF_VERDICTS = (
    "trajectories",
    "by",
    "source",
    "truth",
    "steps",
    "corrections",
    "disagreements",
)
_ACTION_FIGURES = {
    "action": "action matches",
    "type": "action type equal",
    "text": "typed text, of recorded TYPE",
    "tap": "of recorded taps",
    "swipe": "of recorded swipes",
    "partial": "partial match, mean",
    "complete": "complete match",
}


@dataclass(frozen=True, kw_only=True)
class AgreeConfig(RecordingsConfig):
    """Configuration of `prill agree`: compare verdicts or answers with labels, or predicted actions
    with recorded ones.
    """

    verdicts: Annotated[
        Sequence[str | Path],
        Meta(
            description="Verdict files. Several judges are compared; files of one judge with "
            "different runs are joined. With metric aitw: the predicted trajectories."
        ),
    ]
    labels: Annotated[
        str | Path, Meta(description="Label file. With metric aitw: the recorded trajectories.")
    ]
    metric: Annotated[
        Literal["verdicts", "answers", "aitw"],
        Meta(
            description="answers: compare the answers of judge ask with those in the labels. "
            "aitw: match predicted actions with recorded ones, as in Android in the Wild. Both "
            "files then hold trajectories."
        ),
    ] = "verdicts"
    trajectories: Annotated[Sequence[str | Path], JUDGED] = ()
    source: SourceOption = None
    truth: TruthOption = "majority"
    by: ByOption = ()
    steps: Annotated[
        bool,
        Meta(
            description="Compare the labels of single steps. A success is a step towards the goal."
        ),
    ] = False
    corrections: Annotated[
        str | None,
        Meta(
            description="Replace labels known to be wrong: webarena (14 tasks whose "
            "checker accepts failed runs), or a TOML file."
        ),
    ] = None
    disagreements: Annotated[
        str | Path | None,
        Meta(
            description="File for trajectories on which judge and labels differ (JSON Lines). "
            "An existing file is replaced."
        ),
    ] = None

    def check(self) -> None:
        """Validates options that depend on each other."""
        given = [part.name for part in fields(self) if getattr(self, part.name) != part.default]
        if self.metric == "aitw" and (wrong := [name for name in given if name in _OF_VERDICTS]):
            raise UsageError(
                f"{wrong[0]}: only for verdicts; with metric aitw both files hold trajectories",
                parameters=(wrong[0],),
            )
        names = ("trajectories", "source", "truth")
        wrong = [name for name in given if name in _OF_VERDICTS and name not in names]
        if self.metric == "answers" and wrong:
            raise UsageError(
                f"{wrong[0]}: only for the outcome of runs, not for answers",
                parameters=(wrong[0],),
            )
        if self.by and not self.trajectories:
            raise UsageError(
                "by needs trajectories, because verdicts do not contain the groups",
                parameters=("trajectories",),
            )
        if self.steps and self.corrections:
            raise UsageError(
                "corrections: only for whole trajectories, not for steps",
                parameters=("corrections", "steps"),
            )


_JUDGE_COLUMNS: dict[str, type] = {
    **{"judge": str, "scored": int, "unscored": int, "success": float, "labelled": int},
    **{"accuracy": float, "kappa": float, "tau": float, "calls": int, "usd": float},
}


@dataclass(frozen=True)
class JudgesAgreement:
    """Several judges on the same labels; `pairs` compares each two of them.

    `alpha` is Krippendorff's alpha of all judges, and `baselines` has the rules beside each judge.
    """

    judges: tuple[JudgeRow, ...]
    pairs: tuple[JudgePair, ...]
    alpha: Figure
    baselines: tuple[Baselines, ...] = ()

    def table(self) -> Table:
        """Returns one row per judge; undefined figures are null."""
        rows = []
        for row in self.judges:
            figures = row.success, row.agreement.accuracy, row.agreement.kappa
            success, *rest = (None if f.undefined else f.value for f in figures)
            counts = row.name, row.scored, sum(row.unscored.values()), success
            tau = row.ranking.tau if row.ranking else None
            used = row.usage.calls, row.usage.usd
            rows.append((*counts, row.agreement.judged, *rest, tau, *used))
        return Table(tuple(_JUDGE_COLUMNS), tuple(rows), _JUDGE_COLUMNS)


@dataclass(frozen=True, kw_only=True)
class AgreeResult(Printed):
    """Result of a comparison; printing it shows all tables.

    Args:
        compared: The figures of verdicts against labels, of one judge or of several; with metric
            answers, of answers; with metric aitw, of actions against recorded ones.
        corrections: The labels that were replaced; None: no corrections were requested.
        webarena: Success rates of WebArena's subsets, as labelled and corrected.
        annotators: The agreement among annotators; None if no run has two of them.
        slices: The slices for each key of `by`.
        ranking: Agents ranked by judge and by label; None without trajectories, or with one agent.
        disagreements: The trajectories on which judge and labels differ.
        output: The file of disagreements.
        baselines: Rules without a judge beside it; without trajectories, the constant answer alone.
    """

    compared: Agreement | JudgesAgreement | AnswersAgreement | ActionMatching
    corrections: Corrected | None = None
    webarena: tuple[SuccessRate, ...] = ()
    annotators: AnnotatorAgreement | None = None
    slices: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    ranking: AgentRanking | None = None
    disagreements: tuple[Disagreement, ...] = ()
    output: str | None = None
    baselines: Baselines = ()

    @property
    def agreement(self) -> Agreement:
        """Returns the figures of one judge's verdicts against labels, as `prill.agreement` does.

        Raises:
            UsageError: There are several judges, or the metric was another.
        """
        if isinstance(self.compared, Agreement):
            return self.compared
        raise UsageError("these are not figures of one judge's verdicts; use `compared`")

    def table(self, by: str | None = None) -> Table:
        """Returns the figures, or the slices by one key, as a table.

        Args:
            by: A key of the configuration's `by`: returns its slices in place of the figures.

        Returns:
            One row per figure, with both ends of its 95 % interval; or one row per slice.

        Raises:
            UsageError: Slices by that key were not requested.
        """
        if by is None:
            return (
                figure_table(self.compared.figures)
                if isinstance(self.compared, ActionMatching)
                else self.compared.table()
            )
        if by not in self.slices:
            raise UsageError(
                f"by: this run's configuration has no {by!r}; it has "
                f"{', '.join(self.slices) or 'none'}"
            )
        rows = tuple(tuple(asdict(part)[name] for name in _SLICE_TYPES) for part in self.slices[by])
        return Table(tuple(_SLICE_TYPES), rows, _SLICE_TYPES)

    def to_pandas(self, by: str | None = None) -> pandas.DataFrame:
        """Returns `table(by)` as a pandas DataFrame with nullable column types."""
        return self.table(by).to_pandas()

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object; disagreements as counts."""
        figures: dict[str, Any] = msgspec.to_builtins(self.compared)
        if not isinstance(self.compared, Agreement):
            return figures
        names = ("corrections", "webarena", "annotators", "slices", "ranking", "baselines")
        sections = {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        if sections["corrections"]:
            del sections["corrections"]["labels"]
        return {**figures, **sections, "disagreements": self.differing()}

    def differing(self) -> dict[str, int]:
        """Returns the number of disagreements of each type."""
        counts = Counter(record.kind for record in self.disagreements)
        return {kind: counts[kind] for kind in ("false positive", "false negative", "unscored")}

    def __str__(self) -> str:
        if isinstance(self.compared, Agreement):
            return "\n".join(_page(self, self.compared))
        if isinstance(self.compared, JudgesAgreement):
            corrected = () if self.corrections is None else _corrected(self.corrections)
            return "\n".join((*corrected, *_judges(self.compared)))
        if isinstance(self.compared, ActionMatching):
            return "\n".join(_matched(self.compared))
        return str(self.compared)


@as_run(AgreeConfig)
def agree(config: AgreeConfig) -> AgreeResult:
    """Compares verdicts with labels, or predicted actions with recorded ones.

    Args:
        config: The files, the source of truth, and further tables to make.

    Returns:
        The figures with 95 % intervals, and the requested tables.

    Raises:
        UsageError: There is nothing to compare, or a file cannot be read or written.
        InputError: A verdict or a label is broken; the message names its line.
    """
    if config.metric == "aitw":
        predicted, recorded = (
            iter_recordings(files, "skip", format=config.format)
            for files in (config.verdicts, config.labels)
        )
        return AgreeResult(compared=match_actions(predicted, recorded))
    files = _by_judge(config.verdicts)
    if len(files) > 1 and (config.metric == "answers" or config.by or config.disagreements):
        option = "by" if config.by else "disagreements" if config.disagreements else "metric"
        raise UsageError(
            f"{option}: only for the verdicts of one judge, not of {len(files)}",
            parameters=(option, "verdicts"),
        )
    if config.disagreements:
        inputs = [*config.verdicts, config.labels, *config.trajectories]
        check_output(config.disagreements, "disagreements", inputs, parameter="disagreements")
    runs = known_runs(config.runs(), config.by, Telemetry()) if config.trajectories else None
    original_labels = tuple(read_labels(config.labels))
    digests = runs.digests if runs else None
    joined = [join(one.verdicts, original_labels, digests) for one in files]
    counts = [one.counts for one in joined]
    files = [
        replace(one, verdicts=tuple(found.verdicts.values()))
        for one, found in zip(files, joined, strict=True)
    ]
    verdicts, original_labels = files[0].verdicts, joined[0].labels
    if config.metric == "answers":
        tasks = runs.tasks if runs else None
        answers = measure_answers(verdicts, original_labels, config.source, config.truth, tasks)
        return AgreeResult(compared=replace(answers, joined=counts[0]))
    if caution := unequal_chances(original_labels):
        log.warning("%s: %s", config.labels, caution)
    corrected = None
    if config.corrections:
        corrected = correct(
            original_labels, load_corrections(config.corrections), runs.task_ids if runs else None
        )
    labels = all_labels = corrected.labels if corrected else original_labels
    if config.steps:
        files = [replace(one, verdicts=by_step(one.verdicts, all_labels)[0]) for one in files]
        verdicts, labels = by_step(verdicts, all_labels)
        original_labels = labels
        runs = _of_steps(runs, all_labels) if runs is not None else None
    tasks = None if runs is None else runs.tasks
    if len(files) > 1:
        compared = _compare_judges(files, counts, labels, config, runs)
        return AgreeResult(compared=compared, corrections=corrected)
    pairing = replace(pair(verdicts, labels, config.source, config.truth), joined=counts[0])
    # Include ties: without them, annotators would seem to agree more than they do.
    together = {*pairing.undecided_ids, *(p.verdict.id for p in pairing.pairs)}
    result = AgreeResult(
        compared=measure_agreement(pairing, tasks),
        corrections=corrected,
        webarena=_webarena(original_labels, pairing, runs)
        if corrected and corrected.name == "webarena"
        else (),
        annotators=annotator_agreement(
            [label for label in original_labels if label.id in together], pairing.source, tasks
        ),
        slices={by: slices(pairing, by, runs.parts[by]) for by in config.by} if runs else {},
        ranking=rank_agents(pairing, runs.agents) if runs else None,
        disagreements=disagreements(pairing, runs.goals if runs else None),
        output=str(config.disagreements) if config.disagreements else None,
        baselines=compare_with_baselines([pairing], runs.telemetry if runs else None)[0],
    )
    if config.disagreements:
        write_output(config.disagreements, b"".join(map(encode, result.disagreements)))
    return result


@dataclass(frozen=True)
class _JudgeFiles:
    """The verdicts of one judge, which may be in several files."""

    files: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


def _by_judge(paths: Iterable[str | Path]) -> list[_JudgeFiles]:
    """Reads verdict files; joins those of one judge that have no run in common."""
    judges: list[_JudgeFiles] = []
    for path in paths:
        verdicts = tuple(read_verdicts(path))
        latest_verdicts(verdicts)  # all by one judge
        ids = {verdict.id for verdict in verdicts}
        for i, judge in enumerate(judges):
            if judge.verdicts[0].evaluator == verdicts[0].evaluator and ids.isdisjoint(
                verdict.id for verdict in judge.verdicts
            ):
                judges[i] = _JudgeFiles((*judge.files, str(path)), judge.verdicts + verdicts)
                break
        else:
            judges.append(_JudgeFiles((str(path),), verdicts))
    for judge in judges:
        warn_missing(judge.files, [id_digest(verdict.id) for verdict in judge.verdicts])
    return judges


def _compare_judges(
    files: Sequence[_JudgeFiles],
    counts: Sequence[JoinCounts],
    labels: Sequence[LabelRecord],
    config: AgreeConfig,
    runs: KnownRuns | None,
) -> JudgesAgreement:
    tasks, agents = (runs.tasks, runs.agents) if runs else (None, {})
    titles = Counter(one.verdicts[0].evaluator.title for one in files)
    judges, rows = {}, []
    for one, joined in zip(files, counts, strict=True):
        info, verdicts = latest_verdicts(one.verdicts)
        pairing = pair(verdicts.values(), labels, config.source, config.truth)
        pairing = replace(pairing, joined=joined)
        name = info.title
        if titles[name] > 1:
            name = f"{name} ({', '.join(map(os.path.basename, one.files))})"
        judges[name] = verdicts, pairing
        rows.append(measure_judge(name, one.files, verdicts, pairing, tasks, agents))
    return JudgesAgreement(
        tuple(rows),
        compare_judges(judges, tasks, agents),
        krippendorff_alpha([verdicts for verdicts, _ in judges.values()], tasks),
        compare_with_baselines(
            [pairing for _, pairing in judges.values()], runs.telemetry if runs else None
        ),
    )


@dataclass(frozen=True)
class KnownRuns:
    """The metadata that a trajectory file holds for each id, and the runs' digests.

    `parts` has one map for each key of `by`.
    """

    tasks: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    task_ids: dict[str, str] = field(default_factory=dict)
    goals: dict[str, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    telemetry: Telemetry | None = None

    def add(self, run: Trajectory) -> None:
        """Adds the metadata of a run."""
        self.tasks[run.id] = make_task(run)
        self.digests[run.id] = record_digest(run)
        self.goals[run.id] = run.task.goal
        if run.task.id:
            self.task_ids[run.id] = run.task.id
        if run.agent:
            self.agents[run.id] = run.agent
        if self.telemetry is not None:
            self.telemetry.add(run)
        for key, part in self.parts.items():
            if (value := slice_value(run, key)) is not None:
                part[run.id] = value


def known_runs(
    trajectories: Iterable[Trajectory],
    keys: Iterable[str] = (),
    telemetry: Telemetry | None = None,
) -> KnownRuns:
    """Returns the metadata of trajectories, with their slices by each of `keys`; fills `telemetry`.

    Raises:
        UsageError: No trajectory has a key.
    """
    runs = KnownRuns(parts={key: {} for key in keys}, telemetry=telemetry)
    metadata: set[str] = set()
    for item in trajectories:
        runs.add(item)
        metadata |= item.metadata.keys()
    for key, part in runs.parts.items():
        if not part:
            there = ", ".join(["site", "agent", "platform", "task", *sorted(metadata)[:20]])
            raise UsageError(
                f"by: no trajectory has the key {key!r}; keys: {there}", parameters=("by",)
            )
    return runs


def _of_steps(runs: KnownRuns, labels: Iterable[LabelRecord]) -> KnownRuns:
    """Returns the metadata of each step, which is that of its trajectory."""
    steps = {
        step_id(label.id, step.index): label.id for label in labels for step in label.steps or ()
    }

    def of(known: Mapping[str, str]) -> dict[str, str]:
        return {step: known[id] for step, id in steps.items() if id in known}

    parts = {key: of(part) for key, part in runs.parts.items()}
    ids, goals, agents = map(of, (runs.task_ids, runs.goals, runs.agents))
    return KnownRuns(of(runs.tasks), {}, ids, goals, agents, parts=parts)


def _webarena(
    labels: Iterable[LabelRecord], pairing: Pairing, runs: KnownRuns | None
) -> tuple[SuccessRate, ...]:
    try:
        configs = load_configs()
    # the benchmark's task file is not installed: report the rate without its subsets
    except UsageError:
        configs = ()
    task_ids, parts = runs.task_ids if runs else None, task_parts(configs)
    return success_rates(
        labels, task_ids, source=pairing.source, truth=pairing.truth, parts_of=parts
    )


# The result as text; sections appear only where they apply


def _page(result: AgreeResult, agreement: Agreement) -> Iterator[str]:
    yield from header_lines(agreement, annotated=result.annotators is not None)
    if result.corrections:
        yield from _corrected(result.corrections)
        if not result.corrections.matched and agreement.clustered_by == "trajectory":
            yield "Without trajectories, the id of a run is taken as the id of its task"
    yield ""
    yield HEADING
    yield from figure_rows(agreement)
    for rows in (
        baseline_lines(result.baselines),
        _annotators(result.annotators) if result.annotators else (),
        count_rows(agreement),
        not_judged_rows(agreement),
        _webarena_table(result.webarena) if result.webarena else (),
        *map(_slices, result.slices.values()),
        _ranking(result.ranking) if result.ranking else (),
    ):
        if lines := list(rows):
            yield ""
            yield from lines
    if result.output is not None:
        counts = ", ".join(f"{count} {kind}" for kind, count in result.differing().items())
        yield ""
        yield f"Disagreements, in {result.output}: {counts}"
    yield ""
    yield conclusion(agreement, shortfall(result.baselines))


def _corrected(table: Corrected) -> Iterator[str]:
    only = f", source {table.source}" if table.source else ""
    yield (
        f"Corrections ({table.name}, {table.tasks} tasks{only}): {len(table.matched)} "
        f"trajectories belong to these tasks; {len(table.changed)} labels changed"
    )
    yield f"They were made for {table.made_for}; labels of other runs may have been correct"


def _webarena_table(rates: Sequence[SuccessRate]) -> Iterator[str]:
    names = ("all tasks" if one.part == "all" else f"  {one.part} {one.value}" for one in rates)
    figures = map(attrgetter("n", "rate", "corrected_rate"), rates)
    heading = ("WebArena success by label", "n", "as given", "corrected")
    yield from text_table(heading, ((name, *row) for name, row in zip(names, figures, strict=True)))


def _annotators(agreement: AnnotatorAgreement) -> Iterator[str]:
    yield (
        f"Inter-annotator agreement, on {agreement.trajectories} trajectories with two or "
        "more labels: the upper limit for a judge"
    )
    yield value_row("  equal pairs", agreement.raw, interval(agreement.raw_interval))
    ends = interval(agreement.kappa_interval)
    yield value_row("  Cohen kappa of pairs", agreement.kappa, ends)
    if agreement.three_or_more:
        count = f"on {agreement.three_or_more}"
        yield value_row("  all equal, of 3 or more", agreement.exact, count)
        yield value_row("  Fleiss kappa, of 3 or more", agreement.fleiss)


def _slices(parts: Sequence[Slice]) -> Iterator[str]:
    names = (name.removesuffix("_accuracy") for name in _OF_SLICE)
    few = "fewer than 30 judged, or fewer than 10 with one outcome"
    yield from part_table(
        (f"By {parts[0].by}", *names), parts, attrgetter("value", *_OF_SLICE), few
    )


def _ranking(ranking: AgentRanking) -> Iterator[str]:
    tau = (
        ("undefined, because one order consists of ties")
        if ranking.tau is None
        else f"{ranking.tau:.3f}"
    )
    rows = map(attrgetter("agent", "n", "judged", "labelled"), ranking.agents)
    yield from text_table(("Success rate by agent", "n", "judge", "label"), rows)
    yield f"Order of the {len(ranking.agents)} agents, judge against label: Kendall's tau-b {tau}"


def _judges(result: JudgesAgreement) -> Iterator[str]:
    first = result.judges[0].agreement
    yield f"Labels: {printable(first.source)}"
    if first.truth != "majority":
        yield f"Truth: {RULES.get(first.truth, f'the labels of {printable(first.truth)}')}"
    for row in result.judges:
        if caution := fitted_caution(row.name, row.agreement.fitted):
            yield f"Warning: {caution}"
    yield ""
    heading = ("judge", "scored", "unscored", "success", "labelled", "accuracy", "95 % interval")
    rules = ("constant", "steps", "prior")
    judged = list(enumerate(zip(result.judges, result.baselines, strict=True), 1))
    yield from text_table(
        (*heading, "kappa", "95 % interval", *rules),
        (_judge_cells(number, row, baselines) for number, (row, baselines) in judged),
    )
    yield ""
    yield from text_table(
        ("per verdict", "calls", "tokens", "seconds", "cost", "per correct verdict"),
        (_cost_cells(f"{number}. {row.name}", row) for number, (row, _) in judged),
    )
    yield ""
    yield figure_row(result.alpha, "Krippendorff's alpha")
    yield ""
    figures = [row.agreement.kappa for row in result.judges]
    yield from about_intervals(figures, first.clusters, first.clustered_by)
    for row in result.judges:
        yield from row.agreement.joined.lines(f", {printable(row.name)}")
    yield ""
    of_pairs = ("judges", "runs of both", "equal", "kappa", "95 % interval", "agents' tau-b")
    numbers = {row.name: number for number, row in enumerate(result.judges, 1)}
    yield from text_table(
        (*of_pairs, "accuracy", "95 % interval", "McNemar"),
        (_pair_cells(numbers[pair.first], numbers[pair.second], pair) for pair in result.pairs),
    )
    if any(row.ranking for row in result.judges):
        yield ""
        yield from _agents(result.judges)
    yield ""
    for number, (row, baselines) in judged:
        if baselines:
            yield f"{number}. {against_best(baselines)}"
        yield f"{number}. {conclusion(row.agreement, shortfall(baselines))}"


def _judge_cells(number: int, row: JudgeRow, baselines: Baselines) -> Sequence[FigureCell]:
    agreed = row.agreement
    rules = [one.accuracy for one in baselines]
    return (
        *(f"{number}. {row.name}", row.scored, sum(row.unscored.values()), row.success),
        *(agreed.judged, agreed.accuracy, marked_interval(agreed.accuracy)),
        *(agreed.kappa, marked_interval(agreed.kappa)),
        *rules,
        *[None] * (3 - len(rules)),
    )


def _cost_cells(name: str, row: JudgeRow) -> Sequence[FigureCell]:
    used, count = row.usage, row.scored + sum(row.unscored.values())
    tokens = f"{(used.prompt_tokens + used.completion_tokens) / count:.0f}"
    if used.cached_tokens is not UNSET:
        tokens += f", {used.cached_tokens / count:.0f} cached"
    return (
        *(name, f"{used.calls / count:.3g}", tokens, f"{row.seconds / count:.3g}"),
        "-" if used.usd is None else f"${used.usd / count:.2g}",
        _price_of_correct(row.agreement),
    )


def _price_of_correct(agreed: Agreement) -> str:
    """Returns dollars and tokens per correct verdict, as far as they are known."""
    cost = agreed.cost_per_correct
    if cost is None or not agreed.usage.calls:
        return "-"
    dollars = "" if cost[0] is None else f"${cost[0]:.2g}, "
    return f"{dollars}{cost[1]:.0f} tokens"


def _pair_cells(first: int, second: int, pair: JudgePair) -> Sequence[FigureCell]:
    cells = (f"{first}, {second}", pair.runs, pair.same, pair.kappa, marked_interval(pair.kappa))
    if (both := pair.labelled) is None:
        return (*cells, pair.tau, "-", "-", "-")
    ends = "-" if both.interval is None else "{:+.3f} to {:+.3f}".format(*both.interval)
    p = "p < 0.001" if both.p < 0.001 else f"p = {both.p:.3f}"
    return (*cells, pair.tau, f"{both.difference:+.3f}", ends, p)


def _agents(judges: Sequence[JudgeRow]) -> Iterator[str]:
    """Yields the success rates of the agents by each judge, on the labelled runs that it scored."""
    rates = [
        {rate.agent: rate for rate in row.ranking.agents} if row.ranking else {} for row in judges
    ]
    numbers = [str(number) for number in range(1, len(judges) + 1)]
    rows: list[Sequence[FigureCell]] = []
    for agent in dict.fromkeys(name for known in rates for name in known):
        found = [known.get(agent) for known in rates]
        label = next(rate.labelled for rate in found if rate is not None)
        rows.append((agent, label, *(None if rate is None else rate.judged for rate in found)))
    taus = (row.ranking.tau if row.ranking else None for row in judges)
    rows.append(("Kendall's tau-b with the label", "", *taus))
    yield from text_table(("Success rate by agent", "label", *numbers), rows)
    orders = {_order(known) for known in rates}
    same = "the same by all judges" if len(orders) == 1 else "not the same by all judges"
    yield f"Order of the agents: {same}"


def _order(rates: Mapping[str, AgentRate]) -> tuple[str, ...]:
    """Returns the agents, the best by the judge first."""
    return tuple(sorted(rates, key=lambda agent: (-rates[agent].judged, agent)))


def _matched(result: ActionMatching) -> Iterator[str]:
    yield (
        f"Action matching (Android in the Wild): {result.steps} recorded steps of "
        f"{result.episodes} episodes"
    )
    yield ""
    yield HEADING
    for figure in result.figures:
        yield figure_row(figure, _ACTION_FIGURES[figure.name])
    yield ""
    yield from about_intervals(result.figures, result.clusters, "task")
    counts = {
        "recorded episodes without a prediction, left out": result.not_predicted,
        "predicted episodes without a recording, left out": result.not_recorded,
        "incomplete predictions, left out": result.broken_off,
        "recorded steps without a prediction, counted as no match": result.unpredicted_steps,
        "predictions after the last recorded step, ignored": result.further_predictions,
        "episodes without bounding boxes, whose taps match by distance only": result.without_boxes,
    }
    yield from (f"{count} {what}" for what, count in counts.items() if count)
