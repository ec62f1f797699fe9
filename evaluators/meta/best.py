"""The best of several attempts at a task by a judge, and what it is worth: success of the pick by
the number of attempts.

Source of pass@N: Chen et al., arXiv 2107.03374, section 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

from prill.errors import UsageError
from prill.evaluators.meta.figure import Figure
from prill.evaluators.metrics import choose_method, intervals, wilson
from prill.types import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The best attempt at a task.

    Args:
        task: The task's name.
        id: The attempt: of equal ones the first. None: no attempt is scored.
        value: Its score, or 1 and 0 for a verdict without one, in [0, 1].
        success: The judge's verdict on it.
        tied: All attempts of that value, where there are several.
        attempts: How many there are.
        unscored: How many of them are unscored; they are never picked.
    """

    task: str
    id: str | None
    value: float | None
    success: bool | None
    tied: tuple[str, ...] = ()
    attempts: int
    unscored: int


@dataclass(frozen=True, kw_only=True)
class BestPoint:
    """What the best of `n` attempts is worth, as the mean over tasks and over all ways to draw `n`
    of a task's attempts.

    Args:
        n: Attempts at a task.
        pick: The true success of the pick, in [0, 1]; of equal attempts one is drawn.
        passed: pass@n: one of the attempts at least truly succeeds, so the most that a pick could
            reach.
        picked: The share of draws with a pick; in the others all attempts are unscored, and they
            count in neither figure.
    """

    n: int
    pick: Figure
    passed: Figure
    picked: float


def pick_best(task: str, attempts: Mapping[str, Verdict | None]) -> Pick:
    """Picks the attempt that the judge likes best.

    Args:
        task: The task's name.
        attempts: The verdict on each attempt; None where there is none.
    """
    values = {id: value for id, verdict in attempts.items() if (value := rank(verdict)) is not None}
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


def rank(verdict: Verdict | None) -> float | None:
    """What attempts are ranked by: the score, else 1 for success and 0 for failure; None:
    unscored.
    """
    if verdict is None or verdict.success is None:
        return None
    return float(verdict.success) if verdict.score is None else verdict.score


def best_of_n(
    tasks: Sequence[Sequence[tuple[float | None, bool]]], most: int | None = None
) -> tuple[BestPoint, ...]:
    """The success of the pick by the number of attempts, from recorded attempts.

    Args:
        tasks: For each task its attempts: what the judge ranks it by (None: unscored) and whether
            it truly succeeded.
        most: The largest number of attempts. None: the fewest that any task has. All points are of
            the tasks with so many.

    Returns:
        A point for each number from 1, with 95 % intervals over tasks.

    Raises:
        UsageError: No task has so many attempts.
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


def _expected(attempts: Sequence[tuple[float | None, bool]], n: int) -> tuple[float, float, float]:
    """Of all draws of `n` attempts: the share whose pick succeeds, that with a success and a pick,
    and that with a pick.
    """
    ways = comb(len(attempts), n)
    below = sum(value is None for value, _ in attempts)
    none, hit = comb(below, n) / ways, 0.0
    for level in sorted({value for value, _ in attempts if value is not None}):
        truths = [truth for value, truth in attempts if value == level]
        # The best of the draw is of this level.
        share = (comb(below + len(truths), n) - comb(below, n)) / ways
        hit += share * sum(truths) / len(truths)
        below += len(truths)
    failures = sum(not truth for _, truth in attempts)
    lost = sum(value is None and not truth for value, truth in attempts)
    # A draw without a pick counts in neither figure.
    without = (comb(failures, n) - comb(lost, n)) / ways
    return hit, 1 - none - without, 1 - none


def _mean(name: str, rows: Sequence[tuple[float, float]]) -> Figure:
    """The ratio of the sums, with its interval over the rows."""
    import numpy as np

    table = np.array(rows)
    total = table.sum(axis=0)
    if total[1] <= 0:
        return Figure(name, 0.0, undefined=True)
    value = float(total[0] / total[1])

    def ratio(drawn: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(drawn[:, :1] / drawn[:, 1:])

    low, high = (float(end[0]) for end in intervals(table, ratio, (0.0,)))
    if not low < high:  # NaN, too
        return Figure(name, value, *wilson(value, len(rows)), "wilson")
    return Figure(name, value, low, high, choose_method(len(rows)))
