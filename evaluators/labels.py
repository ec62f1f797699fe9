"""Selects labels and verdicts by trajectory, and makes folds that never split a task."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from prill.errors import UsageError
from prill.io.store import BadLine
from prill.io.truth import gold_labels
from prill.types import EvaluatorInfo, Trajectory, Verdict

__all__ = [
    "cluster",
    "get_template",
    "gold_labels",
    "grouped_folds",
    "latest_verdicts",
    "make_task",
    "task_names",
]
# What environments put behind a task that they make again for each seed:
# `miniwob/click-link?seed=3`.
_SEED = re.compile(r"\?seed=\d+$")
# Where WebArena's template is noted: tasks of one template differ in what is filled into it.
TEMPLATE = "intent_template_id"


def make_task(trajectory: Trajectory) -> str:
    """The task's name, unique across sites; its goal where it has no id."""
    task = trajectory.task
    return f"{task.site or ''}/{task.id or task.goal}"


def task_names(trajectories: Iterable[Trajectory | BadLine]) -> dict[str, str]:
    """Maps trajectories to tasks, as figures with intervals expect it for `tasks`.

    Args:
        trajectories: The trajectories. Broken lines are ignored.

    Returns:
        The task's name by trajectory id.
    """
    return {item.id: make_task(item) for item in trajectories if isinstance(item, Trajectory)}


def cluster(id: str, tasks: Mapping[str, str] | None) -> tuple[bool, str]:
    """What a trajectory stands or falls with: the others of its task, or itself alone where `tasks`
    has no name for it.

    An empty name is none: else all trajectories whose tasks have no id would be one cluster.
    """
    task = (tasks or {}).get(id)
    # the flag keeps an id that equals a task's name apart from that task
    return (True, task) if task else (False, id)


def get_template(trajectory: Trajectory) -> str:
    """What the tasks have in common that are made of one mould: `miniwob/click-link` of every seed,
    WebArena's template.

    `make_task` tells one goal from another, and this one kind of goal: an agent that has learnt one
    of them knows all. The template of WebArena is in the metadata of what `prill rollout` records
    and of logs that name it. All else is its own kind.
    """
    task = trajectory.task
    if (number := trajectory.metadata.get(TEMPLATE)) is not None:
        return f"{task.site or ''}/template {number}"
    id = task.id or task.goal
    return _SEED.sub("", id) if _SEED.search(id) else make_task(trajectory)


def latest_verdicts(verdicts: Iterable[Verdict]) -> tuple[EvaluatorInfo, dict[str, Verdict]]:
    """The evaluator of all verdicts, also of those that a later one of the same id replaces, and
    the last for each id.
    """
    first: EvaluatorInfo | None = None
    latest = {}
    for verdict in verdicts:
        if first is None:
            first = verdict.evaluator
        elif verdict.evaluator != first:
            both = " and ".join(
                f"{e.name} {e.version} ({e.model}, {e.prompt}, {e.params})"
                for e in (first, verdict.evaluator)
            )
            raise UsageError(
                f"the verdicts come from several evaluators ({both}); keep them in a file each"
            )
        latest[verdict.id] = verdict
    if first is None:
        raise UsageError("there are no verdicts")
    return first, latest


def grouped_folds(
    groups: Sequence[Hashable], successes: Sequence[bool], count: int, seed: int
) -> list[int]:
    """The fold of each row, from 0. A group is never split; rows and successes are spread evenly.

    Groups are shuffled, then each goes to the fold that has the fewest successes so far (those with
    most successes first), or the fewest rows (those without any).
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
