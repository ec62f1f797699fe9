"""A figure with its interval, and its formatting as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from prill.evaluators.metrics import DRAWS, FEW_CLUSTERS, Method, choose_method

HEADING = f"{'':<29}{'value':>7}   95 % interval"


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

    def __str__(self) -> str:
        if self.undefined:
            return f"{self.name} is undefined"
        ends = (
            f" (95 % interval {interval((self.low, self.high))})"
            if self.low is not None and self.high is not None
            else ""
        )
        return f"{self.name} {self.value:.3f}{ends}"


def figure_ends(figure: Figure) -> tuple[float, float, float]:
    """Returns the value and the ends of its interval; the value itself without an interval."""
    low, high = figure.low, figure.high
    return (
        figure.value,
        figure.value if low is None else low,
        figure.value if high is None else high,
    )


def figure_row(figure: Figure, name: str | None = None) -> str:
    """Returns a line of a table of figures: name, value and interval."""
    title = name or figure.name
    if figure.undefined:
        return f"{title:<29}{'-':>7}   undefined"
    star = " *" if figure.interval == "wilson" else ""
    both = None if figure.low is None or figure.high is None else (figure.low, figure.high)
    return f"{title:<29}{figure.value:>7.3f}   {interval(both)}{star}"


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
