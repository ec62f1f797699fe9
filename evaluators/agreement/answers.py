"""Agreement of the answers of the judge `ask` with the answers in labels.

Yes/no answers and labels: share of equal answers, and Cohen's kappa for several categories (Educ.
Psychol. Meas. 20, 1960, 37). Numbers: share of equal numbers, mean absolute error, Pearson's
correlation, and Lin's concordance correlation (Biometrics 45, 1989, 255), which also falls where
the judge's numbers are shifted or scaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import InputError, UnparsableError, UsageError
from prill.evaluators.agreement.agreement import figure_table, name_figures
from prill.evaluators.agreement.figure import HEADING, Figure, about_intervals, figure_row
from prill.evaluators.labels import cluster, latest_verdicts
from prill.evaluators.metrics import choose_method, intervals, sum_clusters
from prill.evaluators.questions import NUMBER, YES_NO, Question
from prill.io.joining import NOTHING_LEFT_OUT, JoinCounts
from prill.io.tables import Table, Tabular, printable
from prill.io.truth import RULES, collect_labels
from prill.types import EvaluatorInfo, LabelRecord, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["yes/no", "number", "label"]
Value = bool | int | float | str
EXACT, ERROR, CORRELATION, CONCORDANCE = (
    "equal",
    "mean absolute error",
    "correlation",
    "concordance (Lin)",
)
_KAPPA, _AS_WRONG = "kappa", "equal, unscored as wrong"
_MAX_NAMES = 5


@dataclass(frozen=True, kw_only=True)
class AnswerAgreement:
    """The agreement on one question, or on one field of its answers.

    Args:
        question: The question; of a dataclass with the field, `Order? / price`.
        kind: The type of the answers.
        compared: The number of runs with an answer of the judge and one of the labels.
        figures: The figures, with 95 % intervals: `equal` and, for a number, `mean absolute error`,
            `correlation` and `concordance (Lin)`, else `kappa`; last `equal, unscored as wrong`.
        majority: The share of the most frequent true answer among the compared runs, in [0, 1];
            None for a number.
        majority_answer: The most frequent true answer.
        cannot_tell: The number of runs on which the judge could not tell the answer.
        unscored: The number of runs whose verdict is unscored and has no answers, by reason.
        missing: The number of runs with a true answer and no verdict.
        undecided: The number of runs whose annotators could not tell, or differ.
        clusters: The number of independent groups that the intervals resample.
    """

    question: str
    kind: Kind
    compared: int
    figures: tuple[Figure, ...]
    majority: float | None = None
    majority_answer: str | None = None
    cannot_tell: int = 0
    unscored: Mapping[str, int]
    missing: int = 0
    undecided: int = 0
    clusters: int = 0

    def figure(self, name: str) -> Figure:
        """Returns a figure by its name. Raises KeyError if there is no such figure."""
        try:
            return next(figure for figure in self.figures if figure.name == name)
        except StopIteration:
            raise KeyError(name) from None


@dataclass(frozen=True, kw_only=True)
class AnswersAgreement(Tabular):
    """The agreement of a judge's answers with labels; printing it shows all questions.

    Args:
        evaluator: The judge.
        source: The source of the labels.
        truth: The rule for annotators who differ.
        questions: The agreement on each question, in the judge's order.
        labelled: The number of trajectories with answers in the labels.
        clustered_by: The type of the groups.
        unasked: The questions in the labels that the judge was not asked.
        unlabelled: The judge's questions without an answer in the labels.
        joined: The numbers of runs without a verdict, and of verdicts and labels of other runs.
    """

    evaluator: EvaluatorInfo
    source: str
    truth: str
    questions: tuple[AnswerAgreement, ...]
    labelled: int
    clustered_by: Literal["task", "trajectory"]
    unasked: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()
    joined: JoinCounts = NOTHING_LEFT_OUT

    def table(self) -> Table:
        """Returns a row per question and figure: value, 95 % interval and method."""
        tables = [(one.question, figure_table(one.figures)) for one in self.questions]
        columns = ("question", *tables[0][1].columns)
        rows = tuple((question, *row) for question, table in tables for row in table.rows)
        return Table(columns, rows, {"question": str, **tables[0][1].types})

    def __str__(self) -> str:
        return "\n".join(_page(self))


@dataclass(frozen=True, slots=True)
class _Item:
    """One question on one run: the judge's answer and the true one.

    `state` says why there is no answer of the judge: `cannot tell`, `missing`, or the reason why
    the verdict is unscored. A true answer of None is undecided.
    """

    id: str
    predicted: Value | None
    truth: Value | None
    state: str = ""


def measure_answers(
    verdicts: Iterable[Verdict],
    labels: Iterable[LabelRecord],
    source: str | None = None,
    truth: str = "majority",
    tasks: Mapping[str, str] | None = None,
) -> AnswersAgreement:
    """Compares the answers of the judge `ask` with those of labels.

    Args:
        verdicts: The verdicts of one judge; of several on an id, the last counts.
        labels: The labels; those with `answers` count.
        source: The source of labels to use. None: the only source.
        truth: The rule for annotators who differ, as in `gold_labels`. With `majority`, the truth
            about a number is the median.
        tasks: The task of each trajectory id; intervals then resample tasks. None: trajectories.

    Returns:
        The figures of each question.

    Raises:
        UsageError: The verdicts or the labels have no answers, or no question is in both.
        InputError: A label has an answer of another type than the question's.
    """
    source, by_id = collect_labels([label for label in labels if label.answers], source, truth)
    if not by_id:
        raise UsageError("no label has answers to questions", parameters=("labels",))
    evaluator, latest = latest_verdicts(verdicts)
    questions = _questions(evaluator, latest.values())
    if not questions:
        raise UsageError(
            "the verdicts have no answers to questions; use the judge `ask`",
            parameters=("verdicts",),
        )
    known = {text for records in by_id.values() for r in records for text in r.answers or {}}
    common = [text for text in questions if text in known]
    if not common:
        raise UsageError(
            f"the judge and the labels answer different questions: {next(iter(questions))!r} and "
            f"{min(known)!r}"
        )
    if not latest.keys() & by_id.keys():
        raise UsageError(
            f"verdicts and labels have no id in common: a verdict has {next(iter(latest))!r}, a "
            f"label has {next(iter(by_id))!r}"
        )
    parts = [
        part
        for text in common
        for part in _measure_question(text, questions[text], latest, by_id, truth, tasks)
    ]
    return AnswersAgreement(
        evaluator=evaluator,
        source=source,
        truth=truth,
        questions=tuple(parts),
        labelled=len(by_id),
        clustered_by="trajectory" if tasks is None else "task",
        unasked=tuple(sorted(known - questions.keys())),
        unlabelled=tuple(text for text in questions if text not in known),
    )


def _questions(evaluator: EvaluatorInfo, verdicts: Iterable[Verdict]) -> dict[str, Question | None]:
    """Returns the judge's questions by text; None: the type is known from the answers only."""
    found: dict[str, Question | None] = {}
    questions = evaluator.params.get("questions")
    for one in questions if isinstance(questions, list | tuple) else ():
        if isinstance(one, Mapping) and isinstance(text := one.get("question"), str):
            answer = one.get("answer")
            known = answer in (YES_NO, NUMBER) if isinstance(answer, str) else False
            if known:
                found[text] = Question(text, str(answer))
            elif isinstance(answer, list | tuple):
                found[text] = Question(text, tuple(map(str, answer)))
            else:
                found[text] = None
    for verdict in verdicts:
        for one in (verdict.findings and verdict.findings.answers) or ():
            found.setdefault(one.question, None)
    return found


