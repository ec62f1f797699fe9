"""A folder of recorded episodes while it is being written: whole after a crash, each id once.

`trajectories.jsonl` has the finished episodes, `labels.jsonl` what an oracle says of them. An episode under way stands in
`partial/`, rewritten after each step; what a stop leaves there goes to `interrupted.jsonl` when the run is taken up.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from prill.errors import InputError, UsageError
from prill.store import decode_trajectory, encode, encode_trajectory, read_labels, read_lines
from prill.types import LabelRecord, Trajectory

TRAJECTORIES, LABELS, INTERRUPTED, PARTIAL = "trajectories.jsonl", "labels.jsonl", "interrupted.jsonl", "partial"


class RunFolder:
    """Opens or makes the folder. With `retry_broken`, episodes that ended with an error leave `trajectories.jsonl`, to be
    played again; their records go to `interrupted.jsonl`.

    Raises UsageError when another process is writing there, InputError when a file is broken.
    """

    def __init__(self, path: Path, *, retry_broken: bool = False) -> None:
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UsageError(f"{path}: another process is recording to this folder") from None
        try:
            self._ids = {trajectory.id for trajectory in self._finished(retry_broken)}
            self._drop_spare_labels()
            self._sweep()
        except BaseException:
            self.close()
            raise

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def note(self, trajectory: Trajectory) -> None:
        """Keeps what there is of an episode under way."""
        path = self._partial(trajectory.id)
        path.parent.mkdir(exist_ok=True)
        try:
            _replace(path, encode_trajectory(trajectory, self.path))
        except InputError as error:
            raise UsageError(f"the environment has to write its screenshots below {self.path}: {error}") from None

    def keep(self, trajectory: Trajectory, label: LabelRecord | None) -> None:
        """Keeps a finished episode. A crash between the two lines leaves a label to spare, which the next start drops."""
        if label is not None:
            _append(self.path / LABELS, encode(label))
        _append(self.path / TRAJECTORIES, encode_trajectory(trajectory, self.path))
        self._ids.add(trajectory.id)
        self._partial(trajectory.id).unlink(missing_ok=True)

    def close(self) -> None:
        """Lets others write; safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _partial(self, id: str) -> Path:
        return self.path / PARTIAL / f"{hashlib.sha256(id.encode()).hexdigest()[:16]}.json"

    def _finished(self, retry_broken: bool) -> list[Trajectory]:
        path = self.path / TRAJECTORIES
        if not _mended(path):
            return []
        read: list[tuple[Trajectory, bytes]] = []
        for line in read_lines(path):
            try:
                read.append((decode_trajectory(line.data, self.path), line.data + b"\n"))
            except InputError as error:
                raise InputError(f"{path}:{line.number}: {error}; mend the line or record to another folder") from None
        if retry_broken and any(trajectory.error is not None for trajectory, _ in read):
            for trajectory, _ in read:
                if trajectory.error is not None:
                    self._set_aside(trajectory)
            read = [(trajectory, line) for trajectory, line in read if trajectory.error is None]
            _replace(path, b"".join(line for _, line in read))
        return [trajectory for trajectory, _ in read]

    def _drop_spare_labels(self) -> None:
        """An episode that is played again may end otherwise, so its old label must not stay."""
        path = self.path / LABELS
        labels = list(read_labels(path)) if _mended(path) else []
        kept = [label for label in labels if label.id in self._ids]
        if len(kept) < len(labels):
            _replace(path, b"".join(map(encode, kept)))

    def _sweep(self) -> None:
        for path in sorted((self.path / PARTIAL).glob("*")):
            if path.suffix == ".json":
                trajectory = decode_trajectory(path.read_bytes(), self.path)
                if trajectory.id not in self._ids:
                    stopped = "the run was stopped in the middle of this episode"
                    self._set_aside(replace(trajectory, error=stopped, metadata={**trajectory.metadata, "ended_by": "error"}))
            path.unlink()

    def _set_aside(self, trajectory: Trajectory) -> None:
        """The same episode may be interrupted again and again: each time is a record of its own."""
        path = self.path / INTERRUPTED
        count = sum(1 for _ in read_lines(path)) if _mended(path) else 0
        _append(path, encode_trajectory(replace(trajectory, id=f"{trajectory.id}~{count + 1}"), self.path))


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


def _replace(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)
