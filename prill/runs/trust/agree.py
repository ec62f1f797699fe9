"""Compares verdicts or answers with labels, or predicted actions with recorded ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from prill.config.values import Config
from prill.emulators.webarena.tasks import load_configs, task_parts
from prill.errors import UsageError
from prill.evaluators.fitted.overlap import fitted_caution
from prill.evaluators.labels import make_task
from prill.evaluators.meta.agreement import (
    Agreement,
    Disagreement,
    Pairing,
    by_step,
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
from prill.evaluators.meta.aitw import ActionMatching, match_actions
from prill.evaluators.meta.annotators import AnnotatorAgreement, annotator_agreement
from prill.evaluators.meta.answers import AnswersAgreement, measure_answers
from prill.evaluators.meta.comparison import (
    AgentRanking,
    Comparison,
    Slice,
    compare,
    rank_agents,
    slice_value,
    slices,
)
from prill.evaluators.meta.corrections import (
    Corrected,
    SuccessRate,
    correct,
    load_corrections,
    success_rates,
)
from prill.evaluators.meta.figure import (
    HEADING,
    about_intervals,
    figure_row,
    interval,
    text_table,
    value_row,
)
from prill.evaluators.meta.first_error import FirstErrors, first_errors
from prill.evaluators.meta.suspects import Suspect, find_suspects
from prill.io.outputs import check_output, write_output
from prill.io.store import encode, read_labels, read_trajectories, read_verdicts
from prill.io.tables import Table
from prill.io.truth import SourceOption, TruthOption
from prill.runs.base import Printed, asynchronous, log
from prill.runs.cautions import unequal_chances
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict

if TYPE_CHECKING:
    import pandas

_MAX_ROWS = 30  # of a table by slices
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
    "against",
    "corrections",
    "disagreements",
    "suspects",
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
class AgreeConfig(Config):
    """Configuration of `prill agree`: compare verdicts or answers with labels, or predicted actions
    with recorded ones.
    """

    verdicts: Annotated[
        str | Path,
        Meta(description="Verdict file. With metric aitw: the predicted trajectories."),
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
    trajectories: Annotated[
        str | Path | None,
        Meta(
            description="Trajectory file that was judged. Intervals then resample whole "
            "tasks instead of single runs, and agents are ranked."
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    by: Annotated[
        Sequence[str],
        Meta(
            description="Also print a table per group: site, agent, platform, task, or a "
            "key of the trajectories' metadata."
        ),
    ] = ()
    steps: Annotated[
        bool,
        Meta(
            description="Compare the labels of single steps. A success is a step towards the goal."
        ),
    ] = False
    against: Annotated[
        str | Path | None,
        Meta(description="Verdicts of another judge, compared on the same labels."),
    ] = None
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

    suspects: Annotated[
        str | Path | None,
        Meta(
            description="File for labels that are probably wrong (JSON Lines): every judge "
            "contradicts them, or no state changed before the success. An existing file is "
            "replaced."
        ),
    ] = None

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
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
        for name in ("corrections", "suspects"):
            if self.steps and getattr(self, name):
                raise UsageError(
                    f"{name}: only for whole trajectories, not for steps",
                    parameters=(name, "steps"),
                )


@dataclass(frozen=True, kw_only=True)
class AgreeResult(Printed):
    """Result of a comparison; printing it shows all tables.

    Args:
        compared: The figures of verdicts against labels or, with metric answers, of answers; with
            metric aitw, of actions against recorded ones.
        corrections: The labels that were replaced; None: no corrections were requested.
        webarena: Success rates of WebArena's subsets, as labelled and corrected.
        annotators: The agreement among annotators; None if no run has two of them.
        slices: The slices for each key of `by`.
        ranking: Agents ranked by judge and by label; None without trajectories, or with one agent.
        against: The comparison with another judge.
        first_errors: With `steps`, how often the judge finds the first wrong step.
        disagreements: The trajectories on which judge and labels differ.
        output: The file of disagreements.
        suspects: Labels that are probably wrong; None: not requested.
    """

    compared: Agreement | AnswersAgreement | ActionMatching
    corrections: Corrected | None = None
    webarena: tuple[SuccessRate, ...] = ()
    annotators: AnnotatorAgreement | None = None
    slices: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    ranking: AgentRanking | None = None
    against: Comparison | None = None
    first_errors: FirstErrors | None = None
    disagreements: tuple[Disagreement, ...] = ()
    output: str | None = None
    suspects: tuple[Suspect, ...] | None = None

    @property
    def agreement(self) -> Agreement:
        """Returns the figures of verdicts against labels, as `prill.agreement` does.

        Raises:
            UsageError: The metric was another.
        """
        if isinstance(self.compared, Agreement):
            return self.compared
        raise UsageError("this metric does not compare verdicts; use `compared`")

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
                self.compared.table()
                if isinstance(self.compared, Agreement | AnswersAgreement)
                else figure_table(self.compared.figures)
            )
        if by not in self.slices:
            raise UsageError(
                f"by: this run's configuration has no {by!r}; it has "
                f"{', '.join(self.slices) or 'none'}"
            )
        rows = tuple(tuple(asdict(part)[name] for name in _SLICE_TYPES) for part in self.slices[by])
        return Table(tuple(_SLICE_TYPES), rows, _SLICE_TYPES)

    def to_pandas(self, by: str | None = None) -> pandas.DataFrame:
        """Returns the table as a pandas DataFrame.

        Args:
            by: A key of the configuration's `by`: returns its slices in place of the figures.

        Returns:
            One row per figure or slice, with nullable column types.

        Raises:
            MissingExtraError: pandas is not installed; the message says how to install it.
            UsageError: Slices by that key were not requested.
        """
        return self.table(by).to_pandas()

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object; disagreements and suspects as counts."""
        figures: dict[str, Any] = msgspec.to_builtins(self.compared)
        if not isinstance(self.compared, Agreement):
            return figures
        names = ("corrections", "webarena", "annotators", "slices", "ranking", "against")
        sections = {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        if (errors := self.first_errors) is not None:
            sections["first_errors"] = {
                **msgspec.to_builtins(errors),
                "accuracy": errors.accuracy,
                "interval": errors.interval(),
                "accuracy_right": errors.accuracy_right,
                "f1": errors.f1,
            }
        if sections["corrections"]:
            del sections["corrections"]["labels"]
        if self.suspects is not None:
            sections["suspects"] = len(self.suspects)
        return {**figures, **sections, "disagreements": self.differing()}

    def differing(self) -> dict[str, int]:
        """Returns the number of disagreements of each type."""
        counts = Counter(record.kind for record in self.disagreements)
        return {kind: counts[kind] for kind in ("false positive", "false negative", "unscored")}

    def __str__(self) -> str:
        if isinstance(self.compared, AnswersAgreement):
            return str(self.compared)
        return "\n".join(
            _page(self, self.compared)
            if isinstance(self.compared, Agreement)
            else _matched(self.compared)
        )


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
            read_trajectories(path, on_error="skip") for path in (config.verdicts, config.labels)
        )
        return AgreeResult(compared=match_actions(predicted, recorded))
    if config.metric == "answers":
        return AgreeResult(
            compared=measure_answers(
                read_verdicts(config.verdicts),
                read_labels(config.labels),
                config.source,
                config.truth,
                read_runs(config.trajectories, ()).tasks if config.trajectories else None,
            )
        )
    inputs = [config.verdicts, config.labels, config.trajectories, config.against]
    if config.disagreements:
        check_output(config.disagreements, "disagreements", inputs, parameter="disagreements")
    if config.suspects:
        check_output(
            config.suspects, "suspects", [*inputs, config.disagreements], parameter="suspects"
        )
    runs = read_runs(config.trajectories, config.by) if config.trajectories else None
    original_labels = tuple(read_labels(config.labels))
    if caution := unequal_chances(original_labels):
        log.warning("%s: %s", config.labels, caution)
    corrected = None
    if config.corrections:
        corrected = correct(
            original_labels, load_corrections(config.corrections), runs.task_ids if runs else None
        )
    labels = all_labels = corrected.labels if corrected else original_labels
    verdicts: Iterable[Verdict] = read_verdicts(config.verdicts)
    if config.steps:
        of_runs = tuple(verdicts)
        verdicts, labels = by_step(of_runs, all_labels)
        original_labels = labels
        runs = _of_steps(runs, all_labels) if runs is not None else None
    tasks = None if runs is None else runs.tasks
    pairing = pair(verdicts, labels, config.source, config.truth)
    # Include ties: without them, annotators would seem to agree more than they do.
    compared = {*pairing.undecided_ids, *(p.verdict.id for p in pairing.pairs)}
    against = other = None
    if config.against:
        others: Iterable[Verdict] = read_verdicts(config.against)
        others = by_step(others, all_labels)[0] if config.steps else others
        other = pair(others, labels, pairing.source, config.truth)
        against = compare(pairing, other, tasks)
    suspects = None
    if config.suspects:
        suspects = find_suspects(
            [pairing, other] if other else [pairing],
            read_trajectories(config.trajectories, on_error="skip") if config.trajectories else (),
        )
    result = AgreeResult(
        compared=measure_agreement(pairing, tasks),
        corrections=corrected,
        webarena=_webarena(original_labels, pairing, runs)
        if corrected and corrected.name == "webarena"
        else (),
        annotators=annotator_agreement(
            [label for label in original_labels if label.id in compared], pairing.source, tasks
        ),
        slices={by: slices(pairing, by, runs.parts[by]) for by in config.by} if runs else {},
        ranking=rank_agents(pairing, runs.agents) if runs else None,
        against=against,
        first_errors=first_errors(of_runs, all_labels, pairing.source) if config.steps else None,
        disagreements=disagreements(pairing, runs.goals if runs else None),
        output=str(config.disagreements) if config.disagreements else None,
        suspects=suspects,
    )
    if config.suspects and suspects is not None:
        write_output(config.suspects, b"".join(map(encode, suspects)))
    if config.disagreements:
        write_output(config.disagreements, b"".join(map(encode, result.disagreements)))
    return result


