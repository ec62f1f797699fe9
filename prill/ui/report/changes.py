"""Runs of the same tasks compared: attempts at one, agents with one another, before and after
training, and repeated runs of one agent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice

from prill.evaluators.agreement.comparison import mcnemar
from prill.ui.report.entries import Outcome, ReportRow, Retry

_MAX_TABLES = 12
_MAX_TASKS = 100  # of a table
_MAX_RUNS = 12  # of a task


@dataclass(frozen=True, slots=True)
class ChangedRun:
    """One run with what counts as its outcome.

    For attempts, `truth` is its label (None: there are none), and `is_answer` says whether it is
    the attempt that counts.
    """

    id: str
    outcome: Outcome
    words: str
    truth: Outcome | None = None
    is_answer: bool = False


@dataclass(frozen=True, slots=True)
class ChangedTask:
    """A task with several runs.

    Args:
        goal: Its goal.
        runs: The runs of each column.
        beside: The numbers of two rows with different outcomes, to show side by side.
        ended: Why no attempt follows the last one.
    """

    goal: str
    runs: Sequence[Sequence[ChangedRun]]
    beside: str = ""
    ended: str = ""


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """Tasks whose outcome changed from one agent to another, or between runs of one agent; or all
    tasks that were retried.

    `more` is the number of tasks that are not listed.
    """

    title: str
    note: str
    heads: Sequence[str]
    rows: Sequence[ChangedTask]
    more: int = 0


def change_tables(rows: Sequence[ReportRow], retries: Mapping[str, Retry]) -> list[ChangeTable]:
    """Returns a table for each pair of agents on the same tasks, and one for each agent with
    several runs of a task.

    An agent whose runs are in several files is one agent for each file: training leaves its name as
    it was. Of the attempts of a retried task, the answer counts alone. The outcome of a run is its
    label, or without one the first verdict.
    """
    names = _agent_names(rows)
    runs: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, row in enumerate(rows):
        retry = retries.get(row.id)
        if row.broken is None and (retry is None or retry.answer):
            runs[names[row.agent or "", row.file]][row.task].append(number)
    found = chain(
        (
            _between(rows, one, runs[one], other, runs[other])
            for one, other in combinations(runs, 2)
        ),
        (_flips(rows, name, own) for name, own in runs.items()),
    )
    return list(islice(filter(None, found), _MAX_TABLES))


def attempt_table(
    rows: Sequence[ReportRow], retries: Mapping[str, Retry], judge: str, source: str
) -> ChangeTable | None:
    """Returns a table with one row for each task that was retried.

    Args:
        rows: The runs; retries have a series.
        retries: The outcomes of attempts, by id.
        judge: The first judge's name; empty without one.
        source: The source of the labels; empty without labels.

    Returns:
        The table; None if no task was retried.
    """
    tried: dict[int, list[ReportRow]] = defaultdict(list)
    for row in rows:
        if row.series is not None:
            tried[row.series].append(row)
    if not tried:
        return None
    most = max(map(len, tried.values()))
    tasks = []
    for group in tried.values():
        group.sort(key=lambda row: row.attempt or 0)
        runs = [_attempt(row, retries.get(row.id) or Retry(), source) for row in group]
        ended = (retries.get(group[-1].id) or Retry()).ended or ""
        words = "no attempts left" if ended == "attempts" else ended.replace("_", " ")
        columns = [*([one] for one in runs), *([] for _ in range(most - len(runs)))]
        tasks.append(ChangedTask(group[0].goal, columns, ended=words))
    said = f"what {judge} says" if judge else "·"
    label = f" and, round, the {source} label" if source else ""
    note = (
        f"Of each attempt {said}{label}; ★: its answer counts. Choose an attempt to see its steps, "
        "and the lesson from it."
    )
    heads = "Task", *(f"Retry {number}" if number else "First" for number in range(most)), "Ended"
    return ChangeTable("Attempts", note, heads, tasks)


def _attempt(row: ReportRow, retry: Retry, source: str) -> ChangedRun:
    outcome: Outcome = row.outcomes[0] if row.outcomes else ""
    words = f"retry {row.attempt}" if row.attempt else "first attempt"
    words += f": {outcome or 'no verdict'}"
    if source:
        words += f", label: {row.truth or 'none'}"
    if retry.answer:
        words += ", the answer that counts"
    return ChangedRun(row.id, outcome, words, row.truth if source else None, retry.answer)


def _agent_names(rows: Sequence[ReportRow]) -> dict[tuple[str, str | None], str]:
    pairs = dict.fromkeys((row.agent or "", row.file) for row in rows if row.broken is None)
    agents = [agent for agent, _ in pairs]
    return {
        (agent, file): f"{agent or 'agent'} · {file}"
        if file is not None and agents.count(agent) > 1
        else agent or "agent"
        for agent, file in pairs
    }


def _between(
    rows: Sequence[ReportRow],
    first: str,
    a: Mapping[str, Sequence[int]],
    second: str,
    b: Mapping[str, Sequence[int]],
) -> ChangeTable | None:
    shared = [task for task in a if task in b]
    both: dict[str, tuple[float, float]] = {}
    for task in shared:
        before, after = _rate(rows, a[task]), _rate(rows, b[task])
        if before is not None and after is not None:
            both[task] = before, after
    if not both:
        return None
    changed = [task for task, (old, new) in both.items() if (old - 0.5) * (new - 0.5) < 0]
    better = sum(both[task][0] < 0.5 for task in changed)
    p, _ = mcnemar(better, len(changed) - better)
    before, after = (sum(pair[side] for pair in both.values()) / len(both) for side in (0, 1))
    note = (
        f"Success {before:.0%}, then {after:.0%} on {len(both):,} "
        f"{'task' if len(both) == 1 else 'tasks'}: {better:,} to success, "
        f"{len(changed) - better:,} to failure; McNemar p {p:.3f}. prill compare gives intervals."
    )
    tasks = [_task(rows, [a[task], b[task]], a[task][0], b[task][0]) for task in changed]
    return _table(f"From {first} to {second}", note, (first, second), tasks)


def _flips(
    rows: Sequence[ReportRow], name: str, runs: Mapping[str, Sequence[int]]
) -> ChangeTable | None:
    repeated = [numbers for numbers in runs.values() if len(numbers) > 1]
    if not repeated:
        return None
    flipped = []
    for numbers in repeated:
        by_outcome = {_outcome(rows[number]): number for number in reversed(numbers)}
        if "success" in by_outcome and "failure" in by_outcome:
            flipped.append(_task(rows, [numbers], by_outcome["success"], by_outcome["failure"]))
    return _table(
        f"{name}, several times",
        f"{len(flipped):,} of {len(repeated):,} tasks with several runs have successes and "
        "failures.",
        ("Runs",),
        flipped,
    )


def _table(
    title: str, note: str, heads: Sequence[str], tasks: Sequence[ChangedTask]
) -> ChangeTable:
    more = max(0, len(tasks) - _MAX_TASKS)
    return ChangeTable(title, note, ("Task", *heads, ""), tasks[:_MAX_TASKS], more)


def _task(
    rows: Sequence[ReportRow], columns: Sequence[Sequence[int]], one: int, other: int
) -> ChangedTask:
    runs = [
        [
            ChangedRun(rows[n].id, _outcome(rows[n]), _outcome(rows[n]) or "no outcome")
            for n in column[:_MAX_RUNS]
        ]
        for column in columns
    ]
    return ChangedTask(rows[one].goal, runs, f"{one} {other}")


def _outcome(row: ReportRow) -> Outcome:
    outcomes = (row.truth, *row.outcomes)
    return next((one for one in outcomes if one in ("success", "failure")), "")


def _rate(rows: Sequence[ReportRow], numbers: Sequence[int]) -> float | None:
    """Returns the share of successes; None if no run has an outcome."""
    outcomes = [one for number in numbers if (one := _outcome(rows[number]))]
    return outcomes.count("success") / len(outcomes) if outcomes else None
