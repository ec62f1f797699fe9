"""Verdicts as a table, one row each, for data frames. Unknown values are null, never False."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prill.errors import MissingExtraError
from prill.io.store import read_labels, read_verdicts
from prill.io.truth import gold_labels
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
_MAX_ROWS, _MAX_TEXT = 100, 300  # of a table in a notebook, and of a cell in it
# Control characters, line separators, and those that turn the direction of the text around them.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
# Spreadsheets run cells that begin so; the wide forms are taken for the plain ones in some
# languages.
_FORMULA = tuple("=+-@＝＋－＠")


def import_pandas() -> Any:
    """Imports pandas, which only data frames need. Raises MissingExtraError."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas") from None
    return pandas


def data_frame(
    rows: Sequence[Mapping[str, Any] | tuple[Any, ...]], columns: Sequence[str] | None = None
) -> pandas.DataFrame:
    """Makes a data frame of rows.

    Args:
        rows: A mapping from column to cell for each row.
        columns: The columns; None: those of the rows. They are there also when there are no rows.

    Returns:
        A pandas data frame.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    return import_pandas().DataFrame(rows, columns=columns)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns, as `prill.table` makes them; `types` has the type of each column's
    cells.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    types: Mapping[str, type] = field(default_factory=lambda: _TYPES, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def to_rows(self) -> list[dict[str, Cell]]:
        """One dictionary a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame; all columns are of types that can be null. Raises MissingExtraError."""
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
        """An Arrow table. Raises MissingExtraError."""
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
        """A data set of Hugging Face's `datasets`. Raises MissingExtraError."""
        try:
            # Of `datasets` alone any folder of that name would do.
            from datasets.arrow_dataset import Dataset
        except ImportError:
            raise MissingExtraError("datasets") from None
        return Dataset(self.to_arrow())

    def to_csv(self) -> str:
        """Comma-separated values: null is an empty cell; text that a spreadsheet would run as a
        formula begins with '.
        """
        import csv
        import io

        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(map(_csv_cell, row) for row in self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """A Markdown table with its line breaks and markup escaped; numbers have four digits."""
        lines = [
            self.columns,
            ["---"] * len(self.columns),
            *(map(markdown_cell, row) for row in self.rows),
        ]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _columns(self) -> Iterator[tuple[str, list[Cell]]]:
        for place, name in enumerate(self.columns):
            yield name, [row[place] for row in self.rows]

    def _repr_html_(self) -> str:
        return _html(self.columns, self.rows)


class Tabular(ABC):
    """A result with a table, and so a data frame."""

    @abstractmethod
    def table(self) -> Table:
        """The table."""

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a data frame.

        Raises:
            MissingExtraError: pandas is not installed; the message says how to install it.
        """
        return self.table().to_pandas()


class Verdicts(list[Verdict]):
    """A list of verdicts that shows itself in a notebook."""

    def table(
        self,
        labels: Iterable[LabelRecord] | _Path | None = None,
        *,
        source: str | None = None,
        truth: str = "majority",
    ) -> Table:
        """One row a verdict; see `prill.table`."""
        return table(self, labels, source=source, truth=truth)

    def to_pandas(self) -> pandas.DataFrame:
        """One row a verdict, as a data frame. Raises MissingExtraError."""
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
    """Makes a table with one row a verdict: what was judged, by whom, why, and the cost.

    Args:
        verdicts: Verdicts, or a verdict file.
        labels: Labels, or a label file. None: no column `label`.
        source: Which source of labels to use. None: the only one there is.
        truth: The rule for annotators who differ, as in `gold_labels`.

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


def _row(verdict: Verdict) -> tuple[Cell, ...]:
    usage, evaluator = verdict.usage, verdict.evaluator
    judged = (verdict.id, verdict.success, verdict.score, verdict.unscored, verdict.reason)
    tokens = (usage.prompt_tokens, usage.completion_tokens)
    spent = (*tokens, usage.calls, usage.usd, verdict.seconds)
    return (*judged, evaluator.name, evaluator.model, *spent, verdict.fitted_on)


# Cells as text: what judges and pages say is data in every form, never a formula, markup or a
# terminal's control sequence.


def printable(text: str) -> str:
    """The text on one line, without anything that a terminal would obey."""
    return _CONTROL.sub("?", re.sub(r"\s*[\r\n\t]\s*", " ", text))


def _plain(cell: Cell) -> str:
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _csv_cell(cell: Cell) -> str:
    if not isinstance(cell, str):
        return _plain(cell)
    text = _CONTROL.sub("?", re.sub("\r\n?", "\n", cell))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def markdown_cell(cell: Cell) -> str:
    """A cell of a Markdown table, also a phrase elsewhere: line breaks and markup are escaped."""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    text = re.sub(r"([\\|`\[\]*])", r"\\\1", printable(_plain(cell)))
    return text.replace("&", "&amp;").replace("<", "&lt;")


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
