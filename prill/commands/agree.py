"""`prill agree`: compare verdicts with labels."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prill.commands.matching import matching
from prill.commands.options import add_label_options
from prill.emulators.webarena.tasks import load_configs, task_parts
from prill.errors import UsageError
from prill.evaluators.fitted.overlap import fitted_caution
from prill.evaluators.labels import task_of
from prill.evaluators.meta.agreement import (
    Agreement,
    Disagreement,
    Pairing,
    agreement_of,
    by_step,
    disagreements,
    pair,
    step_id,
)
from prill.evaluators.meta.annotators import AnnotatorAgreement, annotator_agreement
from prill.evaluators.meta.comparison import AgentRanking, Comparison, Slice, compare, rank_agents, slice_value, slices
from prill.evaluators.meta.corrections import Corrected, SuccessRate, correct, load_corrections, success_rates
from prill.evaluators.meta.figure import about_intervals, figure_row, interval
from prill.files.outputs import check_output, words_beside, write_output
from prill.labels.truth import RULES
from prill.store import encode, read_labels, read_trajectories, read_verdicts
from prill.types import EvaluatorInfo, LabelRecord, Verdict

_MOST_ROWS = 30  # of a table by parts
# Of a table by parts: names and widths. "success" is the share of label successes.
_SLICE_COLUMNS = {
    "n": 7,
    "unscored": 10,
    "success": 9,
    "accuracy": 10,
    "balanced": 10,
    "precision": 11,
    "recall": 8,
    "kappa": 8,
}


@dataclass(frozen=True, kw_only=True)
class Sections:
    """What stands beside the comparison itself, each None or empty where it does not apply."""

    corrections: Corrected | None
    webarena: tuple[SuccessRate, ...]
    annotators: AnnotatorAgreement | None
    slices: Mapping[str, tuple[Slice, ...]]
    ranking: AgentRanking | None
    against: Comparison | None


@dataclass(frozen=True)
class _Runs:
    """What the trajectory file says of each id. `parts` has one map for each key of --by."""

    tasks: dict[str, str] = field(default_factory=dict)
    task_ids: dict[str, str] = field(default_factory=dict)
    goals: dict[str, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("verdicts", metavar="VERDICTS", help="verdict file; with --metric aitw predicted trajectories")
    parser.add_argument("labels", metavar="LABELS", help="label file; with --metric aitw the recorded trajectories")
    parser.add_argument(
        "--metric",
        choices=("verdicts", "aitw"),
        default="verdicts",
        help="aitw: match predicted actions with recorded ones, as Android in the Wild does; both files are trajectories",
    )
    parser.add_argument(
        "--trajectories",
        metavar="TRAJ",
        help="the judged file: intervals then draw whole tasks instead of single trajectories, and agents are ranked",
    )
    add_label_options(parser)
    parser.add_argument(
        "--by",
        metavar="KEY,…",
        type=lambda words: [word.strip() for word in words.split(",") if word.strip()],
        default=[],
        help="a table for each part as well: site, agent, platform, task, or a key of the trajectories' metadata",
    )
    parser.add_argument(
        "--steps", action="store_true", help="compare what is said of single steps: a success is a step towards the goal"
    )
    parser.add_argument("--against", metavar="VERDICTS", help="another judge's verdicts, to compare with on the same labels")
    parser.add_argument(
        "--corrections",
        metavar="NAME",
        help="replace labels known to be wrong: webarena (14 tasks whose checker accepts wrong runs), or a TOML file",
    )
    parser.add_argument(
        "--disagreements", metavar="FILE", help="write to FILE, anew, what judge and labels differ on: JSON Lines"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Prints the comparison; 0. Raises UsageError when there is nothing to compare."""
    if args.metric == "aitw":
        return matching(args)
    if args.by and not args.trajectories:
        raise UsageError("--by needs --trajectories: the verdicts do not say where a trajectory belongs")
    inputs = [args.verdicts, args.labels, args.trajectories, args.against]
    if args.disagreements:
        check_output(args.disagreements, "disagreements", inputs, parameter="disagreements")
    runs = _read_runs(args.trajectories, args.by) if args.trajectories else None
    tasks = None if runs is None else runs.tasks
    original_labels = tuple(read_labels(args.labels))
    corrected = None
    if args.corrections:
        corrected = correct(original_labels, load_corrections(args.corrections), runs.task_ids if runs else None)
    labels = whole = corrected.labels if corrected else original_labels
    verdicts: Iterable[Verdict] = read_verdicts(args.verdicts)
    if args.steps:
        if corrected:
            raise UsageError("--steps: --corrections are of whole trajectories")
        verdicts, labels = by_step(verdicts, whole)
        original_labels = labels
        if runs is not None:
            runs = _of_steps(runs, whole)
            tasks = runs.tasks
    pairing = pair(verdicts, labels, args.source, args.truth)
    result = agreement_of(pairing, tasks)
    # Ties too: without them people would seem to agree better than they do.
    compared = {*pairing.undecided_ids, *(p.verdict.id for p in pairing.pairs)}
    differing = disagreements(pairing, runs.goals if runs else None)
    sections = Sections(
        corrections=corrected,
        webarena=_webarena(original_labels, pairing, runs) if corrected and corrected.name == "webarena" else (),
        annotators=annotator_agreement([label for label in original_labels if label.id in compared], pairing.source, tasks),
        slices={by: slices(pairing, by, runs.parts[by]) for by in args.by} if runs else {},
        ranking=rank_agents(pairing, runs.agents) if runs else None,
        against=compare(pairing, pair(_others(args, whole), labels, pairing.source, args.truth), tasks)
        if args.against
        else None,
    )
    if args.disagreements:
        write_output(args.disagreements, b"".join(map(encode, differing)))
    words = words_beside(args.disagreements)
    if args.json:
        print(encode(_as_json(result, sections, differing)).decode().rstrip(), file=words)
    else:
        print(page(result, sections, counted(differing) if args.disagreements else None, args.disagreements), file=words)
    return 0