agree_async = asynchronous(agree)
"""Runs `agree` in a thread, with the same parameters, for programs with an event loop."""


@dataclass(frozen=True)
class KnownRuns:
    """The metadata that a trajectory file holds for each id.

    `parts` has one map for each key of `by`.
    """

    tasks: dict[str, str] = field(default_factory=dict)
    task_ids: dict[str, str] = field(default_factory=dict)
    goals: dict[str, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, run: Trajectory) -> None:
        """Adds the metadata of a run."""
        self.tasks[run.id] = make_task(run)
        self.goals[run.id] = run.task.goal
        if run.task.id:
            self.task_ids[run.id] = run.task.id
        if run.agent:
            self.agents[run.id] = run.agent
        for key, part in self.parts.items():
            if (value := slice_value(run, key)) is not None:
                part[run.id] = value


def read_runs(path: str | Path, keys: Iterable[str]) -> KnownRuns:
    """Reads the metadata of a trajectory file's runs, with their slices by each of `keys`.

    Broken lines are logged.

    Raises:
        UsageError: No trajectory has a key, or the file cannot be read.
    """
    runs = KnownRuns(parts={key: {} for key in keys})
    metadata: set[str] = set()
    for item in read_trajectories(path, on_error="skip"):
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
    return KnownRuns(of(runs.tasks), of(runs.task_ids), of(runs.goals), of(runs.agents), parts)


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
        _annotators(result.annotators) if result.annotators else (),
        count_rows(agreement),
        not_judged_rows(agreement),
        _webarena_table(result.webarena) if result.webarena else (),
        *map(_slices, result.slices.values()),
        _ranking(result.ranking) if result.ranking else (),
        _against(result.against, agreement.evaluator, agreement.clustered_by)
        if result.against
        else (),
        _first_errors(result.first_errors) if result.first_errors else (),
    ):
        if lines := list(rows):
            yield ""
            yield from lines
    if result.output is not None:
        counts = ", ".join(f"{count} {kind}" for kind, count in result.differing().items())
        yield ""
        yield f"Disagreements, in {result.output}: {counts}"
    if result.suspects is not None:
        yield ""
        yield f"Labels that are probably wrong: {len(result.suspects)}"


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
    first_parts = parts[:_MAX_ROWS]
    names = (name.removesuffix("_accuracy") for name in _OF_SLICE)
    figures = attrgetter("value", *_OF_SLICE)
    rows = ((*figures(part), "!" if part.small else "") for part in first_parts)
    yield from text_table((f"By {parts[0].by}", *names, ""), rows)
    if len(parts) > _MAX_ROWS:
        yield f"… and {len(parts) - _MAX_ROWS} more; the JSON output lists all"
    if any(part.small for part in first_parts):
        yield "! fewer than 30 judged, or fewer than 10 with one outcome: unreliable"


