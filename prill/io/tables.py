"""Converts verdicts to a table with one row each. Unknown values are null, never False."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prill.errors import MissingExtraError, UsageError
from prill.io.store import read_labels, read_verdicts
from prill.io.truth import gold_labels
from prill.text import printable as printable
from prill.types import LabelRecord, Usage, Verdict

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from datasets.arrow_dataset import Dataset

Cell = str | int | float | bool | None
_Path = str | os.PathLike[str]
_TYPES: dict[str, type] = {
    "id": str,
    "success": bool,
    "score": float,
    "unscored": str,
    "reason": str,
    "judge": str,
    "model": str,
    "prompt_tokens": int,
    "completion_tokens": int,
    "calls": int,
    "usd": float,
    "seconds": float,
    "fitted_on": str,
    "label": bool,
}
_ANSWERS: dict[str, type] = {
    **{"id": str, "question": str, "value": str, "step": int, "reason": str},
    **{"unscored": str, "judge": str, "model": str},
}
_MAX_ROWS, _MAX_TEXT = 100, 300  # maximum number of rows and of characters per cell in a notebook
# Spreadsheets run cells that begin with these as formulas; in some languages, the full-width forms
# count too.
_FORMULA = tuple("=+-@＝＋－＠")


def import_pandas() -> Any:
    """Imports pandas, which is needed only for data frames. Raises MissingExtraError."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas") from None
    return pandas


