"""Reflexion results: success by attempt, losses by wrong verdicts, cost.

True success is read only here, after all decisions, and only for the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from prill.evaluators.metrics import wilson
from prill.io.kinds import TRAJECTORIES
from prill.io.retries import ENDS, OutcomeRow, OutcomeTable, TaskResult
from prill.io.store import iter_trajectories, read_labels
from prill.refine.retries import answer_among
from prill.types import LabelRecord, Trajectory, Usage


def attempts_in(folder: Path, ids: Collection[str] | None) -> Iterator[Trajectory]:
    """Yields the attempts of a folder with these ids (None: all), reading one at a time."""
    path = folder / TRAJECTORIES
    if path.exists() and path.stat().st_size:
        for item in iter_trajectories(path, on_error="skip"):
            if ids is None or item.id in ids:
                yield item


def label_records(path: Path) -> dict[str, LabelRecord]:
    """Reads the newest label of each attempt; empty if there is no file."""
    records = read_labels(path) if path.exists() and path.stat().st_size else ()
    return {record.id: record for record in records}


def truths_in(path: Path) -> dict[str, bool | None]:
    """Returns the success of each attempt by its newest label."""
    return {id: record.success for id, record in label_records(path).items()}


def make_table(
    tasks: Sequence[TaskResult], attempts: int, *, keep_best: bool = False
) -> OutcomeTable:
    """Computes the figures of Reflexion.

    Args:
        tasks: The results of each task.
        attempts: The most attempts at a task. The table has a row for each smaller number of
            retries.
        keep_best: The answer to a task is the attempt with the highest score, the earliest one on
            a tie. False: the last attempt.

    Returns:
        The figures. Success rates are in [0, 1]; costs in US dollars are None where a price is
        unknown.
    """
    rows = tuple(_row(tasks, retries, keep_best) for retries in range(attempts))
    every = [attempt for task in tasks for attempt in task.attempts]
    truths = [_truth(task, attempts, keep_best) for task in tasks]
    actor = sum((attempt.actor for attempt in every), start=Usage())
    judge = sum((attempt.judge for attempt in every), start=Usage())
    reflector = sum((attempt.reflector for attempt in every), start=Usage())
    total, solved = actor + judge + reflector, truths.count(True)
    ended = Counter(task.ended for task in tasks)
    return OutcomeTable(
        rows=rows,
        tasks=len(tasks),
        undecided=truths.count(None),
        gained=sum(
            truth is True and task.attempts[0].truth is False
            for task, truth in zip(tasks, truths, strict=True)
        ),
        lost_to_false_negatives=sum(
            truth is False and any(attempt.truth for attempt in task.attempts)
            for task, truth in zip(tasks, truths, strict=True)
        ),
        kept_by_false_positives=sum(
            task.ended == "accepted" and task.attempts[-1].truth is False for task in tasks
        ),
        played=sum(not attempt.reused for attempt in every),
        reused=sum(attempt.reused for attempt in every),
        ended={end: ended[end] for end in ENDS if ended[end]},
        actor=actor,
        judge=judge,
        reflector=reflector,
        calls_per_solved=total.calls / solved if solved else None,
        tokens_per_solved=(total.prompt_tokens + total.completion_tokens) / solved
        if solved
        else None,
        usd_per_solved=None if total.usd is None or not solved else total.usd / solved,
    )


def table_lines(table: OutcomeTable) -> Iterator[str]:
    """Formats the figures of Reflexion as Markdown."""
    yield "| retries | solved | of | success | 95 % interval | truth unknown |"
    yield "| ---: | ---: | ---: | ---: | :--- | ---: |"
    for row in table.rows:
        share = "" if row.success is None else f"{row.success:.1%}"
        interval = "" if row.low is None or row.high is None else f"{row.low:.1%} to {row.high:.1%}"
        yield (
            f"| {row.retries} | {row.solved} | {row.tasks} | {share} | {interval} | "
            f"{row.tasks - row.decided} |"
        )
    yield ""
    if table.undecided:
        yield (
            f"the truth is unknown for {table.undecided} of {table.tasks} tasks: success "
            "counts them as not solved, and the interval includes the case that all of "
            "them are solved"
        )
    yield (
        f"{table.played} attempts played, {table.reused} reused from another run, at "
        f"{table.tasks} tasks"
    )
    yield (
        f"solved by a retry: {table.gained}; lost to false negatives: "
        f"{table.lost_to_false_negatives}; "
        + (
            f"failures that the judge accepted: {table.kept_by_false_positives}; truth unknown: "
            f"{table.undecided}"
        )
    )
    yield "ended: " + ", ".join(
        f"{end.replace('_', ' ')} {count}" for end, count in table.ended.items()
    )
    for role, usage in (
        ("actor", table.actor),
        ("judge", table.judge),
        ("reflector", table.reflector),
    ):
        cost = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
        yield (
            f"{role}: {usage.calls} calls, {usage.prompt_tokens + usage.completion_tokens} "
            f"tokens, {cost}"
        )
    if table.calls_per_solved is not None:
        cost = "cost unknown" if table.usd_per_solved is None else f"${table.usd_per_solved:.4f}"
        yield (
            f"a solved task: {table.calls_per_solved:.1f} calls, {table.tokens_per_solved:.0f} "
            f"tokens, {cost}"
        )


def _row(tasks: Sequence[TaskResult], retries: int, keep_best: bool) -> OutcomeRow:
    truths = [
        truth for task in tasks if (truth := _truth(task, retries + 1, keep_best)) is not None
    ]
    solved, decided = sum(truths), len(truths)
    if not decided:
        return OutcomeRow(retries=retries, solved=0, decided=0, tasks=len(tasks))
    at_least, at_most = solved / len(tasks), (solved + len(tasks) - decided) / len(tasks)
    low, high = wilson(at_least, len(tasks))[0], wilson(at_most, len(tasks))[1]
    return OutcomeRow(
        retries=retries,
        solved=solved,
        decided=decided,
        tasks=len(tasks),
        success=at_least,
        low=low,
        high=high,
    )


def _truth(task: TaskResult, attempts: int, keep_best: bool) -> bool | None:
    """Returns whether the answer of the first attempts is right."""
    so_far = task.attempts[:attempts]
    ended = [attempt.status != "broken" for attempt in so_far]
    answer = answer_among(ended, [attempt.score for attempt in so_far], keep_best=keep_best)
    return None if answer is None else so_far[answer].truth
