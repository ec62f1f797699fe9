"""Files of a Reflexion run: the results of its attempts, and its lessons."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from prill.errors import UsageError
from prill.io.kinds import LABELS
from prill.io.lines import read_json
from prill.io.manifest import expect_unchanged
from prill.io.store import read_records
from prill.types import EvaluatorInfo, UnscoredReason, Usage

FORMAT = "prill reflexion 1"
RESULTS, VERDICTS, LESSONS, SETTINGS = (
    "results.json",
    "verdicts.jsonl",
    "lessons.jsonl",
    "reflexion.json",
)
# Why a task ended.
End = Literal[
    "accepted",  # the judge called the last attempt a success
    "attempts",  # there are no attempts left
    "repeated_lesson",  # the lesson repeats an earlier one, so a retry would not differ
    "unscored",  # no verdict: this is not a failure, and gives no feedback to learn from
    "no_lesson",  # the model returned no lesson
    "broken",  # the environment or the agent's model failed during the attempt
    "not_begun",  # the environment could not start the episode
]
ENDS: tuple[End, ...] = get_args(End)


def lost_labels_note(folder: str | os.PathLike[str], lost: int, count: int) -> Iterator[str]:
    """Yields how many of the attempts in a run's folder have lost their labels, if any."""
    if lost:
        yield (
            f"{Path(folder) / LABELS}: the labels of {lost} of {count} attempts are missing, so "
            "their true outcome is unknown; restore the file, and run it again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A lesson from an attempt. `text` is None if the model gave none; `problem` says why.

    `status` is the feedback on the attempt that the agent got.
    """

    id: str
    text: str | None
    status: str
    problem: str | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The verdict, lesson and true success (None: undecided) of one attempt.

    `reused`: the attempt was copied from another run. `problem`: why the attempt broke off, or why
    there is no lesson.
    """

    id: str
    status: Literal["success", "failure", "unscored", "broken"]
    answer: str | None = None
    score: float | None = None
    unscored: UnscoredReason | None = None
    reason: str = ""
    lesson: str | None = None
    problem: str | None = None
    truth: bool | None = None
    reused: bool = False
    actor: Usage = field(default_factory=Usage)
    judge: Usage = field(default_factory=Usage)
    reflector: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The attempts at one task, the reason for the end, and the index of the answer, from 0."""

    name: str
    goal: str = ""
    attempts: tuple[AttemptResult, ...]
    ended: End
    answer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """The share of solved tasks after a number of retries, among tasks with known truth.

    `decided` counts the tasks with known truth. The 95 % Wilson interval covers both extremes: none
    or all of the other tasks solved. Share and interval are None if no truth is known.
    """

    retries: int
    solved: int
    decided: int
    tasks: int = 0
    success: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTable:
    """The figures of a run. Tokens are the sum of requests and replies; `usd` is None if a price is
    unknown.

    `lost_to_false_negatives`: tasks with a successful attempt whose answer is a failed one.
    `kept_by_false_positives`: tasks where the judge accepted a failed attempt. `gained`: tasks
    solved by a later attempt than the first.
    """

    rows: tuple[OutcomeRow, ...]
    tasks: int
    undecided: int
    gained: int
    lost_to_false_negatives: int
    kept_by_false_positives: int
    played: int
    reused: int
    ended: dict[str, int]
    actor: Usage
    judge: Usage
    reflector: Usage
    calls_per_solved: float | None
    tokens_per_solved: float | None
    usd_per_solved: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflexionResults:
    """The results file of a run. `lost_labels` counts attempts whose oracle label was lost."""

    format: str = FORMAT
    evaluator: EvaluatorInfo
    settings: dict[str, Any] = field(default_factory=dict)
    attempts: int
    keep_best: bool = False
    warnings: tuple[str, ...] = ()
    lost_labels: int = 0
    tasks: tuple[TaskResult, ...] = ()
    table: OutcomeTable | None = None


def read_results(path: str | os.PathLike[str]) -> ReflexionResults:
    """Reads the results of Reflexion.

    Args:
        path: The file, or the run's folder.

    Raises:
        UsageError: The file cannot be read, was changed, or has another version.
    """
    file = Path(path) / RESULTS if os.path.isdir(path) else Path(path)
    expect_unchanged(file.parent / SETTINGS, "run the retries again", only=file.name)
    results = read_json(file, ReflexionResults, "not results of retries", "run the retries again")
    if results.format != FORMAT:
        raise UsageError(
            f"{file}: results of another version ({results.format}); run the retries again"
        )
    return results


def read_lessons(path: Path) -> dict[str, Lesson]:
    """Reads the newest lesson of each attempt. Raises InputError that names an invalid line."""
    records = read_records(path, Lesson) if path.exists() and path.stat().st_size else ()
    return {lesson.id: lesson for lesson in records}
