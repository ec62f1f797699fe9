"""The first view of a report: who judged what, how far that agrees with the labels, and what it cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from urllib.parse import urlencode

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import Calibration
from prill.evaluators.fitted.overlap import Overlap, fitted_caution, overlap_of
from prill.evaluators.meta.agreement import Agreement, agreement_of, judged_scores, pair
from prill.evaluators.meta.annotators import annotator_agreement
from prill.evaluators.meta.comparison import mcnemar
from prill.evaluators.meta.figure import Figure
from prill.evaluators.metrics import FEW_CLUSTERS
from prill.types import LabelRecord, Verdict
from prill.ui.report.entries import Judge, Outcome, Retry, Row
from prill.ui.report.headline import headline
from prill.ui.report.markup import Markup, dollars, el, joined, jump, seconds, share, table
from prill.ui.report.plots import Rule, Scored, curve_plot, reliability_plot, spending_plot

_DECIDED: tuple[Outcome, ...] = ("success", "failure")
_LOWER = {"Brier score": "Brier score (lower is better)", "calibration error": "calibration error (lower is better)"}
_GLYPHS: dict[Outcome, str] = {"success": "✓", "failure": "✗", "unscored": "–", "undecided": "?", "": "·"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a page shows, as far as its summary needs it. `labels` are those of `source` alone; `calibrated_on` says of each
    calibration to how many of these trajectories it was fitted."""

    rows: Sequence[Row]
    judges: Sequence[Judge]
    labels: Sequence[LabelRecord]
    source: str
    truth: str = "majority"
    threshold: float | None = None
    calibrations: Sequence[Calibration] = ()
    calibrated_on: Sequence[Overlap] = ()
    missing: int = 0
    retries: Mapping[str, Retry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One judge's part of the summary. `comparison` is a message instead of figures where there is nothing to compare, and
    `fitted` says on how many of the page's trajectories the judge was fitted; None where nothing in it was."""

    judge: Judge
    number: int
    verdicts: Sequence[Verdict]
    counts: Counter[Outcome]
    cells: Counter[tuple[Outcome, Outcome]]  # (label, verdict)
    scored: Scored
    comparison: Agreement | str
    elsewhere: int
    fitted: Overlap | None

    @staticmethod
    def of(judge: Judge, number: int, contents: Contents, ids: set[str], tasks: dict[str, str]) -> _Column:
        # In the order of their file, as `prill agree` takes them: the intervals are drawn, and so are the same there.
        verdicts = [verdict for id, verdict in judge.verdicts.items() if id in ids]
        labels = [label for label in contents.labels if label.id in ids]
        comparison: Agreement | str
        scored: Scored = ([], [])
        try:
            pairing = pair(verdicts, labels, contents.source, contents.truth)
            comparison, scored = agreement_of(pairing, tasks), judged_scores(pairing.pairs)
        except UsageError as error:
            comparison = str(error)
        return _Column(
            judge=judge,
            number=number,
            verdicts=verdicts,
            counts=Counter(row.outcomes[number] for row in contents.rows),
            cells=Counter((row.truth, row.outcomes[number]) for row in contents.rows),
            scored=scored,
            comparison=comparison,
            elsewhere=len(judge.verdicts) - len(verdicts),
            fitted=overlap_of(verdicts),
        )


def summary(contents: Contents) -> Markup:
    """The whole view. Figures are about the trajectories in the page, and nothing else."""
    ids = {row.id for row in contents.rows}
    tasks = {row.id: row.task for row in contents.rows if row.broken is None}
    columns = [_Column.of(judge, n, contents, ids, tasks) for n, judge in enumerate(contents.judges)]
    return joined(
        _headlines(columns) if columns else None,
        _facts(contents, columns),
        _attempts(contents),
        el("section", el("h2", "Verdicts"), _verdicts(contents, columns)) if columns else _no_judges_notice(),
        _agreement(contents, columns, tasks) if columns and contents.labels else None,
        judge_pairs(contents.rows, [c.judge.name for c in columns], bool(contents.labels), _cautions(columns))
        if len(columns) > 1
        else None,
        _plots(contents, columns) if columns and contents.labels else None,
        el("section", el("h2", "Cost and latency"), spending_plot([(c.judge.name, c.verdicts) for c in columns]))
        if columns
        else None,
    )


def _headlines(columns: Sequence[_Column]) -> Markup:
    # What a judge says of runs that it was fitted on is no measure of it: it stands behind those that were measured.
    measured_first = sorted(columns, key=lambda column: column.fitted is not None and column.fitted.flatters)
    sentences = (
        headline(c.judge.name, c.comparison if isinstance(c.comparison, Agreement) else None, c.counts) for c in measured_first
    )
    return el("ul", *(el("li", sentence) for sentence in sentences), class_="headlines")


def _facts(contents: Contents, columns: Sequence[_Column]) -> Markup:
    rows = contents.rows
    truth = Counter(row.truth for row in rows)
    facts = [_fact(f"{len(rows):,}", "trajectories" if len(rows) != 1 else "trajectory")]
    labelled = len(rows) - truth[""]
    if contents.labels:
        facts.append(_fact(f"{labelled:,}", f"labelled ({contents.source})"))
        facts.append(_fact(share(truth["success"], truth["success"] + truth["failure"]), "of decided labels are success"))
    facts.append(_fact(str(len(columns)), "judges" if len(columns) != 1 else "judge"))
    broken = [row for row in rows if row.broken is not None]
    ids = {row.id for row in rows}
    notes = [f"Not readable, and shown as such: {row.broken}" for row in broken[:20]]
    if len(broken) > 20:
        notes.append(f"… and {len(broken) - 20} more lines that could not be read")
    if contents.missing:
        notes.append(f"Screenshots that are missing, or no image: {contents.missing}; the page shows their names.")
    if stray := len({label.id for label in contents.labels} - ids):
        notes.append(f"Labels that belong to no trajectory in this page, and are not counted: {stray}.")
    if truth["undecided"]:
        notes.append(f"Trajectories whose labels are undecided: {truth['undecided']}; they count in no figure.")
    notes += [f"{caution}." for caution in _cautions(columns)]
    for calibration, overlap in zip(contents.calibrations, contents.calibrated_on, strict=False):
        if caution := overlap.caution(f"The threshold of the calibration of {calibration.evaluator.name}"):
            notes.append(f"{caution}.")
    for column in columns:
        if column.elsewhere:
            notes.append(f"Verdicts of {column.judge.name} that belong to no trajectory in this page: {column.elsewhere}.")
    return joined(
        el("div", *facts, class_="facts"),
        el("ul", *(el("li", note) for note in notes), class_="notes") if notes else None,
    )


def _cautions(columns: Sequence[_Column]) -> list[str]:
    """Of the judges that were fitted on trajectories of this page, or on others of their tasks, what that means."""
    return [caution for column in columns if (caution := fitted_caution(column.judge.name, column.fitted))]


def _fact(value: str, what: str) -> Markup:
    return el("div", el("strong", value), el("span", what))


def _no_judges_notice() -> Markup:
    return el("p", "No verdict files were given: the page shows the trajectories alone.", class_="notice")


def _attempts(contents: Contents) -> Markup | None:
    """One line for each task that was tried again: what the first judge and the label say of each attempt."""
    tried: dict[int, list[Row]] = defaultdict(list)
    for row in contents.rows:
        if row.series is not None:
            tried[row.series].append(row)
    if not tried:
        return None
    most = max(len(rows) for rows in tried.values())
    lines = [_attempts_line(sorted(rows, key=lambda row: row.attempt or 0), most, contents) for rows in tried.values()]
    judge = f"what {contents.judges[0].name} says" if contents.judges else "·"
    label = f" and, round, the {contents.source} label" if contents.labels else ""
    note = f"Of each attempt {judge}{label}; ★: its answer counts. Choose an attempt to see its steps, and the lesson from it."
    heads = ("Task", *(f"Retry {number}" if number else "First" for number in range(most)), "Ended")
    return el("section", el("h2", "Attempts"), el("p", note, class_="note"), table(heads, lines, "pairs"))


def _attempts_line(rows: Sequence[Row], most: int, contents: Contents) -> Markup:
    retries = [contents.retries.get(row.id) or Retry() for row in rows]
    cells = [el("td", _attempt(row, retry, contents)) for row, retry in zip(rows, retries, strict=True)]
    cells += [el("td")] * (most - len(rows))
    ended = "no attempts left" if retries[-1].ended == "attempts" else (retries[-1].ended or "").replace("_", " ")
    return el("tr", el("th", el("span", rows[0].goal), scope="row"), *cells, el("td", ended))


def _attempt(row: Row, retry: Retry, contents: Contents) -> Markup:
    said: Outcome = row.outcomes[0] if row.outcomes else ""
    words = f"{f'retry {row.attempt}' if row.attempt else 'first attempt'}: {said or 'no verdict'}"
    dots = [el("span", _GLYPHS[said], class_=f"dot {said or 'none'}")]
    if contents.labels:
        dots.append(el("span", _GLYPHS[row.truth], class_=f"dot truth {row.truth or 'none'}"))
        words += f", label: {row.truth or 'none'}"
    if retry.answer:
        words += ", the answer that counts"
    star = "★" if retry.answer else None
    return el("a", *dots, star, href=f"#{urlencode({'t': row.id})}", class_="attempt-link", aria_label=words, title=words)


def _verdicts(contents: Contents, columns: Sequence[_Column]) -> Markup:
    heads = ("Judge", "Success", "Failure", "Unscored", "No verdict", "Share", "Calls", "Tokens", "Cost", "Median time")
    lines = [_verdict_line(column, len(contents.rows)) for column in columns]
    return table(heads, lines, "verdicts")


def _verdict_line(column: _Column, total: int) -> Markup:
    info = column.judge.info
    counts = column.counts
    reasons = Counter(v.unscored for v in column.verdicts if v.unscored is not None)
    why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    usages = [v.usage for v in column.verdicts]
    usd = [usage.usd for usage in usages if usage.usd is not None]
    total_usd = sum(usd)
    cost = (
        ""
        if not usages
        else dollars(total_usd)
        if len(usd) == len(usages)
        else f"≥ {dollars(total_usd)}"
        if total_usd
        else "unknown"
    )
    times = [v.seconds for v in column.verdicts]
    about = " · ".join(part for part in (f"{info.name} {info.version}", info.model) if part)
    return el(
        "tr",
        el("th", el("span", column.judge.name), el("small", about), scope="row"),
        *(el("td", jump(counts[outcome], column.number, outcome)) for outcome in _DECIDED),
        el("td", jump(counts["unscored"], column.number, "unscored"), el("small", why) if why else None),
        el("td", f"{counts['']:,}" if counts[""] else "0"),
        el("td", _outcome_bar(counts, total), class_="wide"),
        el("td", f"{sum(usage.calls for usage in usages):,}"),
        el("td", f"{sum(usage.prompt_tokens + usage.completion_tokens for usage in usages):,}"),
        el("td", cost),
        el("td", seconds(median(times)) if times else ""),
    )


def _outcome_bar(counts: Counter[Outcome], total: int) -> Markup:
    kinds: tuple[Outcome, ...] = ("success", "failure", "unscored", "")
    bars, x = [], 0.0
    for outcome in kinds:
        width = 160 * counts[outcome] / total if total else 0.0
        bars.append(el("rect", x=x, y=0, width=max(0.0, width - 1), height=12, class_=f"bar-{outcome or 'none'}"))
        x += width
    words = ", ".join(f"{counts[outcome]} {outcome or 'without verdict'}" for outcome in kinds if counts[outcome])
    return el("svg", *bars, viewBox="0 0 160 12", class_="stacked", role="img", aria_label=words)


def _agreement(contents: Contents, columns: Sequence[_Column], tasks: Mapping[str, str]) -> Markup:
    compared = [column for column in columns if isinstance(column.comparison, Agreement)]
    silent = [el("p", f"{c.judge.name}: {c.comparison}", class_="notice") for c in columns if isinstance(c.comparison, str)]
    names = list(dict.fromkeys(name for c in compared for name in _figures(c.comparison)))
    lines = [
        el("tr", el("th", _LOWER.get(name, name), scope="row"), *(el("td", *_figure(c.comparison, name)) for c in compared))
        for name in names
    ]
    if any(c.fitted is not None for c in compared):
        cells = (el("td", *_seen(c.comparison)) for c in compared)
        lines.append(el("tr", el("th", "of the judged, the judge was fitted on", scope="row"), *cells, class_="rule"))
    constant = [el("td", *_constant_answer(c.comparison)) for c in compared]
    lines.append(el("tr", el("th", "a constant answer, without a judge", scope="row"), *constant, class_="rule"))
    note = (
        f"Against the {contents.source} labels, judged trajectories only; in brackets 95 % intervals, whole tasks drawn. "
        "Trajectories that are unscored, or have no verdict, are no failures: they count in the last accuracy alone."
    )
    if any(
        figure.interval == "wilson" for c in compared if isinstance(c.comparison, Agreement) for figure in c.comparison.figures
    ):
        note += " *: Wilson's interval, as every draw is alike."
    if any(figure.interval == "t" for c in compared if isinstance(c.comparison, Agreement) for figure in c.comparison.figures):
        note += f" Of fewer than {FEW_CLUSTERS} tasks (intervals: Student's t) figures say little."
    return el(
        "section",
        el("h2", "Agreement with labels"),
        el("p", note, class_="note") if compared else None,
        table(("", *(c.judge.name for c in compared)), lines, "figures") if compared else None,
        *silent,
        _among_people(contents, tasks),
    )


def _among_people(contents: Contents, tasks: Mapping[str, str]) -> Markup | None:
    """What the annotators reach among themselves; None where no trajectory has two of them."""
    labels = [label for label in contents.labels if label.id in tasks]
    people = annotator_agreement(labels, contents.source, tasks) if labels else None
    if people is None:
        return None
    kappa = "undefined" if people.kappa is None else f"{people.kappa:.3f}{_bracketed_interval(people.kappa_interval)}"
    words = (
        f"Annotators among themselves, on {people.trajectories:,} trajectories with two or more: {people.raw:.3f}"
        f"{_bracketed_interval(people.raw_interval)} of the pairs are equal, Cohen's kappa {kappa}. "
        "No judge can be expected to agree with them better than they do."
    )
    return el("p", words, class_="note")


def _bracketed_interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" [{ends[0]:.3f}, {ends[1]:.3f}]"


def _figures(comparison: Agreement | str) -> dict[str, Figure]:
    """All that `prill agree` tells with a name, of agreement and of scores; none where there is nothing to compare."""
    if isinstance(comparison, str):
        return {}
    return {figure.name: figure for figure in (*comparison.figures, *comparison.scores)}


def _figure(comparison: Agreement | str, name: str) -> tuple[Markup | str, ...]:
    figure = _figures(comparison).get(name)
    if figure is None or figure.undefined:
        return (el("span", "undefined", class_="zero"),)
    if figure.low is None or figure.high is None:
        return (f"{figure.value:.3f}",)
    star = " *" if figure.interval == "wilson" else ""
    return f"{figure.value:.3f} ", el("small", f"[{figure.low:.3f}, {figure.high:.3f}]{star}")


def _seen(comparison: Agreement | str) -> tuple[Markup | str, ...]:
    overlap = None if isinstance(comparison, str) else comparison.fitted
    if overlap is None:
        return (el("span", "none", class_="zero"),)
    parts = {"": overlap.run, "unknown": overlap.unknown, "others of their tasks": overlap.task}
    words = ", ".join(f"{count:,} {what}".rstrip() for what, count in parts.items() if count)
    return (f"{words or 'none'} of {overlap.total:,}",)


def _constant_answer(comparison: Agreement | str) -> tuple[Markup | str, ...]:
    if isinstance(comparison, str):
        return ()
    return f"{comparison.majority:.3f} ", el("small", "always success" if comparison.majority_answer else "always failure")


def judge_pairs(rows: Sequence[Row], names: Sequence[str], labelled: bool, cautions: Sequence[str] = ()) -> Markup:
    """One line for each two judges: those who are unscored or silent on a trajectory differ from nobody there. `cautions` say
    which of them were fitted on these trajectories."""
    heads = ["Judges", "Both judged", "Differ"]
    note = "Choose a count to see its trajectories."
    if labelled:
        heads += ["First right", "Second right", "McNemar p"]
        note += " Right and wrong are by the decided labels; a small p says that one of the two is right more often."
        note += "".join(f" {caution}." for caution in cautions)
    lines = [_pair_line(rows, names, i, k, labelled) for i, k in combinations(range(len(names)), 2)]
    return el("section", el("h2", "Judge against judge"), el("p", note, class_="note"), table(heads, lines, "pairs"))


def _pair_line(rows: Sequence[Row], names: Sequence[str], i: int, k: int, labelled: bool) -> Markup:
    both = [
        (row.truth, row.outcomes[i], row.outcomes[k])
        for row in rows
        if row.outcomes[i] in _DECIDED and row.outcomes[k] in _DECIDED
    ]
    differing = [(truth, first) for truth, first, second in both if first != second]
    # With two judges "differ" is all there is to choose.
    other, own = (str(k), str(i)) if len(names) > 2 else ("differ", "differ")
    cells = [el("td", f"{len(both):,}"), el("td", jump(len(differing), i, among=other))]
    if labelled:
        first_right = sum(truth == first for truth, first in differing)
        second_right = sum(truth in _DECIDED and truth != first for truth, first in differing)
        p, _ = mcnemar(first_right, second_right)
        cells += [
            el("td", jump(first_right, i, among=other, against="agrees")),
            el("td", jump(second_right, k, among=own, against="agrees")),
            el("td", ("< 0.001" if p < 0.001 else f"{p:.3f}") if first_right + second_right else "–"),
        ]
    return el("tr", el("th", f"{names[i]} – {names[k]}", scope="row"), *cells)


def _plots(contents: Contents, columns: Sequence[_Column]) -> Markup:
    compared = [column for column in columns if isinstance(column.comparison, Agreement)]
    curves = [column.scored for column in compared]
    panels = []
    for i, column in enumerate(compared):
        others = [scored for k, scored in enumerate(curves) if k != i]
        own = _own_point(column)
        panels.append(
            el(
                "div",
                el("h3", column.judge.name),
                *(el("p", f"{caution}.", class_="notice") for caution in _cautions([column])),
                _confusion(column),
                reliability_plot(column.scored),
                curve_plot(column.scored, others, own, _rule(column.judge, contents)),
                class_="panels",
            )
        )
    return el("section", el("h2", "Judge by judge"), *panels)


def _own_point(column: _Column) -> tuple[float, float] | None:
    """Recall and precision of the verdicts themselves, whatever the scores."""
    hits, missed = column.cells["success", "success"], column.cells["success", "failure"]
    wrong = column.cells["failure", "success"]
    return (hits / (hits + missed), hits / (hits + wrong)) if hits else None


def _rule(judge: Judge, contents: Contents) -> Rule | None:
    """The threshold that was asked for, else that of the judge's calibration, else the one it judged by itself."""
    own = judge.info.params.get("threshold")
    threshold = contents.threshold if contents.threshold is not None else own if isinstance(own, float) else None
    calibration = next((candidate for candidate in contents.calibrations if candidate.evaluator == judge.info), None)
    if contents.threshold is None and calibration is not None:
        return Rule(
            f"calibrated score ≥ {calibration.threshold:.3g}", lambda score: calibration(score) >= calibration.threshold
        )
    return None if threshold is None else Rule(f"score ≥ {threshold:.3g}", lambda score: score >= threshold)


def _confusion(column: _Column) -> Markup:
    kinds: tuple[Outcome, ...] = ("success", "failure", "unscored")
    lines = []
    for truth in _DECIDED:
        cells = []
        for verdict in kinds:
            kind = "apart" if verdict == "unscored" else "right" if verdict == truth else "wrong"
            cells.append(el("td", jump(column.cells[truth, verdict], column.number, verdict, truth=truth), class_=kind))
        lines.append(el("tr", el("th", f"{_GLYPHS[truth]} label {truth}", scope="row"), *cells))
    heads = ("", *(f"{_GLYPHS[verdict]} {'judged ' if verdict != 'unscored' else ''}{verdict}" for verdict in kinds))
    return el("figure", table(heads, lines, "confusion"), el("figcaption", "Confusion: choose a count to see its trajectories"))
