"""Selects episodes: tasks with seeds, attempts and behaviours, from options or a plan file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prill.config.toml import read_toml
from prill.emulators.task_source import MAX_EPISODES
from prill.errors import UsageError
from prill.policies.scripted.policy import Behaviour


@dataclass(frozen=True)
class Case:
    """One episode to record.

    `behaviour` is how the scripted policy acts; None for any other policy.
    """

    task: str
    seed: int = 0
    attempt: int = 0
    behaviour: Behaviour | None = None

    def id(self, environment: str, settings: str) -> str:
        """Returns the episode's id.

        The same case under the same settings has the same id, so that a run can be resumed.

        `settings` is a fingerprint of the settings, or empty. The id does not reveal the behaviour
        of the scripted policy.
        """
        if self.behaviour is None:
            return f"{self.task}-s{self.seed}-a{self.attempt}-{settings}"
        more = f" {self.attempt} {settings}" if self.attempt or settings else ""
        key = f"{self.task} {self.seed} {self.behaviour}{more}"
        return f"{environment}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class PlanRow:
    """One row of a plan: the task, the seed, and the scripted policy's behaviour."""

    task: str
    seed: int
    behaviour: Behaviour = "solve"

    @property
    def case(self) -> Case:
        """Returns the row as a case."""
        return Case(self.task, self.seed, behaviour=self.behaviour)


@dataclass(frozen=True)
class CasePlan:
    """The contents of a plan file: `episodes = [{task = "click-button", seed = 3, behaviour =
    "solve"}, …]`.
    """

    episodes: tuple[PlanRow, ...]


def read_plan(path: str | Path) -> tuple[Case, ...]:
    """Reads the rows of a plan file. Raises UsageError that names the position."""
    try:
        rows = msgspec.convert(read_toml(path), CasePlan).episodes
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None
    if len(set(rows)) < len(rows):
        raise UsageError(
            f"{path}: the same episode is listed twice: "
            f"{next(row for row in rows if rows.count(row) > 1)}"
        )
    return tuple(row.case for row in rows)


def cases(
    tasks: Sequence[str],
    seeds: Sequence[int],
    attempts: Sequence[int],
    behaviours: Sequence[Behaviour | None],
) -> tuple[Case, ...]:
    """Returns every combination once, task by task. Raises UsageError if there are too many."""
    if (count := len(tasks) * len(seeds) * len(attempts) * len(behaviours)) > MAX_EPISODES:
        problem = (
            f"{len(tasks):,} tasks, {len(seeds):,} seeds and {len(attempts):,} attempts are "
            f"{count:,} episodes"
        )
        raise UsageError(
            f"{problem}; a run may have at most {MAX_EPISODES:,}",
            parameters=("tasks", "seeds", "attempts"),
        )
    every = (Case(t, s, a, b) for t in tasks for s in seeds for a in attempts for b in behaviours)
    return tuple(dict.fromkeys(every))