def _read_runs(path: str, keys: Iterable[str]) -> _Runs:
    runs = _Runs(parts={key: {} for key in keys})
    metadata: set[str] = set()
    for item in read_trajectories(path, on_error="skip"):
        runs.tasks[item.id] = task_of(item)
        runs.goals[item.id] = item.task.goal
        if item.task.id:
            runs.task_ids[item.id] = item.task.id
        if item.agent:
            runs.agents[item.id] = item.agent
        metadata |= item.metadata.keys()
        for key, part in runs.parts.items():
            if (value := slice_value(item, key)) is not None:
                part[item.id] = value
    for key, part in runs.parts.items():
        if not part:
            keys = ", ".join(["site", "agent", "platform", "task", *sorted(metadata)[:20]])
            raise UsageError(f"--by {key}: no trajectory says so; there are: {keys}")
    return runs


def _others(args: argparse.Namespace, labels: Iterable[LabelRecord]) -> Iterable[Verdict]:
    verdicts = read_verdicts(args.against)
    return by_step(verdicts, labels)[0] if args.steps else verdicts


def _of_steps(runs: _Runs, labels: Iterable[LabelRecord]) -> _Runs:
    """What is known of each step: what is known of its trajectory."""
    steps = {step_id(label.id, step.index): label.id for label in labels for step in label.steps or ()}

    def of(known: Mapping[str, str]) -> dict[str, str]:
        return {step: known[id] for step, id in steps.items() if id in known}

    parts = {key: of(part) for key, part in runs.parts.items()}
    return _Runs(of(runs.tasks), of(runs.task_ids), of(runs.goals), of(runs.agents), parts)


def _webarena(labels: Iterable[LabelRecord], pairing: Pairing, runs: _Runs | None) -> tuple[SuccessRate, ...]:
    try:
        configs = load_configs()
    except UsageError:  # the benchmark's task file is not installed: the rate is told without its parts
        configs = ()
    task_ids, parts = runs.task_ids if runs else None, task_parts(configs)
    return success_rates(labels, task_ids, source=pairing.source, truth=pairing.truth, parts_of=parts)


