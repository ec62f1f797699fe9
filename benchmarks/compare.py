"""How often `prill compare` finds a difference, where there is none and where there is one, on
made-up runs: `python benchmarks/compare.py [sets]`.

Each task has a chance of success for each agent; both chances are the same quantile of their
agent's distribution (correlation of a task's runs 0.3), in half of the tasks, and independent in
the others. A judge is right in 9 of 10 runs. McNemar's plain test takes the runs of a task for
independent pairs.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass

import numpy as np
from scipy.special import betaincinv

from prill.evaluators.agreement.comparison import exact_mcnemar
from prill.evaluators.agreement.differences import Requirement, TaskRuns, compare_agents

WITHIN, SHARED, RIGHT, RATE = 0.3, 0.5, 0.9, 0.4
TASKS, ATTEMPTS = (20, 50, 200), (1, 4)
EFFECTS = {20: 0.3, 50: 0.2, 200: 0.1}


@dataclass(frozen=True)
class Row:
    """Shares of sets: the interval excludes 0, by sign flip, by McNemar over tasks and over runs;
    the interval holds the truth; B passes a requirement that it just misses.
    """

    interval: float
    sign_flip: float
    mcnemar: float
    plain: float
    held: float
    passed: float


def main() -> None:
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    print(
        "| tasks | runs a task | B - A | interval | sign flip | McNemar, tasks | McNemar, runs "
        "| held | false pass |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for tasks in TASKS:
        for attempts in ATTEMPTS:
            for effect in (0.0, EFFECTS[tasks]):
                row = simulate(tasks, attempts, effect, sets)
                cells = " | ".join(f"{share:.3f}" for share in astuple(row))
                print(f"| {tasks} | {attempts} | {effect} | {cells} |", flush=True)


def simulate(tasks: int, attempts: int, effect: float, sets: int) -> Row:
    """Simulates `sets` sets of runs, in which B's success rate is higher by `effect`."""
    generator = np.random.default_rng(tasks * attempts)
    # The difference that remains after the judge's errors.
    truth = effect * (2 * RIGHT - 1)
    just_missed = Requirement(truth)
    rows = []
    for _ in range(sets):
        a, b = draw(generator, tasks, attempts, effect)
        found = compare_agents(
            TaskRuns(str(task), [(run,) for run in mine], [(run,) for run in theirs])
            for task, (mine, theirs) in enumerate(zip(a.tolist(), b.tolist(), strict=True))
        )
        low, high = found.difference.low or 0.0, found.difference.high or 0.0
        rows.append(
            (
                not low <= 0 <= high,
                found.sign_flip <= 0.05,
                found.mcnemar <= 0.05,
                exact_mcnemar(int((a & ~b).sum()), int((b & ~a).sum())) <= 0.05,
                low <= truth <= high,
                just_missed.decide((low, high)) == "pass",
            )
        )
    return Row(*np.mean(rows, axis=0).tolist())


def draw(
    generator: np.random.Generator, tasks: int, attempts: int, effect: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the verdicts on the runs of A and of B, one row per task."""
    weight = (1 - WITHIN) / WITHIN
    first, other = generator.random((2, tasks))
    places = first, np.where(generator.random(tasks) < SHARED, first, other)
    sides = []
    for place, rate in zip(places, (RATE, RATE + effect), strict=True):
        chances = betaincinv(rate * weight, (1 - rate) * weight, place)
        success = generator.random((tasks, attempts)) < chances[:, None]
        sides.append(success == (generator.random((tasks, attempts)) < RIGHT))
    return sides[0], sides[1]


if __name__ == "__main__":
    main()