def _ranking(ranking: AgentRanking) -> Iterator[str]:
    tau = (
        ("undefined, because one order consists of ties")
        if ranking.tau is None
        else f"{ranking.tau:.3f}"
    )
    rows = map(attrgetter("agent", "n", "judged", "labelled"), ranking.agents)
    yield from text_table(("Success rate by agent", "n", "judge", "label"), rows)
    yield f"Order of the {len(ranking.agents)} agents, judge against label: Kendall's tau-b {tau}"


def _against(both: Comparison, first: EvaluatorInfo, clustered_by: str) -> Iterator[str]:
    yield f"Against: {both.other.title}, on {both.both} trajectories that both judged"
    if both.only_first or both.only_second:
        yield (
            f"Left out: {both.only_first} judged only by {first.name}, {both.only_second} "
            "only by the other"
        )
    for name, overlap in (
        (first.name, both.fitted),
        (f"the other, {both.other.name},", both.other_fitted),
    ):
        if caution := fitted_caution(name, overlap):
            yield f"Warning: {caution}"
    yield f"{'':<16}{'other right':>15}{'other wrong':>15}"
    yield f"{'right':<16}{both.both_right:>15}{both.first_right:>15}"
    yield f"{'wrong':<16}{both.second_right:>15}{both.both_wrong:>15}"
    how = "paired bootstrap" if both.method == "bootstrap" else "paired t"
    yield (
        f"Accuracy {both.difference:+.3f}; 95 % interval {_signed(both.interval)} ({how} by "
        f"{clustered_by})"
    )
    p = "p < 0.001" if both.p < 0.001 else f"p = {both.p:.3f}"
    yield (
        f"McNemar: {p} on {both.first_right + both.second_right} discordant trajectories "
        f"({both.test})"
    )


def _first_errors(errors: FirstErrors) -> Iterator[str]:
    yield (
        f"First wrong step: {errors.wrong} runs have one, {errors.right} have none; left "
        f"out: {errors.undecided} undecided, {errors.unscored} unscored"
    )
    yield value_row("  found, of runs with one", errors.accuracy, interval(errors.interval()))
    yield value_row("  none seen, of runs without", errors.accuracy_right)
    yield value_row("  F1 of the two", errors.f1)


def _signed(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}"


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