def _as_json(agreement: object, sections: Sections, differing: tuple[Disagreement, ...]) -> Mapping[str, Any]:
    import msgspec

    extra = msgspec.to_builtins(sections)
    if extra["corrections"]:
        del extra["corrections"]["labels"]
    return {**msgspec.to_builtins(agreement), **extra, "disagreements": counted(differing)}


# What is printed for a person to read


def counted(differing: Iterable[Disagreement]) -> dict[str, int]:
    """How many disagreements there are of each kind."""
    counts = Counter(record.kind for record in differing)
    return {kind: counts[kind] for kind in ("false positive", "false negative", "unscored")}


def page(result: Agreement, sections: Sections, disagreements: Mapping[str, int] | None, file: str | None) -> str:
    """The whole output; sections only where they apply."""
    lines = [*_main(result, sections)]
    if sections.webarena:
        lines += ["", *_webarena_table(sections.webarena)]
    for part in sections.slices.values():
        lines += ["", *_slices(part)]
    if sections.ranking:
        lines += ["", *_ranking(sections.ranking)]
    if sections.against:
        lines += ["", *_against(sections.against, result.evaluator, result.clustered_by)]
    if disagreements is not None:
        lines += ["", f"Disagreements, in {file}: " + ", ".join(f"{count} {kind}" for kind, count in disagreements.items())]
    return "\n".join(lines)


def _main(result: Agreement, sections: Sections) -> Iterator[str]:
    unscored = sum(result.unscored.values())
    c = result.confusion
    constant = "always success" if result.majority_answer else "always failure"
    yield f"Judge: {_judge(result.evaluator)}"
    yield f"Labels: {result.source}, {result.judged + unscored} trajectories; judged {result.judged}, unscored {unscored}"
    if caution := fitted_caution(result.evaluator.name, result.fitted):
        yield f"Warning: {caution}"
    if sections.annotators or result.truth != "majority":
        yield f"Truth: {RULES.get(result.truth, f'the labels of {_name(result.truth, 44)}')}"
    if sections.corrections:
        yield from _corrected(sections.corrections)
        if not sections.corrections.matched and result.clustered_by == "trajectory":
            yield "Without --trajectories an id is taken for the id of its task"
    yield ""
    yield f"{'':<29}{'value':>7}   95 % interval"
    yield from map(figure_row, result.figures)
    yield f"{constant + ' (no judge)':<29}{result.majority:>7.3f}"
    yield from map(figure_row, result.scores)
    if not result.scores and result.judged:
        yield "Brier score and calibration error: undefined, as every score is 0 or 1"
    if sections.annotators:
        yield ""
        yield from _annotators(sections.annotators)
    yield ""
    yield f"{'':<16}{'label success':>15}{'label failure':>15}"
    yield f"{'judged success':<16}{c.tp:>15}{c.fp:>15}"
    yield f"{'judged failure':<16}{c.fn:>15}{c.tn:>15}"
    yield ""
    yield from about_intervals(result.figures, result.clusters, result.clustered_by)
    if unscored:
        yield "Unscored: " + ", ".join(f"{reason} {count}" for reason, count in result.unscored.items())
    if result.missing:
        yield f"No verdict at all: {result.missing} labelled trajectories, counted as wrong in the last accuracy"
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in result.undecided_by.items())
    apart = {
        "verdicts without label": result.verdicts_without_label,
        "labels without verdict": result.labels_without_verdict - result.missing,
        f"undecided labels ({kinds})": result.undecided,
    }
    if any(apart.values()):
        yield "Not compared: " + ", ".join(f"{count} {what}" for what, count in apart.items() if count)


def _judge(evaluator: EvaluatorInfo) -> str:
    return ", ".join(part for part in (f"{evaluator.name} {evaluator.version}", evaluator.model) if part)


def _name(text: str, width: int) -> str:
    # Names come from files of others: no control sequence of theirs reaches the terminal.
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _corrected(table: Corrected) -> Iterator[str]:
    only = f", source {table.source}" if table.source else ""
    yield (
        f"Corrections ({table.name}, {table.tasks} tasks{only}): {len(table.matched)} trajectories are of such a task, "
        f"the labels of {len(table.changed)} changed"
    )
    yield f"They were made for {table.made_for}; a label of another run may have been right"


