"""Parts of a data set for cross-validation, by task: runs of one task stand or fall together, so they stay together."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Sequence

from prill.types import Trajectory


def task_of(trajectory: Trajectory) -> str:
    """The task's name, unique across sites; its goal where it has no id."""
    task = trajectory.task
    return f"{task.site or ''}/{task.id or task.goal}"


def grouped_folds(groups: Sequence[Hashable], successes: Sequence[bool], count: int, seed: int) -> list[int]:
    """The fold of each row, from 0. A group is never split; rows and successes are spread evenly.

    Groups are shuffled, then each goes to the fold that has the fewest successes so far (those with most successes first),
    or the fewest rows (those without any).
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    order = list(members.values())
    random.Random(seed).shuffle(order)
    order.sort(key=lambda rows: sum(successes[row] for row in rows), reverse=True)
    filled = [(0, 0)] * count  # successes, rows
    fold_of = [0] * len(groups)
    for rows in order:
        right = sum(successes[row] for row in rows)
        fold = min(range(count), key=lambda i: filled[i] if right else filled[i][::-1])
        filled[fold] = (filled[fold][0] + right, filled[fold][1] + len(rows))
        for row in rows:
            fold_of[row] = fold
    return fold_of
