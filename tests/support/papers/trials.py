"""Success within T attempts by task and category, as structured reflection counts it (arXiv
2310.08740): a task counts as solved if one of its first T attempts solved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

from prill.io.retries import TaskResult


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
