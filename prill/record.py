"""Records episodes to a folder as they happen: `trajectories.jsonl`, and apart from it `labels.jsonl`, from the oracle."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from prill.errors import InputError
from prill.loop import rollout
from prill.protocols import Environment, Oracle, Policy
from prill.store import decode_trajectory, encode, encode_trajectory, read_labels, read_lines
from prill.types import LabelRecord, Task

TRAJECTORIES, LABELS = "trajectories.jsonl", "labels.jsonl"


class GradedEnvironment(Environment, Oracle, Protocol):
    """An environment that knows whether the task was done."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One attempt to record. `task` is asked for when the turn comes; `note` goes to the label and nowhere else."""

    id: str
    task: Callable[[], Awaitable[Task]]
    policy: Policy
    agent: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Recorded:
    """What a run did. `skipped` were there already; `undecided` broke off, so that the oracle gave no label."""

    success: int = 0
    failure: int = 0
    undecided: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        """All episodes seen so far, skipped ones included."""
        return self.success + self.failure + self.undecided + self.skipped


async def record(
    environment: GradedEnvironment,
    episodes: Iterable[Episode],
    out: Path,
    *,
    max_steps: int = 30,
    timeout: float | None = 120.0,
    progress: Callable[[Recorded], None] = lambda recorded: None,
) -> Recorded:
    """Plays the episodes one after another. Those whose id is in `out` already are skipped, so that a run can be taken up.

    The environment has to write its screenshots below `out`. `timeout` is in seconds for one episode.
    Raises InputError when a file in `out` is broken.
    """
    out.mkdir(parents=True, exist_ok=True)
    done = _ids(out / TRAJECTORIES)
    labelled = _labelled(out / LABELS)
    counts = Recorded()
    for episode in episodes:
        if episode.id in done:
            counts = replace(counts, skipped=counts.skipped + 1)
        else:
            task = await episode.task()
            trajectory = await rollout(
                episode.policy, environment, task, id=episode.id, agent=episode.agent, max_steps=max_steps, timeout=timeout
            )
            label = await environment.grade(trajectory)
            # The label goes first: a crash in between leaves a label to spare, not a trajectory without one.
            if episode.id not in labelled:
                _append(out / LABELS, encode(_noted(label, episode.note)))
            _append(out / TRAJECTORIES, encode_trajectory(trajectory, out))
            done.add(episode.id)
            counts = _counted(counts, label)
        progress(counts)
    return counts


def _noted(label: LabelRecord, note: str | None) -> LabelRecord:
    return replace(label, note="; ".join(part for part in (note, label.note) if part) or None)


def _counted(counts: Recorded, label: LabelRecord) -> Recorded:
    if label.success is None:
        return replace(counts, undecided=counts.undecided + 1)
    if label.success:
        return replace(counts, success=counts.success + 1)
    return replace(counts, failure=counts.failure + 1)


def _ids(path: Path) -> set[str]:
    if not _mended(path):
        return set()
    ids: set[str] = set()
    for line in read_lines(path):
        try:
            ids.add(decode_trajectory(line.data, path.resolve().parent).id)
        except InputError as error:
            raise InputError(f"{path}:{line.number}: {error}; mend the line or record to another folder") from None
    return ids


def _labelled(path: Path) -> set[str]:
    return {label.id for label in read_labels(path)} if _mended(path) else set()


def _mended(path: Path) -> bool:
    """Cuts off a last line that a crash left incomplete; whether anything is there."""
    if not path.exists():
        return False
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end != len(data):
        os.truncate(path, end)
    return end > 0


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line)
