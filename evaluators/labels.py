"""Selects labels and verdicts by trajectory, and makes folds that never split a task."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from prill.io.joining import latest_verdicts
from prill.io.store import BadLine
from prill.io.truth import gold_labels
from prill.types import TEMPLATE, LabelRecord, Trajectory

__all__ = [
    "cluster", "get_template", "gold_labels", "grouped_folds", "latest_verdicts", "make_task",
    "task_names",
]  # fmt: skip
# The seed that environments append to the task id of a seeded task: `miniwob/click-link?seed=3`.
_SEED = re.compile(r"\?seed=\d+$")
# The metadata key of WebArena's template; tasks of one template differ only in the inserted values.


def make_task(trajectory: Trajectory) -> str:
    """Returns the task's name, unique across sites, or its goal if it has no id."""
    task = trajectory.task
    return f"{task.site or ''}/{task.id or task.goal}"


def task_names(trajectories: Iterable[Trajectory | BadLine]) -> dict[str, str]:
    """Maps trajectory ids to task names, for the parameter `tasks` of functions with intervals.

    Args:
        trajectories: The trajectories. Invalid lines are ignored.

    Returns:
        The task's name by trajectory id.
    """
    return {item.id: make_task(item) for item in trajectories if isinstance(item, Trajectory)}


def cluster(id: str, tasks: Mapping[str, str] | None) -> tuple[bool, str]:
    """Returns the trajectory's cluster: its task, or the trajectory alone if `tasks` has no name
    for it.

    An empty name counts as no name; otherwise all trajectories of tasks without an id would form
    one cluster.
    """
    task = (tasks or {}).get(id)
    # the flag distinguishes a trajectory id from an equal task name
    return (True, task) if task else (False, id)


def get_template(trajectory: Trajectory) -> str:
    """Returns the task's template: `miniwob/click-link` for every seed, or WebArena's template.

    `make_task` distinguishes goals, and this function kinds of goals: an agent that has learnt one
    task of a template has learnt all. WebArena's template is in the metadata of trajectories
    recorded by `prill rollout` and of logs that include it. Any other task is its own template.
    """
    task = trajectory.task
    if (number := trajectory.metadata.get(TEMPLATE)) is not None:
        return f"{task.site or ''}/template {number}"
    id = task.id or task.goal
    return _SEED.sub("", id) if _SEED.search(id) else make_task(trajectory)


def grouped_folds(
    groups: Sequence[Hashable], successes: Sequence[bool], count: int, seed: int
) -> list[int]:
    """Returns the fold of each row, from 0.

    A group is never split; rows and successes are spread evenly.

    The groups are shuffled. Groups with successes, the largest number first, go to the fold with
    the fewest successes so far; groups without successes go to the fold with the fewest rows.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    order = list(members.values())
    random.Random(seed).shuffle(order)
    order.sort(key=lambda rows: sum(successes[row] for row in rows), reverse=True)
    sizes = [(0, 0)] * count  # successes, rows
    fold_of = [0] * len(groups)
    for rows in order:
        right = sum(successes[row] for row in rows)
        fold = min(range(count), key=lambda i: sizes[i] if right else sizes[i][::-1])
        sizes[fold] = (sizes[fold][0] + right, sizes[fold][1] + len(rows))
        for row in rows:
            fold_of[row] = fold
    return fold_of


def unequal_chances(labels: Iterable[LabelRecord]) -> str | None:
    """Returns a warning if labels were drawn with unequal probabilities; None otherwise."""
    if not any(label.inclusion for label in labels):
        return None
    return (
        "the labels were drawn with unequal probabilities (`inclusion`): these figures "
        "describe the labelled runs, not all runs; only `prill rate` weights them"
    )
