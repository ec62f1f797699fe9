"""Measures the coverage of intervals and certificates on simulated runs:
`python benchmarks/intervals.py [draws]`.

Intervals of accuracy over few tasks (ten runs each, which differ in how hard they are): the
bootstrap, and what `prill agree` gives. Certificates of a precision of 0.9 where it is the same at
every threshold, just below or well above 0.9.
"""

from __future__ import annotations

import random
import sys

import numpy as np

from prill.evaluators.fitted.calibration_fit import (
    find_cuts,
    precision_bound,
    threshold_for_precision,
)
from prill.evaluators.metrics import bootstrap, intervals, wilson

RUNS, WITHIN = 10, 0.3  # of a task; correlation of its runs
TARGET, LABELLED, LEVELS = 0.9, 400, 40


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(
        "95 % intervals of accuracy that hold the truth\n\n| tasks | accuracy | bootstrap | t "
        "|\n|---|---|---|---|"
    )
    for tasks in (5, 8, 12, 19):
        for truth in (0.5, 0.8, 0.9):
            print(
                f"| {tasks} | {truth} | "
                f"{' | '.join(f'{share:.3f}' for share in coverage(tasks, truth, draws))} |"
            )
    print(
        f"\nPrecision of {TARGET} called certain, {LABELLED} runs, {LEVELS} scores\n\n| precision "
        "| best bound | fixed order |"
    )
    print("|---|---|---|")
    for truth in (0.89, 0.899, 0.95, 0.97):
        print(f"| {truth} | {' | '.join(f'{share:.3f}' for share in certified(truth, draws))} |")


def coverage(tasks: int, truth: float, draws: int) -> list[float]:
    """The shares of intervals that hold `truth`: of the bootstrap, and of what is chosen by the
    number of tasks.
    """
    generator = np.random.default_rng(tasks)
    weight = (1 - WITHIN) / WITHIN
    held = np.zeros(2)
    for _ in range(draws):
        right = generator.binomial(
            RUNS, generator.beta(truth * weight, (1 - truth) * weight, size=tasks)
        )
        clusters = np.stack([right, RUNS - right, 0 * right, 0 * right, 0 * right], axis=1)
        for i, (low, high) in enumerate((bootstrap(clusters), intervals(clusters))):
            ends = (
                (low[0], high[0]) if low[0] < high[0] else wilson(right.sum() / tasks / RUNS, tasks)
            )
            held[i] += ends[0] <= truth <= ends[1]
    return list(held / draws)


def certified(truth: float, draws: int) -> list[float]:
    """The shares of draws with a threshold whose own bound, or whose test in a fixed order, reaches
    the target.
    """
    dice = random.Random(1)
    count = [0, 0]
    for _ in range(draws):
        scores = [dice.randrange(LEVELS) / LEVELS for _ in range(LABELLED)]
        truths = [dice.random() < truth for _ in scores]
        count[0] += any(
            precision_bound(cut.right, cut.called) >= TARGET for cut in find_cuts(scores, truths)
        )
        count[1] += threshold_for_precision(scores, truths, TARGET) is not None
    return [n / draws for n in count]


if __name__ == "__main__":
    main()
