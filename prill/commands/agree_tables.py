"""What `prill agree` prints for a person to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prill.evaluators.agreement import Agreement, Figure
from prill.evaluators.annotators import AnnotatorAgreement
from prill.evaluators.comparison import Comparison
from prill.evaluators.corrections import Corrected
from prill.evaluators.disagreements import Disagreement
from prill.evaluators.intervals import DRAWS
from prill.evaluators.metrics.webarena import SuccessRate
from prill.evaluators.ranking import AgentRanking
from prill.evaluators.slices import Slice
from prill.types import EvaluatorInfo

_ROWS = 30
# Of a table by parts: names and widths. "success" is the share of label successes.
_COLUMNS = {"n": 7, "unscored": 10, "success": 9, "accuracy": 10, "balanced": 10, "precision": 11, "recall": 8, "kappa": 8}


@dataclass(frozen=True, kw_only=True)
class Sections:
    """What stands beside the comparison itself, each None or empty where it does not apply."""

    corrections: Corrected | None
    webarena: tuple[SuccessRate, ...]
    annotators: AnnotatorAgreement | None
    slices: Mapping[str, tuple[Slice, ...]]
    ranking: AgentRanking | None
    against: Comparison | None


def counted(differing: Iterable[Disagreement]) -> dict[str, int]:
    """How many disagreements there are of each kind."""
    counts = Counter(record.kind for record in differing)
    return {kind: counts[kind] for kind in ("false positive", "false negative", "unscored")}


def page(found: Agreement, sections: Sections, disagreements: Mapping[str, int] | None, file: str | None) -> str:
    """The whole output; sections only where they apply."""
    lines = [*_main(found, sections)]
    if sections.webarena:
        lines += ["", *_webarena(sections.webarena)]
    for part in sections.slices.values():
        lines += ["", *_slices(part)]
    if sections.ranking:
        lines += ["", *_ranking(sections.ranking)]
    if sections.against:
        lines += ["", *_against(sections.against, found.evaluator, found.clustered_by)]
    if disagreements is not None:
        lines += ["", f"Disagreements, in {file}: " + ", ".join(f"{count} {kind}" for kind, count in disagreements.items())]
    return "\n".join(lines)


def _main(found: Agreement, sections: Sections) -> Iterator[str]:
    unscored = sum(found.unscored.values())
    c = found.confusion
    constant = "always success" if found.majority_answer else "always failure"
    yield f"Judge: {_judge(found.evaluator)}"
    yield f"Labels: {found.source}, {found.judged + unscored} trajectories; judged {found.judged}, unscored {unscored}"
    if sections.corrections:
        yield from _corrected(sections.corrections)
        if not sections.corrections.matched and found.clustered_by == "trajectory":
            yield "Without --trajectories an id is taken for the id of its task"
    yield ""
    yield f"{'':<29}{'value':>7}   95 % interval"
    yield from map(_row, found.figures)
    yield f"{constant + ' (no judge)':<29}{found.majority:>7.3f}"
    if sections.annotators:
        yield ""
        yield from _annotators(sections.annotators)
    yield ""
    yield f"{'':<16}{'label success':>15}{'label failure':>15}"
    yield f"{'judged success':<16}{c.tp:>15}{c.fp:>15}"
    yield f"{'judged failure':<16}{c.fn:>15}{c.tn:>15}"
    yield ""
    per_task = "tasks" if found.clustered_by == "task" else "trajectories"
    yield f"Intervals: bootstrap over {found.clusters} {per_task}, {DRAWS} draws" + _marks(found.figures)
    if unscored:
        yield "Unscored: " + ", ".join(f"{reason} {count}" for reason, count in found.unscored.items())
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in found.undecided_by.items())
    apart = {
        "verdicts without label": found.verdicts_without_label,
        "labels without verdict": found.labels_without_verdict,
        f"undecided labels ({kinds})": found.undecided,
    }
    if any(apart.values()):
        yield "Not compared: " + ", ".join(f"{count} {what}" for what, count in apart.items() if count)


def _judge(evaluator: EvaluatorInfo) -> str:
    return ", ".join(part for part in (f"{evaluator.name} {evaluator.version}", evaluator.model) if part)


def _row(figure: Figure) -> str:
    if figure.undefined:
        return f"{figure.name:<29}{figure.value:>7.3f}   undefined"
    star = " *" if figure.interval == "wilson" else ""
    both = None if figure.low is None or figure.high is None else (figure.low, figure.high)
    return f"{figure.name:<29}{figure.value:>7.3f}   {_interval(both)}{star}"


def _interval(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def _name(text: str, width: int) -> str:
    # Names come from files of others: no control sequence of theirs reaches the terminal.
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _marks(shown: tuple[Figure, ...]) -> str:
    return "; * Wilson, as every draw is alike" if any(figure.interval == "wilson" for figure in shown) else ""


def _corrected(found: Corrected) -> Iterator[str]:
    only = f", source {found.source}" if found.source else ""
    yield (
        f"Corrections ({found.name}, {found.tasks} tasks{only}): {len(found.matched)} trajectories are of such a task, "
        f"the labels of {len(found.changed)} changed"
    )
    yield f"They were made for {found.made_for}; a label of another run may have been right"


def _webarena(rates: Sequence[SuccessRate]) -> Iterator[str]:
    yield f"{'WebArena success by label':<38}{'n':>5}{'as given':>10}{'corrected':>11}"
    for rate in rates:
        name = "all tasks" if rate.part == "all" else f"  {rate.part} {rate.value}"
        yield f"{name:<38}{rate.n:>5}{rate.rate:>10.3f}{rate.corrected_rate:>11.3f}"


def _annotators(found: AnnotatorAgreement) -> Iterator[str]:
    yield f"Annotators among themselves, on {found.trajectories} trajectories with two or more: the ceiling"
    yield f"{'  equal pairs':<29}{found.raw:>7.3f}   {_interval(found.raw_interval)}"
    yield f"{'  Cohen kappa of pairs':<29}{_share(found.kappa):>7}   {_interval(found.kappa_interval)}"
    if found.three_or_more:
        yield f"{'  all equal, of 3 or more':<29}{_share(found.exact):>7}   on {found.three_or_more}"
        yield f"{'  Fleiss kappa, of 3 or more':<29}{_share(found.fleiss):>7}"


def _slices(parts: Sequence[Slice]) -> Iterator[str]:
    shown = parts[:_ROWS]
    width = max(len(part.value) for part in shown)
    width = min(44, max(width, len(parts[0].by) + 3))
    yield f"{'By ' + parts[0].by:<{width}}" + "".join(f"{name:>{room}}" for name, room in _COLUMNS.items())
    for part in shown:
        value = _name(part.value, width)
        figures = (part.success, part.accuracy, part.balanced_accuracy, part.precision, part.recall, part.kappa)
        cells = [str(part.n), str(part.unscored), *map(_share, figures)]
        row = "".join(f"{cell:>{room}}" for cell, room in zip(cells, _COLUMNS.values(), strict=True))
        yield f"{value:<{width}}{row}" + (" !" if part.small else "")
    if len(parts) > _ROWS:
        yield f"… and {len(parts) - _ROWS} more: --json has all"
    if any(part.small for part in shown):
        yield "! fewer than 30 judged, or fewer than 10 of one outcome: too few to rely on"


def _ranking(found: AgentRanking) -> Iterator[str]:
    width = min(44, max(len(rate.agent) for rate in found.agents))
    tau = "undefined, as an order is all ties" if found.tau is None else f"{found.tau:.3f}"
    yield f"{'Success rate by agent':<{max(width, 21)}}{'n':>8}{'judge':>9}{'label':>9}"
    for rate in found.agents:
        yield f"{_name(rate.agent, width):<{max(width, 21)}}{rate.n:>8}{rate.judged:>9.3f}{rate.labelled:>9.3f}"
    yield f"Order of the {len(found.agents)} agents, judge against label: Kendall's tau-b {tau}"


def _against(found: Comparison, first: EvaluatorInfo, clustered_by: str) -> Iterator[str]:
    yield f"Against: {_judge(found.other)}, on {found.both} trajectories that both judged"
    if found.only_first or found.only_second:
        yield f"Left out: {found.only_first} judged by {first.name} alone, {found.only_second} by the other alone"
    yield f"{'':<16}{'other right':>15}{'other wrong':>15}"
    yield f"{'right':<16}{found.both_right:>15}{found.first_right:>15}"
    yield f"{'wrong':<16}{found.second_right:>15}{found.both_wrong:>15}"
    yield f"Accuracy {found.difference:+.3f}; 95 % interval {_signed(found.interval)} (paired bootstrap by {clustered_by})"
    p = "p < 0.001" if found.p < 0.001 else f"p = {found.p:.3f}"
    yield f"McNemar: {p} on {found.first_right + found.second_right} discordant trajectories ({found.test})"


def _signed(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}"
