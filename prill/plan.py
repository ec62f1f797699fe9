"""What a scoring run would need, found out without a single call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from prill.errors import InputError
from prill.intake import Intake
from prill.protocols import Evaluator
from prill.scoring import verdict_key
from prill.store import BadLine, read_verdicts
from prill.types import Trajectory, Usage
from prill.verdict_log import RETRIED


@runtime_checkable
class Estimator(Evaluator, Protocol):
    """An evaluator that can say beforehand what a trajectory would cost."""

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Calls, tokens and images; `usd` is not filled in. Raises InputError for an image that cannot be used."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """`trajectories` would be judged, `done` have their verdict already, `problems` say what cannot be used, and why."""

    trajectories: int
    done: int
    problems: tuple[str, ...]
    usage: Usage


def plan_files(
    evaluator: Estimator,
    paths: Sequence[str | os.PathLike[str]],
    limit: int | None = None,
    known: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for some trajectory files. `known` maps ids to keys of verdicts that need not be made again."""
    count, done, problems, usage = 0, 0, [], Usage()
    with closing(Intake(paths, limit)) as intake:
        for place, item in intake:
            try:
                if isinstance(item, BadLine):
                    raise InputError(item.problem)
                if known and known.get(item.id) == verdict_key(evaluator.info, item, evaluator.screenshots(item)):
                    done += 1
                    continue
                usage += evaluator.estimate(item)
                count += 1
            except InputError as error:
                problems.append(f"{place}: {error}")
    return Plan(count, done, tuple(problems), usage)


def known_verdicts(path: str | os.PathLike[str], *, retry_unscored: bool) -> dict[str, str]:
    """Id and key of the verdicts in a file that a run into it would leave as they are; empty when there is no file."""
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return {}
    again = set(RETRIED)
    return {v.id: v.key for v in read_verdicts(path) if v.unscored is None or not (retry_unscored or v.unscored in again)}
