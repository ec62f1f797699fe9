"""The queue of trajectories to label, kept in a temporary database."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from prill.evaluators.labels import make_task
from prill.evaluators.meta.sampling import draw_informative
from prill.io.cache import scratch_database
from prill.io.store import BadLine, TrajectoryReader, encode
from prill.types import Trajectory

Order = Literal["file", "random", "informative"]
_GOAL_CHARS = 200


class Worklist:
    """The trajectories to label, by index.

    `ids` and `goals` (truncated to 200 characters) are in that order; `broken` are the skipped
    lines.

    Order "random" sorts by a hash of seed and id, so it is deterministic and stable when
    trajectories are added. `limit` counts in that order. Order "informative" draws `limit`
    trajectories by a judge's `scores`, and `inclusion` has their inclusion probabilities; it is
    empty otherwise. Raises UsageError if no trajectory can be read.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        order: Order = "file",
        seed: int = 0,
        limit: int | None = None,
        scores: Mapping[str, float | None] | None = None,
    ) -> None:
        self.broken: list[BadLine] = []
        self._bodies = scratch_database(self)
        self._bodies.execute("CREATE TABLE bodies (number INTEGER PRIMARY KEY, body BLOB)")
        entries: list[tuple[str, str]] = []
        tasks: dict[str, str] = {}
        reader = TrajectoryReader(paths)
        for _, item in reader:
            if isinstance(item, BadLine):
                self.broken.append(item)
                continue
            self._bodies.execute("INSERT INTO bodies VALUES (?, ?)", (len(entries), encode(item)))
            entries.append((item.id, item.task.goal[:_GOAL_CHARS]))
            tasks[item.id] = make_task(item)
            if order == "file" and len(entries) == limit:
                break
        reader.close()
        self._numbers = list(range(len(entries)))
        if order == "random":
            self._numbers.sort(
                key=lambda number: hashlib.sha256(f"{seed}:{entries[number][0]}".encode()).digest()
            )
        self.inclusion: dict[str, float] = {}
        if order == "informative":
            self.inclusion = draw_informative(tasks, scores or {}, limit or len(entries), seed)
            number_of = {id: number for number, (id, _) in enumerate(entries)}
            self._numbers = [number_of[id] for id in self.inclusion]
        if limit is not None:
            del self._numbers[limit:]
        self.ids = [entries[number][0] for number in self._numbers]
        self.goals = [entries[number][1] for number in self._numbers]

        self.places = {id: place for place, id in enumerate(self.ids)}

    @property
    def problems(self) -> list[str]:
        """Returns the errors of the skipped lines."""
        return [line.message for line in self.broken]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Trajectory:
        row = self._bodies.execute(
            "SELECT body FROM bodies WHERE number = ?", (self._numbers[index],)
        ).fetchone()
        return msgspec.json.decode(row[0], type=Trajectory)

    def close(self) -> None:
        """Deletes the temporary database."""
        self._bodies.close()