def data_frame(
    rows: Sequence[Mapping[str, Any] | tuple[Any, ...]], columns: Sequence[str] | None = None
) -> pandas.DataFrame:
    """Makes a pandas data frame from rows, mappings from column to cell or tuples.

    `columns` are kept even if there are no rows. Raises MissingExtraError.
    """
    return import_pandas().DataFrame(rows, columns=columns)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with named columns, as `prill.table` returns them; `types` are the columns' cell
    types.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    types: Mapping[str, type] = field(default_factory=lambda: _TYPES, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def to_rows(self) -> list[dict[str, Cell]]:
        """Returns one dictionary per row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a pandas data frame whose columns are all nullable. Raises MissingExtraError."""
        pandas = import_pandas()
        dtypes = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}
        return pandas.DataFrame(
            {
                name: pandas.array(cells, dtype=dtypes[self.types[name]])
                for name, cells in self._columns()
            },
            columns=self.columns,
        )

    def to_arrow(self) -> pyarrow.Table:
        """Returns an Arrow table. Raises MissingExtraError."""
        try:
            import pyarrow
        except ImportError:
            raise MissingExtraError("pyarrow") from None
        types = {
            str: pyarrow.string(),
            int: pyarrow.int64(),
            float: pyarrow.float64(),
            bool: pyarrow.bool_(),
        }
        return pyarrow.table(
            {name: pyarrow.array(cells, types[self.types[name]]) for name, cells in self._columns()}
        )

    def to_datasets(self) -> Dataset:
        """Returns a Hugging Face `Dataset`. Raises MissingExtraError."""
        try:
            # Import a submodule: `import datasets` alone would succeed for any folder of that name.
            from datasets.arrow_dataset import Dataset
        except ImportError:
            raise MissingExtraError("datasets") from None
        return Dataset(self.to_arrow())

    def to_csv(self) -> str:
        """Returns comma-separated values, with null as an empty cell.

        Text that a spreadsheet would run as a formula is prefixed with '.
        """
        import csv
        import io

        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(map(_csv_cell, row) for row in self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """Returns a Markdown table; line breaks and markup are escaped, and numbers have four
        digits.
        """
        return markdown_table(self.columns, self.rows) + "\n"

    def _columns(self) -> Iterator[tuple[str, list[Cell]]]:
        for index, name in enumerate(self.columns):
            yield name, [row[index] for row in self.rows]

    def _repr_html_(self) -> str:
        return _html(self.columns, self.rows)


class Tabular(ABC):
    """Base of results that can be converted to a table and a data frame."""

    @abstractmethod
    def table(self) -> Table:
        """Returns the table."""

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the table as a data frame.

        Raises:
            MissingExtraError: pandas is not installed; the message says how to install it.
        """
        return self.table().to_pandas()


class Verdicts(list[Verdict]):
    """A list of verdicts with a notebook display."""

    def table(
        self,
        labels: Iterable[LabelRecord] | _Path | None = None,
        *,
        source: str | None = None,
        truth: str = "majority",
    ) -> Table:
        """Returns a table with one row per verdict; see `prill.table`."""
        return table(self, labels, source=source, truth=truth)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a data frame with one row per verdict. Raises MissingExtraError."""
        return self.table().to_pandas()

    def _repr_html_(self) -> str:
        unscored = Counter(verdict.unscored for verdict in self if verdict.unscored is not None)
        reasons = (
            f" ({', '.join(f'{reason} {count}' for reason, count in unscored.most_common())})"
            if unscored
            else ""
        )
        successes = sum(verdict.success is True for verdict in self)
        failures = len(self) - successes - unscored.total()
        usage = sum((verdict.usage for verdict in self), start=Usage())
        spent = "cost unknown" if usage.usd is None else f"{usage.usd:.4f} USD"
        counts = (
            f"{len(self)} verdicts: {successes} success, {failures} failure, "
            f"{unscored.total()} unscored{reasons}; {spent}"
        )
        columns = ("id", "success", "score", "unscored", "reason")
        rows = ((v.id, v.success, v.score, v.unscored, v.reason) for v in self[:_MAX_ROWS])
        return f"<p>{counts}</p>{_html(columns, tuple(rows), len(self))}"


def table(
    verdicts: Iterable[Verdict] | _Path,
    labels: Iterable[LabelRecord] | _Path | None = None,
    *,
    source: str | None = None,
    truth: str = "majority",
) -> Table:
    """Makes a table with one row per verdict: trajectory, judge, reason and cost.

    Args:
        verdicts: Verdicts, or a verdict file.
        labels: Labels, or a label file. None: no column `label`.
        source: The source of labels to use. None: the only source.
        truth: The rule for annotators who disagree, as in `gold_labels`.

    Returns:
        The table. With labels it has a column `label`, null where the label is undecided or
        missing.

    Raises:
        UsageError: There are labels of several sources and `source` is None, or no label is of that
            source.
    """
    records = read_verdicts(verdicts) if isinstance(verdicts, str | os.PathLike) else verdicts
    rows = tuple(map(_row, records))
    if labels is None:
        return Table(tuple(_TYPES)[:-1], rows)
    _, truths = gold_labels(
        read_labels(labels) if isinstance(labels, str | os.PathLike) else labels, source, truth
    )
    return Table(tuple(_TYPES), tuple((*row, truths.get(str(row[0]))) for row in rows))


def answers_table(verdicts: Iterable[Verdict] | _Path) -> Table:
    """Makes a table with one row per answer of the judge `ask`.

    Args:
        verdicts: Verdicts, or a verdict file.

    Returns:
        The table. `value` is null where the answer could not be determined; an object is JSON.
        `step` counts from 1, as in the report. An unscored verdict has one row without a question.

    Raises:
        UsageError: There are verdicts, and none has answers or is unscored.
    """
    records = list(read_verdicts(verdicts) if isinstance(verdicts, str | os.PathLike) else verdicts)
    rows: list[tuple[Cell, ...]] = []
    for verdict in records:
        judge = (verdict.unscored, verdict.evaluator.name, verdict.evaluator.model)
        for answer in (verdict.findings and verdict.findings.answers) or ():
            step = None if answer.step is None else answer.step + 1
            value = _answer_cell(answer.value)
            rows.append((verdict.id, answer.question, value, step, answer.reason, *judge))
        if verdict.unscored is not None:
            rows.append((verdict.id, None, None, None, verdict.reason, *judge))
    if records and not rows:
        raise UsageError("no verdict has answers: the judge `ask` gives them")
    return Table(tuple(_ANSWERS), tuple(rows), _ANSWERS)


def _answer_cell(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False)


def _row(verdict: Verdict) -> tuple[Cell, ...]:
    usage, evaluator = verdict.usage, verdict.evaluator
    judged = (verdict.id, verdict.success, verdict.score, verdict.unscored, verdict.reason)
    tokens = (usage.prompt_tokens, usage.completion_tokens)
    spent = (*tokens, usage.calls, usage.usd, verdict.seconds)
    return (*judged, evaluator.name, evaluator.model, *spent, verdict.fitted_on)


# Cells as text: text from judges and pages must never act as a formula, markup or a terminal
# control sequence.


def _plain(cell: Cell) -> str:
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _csv_cell(cell: Cell) -> str:
    if not isinstance(cell, str):
        return _plain(cell)
    text = printable(cell, several_lines=True)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def markdown_cell(cell: Cell) -> str:
    """Returns text for a Markdown table cell or phrase, with line breaks and markup escaped."""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    text = re.sub(r"([\\|`\[\]*])", r"\\\1", printable(_plain(cell)))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Returns a Markdown table, without a line break at its end."""
    lines = [columns, ["---"] * len(columns), *(map(markdown_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code_block(title: str, text: str) -> str:
    """Returns text as a Markdown section with a code block, in which nothing is markup."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"## {title}\n\n{fence}text\n{text}\n{fence}\n"


def _html(columns: Sequence[str], rows: Sequence[Sequence[Cell]], total: int | None = None) -> str:
    from html import escape

    def cell(value: Cell) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else _plain(value)
        return f"<td>{escape(text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + '…')}</td>"

    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows[:_MAX_ROWS])
    more = (len(rows) if total is None else total) - _MAX_ROWS
    rest = f"<p>… and {more} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


class VerdictFile:
    """A result whose verdicts are in a file, `output`, including those of earlier runs."""

    output: str

    def verdicts(self) -> Verdicts:
        """Returns the verdicts in the file, including those of earlier runs."""
        return Verdicts(read_verdicts(self.output))

    def to_pandas(self) -> Any:
        """Returns the verdicts as a pandas DataFrame."""
        return self.verdicts().to_pandas()
