"""Measures coverage and width of the intervals of `prill rate` on simulated runs:
`python benchmarks/rate.py`.

600 runs of 120 (or other) tasks; labels on a random part of the runs. A task's runs are independent
(correlation 0), or the tasks' success rates differ (correlation 0.3). A judge has one sensitivity
and specificity for all tasks. A cell has the share of 95 % intervals that hold the success rate,
and their mean width. `--pseudo` replaces the weight of the pseudo-pairs.
"""

from __future__ import annotations

import argparse

import numpy as np

from prill.evaluators.agreement import rate as module
from prill.evaluators.agreement.figure import Figure
from prill.evaluators.agreement.rate import RateEstimate, estimate_rate

RUNS = 600
JUDGES = {"perfect": (1.0, 1.0), "good": (0.9, 0.9), "fair": (0.8, 0.7), "chance": (0.5, 0.5)}
ESTIMATES = ("ppi", "labels_alone", "rogan_gladen")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=120)
    parser.add_argument("--labels", type=int, nargs="+", default=[10, 30, 100, 300])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.9])
    parser.add_argument("--correlations", type=float, nargs="+", default=[0.0, 0.3])
    parser.add_argument("--pseudo", type=float, default=module._PSEUDO)
    args = parser.parse_args()
    module._PSEUDO = args.pseudo
    columns = [(correlation, rate) for correlation in args.correlations for rate in args.rates]
    rows = [(judge, labels) for judge in JUDGES for labels in args.labels]
    cells = {
        (*row, *column): simulate(row, column, args.sets, args.tasks)
        for row in rows
        for column in columns
    }
    for place, name in enumerate(ESTIMATES):
        titles = [f"{rate:g}, corr. {correlation:g}" for correlation, rate in columns]
        print(f"\n| {' | '.join([name, 'labels', *titles])} |\n|{'---|' * (2 + len(columns))}")
        # labels alone are the same with every judge
        shown_rows = rows[: len(args.labels)] if name == "labels_alone" else rows
        for row in shown_rows:
            found = [cells[(*row, *column)][place] for column in columns]
            shown = (f"{held:.3f}/{width:.3f}".replace("0.", ".") for held, width in found)
            print(f"| {' | '.join([row[0], str(row[1]), *shown])} |")
        held = np.array(
            [cells[(*row, *column)][place][0] for row in shown_rows for column in columns]
        )
        print(
            f"\n{name}: {len(held)} cells, {(held < 0.93).sum()} below .93, "
            f"{(held > 0.97).sum()} above .97, mean {np.nanmean(held):.3f}"
        )


def simulate(
    row: tuple[str, int], column: tuple[float, float], sets: int, tasks: int
) -> list[tuple[float, float]]:
    """Returns coverage and mean width of each estimate; an undefined figure is in neither.

    Args:
        row: The judge, and the number of labels.
        column: The correlation of a task's runs, and the success rate.
        sets: The number of simulated sets of runs.
        tasks: The number of tasks.
    """
    (judge, labels), (correlation, truth) = row, column
    generator = np.random.default_rng(labels)
    held = [list[bool]() for _ in ESTIMATES]
    widths = [list[float]() for _ in ESTIMATES]
    for _ in range(sets):
        chances = np.full(tasks, truth)
        if correlation:
            weight = (1 - correlation) / correlation
            chances = generator.beta(truth * weight, (1 - truth) * weight, size=tasks)
        estimate = draw(generator, chances, JUDGES[judge], labels)
        for place, name in enumerate(ESTIMATES):
            figure: Figure = getattr(estimate, name)
            if figure.low is not None and figure.high is not None:
                held[place].append(figure.low <= truth <= figure.high)
                widths[place].append(figure.high - figure.low)
    return [(mean(shares), mean(sizes)) for shares, sizes in zip(held, widths, strict=True)]


def mean(values: list[bool] | list[float]) -> float:
    """Returns the mean; NaN for an empty sequence."""
    return float(np.mean(values)) if values else float("nan")


def draw(
    generator: np.random.Generator, chances: np.ndarray, quality: tuple[float, float], labels: int
) -> RateEstimate:
    """Computes the estimate from one set of runs; `chances` are the tasks' success rates."""
    task = np.arange(RUNS) % len(chances)
    success = generator.random(RUNS) < chances[task]
    right = generator.random(RUNS) < np.where(success, *quality)
    known = set(generator.permutation(RUNS)[:labels].tolist())
    return estimate_rate(
        (success == right).tolist(),
        [outcome if run in known else None for run, outcome in enumerate(success.tolist())],
        task.tolist(),
    )


if __name__ == "__main__":
    main()
