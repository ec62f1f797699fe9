"""Success within k attempts by task and category, and whether more attempts help.

`completion` is that of structured reflection (arXiv 2310.08740): solved is what some attempt among
the first T solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb, exp, isinf, lgamma, pi, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from prill.errors import UsageError
from prill.refine.outcomes import TaskResult


class PairedT(NamedTuple):
    """Student's t of paired outcomes, first less second, and the two-sided p."""

    t: float
    p: float
    pairs: int


def solved_by(tasks: Iterable[TaskResult]) -> dict[str, int | None]:
    """The number of the first attempt, from 1, that truly succeeded at each task; None where none
    did.

    Tasks that were not solved are left out where the truth of some attempt is not known: that one
    may have solved them.
    """
    found: dict[str, int | None] = {}
    for task in tasks:
        truths = [attempt.truth for attempt in task.attempts]
        if True in truths:
            found[task.name] = truths.index(True) + 1
        elif truths and None not in truths:
            found[task.name] = None
    return found


def within(solved: Mapping[str, int | None], attempts: int) -> dict[str, bool]:
    """Whether each was solved by one of so many attempts."""
    return {name: first is not None and first <= attempts for name, first in solved.items()}


def completion(
    solved: Mapping[str, int | None],
    attempts: int,
    make_task: Callable[[str], str] = lambda name: name,
) -> dict[str, float]:
    """The share of a task's seeds that were solved within so many attempts, by task; `make_task`
    gives the task of a name.
    """
    groups: dict[str, list[bool]] = {}
    for name, right in within(solved, attempts).items():
        groups.setdefault(make_task(name), []).append(right)
    return {task: fmean(rights) for task, rights in groups.items()}


def category_means(
    shares: Mapping[str, float], categories: Mapping[str, Iterable[str]]
) -> dict[str, float]:
    """The unweighted mean of the tasks of each category that have a share; categories without any
    are left out.
    """
    found = {
        category: [shares[task] for task in tasks if task in shares]
        for category, tasks in categories.items()
    }
    return {category: fmean(values) for category, values in found.items() if values}


def paired_t(first: Sequence[float], second: Sequence[float]) -> PairedT:
    """Student's t-test of pairs. Where no pair differs, t is 0 and p is 1. Raises UsageError for
    fewer than two pairs.
    """
    if len(first) != len(second) or len(first) < 2:
        raise UsageError(
            f"a paired test needs two outcomes or more on both sides, not {len(first)} and "
            f"{len(second)}"
        )
    differences = [one - other for one, other in zip(first, second, strict=True)]
    mean, spread, n = fmean(differences), stdev(differences), len(differences)
    if spread == 0:
        return (
            PairedT(0.0, 1.0, n)
            if mean == 0
            else PairedT(float("inf") if mean > 0 else float("-inf"), 0.0, n)
        )
    t = mean / (spread / sqrt(n))
    return PairedT(t, _two_tails(t, n - 1), n)


def more_than_lost(gained: int, lost: int) -> float:
    """The one-tailed p of McNemar's exact test: as many gains among the discordant pairs, or more,
    by chance.
    """
    pairs = gained + lost
    return float(sum(comb(pairs, k) for k in range(gained, pairs + 1)) / 2**pairs)


def _two_tails(t: float, freedom: int) -> float:
    """The share of Student's distribution that lies as far out as `t`, or further, on both
    sides.
    """
    import numpy as np

    if isinf(t):
        return 0.0
    # The tail is the integral of cos^(freedom - 1) from arctan(|t| / sqrt(freedom)); after some
    # widths nothing is left of it.
    start = float(np.arctan(abs(t) / sqrt(freedom)))
    end = min(pi / 2, start + 40 / sqrt(freedom))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    angles = start + (end - start) * (nodes + 1) / 2
    tail = float(weights @ np.cos(angles) ** (freedom - 1)) * (end - start) / 2
    return min(1.0, 2 * tail * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi))