def _measure_question(
    text: str,
    question: Question | None,
    latest: Mapping[str, Verdict],
    by_id: Mapping[str, Sequence[LabelRecord]],
    truth: str,
    tasks: Mapping[str, str] | None,
) -> Iterator[AnswerAgreement]:
    """Yields the agreement on a question, or on each field of its answers."""
    by_question: dict[str, dict[str, Value | None]] = {}
    states: dict[str, str] = {}
    votes: dict[str, list[tuple[str | None, dict[str, Value | None]]]] = {}
    for id, records in by_id.items():
        answered = [r for r in records if r.answers and text in r.answers]
        if not answered:
            continue
        votes[id] = [(r.annotator, _fields(text, question, r, id)) for r in answered]
        states[id], by_question[id] = _answer(latest.get(id), text)
    names = sorted({name for one in votes.values() for _, part in one for name in part})
    fields = [name for name in names if name] or [""]
    for name in fields:
        items = []
        for id, cast in votes.items():
            value = by_question[id].get(name)
            state = states[id] or ("cannot tell" if value is None else "")
            items.append(
                _Item(
                    id, value, _decide([(who, part.get(name)) for who, part in cast], truth), state
                )
            )
        title = f"{text} / {name}" if name else text
        yield _measure(title, _kind(question, items), items, tasks)


def _fields(
    text: str, question: Question | None, record: LabelRecord, id: str
) -> dict[str, Value | None]:
    """Returns a label's answer by field; a plain answer has the field "". Raises InputError."""
    answers = record.answers or {}
    value = answers[text]
    if question is not None:
        try:
            read = question.read(value)
        except UnparsableError as error:
            raise InputError(f"the label of {id!r}: {error}") from None
        assert read is None or isinstance(read, Value)
        return {"": read}
    return split_answer(value)


