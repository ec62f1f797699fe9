"""Success within k attempts by task and category, and whether more attempts help.

`completion` follows structured reflection (arXiv 2310.08740): a task counts as solved if one of the
first T attempts solved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb, exp, isinf, lgamma, pi, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from prill.errors import UsageError
from prill.refine.outcomes import TaskResult


class PairedT(NamedTuple):
    """Student's t of paired outcomes (first minus second), and the two-sided p-value."""

    t: float
    p: float
    pairs: int


def solved_by(tasks: Iterable[TaskResult]) -> dict[str, int | None]:
    """Returns the number of the first successful attempt at each task, from 1; None without one.

    Unsolved tasks are left out if the truth of an attempt is unknown, since that attempt may have
    succeeded.
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
    """Returns for each task whether one of the first `attempts` attempts solved it."""
    return {name: first is not None and first <= attempts for name, first in solved.items()}


def completion(
    solved: Mapping[str, int | None],
    attempts: int,
    make_task: Callable[[str], str] = lambda name: name,
) -> dict[str, float]:
    """Returns by task the share of seeds that were solved within this many attempts; `make_task`
    maps a name to its task.
    """
    groups: dict[str, list[bool]] = {}
    for name, right in within(solved, attempts).items():
        groups.setdefault(make_task(name), []).append(right)
    return {task: fmean(rights) for task, rights in groups.items()}


def category_means(
    shares: Mapping[str, float], categories: Mapping[str, Iterable[str]]
) -> dict[str, float]:
    """Returns the unweighted mean of each category's task shares, without empty categories."""
    found = {
        category: [shares[task] for task in tasks if task in shares]
        for category, tasks in categories.items()
    }
    return {category: fmean(values) for category, values in found.items() if values}


def paired_t(first: Sequence[float], second: Sequence[float]) -> PairedT:
    """Computes Student's paired t-test. If no pair differs, t is 0 and p is 1. Raises UsageError
    for fewer than two pairs.
    """
    if len(first) != len(second) or len(first) < 2:
        raise UsageError(
            f"a paired test needs two or more outcomes on both sides, got {len(first)} and "
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
    """Returns the one-sided p-value of McNemar's exact test that gains exceed losses."""
    pairs = gained + lost
    return float(sum(comb(pairs, k) for k in range(gained, pairs + 1)) / 2**pairs)


def _two_tails(t: float, freedom: int) -> float:
    """Returns the two-sided tail probability of Student's distribution at `t`."""
    import numpy as np

    if isinf(t):
        return 0.0
    # The tail is the integral of cos^(freedom - 1) from arctan(|t| / sqrt(freedom)), which is
    # negligible after a few widths.
    start = float(np.arctan(abs(t) / sqrt(freedom)))
    end = min(pi / 2, start + 40 / sqrt(freedom))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    angles = start + (end - start) * (nodes + 1) / 2
    tail = float(weights @ np.cos(angles) ** (freedom - 1)) * (end - start) / 2
    return min(1.0, 2 * tail * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi))
