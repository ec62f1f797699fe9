"""Which episodes a run is to record: options and plan files, read into cases."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prill.agents.scripted import Behaviour
from prill.errors import UsageError


@dataclass(frozen=True)
class Case:
    """One episode to record. `behaviour` is how the scripted policy is to act; None for any other policy."""

    task: str
    seed: int = 0
    attempt: int = 0
    behaviour: Behaviour | None = None

    def id(self, environment: str, settings: str) -> str:
        """Names the episode: the same case under the same settings has the same id, so that a run can be taken up.

        `settings` is a fingerprint of them, or empty. For the scripted policy the id does not tell how it was meant to go.
        """
        if self.behaviour is None:
            return f"{self.task}-s{self.seed}-a{self.attempt}-{settings}"
        more = f" {self.attempt} {settings}" if self.attempt or settings else ""
        return f"{environment}-" + _short(f"{self.task} {self.seed} {self.behaviour}{more}", 10)


@dataclass(frozen=True)
class Row:
    """One line of a plan: which task, which seed, and how the scripted policy is to behave."""

    task: str
    seed: int
    behaviour: Behaviour = "solve"

    @property
    def case(self) -> Case:
        """The row as a case."""
        return Case(self.task, self.seed, behaviour=self.behaviour)


@dataclass(frozen=True)
class Plan:
    """What a plan file holds: `episodes = [{task = "click-button", seed = 3, behaviour = "solve"}, …]`."""

    episodes: tuple[Row, ...]


def read_plan(path: Path) -> tuple[Case, ...]:
    """The rows of a plan file. Raises UsageError that names the place."""
    try:
        rows = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Plan).episodes
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    if len(set(rows)) < len(rows):
        raise UsageError(f"{path}: the same episode is listed twice: {next(row for row in rows if rows.count(row) > 1)}")
    return tuple(row.case for row in rows)


def cases(
    tasks: Sequence[str], seeds: Sequence[int], attempts: int, behaviours: Sequence[Behaviour | None]
) -> tuple[Case, ...]:
    """Every combination once, task by task."""
    every = (Case(t, s, a, b) for t in tasks for s in seeds for a in range(attempts) for b in behaviours)
    return tuple(dict.fromkeys(every))


def numbers(text: str, option: str) -> list[int]:
    """The numbers of `0-4,7`. Raises UsageError that names the option."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise UsageError(f"{option} {text!r}: expected numbers and ranges such as 0-4,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"{option} {text!r}: {part.strip()} counts down")
        found += range(first, last + 1)
    return found


def fingerprint(settings: object) -> str:
    """Eight characters that differ when the settings do."""
    return _short(msgspec.json.encode(settings, order="deterministic").decode(), 8)


def _short(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
