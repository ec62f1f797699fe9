"""A figure with its interval, and its formatting as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prill.evaluators.metrics import DRAWS, FEW_CLUSTERS, Method, choose_method
from prill.io.tables import printable

HEADING = f"{'':<29}{'value':>7}   95 % interval"
_NAME = 44  # characters of a row's name, at most
_MAX_ROWS, _MAX_SMALL = 30, 5  # of a table of parts: all, and those that are too small


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % interval.

    Args:
        name: The figure's name.
        value: The figure.
        low: The lower end of the interval. None: there is no interval.
        high: The upper end of the interval. None: there is no interval.
        interval: The method. `bootstrap` resamples whole clusters; `t` is the jackknife for fewer
            than 20 clusters; `wilson` is for a share without variance between clusters, such as 0
            or 1; `beta` is for rates estimated from some labels (`estimate_rate`). None: there is
            no interval.
        undefined: The denominator is 0, and `value` is 0 by convention.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    interval: Method | Literal["wilson", "beta"] | None = None
    undefined: bool = False

    @property
    def ends(self) -> tuple[float, float] | None:
        """Returns both ends of the interval; None without an interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def __str__(self) -> str:
        if self.undefined:
            return f"{self.name} is undefined"
        ends = f" (95 % interval {interval(self.ends)})" if self.ends else ""
        return f"{self.name} {self.value:.3f}{ends}"


# A cell of a table as text: "-" stands for None and for an undefined figure.
FigureCell = Figure | str | float | None


def figure_row(figure: Figure, name: str | None = None) -> str:
    """Returns a line of a table of figures: name, value and interval."""
    return value_row(
        name or figure.name, figure, "undefined" if figure.undefined else marked_interval(figure)
    )


def value_row(name: str, value: FigureCell, note: str = "") -> str:
    """Returns a line of a table of figures, with a note in place of the interval."""
    return f"{name:<29}{_text(value):>7}   {note}".rstrip()


def marked_interval(figure: Figure) -> str:
    """Formats the interval of a figure, with an asterisk if it is Wilson's."""
    return interval(figure.ends) + " *" * (figure.interval == "wilson")


def text_table(heading: Sequence[str], rows: Iterable[Sequence[FigureCell]]) -> Iterator[str]:
    """Yields the lines of a table; columns with texts are aligned to the left, others to the
    right.
    """
    cells = list(rows)
    lines = [list(map(_text, row)) for row in (heading, *cells)]
    for line in lines:
        line[0] = line[0] if len(line[0]) <= _NAME else f"{line[0][: _NAME - 1]}…"
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [
        "<" if any(isinstance(row[i], str) and row[i] for row in cells) else ">"
        for i in range(len(heading))
    ]
    for line in lines:
        parts = zip(line, sides, widths, strict=True)
        yield "  ".join(f"{text:{side}{width}}" for text, side, width in parts).rstrip()


def part_table(
    heading: Sequence[str],
    parts: Sequence[Any],
    cells: Callable[[Any], Sequence[FigureCell]],
    few: str,
) -> Iterator[str]:
    """Yields a table of the parts of a figure; of the parts that are too small, the first few.

    Args:
        heading: The titles of the columns; the mark of a small part gets one more.
        parts: The parts, the most important first; `small` says that one is too small.
        cells: Makes the cells of a part.
        few: What makes a part too small.
    """
    rows = {False: _MAX_ROWS, True: _MAX_SMALL}
    shown: list[Any] = []
    for part in parts:
        rows[part.small] -= 1
        shown += [part] if rows[part.small] >= 0 else []
    yield from text_table((*heading, ""), ((*cells(p), "!" if p.small else "") for p in shown))
    if left := -min(rows[False], 0):
        yield f"… and {left} more; the JSON output lists all"
    if any(part.small for part in parts):
        more = -min(rows[True], 0)
        rest = f"; {more} more such parts are in the JSON output" if more else ""
        yield f"! {few}: unreliable{rest}"


def _text(cell: FigureCell) -> str:
    if isinstance(cell, Figure):
        cell = None if cell.undefined else cell.value
    if isinstance(cell, float):
        return f"{cell:.3f}"
    return "-" if cell is None else printable(str(cell))


def interval(ends: tuple[float, float] | None) -> str:
    """Formats both ends of an interval."""
    return "-" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def about_intervals(figures: Sequence[Figure], clusters: int, clustered_by: str) -> Iterator[str]:
    """Yields lines that describe the method of a table's intervals."""
    units = "tasks" if clustered_by == "task" else "trajectories"
    few = choose_method(clusters) == "t"
    how = (
        f"t, leaving out one of {clusters} {units} at a time"
        if few
        else f"bootstrap over {clusters} {units}, {DRAWS} draws"
    )
    marks = (
        "; * Wilson, as it is the same in every draw"
        if any(figure.interval == "wilson" for figure in figures)
        else ""
    )
    yield f"Intervals: {how}{marks}"
    if few:
        yield (
            f"Warning: fewer than {FEW_CLUSTERS} {units}; such figures are unreliable, "
            "whatever their intervals"
        )