def split_answer(value: object) -> dict[str, Value | None]:
    """Returns an answer by field; a plain answer has the field "", which is None if undecided."""
    if isinstance(value, dict):
        return {
            name: part if isinstance(part, Value) else None if part is None else repr(part)
            for name, part in value.items()
        }
    assert value is None or isinstance(value, Value)
    return {"": value}


def _answer(verdict: Verdict | None, text: str) -> tuple[str, dict[str, Value | None]]:
    """Returns why the judge has no answer ("": it has one), and the answer by field."""
    if verdict is None:
        return "missing", {}
    answers = (verdict.findings and verdict.findings.answers) or ()
    answer = next((one for one in answers if one.question == text), None)
    if answer is None:
        return verdict.unscored or "missing", {}
    return "", split_answer(answer.value)


def _decide(votes: Sequence[tuple[str | None, Value | None]], truth: str) -> Value | None:
    """Applies a rule to the answers of the annotators; None: undecided.

    An annotator who gave several answers has none.
    """
    by_annotator: dict[str, set[Value]] = {}
    first: Value | None = None
    for i, (who, value) in enumerate(votes):
        if value is None:
            continue
        first = value if first is None else first
        by_annotator.setdefault(who or f"\0{i}", set()).add(value)
    values = {who: next(iter(found)) for who, found in by_annotator.items() if len(found) == 1}
    if truth == "first":
        return first
    if truth not in RULES:
        return values.get(truth)
    counts = Counter(values.values()).most_common()
    if not counts or (truth == "unanimous" and len(counts) > 1):
        return None
    if len(counts) > 1 and all(_is_number(value) for value in values.values()):
        return median(values.values())  # type: ignore[type-var]
    return None if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(question: Question | None, items: Sequence[_Item]) -> Kind:
    if question is not None:
        return (
            "label"
            if isinstance(question.answer, tuple)
            else "number"
            if question.answer == NUMBER
            else "yes/no"
        )
    values = [v for item in items for v in (item.predicted, item.truth) if v is not None]
    if values and all(isinstance(value, bool) for value in values):
        return "yes/no"
    return "number" if values and all(map(_is_number, values)) else "label"


def _measure(
    title: str, kind: Kind, items: Sequence[_Item], tasks: Mapping[str, str] | None
) -> AnswerAgreement:
    decided = [item for item in items if item.truth is not None]
    both = [item for item in decided if not item.state]
    states = Counter(item.state for item in decided if item.state)
    counts = Counter(_shown(item.truth) for item in both)
    measured = _number_figures if kind == "number" else _label_figures
    result = AnswerAgreement(
        question=title,
        kind=kind,
        compared=len(both),
        figures=measured(decided, tasks),
        clusters=len({cluster(item.id, tasks) for item in decided}),
        cannot_tell=states.pop("cannot tell", 0),
        missing=states.pop("missing", 0),
        unscored=dict(states.most_common()),
        undecided=len(items) - len(decided),
    )
    if kind == "number" or not both:
        return result
    answer, count = counts.most_common(1)[0]
    return replace(result, majority=count / len(both), majority_answer=answer)


def _shown(value: Value | None) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _ratios(
    items: Sequence[_Item],
    tasks: Mapping[str, str] | None,
    values: Sequence[Sequence[float]],
    names: Sequence[str],
    statistic: Callable[[NDArray[Any]], NDArray[Any]],
    least: Sequence[float],
    span: float = 1.0,
) -> tuple[Figure, ...]:
    """Returns figures that are ratios of sums of the values, whose first two are equal and compared
    answers. The second figure is multiplied by `span`.
    """
    table = sum_clusters([cluster(item.id, tasks) for item in items], values)
    ends = (statistic(table.sum(axis=0, keepdims=True))[0], *intervals(table, statistic, least))
    for end in ends:
        end[1] *= span
    trials = {EXACT: int((table[:, 1] > 0).sum()), _AS_WRONG: len(table)}
    return name_figures(names, *ends, trials, choose_method(len(table)))


