"""The folder of recorded episodes: consistent after a crash, and without duplicate ids.

`trajectories.jsonl` contains the finished episodes, `labels.jsonl` the labels of an oracle. A
running episode is in `partial/` and is rewritten after each step; when an interrupted run is
resumed, it moves to `interrupted.jsonl`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from prill.episodes.loop import is_unpaid
from prill.errors import InputError, UsageError
from prill.io.append_log import AppendLog
from prill.io.kinds import INTERRUPTED, LABELS, TRAJECTORIES
from prill.io.outputs import Content, LockedFolder, check_output, lock_or_raise, part_path
from prill.io.store import decode_trajectory, encode_trajectory, read_labels, read_records
from prill.types import LabelRecord, Trajectory

PARTIAL = "partial"
_CONTENTS: dict[str, Content] = {
    TRAJECTORIES: "trajectories",
    INTERRUPTED: "trajectories",
    LABELS: "labels",
}


class _Played(msgspec.Struct):
    id: str
    error: str | None = None


def unlabelled_attempts(folder: Path) -> set[str]:
    """Returns the ids of the recorded attempts that ended without error and have no label.

    An oracle labels each of them, so where one graded the attempts, their labels were lost.
    """
    played, labels = folder / TRAJECTORIES, folder / LABELS
    found = {one.id for one in read_records(played, _Played) if one.error is None}
    if labels.exists() and labels.stat().st_size:
        found -= {label.id for label in read_labels(labels)}
    return found


class RunFolder(LockedFolder):
    """A run folder, opened for recording and created if it does not exist.

    Episodes in `again` that ended with an error, and those in `unpaid` that ended because the
    budget was spent, are removed from `trajectories.jsonl` so that they are run again. Their
    records move to `interrupted.jsonl`.

    Raises UsageError if another process writes to the folder, if it cannot be written, or if a file
    is damaged; InputError if the record of a running episode is damaged.
    """

    def __init__(
        self, path: Path, *, again: Collection[str] = (), unpaid: Collection[str] = ()
    ) -> None:
        self.path = path.resolve()
        self._aside = 0
        self._left: set[str] = set()
        self._logs: dict[str, AppendLog[Any]] = {}
        with _writing(path):
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / PARTIAL).is_symlink():
                raise UsageError(
                    f"{path / PARTIAL}: is a link whose target would be deleted; remove the link"
                )
            for name, content in _CONTENTS.items():
                check_output(path / name, content)
        with ExitStack() as on_failure:
            on_failure.callback(self._abandon)
            with _writing(path):
                self._lock = lock_or_raise(
                    self.path / ".lock", f"{path}: another process is recording to this folder"
                )
                self._ids = self._finished(again, unpaid)
                self._drop_spare_labels(again)
                self._sweep()
            on_failure.pop_all()

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def close(self) -> None:
        """Flushes the files to disk and releases the lock; safe to call twice."""
        try:
            for log in self._logs.values():
                log.close()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        for log in self._logs.values():
            log.abandon()
        super().close()

    def note(self, trajectory: Trajectory) -> None:
        """Saves the state of a running episode."""
        path = self._partial(trajectory.id)
        try:
            line = encode_trajectory(trajectory, self.path)
        except InputError as error:
            raise UsageError(
                f"{error}; the environment must write its screenshots inside {self.path}"
            ) from None
        with _writing(path):
            path.parent.mkdir(exist_ok=True)
            _written(path, [line]).replace(path)

    def drop(self, trajectory: Trajectory) -> None:
        """Moves an episode that will be run again to the interrupted ones; without steps, deletes
        it.
        """
        with _writing(self.path):
            if trajectory.steps:
                self._set_aside(trajectory)
            self._partial(trajectory.id).unlink(missing_ok=True)

    def keep(self, trajectory: Trajectory, label: LabelRecord | None) -> None:
        """Stores a finished episode and its label.

        After a crash between the two writes there is a label without a trajectory, which the next
        start removes.
        """
        with _writing(self.path):
            line = encode_trajectory(trajectory, self.path)
            if label is not None:
                self._open(LABELS).append(label)
            self._open(TRAJECTORIES).append_line(line)
            self._ids.add(trajectory.id)
            self._partial(trajectory.id).unlink(missing_ok=True)

    def _partial(self, id: str) -> Path:
        return self.path / PARTIAL / f"{hashlib.sha256(id.encode()).hexdigest()[:16]}.json"

    def _finished(self, again: Collection[str], unpaid: Collection[str]) -> set[str]:
        ids: set[str] = set()
        leave: set[int] = set()

        def take(trajectory: Trajectory, start: int) -> None:
            if (trajectory.error is not None and trajectory.id in again) or (
                is_unpaid(trajectory.error) and trajectory.id in unpaid
            ):
                self._left.add(trajectory.id)
                self._set_aside(trajectory)
                leave.add(start)
            else:
                ids.add(trajectory.id)

        if (self.path / TRAJECTORIES).exists():
            log = self._open(TRAJECTORIES, take)
            if leave:
                log.replace(line for start, line in log.lines() if start not in leave)
        return ids

    def _drop_spare_labels(self, again: Collection[str]) -> None:
        """Removes the labels of episodes that are run again, because they may end differently.

        Labels of other episodes, such as those of people, are kept.
        """
        left = {*again, *self._left}
        spare: set[int] = set()

        def take(label: LabelRecord, start: int) -> None:
            if label.id not in self._ids and (label.source != "human" or label.id in left):
                spare.add(start)

        if (self.path / LABELS).exists():
            log = self._open(LABELS, take)
            if spare:
                log.replace(line for start, line in log.lines() if start not in spare)

    def _sweep(self) -> None:
        for path in sorted((self.path / PARTIAL).glob("*")):
            if path.suffix == ".json":
                try:
                    trajectory = decode_trajectory(path.read_bytes(), self.path)
                except InputError as error:
                    raise InputError(
                        f"{path}: {error}; it is not the record of an unfinished episode, "
                        "so delete it"
                    ) from None
                if trajectory.id not in self._ids:
                    stopped = "the run was interrupted during this episode"
                    self._set_aside(
                        replace(
                            trajectory,
                            error=stopped,
                            metadata={**trajectory.metadata, "ended_by": "error"},
                        )
                    )
            path.unlink()

    def _set_aside(self, trajectory: Trajectory) -> None:
        """Appends an episode to the interrupted ones; each interruption is a record of its own."""

        def count(record: object, start: int) -> None:
            self._aside += 1

        log = self._open(INTERRUPTED, count)
        self._aside += 1
        log.append_line(
            encode_trajectory(replace(trajectory, id=f"{trajectory.id}~{self._aside}"), self.path)
        )

    def _open(
        self, name: str, take: Callable[[Any, int], object] = lambda record, start: None
    ) -> AppendLog[Any]:
        """Opens one of the append-only files; `take` is called with each record that it
        contains.
        """
        if name not in self._logs:
            decoders = {
                TRAJECTORIES: partial(decode_trajectory, root=self.path),
                INTERRUPTED: msgspec.json.decode,
            }
            self._logs[name] = AppendLog(
                self.path / name,
                LabelRecord if name == LABELS else Trajectory,
                take,
                what="label" if name == LABELS else "trajectory",
                decode=cast(Any, decoders.get(name)),
                advice="fix the line or record to another folder",
            )
        return self._logs[name]


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{error.filename or path}: cannot be written: {error.strerror}"
        ) from error


def _written(path: Path, lines: Iterable[bytes]) -> Path:
    """Writes lines to a temporary file that will replace the given one."""
    part = part_path(path)
    with part.open("xb") as file:
        file.writelines(lines)
    return part
