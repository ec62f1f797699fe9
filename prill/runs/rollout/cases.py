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
    """One episode to record. `behaviour` is how the scripted policy is to act; None for any other
    policy.
    """

    task: str
    seed: int = 0
    attempt: int = 0
    behaviour: Behaviour | None = None

    def id(self, environment: str, settings: str) -> str:
        """Names the episode: the same case under the same settings has the same id, so that a run
        can be taken up.

        `settings` is a fingerprint of them, or empty. For the scripted policy the id does not tell
        how it was meant to go.
        """
        if self.behaviour is None:
            return f"{self.task}-s{self.seed}-a{self.attempt}-{settings}"
        more = f" {self.attempt} {settings}" if self.attempt or settings else ""
        words = f"{self.task} {self.seed} {self.behaviour}{more}"
        return f"{environment}-{hashlib.sha256(words.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class PlanRow:
    """One line of a plan: which task, which seed, and how the scripted policy is to behave."""

    task: str
    seed: int
    behaviour: Behaviour = "solve"

    @property
    def case(self) -> Case:
        """The row as a case."""
        return Case(self.task, self.seed, behaviour=self.behaviour)


@dataclass(frozen=True)
class CasePlan:
    """What a plan file holds:
    `episodes = [{task = "click-button", seed = 3, behaviour = "solve"}, …]`.
    """

    episodes: tuple[PlanRow, ...]


def read_plan(path: str | Path) -> tuple[Case, ...]:
    """The rows of a plan file. Raises UsageError that names the place."""
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
    """Every combination once, task by task. Raises UsageError for more than a run can hold."""
    if (count := len(tasks) * len(seeds) * len(attempts) * len(behaviours)) > MAX_EPISODES:
        words = (
            f"{len(tasks):,} tasks, {len(seeds):,} seeds and {len(attempts):,} attempts are "
            f"{count:,} episodes"
        )
        raise UsageError(
            f"{words}; a run has at most {MAX_EPISODES:,}",
            parameters=("tasks", "seeds", "attempts"),
        )
    every = (Case(t, s, a, b) for t in tasks for s in seeds for a in attempts for b in behaviours)
    return tuple(dict.fromkeys(every))