def _webarena_table(rates: Sequence[SuccessRate]) -> Iterator[str]:
    yield f"{'WebArena success by label':<38}{'n':>5}{'as given':>10}{'corrected':>11}"
    for rate in rates:
        name = "all tasks" if rate.part == "all" else f"  {rate.part} {rate.value}"
        yield f"{name:<38}{rate.n:>5}{rate.rate:>10.3f}{rate.corrected_rate:>11.3f}"


def _annotators(agreement: AnnotatorAgreement) -> Iterator[str]:
    yield f"Annotators among themselves, on {agreement.trajectories} trajectories with two or more: the ceiling"
    yield f"{'  equal pairs':<29}{agreement.raw:>7.3f}   {interval(agreement.raw_interval)}"
    yield f"{'  Cohen kappa of pairs':<29}{_share(agreement.kappa):>7}   {interval(agreement.kappa_interval)}"
    if agreement.three_or_more:
        yield f"{'  all equal, of 3 or more':<29}{_share(agreement.exact):>7}   on {agreement.three_or_more}"
        yield f"{'  Fleiss kappa, of 3 or more':<29}{_share(agreement.fleiss):>7}"


def _slices(parts: Sequence[Slice]) -> Iterator[str]:
    first_parts = parts[:_MOST_ROWS]
    width = max(len(part.value) for part in first_parts)
    width = min(44, max(width, len(parts[0].by) + 3))
    yield f"{'By ' + parts[0].by:<{width}}" + "".join(f"{name:>{room}}" for name, room in _SLICE_COLUMNS.items())
    for part in first_parts:
        value = _name(part.value, width)
        figures = (part.success, part.accuracy, part.balanced_accuracy, part.precision, part.recall, part.kappa)
        cells = [str(part.n), str(part.unscored), *map(_share, figures)]
        row = "".join(f"{cell:>{room}}" for cell, room in zip(cells, _SLICE_COLUMNS.values(), strict=True))
        yield f"{value:<{width}}{row}" + (" !" if part.small else "")
    if len(parts) > _MOST_ROWS:
        yield f"… and {len(parts) - _MOST_ROWS} more: --json has all"
    if any(part.small for part in first_parts):
        yield "! fewer than 30 judged, or fewer than 10 of one outcome: too few to rely on"


def _ranking(ranking: AgentRanking) -> Iterator[str]:
    width = min(44, max(len(rate.agent) for rate in ranking.agents))
    tau = "undefined, as an order is all ties" if ranking.tau is None else f"{ranking.tau:.3f}"
    yield f"{'Success rate by agent':<{max(width, 21)}}{'n':>8}{'judge':>9}{'label':>9}"
    for rate in ranking.agents:
        yield f"{_name(rate.agent, width):<{max(width, 21)}}{rate.n:>8}{rate.judged:>9.3f}{rate.labelled:>9.3f}"
    yield f"Order of the {len(ranking.agents)} agents, judge against label: Kendall's tau-b {tau}"


def _against(both: Comparison, first: EvaluatorInfo, clustered_by: str) -> Iterator[str]:
    yield f"Against: {_judge(both.other)}, on {both.both} trajectories that both judged"
    if both.only_first or both.only_second:
        yield f"Left out: {both.only_first} judged by {first.name} alone, {both.only_second} by the other alone"
    for name, overlap in ((first.name, both.fitted), (f"the other, {both.other.name},", both.other_fitted)):
        if caution := fitted_caution(name, overlap):
            yield f"Warning: {caution}"
    yield f"{'':<16}{'other right':>15}{'other wrong':>15}"
    yield f"{'right':<16}{both.both_right:>15}{both.first_right:>15}"
    yield f"{'wrong':<16}{both.second_right:>15}{both.both_wrong:>15}"
    how = "paired bootstrap" if both.method == "bootstrap" else "paired t"
    yield f"Accuracy {both.difference:+.3f}; 95 % interval {_signed(both.interval)} ({how} by {clustered_by})"
    p = "p < 0.001" if both.p < 0.001 else f"p = {both.p:.3f}"
    yield f"McNemar: {p} on {both.first_right + both.second_right} discordant trajectories ({both.test})"


def _signed(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}"