def _label_figures(items: Sequence[_Item], tasks: Mapping[str, str] | None) -> tuple[Figure, ...]:
    """Returns the share of equal answers, kappa, and the share with missing answers as wrong."""
    import numpy as np

    names = (EXACT, _KAPPA, _AS_WRONG)
    if not items:
        return tuple(Figure(name, 0.0, undefined=True) for name in names)
    kinds = {value: i for i, value in enumerate(_categories(items))}
    count = len(kinds)
    values = []
    for item in items:
        # equal, compared, all; then the judge's and the true answers by category
        row = [0.0] * (3 + 2 * count)
        row[2] = 1
        if not item.state and item.predicted is not None and item.truth is not None:
            row[0], row[1] = float(_category(item.predicted) == _category(item.truth)), 1
            row[3 + kinds[_category(item.predicted)]] = 1
            row[3 + count + kinds[_category(item.truth)]] = 1
        values.append(row)

    def statistic(sums: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(divide="ignore", invalid="ignore"):
            equal = sums[:, 0] / sums[:, 1]
            judged_counts, label_counts = sums[:, 3 : 3 + count], sums[:, 3 + count :]
            chance = (judged_counts * label_counts).sum(axis=1) / sums[:, 1] ** 2
            kappa = np.where(chance < 1, (equal - chance) / (1 - chance), np.nan)
            return np.stack([equal, kappa, sums[:, 0] / sums[:, 2]], axis=1)

    return _ratios(items, tasks, values, names, statistic, (0.0, -1.0, 0.0))


def _category(value: Value) -> str:
    return f"{type(value).__name__} {value}"


def _categories(items: Iterable[_Item]) -> list[str]:
    return sorted({_category(v) for i in items for v in (i.predicted, i.truth) if v is not None})


def _number_figures(items: Sequence[_Item], tasks: Mapping[str, str] | None) -> tuple[Figure, ...]:
    """Returns the figures of numbers.

    They are ratios of sums over the runs, so that clusters can be resampled. Errors are divided by
    the range of all numbers, so that every figure is in [-1, 1], and multiplied again at the end.
    """
    import numpy as np

    names = (EXACT, ERROR, CORRELATION, CONCORDANCE, _AS_WRONG)
    if not items:
        return tuple(Figure(name, 0.0, undefined=True) for name in names)
    pairs = [
        (float(i.predicted), float(i.truth))
        if not i.state and i.predicted is not None and i.truth is not None
        else None
        for i in items
    ]
    numbers = [value for pair in pairs if pair for value in pair]
    least = min(numbers, default=0.0)
    span = (max(numbers, default=0.0) - least) or 1.0
    values = []
    for pair in pairs:
        row = [0.0] * 9
        row[2] = 1
        if pair:
            x, y = ((value - least) / span for value in pair)
            row[:2] = [float(pair[0] == pair[1]), 1]
            row[3:] = [abs(x - y), x, y, x * x, y * y, x * y]
        values.append(row)

    def statistic(sums: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(divide="ignore", invalid="ignore"):
            n = sums[:, 1]
            x, y, xx, yy, xy = (sums[:, i] / n for i in range(4, 9))
            var_x, var_y, cov = xx - x * x, yy - y * y, xy - x * y
            varied = (var_x > _NO_VARIANCE) & (var_y > _NO_VARIANCE)
            spread = var_x + var_y + (x - y) ** 2
            columns = [
                sums[:, 0] / n,
                sums[:, 3] / n,
                np.where(varied, np.clip(cov / np.sqrt(var_x * var_y), -1, 1), np.nan),
                np.where(spread > _NO_VARIANCE, 2 * cov / spread, np.nan),
                sums[:, 0] / sums[:, 2],
            ]
        return np.stack(columns, axis=1)

    return _ratios(items, tasks, values, names, statistic, (0.0, 0.0, -1.0, -1.0, 0.0), span)


_NO_VARIANCE = 1e-12  # of numbers in [0, 1]: rounding


def _page(result: AnswersAgreement) -> Iterator[str]:
    yield f"Judge: {printable(result.evaluator.title)}"
    yield f"Labels: {printable(result.source)}, {result.labelled} trajectories with answers"
    if result.truth != "majority":
        yield f"Truth: {RULES.get(result.truth, f'the labels of {printable(result.truth)}')}"
    for one in result.questions:
        yield from ("", f"{printable(one.question)} ({one.kind}, {one.compared} compared)", HEADING)
        yield from map(figure_row, one.figures)
        if one.majority is not None:
            constant = printable(f"always {one.majority_answer}")[:18]
            yield f"{constant + ' (no judge)':<29}{one.majority:>7.3f}"
        counts = {
            "the judge cannot tell": one.cannot_tell,
            **{f"unscored: {reason}": count for reason, count in one.unscored.items()},
            "without a verdict": one.missing,
            "undecided labels": one.undecided,
        }
        if any(counts.values()):
            yield "Not compared: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n)
        yield from about_intervals(one.figures, one.clusters, result.clustered_by)
    if any(result.joined.lines()) or result.unasked or result.unlabelled:
        yield ""
    yield from result.joined.lines()
    for what, questions in (
        ("The judge was not asked", result.unasked),
        ("Without an answer in the labels", result.unlabelled),
    ):
        if questions:
            more = len(questions) - _MAX_NAMES
            listed = "; ".join(map(printable, questions[:_MAX_NAMES]))
            yield f"{what}: {listed}" + (f"; and {more} more" if more > 0 else "")
