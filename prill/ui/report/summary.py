"""The report's summary: judges, agreement with labels, cost.

The template is `summary.html`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

from prill.errors import UsageError
from prill.evaluators.agreement.agreement import (
    Agreement,
    Pairing,
    judged_scores,
    measure_agreement,
    pair,
)
from prill.evaluators.agreement.annotators import annotator_agreement
from prill.evaluators.agreement.comparison import mcnemar
from prill.evaluators.agreement.figure import Figure as AgreementFigure
from prill.evaluators.agreement.trivial import (
    Baseline,
    Baselines,
    Telemetry,
    compare_with_baselines,
)
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution
from prill.evaluators.metrics import FEW_CLUSTERS
from prill.io.joining import join_labels
from prill.types import LabelRecord, Usage, Verdict
from prill.ui.report.causes import Cause, Failures, group_failures, own_reasons
from prill.ui.report.changes import ChangeTable, attempt_table, change_tables
from prill.ui.report.entries import Judge, Outcome, ReportRow, Retry
from prill.ui.report.headline import headline
from prill.ui.report.plots import Figure, Scored, curve_plot, reliability_plot
from prill.ui.templates import dollars, percent, seconds

_DECIDED: tuple[Outcome, ...] = ("success", "failure")
_OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "unscored", "")
_LOWER = {
    "Brier score": "Brier score (lower is better)",
    "calibration error": "calibration error (lower is better)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContents:
    """The contents of a page, as far as its summary needs them.

    `labels` are those of `source` alone; `causes` has what `find_cause` says of failed runs, by id;
    `records` their digests, which show whether verdicts are on these contents; `shown` has, by id,
    a state with a screenshot, after whether an action is drawn on it; `telemetry` is what rules
    without a judge read.
    """

    rows: Sequence[ReportRow]
    judges: Sequence[Judge]
    labels: Sequence[LabelRecord]
    source: str
    truth: str = "majority"
    missing: int = 0
    retries: Mapping[str, Retry] = field(default_factory=dict)
    causes: Mapping[str, Cause | None] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    telemetry: Telemetry | None = None
    shown: Mapping[str, tuple[bool, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Example:
    """A judged run on the first screen: its row and number, the state shown, the judge's reason."""

    row: ReportRow
    number: int
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure in a table; `detail` is shown small next to it, and `is_dim` marks an uninformative
    one.
    """

    text: str
    detail: str = ""
    is_dim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One judge's part of the summary.

    `comparison` is a message instead of figures if there is nothing to compare. `fitted` counts the
    page's trajectories that the judge was fitted on; None if it was not fitted.
    """

    judge: Judge
    number: int
    verdicts: Sequence[Verdict]
    counts: Counter[Outcome]
    cells: Counter[tuple[Outcome, Outcome]]  # (label, verdict)
    scored: Scored
    comparison: Agreement | str
    pairing: Pairing | None
    unmatched: int
    fitted: Overlap | None

    @staticmethod
    def of(
        judge: Judge, number: int, contents: ReportContents, ids: set[str], tasks: dict[str, str]
    ) -> Column:
        """Compares the verdicts of a judge with the labels."""
        # In file order, as in `prill agree`: the intervals are sampled, so this makes them equal
        # there and here.
        verdicts = [verdict for id, verdict in judge.verdicts.items() if id in ids]
        labels = [label for label in contents.labels if label.id in ids]
        comparison: Agreement | str
        scored: Scored = ([], [])
        pairing = None
        try:
            records = contents.records or None
            pairing = pair(verdicts, labels, contents.source, contents.truth, records)
            comparison, scored = measure_agreement(pairing, tasks), judged_scores(pairing.pairs)
        except UsageError as error:
            comparison = str(error)
        return Column(
            judge=judge,
            number=number,
            verdicts=verdicts,
            counts=Counter(row.outcomes[number] for row in contents.rows),
            cells=Counter((row.truth, row.outcomes[number]) for row in contents.rows),
            scored=scored,
            comparison=comparison,
            pairing=pairing,
            unmatched=len(judge.verdicts) - len(verdicts),
            fitted=find_overlap(verdicts),
        )

    @property
    def about(self) -> str:
        """Returns the judge's name and version, and its model."""
        info = self.judge.info
        return " · ".join(part for part in (f"{info.name} {info.version}", info.model) if part)

    @property
    def reasons(self) -> str:
        """Returns the reasons for unscored trajectories, with counts."""
        reasons = Counter(
            verdict.unscored for verdict in self.verdicts if verdict.unscored is not None
        )
        return ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())

    @property
    def usage(self) -> Usage:
        """Returns the usage of all verdicts."""
        return sum((verdict.usage for verdict in self.verdicts), Usage())

    @property
    def cost(self) -> str:
        """Returns the cost of all verdicts; a lower bound if some prices are unknown."""
        prices = [verdict.usage.usd for verdict in self.verdicts]
        known = [usd for usd in prices if usd is not None]
        if len(known) == len(prices):
            return dollars(sum(known)) if prices else ""
        return f"≥ {dollars(sum(known))}" if sum(known) else "unknown"

    @property
    def price(self) -> str:
        """Returns dollars and tokens for each correct verdict; empty without labels or calls."""
        found = self.comparison if isinstance(self.comparison, Agreement) else None
        if found is None or not found.usage.calls or (price := found.cost_per_correct) is None:
            return ""
        usd = "" if price[0] is None else f"{dollars(price[0])}, "
        return f"{usd}{price[1]:.0f} tokens a correct verdict"

    @property
    def median_time(self) -> str:
        """Returns the median time of a verdict."""
        return (
            seconds(median(verdict.seconds for verdict in self.verdicts)) if self.verdicts else ""
        )

    @property
    def shares(self) -> Sequence[tuple[Outcome, float, float]]:
        """Returns each outcome with its position and width in a bar of 160 pixels."""
        bars, x = [], 0.0
        for outcome in _OUTCOMES:
            width = 160 * self.counts[outcome] / (self.counts.total() or 1)
            bars.append((outcome, x, max(0.0, width - 1)))
            x += width
        return bars

    @property
    def shares_in_words(self) -> str:
        """Returns the outcomes as text for screen readers."""
        counts = ((self.counts[outcome], outcome or "without verdict") for outcome in _OUTCOMES)
        return ", ".join(f"{count} {words}" for count, words in counts if count)


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure of every judge with labels."""

    name: str
    cells: Sequence[Cell]
    is_rule: bool = False


@dataclass(frozen=True, slots=True)
class AgreementTable:
    """Agreement with the labels.

    `silent` says for the other judges why there is none, and `among_people` is the agreement among
    annotators.
    """

    note: str
    heads: Sequence[str]
    rows: Sequence[FigureRow]
    silent: Sequence[str]
    among_people: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePair:
    """Two judges on the trajectories that both judged.

    `among_first` and `among_second` are the list's names for the other one of the two.
    """

    names: str
    first: int
    second: int
    among_first: str
    among_second: str
    both: int
    differ: int
    first_right: int
    second_right: int
    p: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One judge against the labels, as plots."""

    column: Column
    caution: str | None
    reliability: Figure
    curve: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The data of the summary template."""

    headlines: Sequence[str]
    example: Example | None
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str]
    cautions: Sequence[str]
    attempts: ChangeTable | None
    changes: Sequence[ChangeTable]
    columns: Sequence[Column]
    is_labelled: bool
    agreement: AgreementTable | None
    pairs: Sequence[JudgePair]
    panels: Sequence[Panel]
    failures: Failures


def summary(contents: ReportContents) -> Summary:
    """Makes the summary. Figures cover only the trajectories in the page."""
    ids = {row.id for row in contents.rows}
    tasks = {row.id: row.task for row in contents.rows if row.broken is None}
    columns = [Column.of(judge, n, contents, ids, tasks) for n, judge in enumerate(contents.judges)]
    is_labelled = bool(contents.labels)
    compared = {column.number: column.pairing for column in columns if column.pairing}
    rules = compare_with_baselines(list(compared.values()), contents.telemetry)
    baselines = dict(zip(compared, rules, strict=True))
    reasons = own_reasons(contents.judges)
    return Summary(
        headlines=_headlines(columns, baselines),
        example=_example(contents, reasons),
        facts=_facts(contents),
        notes=_notes(contents, columns),
        cautions=_cautions(columns),
        attempts=attempt_table(
            contents.rows,
            contents.retries,
            contents.judges[0].name if contents.judges else "",
            contents.source if is_labelled else "",
        ),
        changes=change_tables(contents.rows, contents.retries),
        columns=columns,
        is_labelled=is_labelled,
        agreement=_agreement(contents, columns, tasks, baselines)
        if columns and is_labelled
        else None,
        pairs=judge_pairs(contents.rows, [column.judge.name for column in columns]),
        panels=_panels(contents, columns) if is_labelled else (),
        failures=group_failures(contents.rows, contents.causes, reasons),
    )


def _example(contents: ReportContents, reasons: Mapping[str, str]) -> Example | None:
    """Returns a run with a picture: preferably a failure that the first judge finds, and why."""

    def worth(row: ReportRow) -> tuple[bool, ...]:
        outcome = row.outcomes[0]
        told = outcome == "failure" and row.id in reasons
        return outcome in _DECIDED, outcome == row.truth, told, contents.shown[row.id][0]

    judged = [row for row in contents.rows if row.id in contents.shown and any(row.outcomes[:1])]
    best = max(judged, key=worth, default=None)
    if best is None:
        return None
    verdict = contents.judges[0].verdicts[best.id]
    reason = reasons.get(best.id, "") if verdict.success is False else ""
    step = contents.shown[best.id][1]
    return Example(best, contents.rows.index(best), step, reason or verdict.reason)


def _headlines(columns: Sequence[Column], baselines: Mapping[int, Baselines]) -> list[str]:
    # Verdicts on runs that a judge was fitted on do not measure it, so such judges come after the
    # others.
    measured_first = sorted(
        columns, key=lambda column: column.fitted is not None and column.fitted.flatters
    )
    return [
        headline(
            c.judge.name,
            c.comparison if isinstance(c.comparison, Agreement) else None,
            c.counts,
            baselines.get(c.number, ()),
        )
        for c in measured_first
    ]


def _facts(contents: ReportContents) -> list[tuple[str, str]]:
    rows, judges = contents.rows, contents.judges
    truth = Counter(row.truth for row in rows)
    facts = [(f"{len(rows):,}", "trajectories" if len(rows) != 1 else "trajectory")]
    if contents.labels:
        facts.append((f"{len(rows) - truth['']:,}", f"labelled ({contents.source})"))
        decided = truth["success"] + truth["failure"]
        facts.append((percent(truth["success"], decided), "of decided labels are success"))
    return [*facts, (str(len(judges)), "judges" if len(judges) != 1 else "judge")]


def _notes(contents: ReportContents, columns: Sequence[Column]) -> list[str]:
    rows = contents.rows
    broken = [row for row in rows if row.broken is not None]
    notes = [f"Unreadable: {row.broken}" for row in broken[:20]]
    if len(broken) > 20:
        notes.append(f"… and {len(broken) - 20} more lines that could not be read")
    if contents.missing:
        notes.append(
            f"Screenshots that are missing, or no image: {contents.missing}; the page shows their "
            "names."
        )
    if stray := len({label.id for label in contents.labels} - {row.id for row in rows}):
        notes.append(
            f"Labels that belong to no trajectory in this page, and are not counted: {stray}."
        )
    if repeated := join_labels(contents.labels, None)[1].repeated:
        notes.append(f"Labels that are equal to an earlier one: {repeated}.")
    if undecided := sum(row.truth == "undecided" for row in rows):
        notes.append(
            f"Trajectories whose labels are undecided: {undecided}; no figure counts them."
        )
    notes += [f"{caution}." for caution in _cautions(columns)]
    notes += [words for column in columns if (words := _wrong_citations(column))]
    notes += [
        (
            f"Verdicts of {column.judge.name} that belong to no trajectory in this page: "
            f"{column.unmatched}."
        )
        for column in columns
        if column.unmatched
    ]
    notes += [
        f"Trajectories without a verdict of {column.judge.name}: {column.counts['']}."
        for column in columns
        if column.counts[""]
    ]
    notes += [
        f"Verdicts of {column.judge.name} that later ones replace: {len(column.judge.replaced)}."
        for column in columns
        if column.judge.replaced
    ]
    return notes


def _wrong_citations(column: Column) -> str:
    """Returns a note on a judge that cites steps it was not shown; empty if there is none."""
    found = [verdict.findings for verdict in column.verdicts]
    cited = sum(len((one and one.citations) or ()) for one in found)
    wrong = sum(
        citation.status in ("not_shown", "no_such_step")
        for one in found
        for citation in (one and one.citations) or ()
    )
    return (
        f"{column.judge.name} cites {wrong:,} of {cited:,} times a step that does not exist or "
        "that it was not shown."
        if wrong
        else ""
    )


def _cautions(columns: Sequence[Column]) -> list[str]:
    """Returns warnings for judges that were fitted on trajectories of this page or on others of
    their tasks.
    """
    return [
        caution
        for column in columns
        if (caution := fitted_caution(column.judge.name, column.fitted))
    ]


def _agreement(
    contents: ReportContents,
    columns: Sequence[Column],
    tasks: Mapping[str, str],
    baselines: Mapping[int, Baselines],
) -> AgreementTable:
    compared = [
        (column, column.comparison)
        for column in columns
        if isinstance(column.comparison, Agreement)
    ]
    found = [comparison for _, comparison in compared]
    names = list(dict.fromkeys(name for comparison in found for name in _figures(comparison)))
    rows = [
        FigureRow(_LOWER.get(name, name), [_figure(comparison, name) for comparison in found])
        for name in names
    ]
    if any(column.fitted is not None for column, _ in compared):
        rows.append(
            FigureRow("of the judged, the judge was fitted on", list(map(_seen, found)), True)
        )
    rules = [baselines.get(column.number, ()) for column, _ in compared]
    for i, name in enumerate(("a constant answer", "number of steps", "prior")):
        if any(len(one) > i for one in rules):
            cells = [_rule(one[i]) if len(one) > i else Cell("none", is_dim=True) for one in rules]
            rows.append(FigureRow(f"{name}, without a judge", cells, i == 0))
    note = (
        f"Against the {contents.source} labels, judged trajectories only; in brackets 95 % "
        "intervals, whole tasks drawn. Trajectories that are unscored or without a verdict are not "
        "failures; only the last accuracy counts them."
    )
    intervals = {figure.interval for comparison in found for figure in comparison.figures}
    if "wilson" in intervals:
        note += " *: Wilson's interval, as every draw is alike."
    if "t" in intervals:
        note += (
            f" Of fewer than {FEW_CLUSTERS} tasks (intervals: Student's t) figures are imprecise."
        )
    silent = [f"{c.judge.name}: {c.comparison}" for c in columns if isinstance(c.comparison, str)]
    heads = ("", *(column.judge.name for column, _ in compared))
    return AgreementTable(note, heads, rows, silent, _among_people(contents, tasks))


def _among_people(contents: ReportContents, tasks: Mapping[str, str]) -> str | None:
    """Returns the agreement among annotators; None if no trajectory has two of them."""
    labels = [label for label in contents.labels if label.id in tasks]
    people = annotator_agreement(labels, contents.source, tasks) if labels else None
    if people is None:
        return None
    kappa = (
        "undefined"
        if people.kappa is None
        else f"{people.kappa:.3f}{_bracketed_interval(people.kappa_interval)}"
    )
    return (
        f"Annotators among themselves, on {people.trajectories:,} trajectories with two or more: "
        f"{people.raw:.3f}"
        f"{_bracketed_interval(people.raw_interval)} of the pairs are equal, Cohen's kappa "
        f"{kappa}. "
        "No judge can be expected to agree with them better than they do."
    )


def _bracketed_interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" [{ends[0]:.3f}, {ends[1]:.3f}]"


def _figures(comparison: Agreement) -> dict[str, AgreementFigure]:
    """Returns all named figures of `prill agree`, of agreement and of scores."""
    return {figure.name: figure for figure in (*comparison.figures, *comparison.scores)}


def _figure(comparison: Agreement, name: str) -> Cell:
    figure = _figures(comparison).get(name)
    if figure is None or figure.undefined:
        return Cell("undefined", is_dim=True)
    mark = " *" if figure.interval == "wilson" else ""
    return Cell(f"{figure.value:.3f}", f"{_bracketed_interval(figure.ends)}{mark}".strip())


def _seen(comparison: Agreement) -> Cell:
    overlap = comparison.fitted
    if overlap is None:
        return Cell("none", is_dim=True)
    parts = {"": overlap.run, "unknown": overlap.unknown, "others of their tasks": overlap.task}
    words = ", ".join(f"{count:,} {what}".rstrip() for what, count in parts.items() if count)
    return Cell(f"{words or 'none'} of {overlap.total:,}")


def _rule(rule: Baseline) -> Cell:
    if rule.accuracy is None:
        return Cell(rule.missing, is_dim=True)
    return Cell(f"{rule.accuracy:.3f}", f"{rule.name}; the judge: {rule.difference}")


def judge_pairs(rows: Sequence[ReportRow], names: Sequence[str]) -> list[JudgePair]:
    """Returns all pairs of judges.

    An unscored or missing verdict differs from no other.
    """
    return [_judge_pair(rows, names, i, k) for i, k in combinations(range(len(names)), 2)]


def _judge_pair(rows: Sequence[ReportRow], names: Sequence[str], i: int, k: int) -> JudgePair:
    both = [
        (row.truth, row.outcomes[i], row.outcomes[k])
        for row in rows
        if row.outcomes[i] in _DECIDED and row.outcomes[k] in _DECIDED
    ]
    differing = [(truth, first) for truth, first, second in both if first != second]
    first_right = sum(truth == first for truth, first in differing)
    second_right = sum(truth in _DECIDED and truth != first for truth, first in differing)
    p, _ = mcnemar(first_right, second_right)
    # With two judges, "differ" is the only choice.
    own, other = (str(i), str(k)) if len(names) > 2 else ("differ", "differ")
    return JudgePair(
        names=f"{names[i]} – {names[k]}",
        first=i,
        second=k,
        among_first=own,
        among_second=other,
        both=len(both),
        differ=len(differing),
        first_right=first_right,
        second_right=second_right,
        p=("< 0.001" if p < 0.001 else f"{p:.3f}") if first_right + second_right else "–",
    )


def _panels(contents: ReportContents, columns: Sequence[Column]) -> list[Panel]:
    compared = [column for column in columns if isinstance(column.comparison, Agreement)]
    return [
        Panel(
            column,
            fitted_caution(column.judge.name, column.fitted),
            reliability_plot(column.scored),
            curve_plot(
                column.scored,
                [other.scored for other in compared if other is not column],
                _own_point(column),
                column.judge.info.params.get("threshold"),
            ),
        )
        for column in compared
    ]


def _own_point(column: Column) -> tuple[float, float] | None:
    """Returns recall and precision of the verdicts themselves, regardless of scores."""
    hits, missed = column.cells["success", "success"], column.cells["success", "failure"]
    wrong = column.cells["failure", "success"]
    return (hits / (hits + missed), hits / (hits + wrong)) if hits else None
