"""Best-of-n selection by a judge, and its true success rate by the number of attempts.

Source of pass@N: Chen et al., arXiv 2107.03374, section 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from prill.errors import UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.comparative import Choice, ComparedAttempts
from prill.evaluators.meta.figure import Figure
from prill.evaluators.metrics import choose_method, ratio_interval, wilson
from prill.types import Verdict


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The attempt at a task that the judge ranks best.

    Args:
        task: The task's name.
        id: The id of the attempt; of equal ones, the first. None: no attempt is scored, or the
            comparison has no best attempt.
        value: Its score in [0, 1], or 1 or 0 for a verdict without a score. None: compared.
        success: The judge's verdict on the attempt. None: compared.
        tied: All attempts with that value, if there are several.
        attempts: The number of attempts.
        unscored: The number of unscored attempts; they are never picked.
        choice: The result of the comparison. None: unscored, or picked by verdicts.
        reason: The reason of the comparison, or why it is unscored.
    """

    task: str
    id: str | None
    value: float | None
    success: bool | None
    tied: tuple[str, ...] = ()
    attempts: int
    unscored: int
    choice: Choice | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class BestPoint:
    """The success of the best of `n` attempts.

    Figures are means over tasks and over all ways to draw `n` of a task's attempts.

    Args:
        n: The number of attempts at a task; of a comparison, the largest.
        pick: The true success rate of the pick, in [0, 1]; ties are broken at random.
        passed: pass@n, the rate at which at least one attempt truly succeeds; the upper bound for
            the pick.
        picked: The share of draws with a pick. In the others all attempts are unscored, or no
            attempt is the best; they count in neither figure.
    """

    n: int
    pick: Figure
    passed: Figure
    picked: float


def pick_best(task: str, attempts: Mapping[str, Verdict | None]) -> Pick:
    """Picks the attempt that the judge ranks best by the verdict on each; None: there is no
    verdict.
    """
    values = {
        id: value for id, verdict in attempts.items() if (value := as_score(verdict)) is not None
    }
    best = max(values.values(), default=None)
    tied = tuple(id for id, value in values.items() if value == best)
    verdict = attempts[tied[0]] if tied else None
    return Pick(
        task=task,
        id=tied[0] if tied else None,
        value=best,
        success=verdict.success if verdict else None,
        tied=tied if len(tied) > 1 else (),
        attempts=len(attempts),
        unscored=len(attempts) - len(values),
    )


def pick_compared(compared: ComparedAttempts, ids: Sequence[str]) -> Pick:
    """Returns the pick of a comparison; of equal attempts, the first in the file, whose order `ids`
    has.
    """
    best = tuple(id for id in ids if id in compared.best)
    return Pick(
        task=compared.id,
        id=best[0] if best else None,
        value=None,
        success=None,
        tied=best if len(best) > 1 else (),
        attempts=len(ids),
        unscored=len(ids) if compared.unscored else 0,
        choice=compared.choice,
        reason=compared.reason,
    )


def best_of_n(
    tasks: Sequence[Sequence[tuple[float | None, bool]]], most: int | None = None
) -> tuple[BestPoint, ...]:
    """Computes the true success rate of the pick by the number of attempts, from recorded attempts.

    Args:
        tasks: The attempts at each task: the ranking value (None: unscored) and the true success.
        most: The largest number of attempts. None: the smallest number that a task has. All points
            use only the tasks with at least this number of attempts.

    Returns:
        A point for each number of attempts from 1, with 95 % intervals over tasks.

    Raises:
        UsageError: No task has that number of attempts.
    """
    most = most or min(map(len, tasks), default=1)
    tasks = [attempts for attempts in tasks if len(attempts) >= most]
    if not tasks:
        raise UsageError(f"no task has {most} labelled attempts", parameters=("attempts",))
    points = []
    for n in range(1, most + 1):
        rows = [_expected(attempts, n) for attempts in tasks]
        drawn = sum(share for _, _, share in rows)
        points.append(
            BestPoint(
                n=n,
                pick=_mean(f"best of {n}", [(hit, share) for hit, _, share in rows]),
                passed=_mean(f"pass@{n}", [(passed, share) for _, passed, share in rows]),
                picked=drawn / len(rows),
            )
        )
    return tuple(points)


def best_of_all(tasks: Sequence[tuple[Sequence[bool], Sequence[bool]]]) -> tuple[BestPoint, ...]:
    """Computes the true success rate of picks among all attempts, next to that of one attempt.

    Args:
        tasks: For each task the true success of its attempts, and of those that are picked; of
            equal ones, one is taken at random. Tasks without a pick count in no figure.

    Returns:
        A point for one attempt and one for all, with 95 % intervals over tasks.
    """
    points = []
    most = max((len(truths) for truths, _ in tasks), default=1)
    for n in sorted({1, most}):
        rows = []
        for truths, picked in tasks:
            share, one = float(bool(picked)), sum(truths) / len(truths)
            if n == 1:
                rows.append((share * one, share * one, share))
            else:
                hit = sum(picked) / max(1, len(picked))
                rows.append((hit, share * any(truths), share))
        points.append(
            BestPoint(
                n=n,
                pick=_mean(f"best of {n}", [(hit, share) for hit, _, share in rows]),
                passed=_mean(f"pass@{n}", [(passed, share) for _, passed, share in rows]),
                picked=sum(share for *_, share in rows) / len(rows),
            )
        )
    return tuple(points)


def _expected(attempts: Sequence[tuple[float | None, bool]], n: int) -> tuple[float, float, float]:
    """Returns shares of all draws of `n` attempts: successful pick, success and pick, any pick."""
    ways = comb(len(attempts), n)
    below = sum(value is None for value, _ in attempts)
    none, hit = comb(below, n) / ways, 0.0
    for level in sorted({value for value, _ in attempts if value is not None}):
        truths = [truth for value, truth in attempts if value == level]
        # the chance that the best of the draw has this value
        share = (comb(below + len(truths), n) - comb(below, n)) / ways
        hit += share * sum(truths) / len(truths)
        below += len(truths)
    failures = sum(not truth for _, truth in attempts)
    lost = sum(value is None and not truth for value, truth in attempts)
    # A draw without a pick counts in neither figure.
    without = (comb(failures, n) - comb(lost, n)) / ways
    return hit, 1 - none - without, 1 - none


def _mean(name: str, rows: Sequence[tuple[float, float]]) -> Figure:
    """Returns the ratio of the sums, with its interval over the rows."""
    import numpy as np

    table = np.array(rows)
    total = table.sum(axis=0)
    if total[1] <= 0:
        return Figure(name, 0.0, undefined=True)
    value = float(total[0] / total[1])
    if (ends := ratio_interval(table, 0.0)) is None:
        return Figure(name, value, *wilson(value, len(rows)), "wilson")
    return Figure(name, value, *ends, choose_method(len(rows)))
