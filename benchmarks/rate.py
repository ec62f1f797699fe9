"""Measures coverage and width of the intervals of `prill rate` on simulated runs:
`python benchmarks/rate.py [sets] [normal]`.

`normal` takes the quantile of the normal distribution instead of Student's t, which is narrower.

600 runs of 120 tasks, whose success rates differ (correlation of a task's runs 0.3); labels on a
random part of the runs. A judge has one sensitivity and specificity for all tasks.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from prill.evaluators.meta import rate
from prill.evaluators.meta.figure import Figure
from prill.evaluators.meta.rate import RateEstimate, estimate_rate

_MANY = 1_000_000  # degrees of freedom, at which Student's t is normal
RUNS, TASKS, WITHIN = 600, 120, 0.3
JUDGES = {"perfect": (1.0, 1.0), "good": (0.9, 0.9), "fair": (0.8, 0.7), "chance": (0.5, 0.5)}
LABELS = (10, 30, 100, 300)
ESTIMATES = ("ppi", "rogan_gladen", "labels_alone")


@dataclass(frozen=True)
class Row:
    """The share of intervals that hold the truth, and their mean width, of each estimate."""

    held: tuple[float, ...]
    width: tuple[float, ...]


def main() -> None:
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    if sys.argv[2:] == ["normal"]:
        ends = rate._ends
        rate._ends = lambda centre, variance, groups, n: ends(centre, variance, groups + _MANY, n)
    print(
        "| rate | judge | labels | PPI++ | Rogan-Gladen | labels alone |\n|---|---|---|---|---|---|"
    )
    for truth in (0.3, 0.1):
        for name, quality in JUDGES.items():
            for labels in LABELS:
                row = simulate(truth, quality, labels, sets)
                cells = (f"{h:.3f}, {w:.3f}" for h, w in zip(row.held, row.width, strict=True))
                print(f"| {truth} | {name} | {labels} | {' | '.join(cells)} |")


def simulate(truth: float, quality: tuple[float, float], labels: int, sets: int) -> Row:
    """Draws `sets` sets of runs, verdicts and labels. An undefined figure is in no share."""
    generator = np.random.default_rng(labels)
    held = [list[bool]() for _ in ESTIMATES]
    widths = [list[float]() for _ in ESTIMATES]
    for _ in range(sets):
        estimate = draw(generator, truth, quality, labels)
        for place, name in enumerate(ESTIMATES):
            figure: Figure = getattr(estimate, name)
            if figure.low is not None and figure.high is not None:
                held[place].append(figure.low <= truth <= figure.high)
                widths[place].append(figure.high - figure.low)
    return Row(tuple(map(mean, held)), tuple(map(mean, widths)))


def mean(values: list[bool] | list[float]) -> float:
    """Returns the mean; NaN for an empty sequence."""
    return float(np.mean(values)) if values else float("nan")


def draw(
    generator: np.random.Generator, truth: float, quality: tuple[float, float], labels: int
) -> RateEstimate:
    """Computes the estimate from one set of runs."""
    weight = (1 - WITHIN) / WITHIN
    chances = generator.beta(truth * weight, (1 - truth) * weight, size=TASKS)
    tasks = np.arange(RUNS) % TASKS
    success = generator.random(RUNS) < chances[tasks]
    right = generator.random(RUNS) < np.where(success, *quality)
    known = set(generator.permutation(RUNS)[:labels].tolist())
    return estimate_rate(
        (success == right).tolist(),
        [outcome if run in known else None for run, outcome in enumerate(success.tolist())],
        tasks.tolist(),
    )


if __name__ == "__main__":
    main()
