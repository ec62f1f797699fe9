"""A folder of recorded episodes while it is being written: whole after a crash, each id once.

`trajectories.jsonl` has the finished episodes, `labels.jsonl` what an oracle says of them. An episode under way stands in
`partial/`, rewritten after each step; what a stop leaves there goes to `interrupted.jsonl` when the run is taken up.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from prill.errors import InputError, UsageError
from prill.files.kinds import INTERRUPTED, TRAJECTORIES
from prill.files.outputs import Content, LockedFolder, append_whole, check_output, part_of
from prill.store import decode_trajectory, encode, encode_trajectory, read_labels, read_lines
from prill.types import LabelRecord, Trajectory

_BLOCK = 1 << 16
LABELS, PARTIAL = "labels.jsonl", "partial"
_CONTENTS: dict[str, Content] = {TRAJECTORIES: "trajectories", INTERRUPTED: "trajectories", LABELS: "labels"}


class RunFolder(LockedFolder):
    """Opens or makes the folder. Of the episodes `again`, those that ended with an error leave `trajectories.jsonl`, to be
    played once more; their records go to `interrupted.jsonl`.

    Raises UsageError when another process is writing there or nothing can be written, InputError when a file is broken.
    """

    def __init__(self, path: Path, *, again: Collection[str] = ()) -> None:
        self.path = path.resolve()
        self._aside: int | None = None
        with _writing(path):
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / PARTIAL).is_symlink():
                raise UsageError(f"{path / PARTIAL}: is a link, and what it leads to would be deleted; remove the link")
            for name, content in _CONTENTS.items():
                check_output(path / name, content)
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            with _writing(path):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._ids = self._finished(again)
                self._drop_spare_labels(again)
                self._sweep()
            on_failure.pop_all()

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def note(self, trajectory: Trajectory) -> None:
        """Keeps what there is of an episode under way."""
        path = self._partial(trajectory.id)
        try:
            line = encode_trajectory(trajectory, self.path)
        except InputError as error:
            raise UsageError(f"{error}; an environment has to write its screenshots below {self.path}") from None
        with _writing(path):
            path.parent.mkdir(exist_ok=True)
            _replace(path, [line])

    def drop(self, trajectory: Trajectory) -> None:
        """Sets an episode aside that is to be played again, or forgets it where it has no step."""
        with _writing(self.path):
            if trajectory.steps:
                self._set_aside(trajectory)
            self._partial(trajectory.id).unlink(missing_ok=True)

    def keep(self, trajectory: Trajectory, label: LabelRecord | None) -> None:
        """Keeps a finished episode. A crash between the two lines leaves a label to spare, which the next start drops."""
        with _writing(self.path):
            if label is not None:
                _append(self.path / LABELS, encode(label))
            _append(self.path / TRAJECTORIES, encode_trajectory(trajectory, self.path))
            self._ids.add(trajectory.id)
            self._partial(trajectory.id).unlink(missing_ok=True)

    def _partial(self, id: str) -> Path:
        return self.path / PARTIAL / f"{hashlib.sha256(id.encode()).hexdigest()[:16]}.json"

    def _finished(self, again: Collection[str]) -> set[str]:
        path = self.path / TRAJECTORIES
        ids: set[str] = set()
        leave: set[int] = set()
        for line in read_lines(path) if _mended(path) else ():
            try:
                trajectory = decode_trajectory(line.data, self.path)
            except InputError as error:
                raise InputError(f"{path}:{line.number}: {error}; mend the line or record to another folder") from None
            if trajectory.error is not None and trajectory.id in again:
                self._set_aside(trajectory)
                leave.add(line.number)
            else:
                ids.add(trajectory.id)
        if leave:
            _replace(path, (line.data + b"\n" for line in read_lines(path) if line.number not in leave))
        return ids

    def _drop_spare_labels(self, again: Collection[str]) -> None:
        """An episode that is played again may end otherwise, so its old label must not stay; people's labels of others do."""
        path = self.path / LABELS
        labels = list(read_labels(path)) if _mended(path) else []
        kept = [x for x in labels if x.id in self._ids or (x.source == "human" and x.id not in again)]
        if len(kept) < len(labels):
            _replace(path, map(encode, kept))

    def _sweep(self) -> None:
        for path in sorted((self.path / PARTIAL).glob("*")):
            if path.suffix == ".json":
                try:
                    trajectory = decode_trajectory(path.read_bytes(), self.path)
                except InputError as error:
                    raise InputError(f"{path}: {error}; it is no record of an episode under way, so delete it") from None
                if trajectory.id not in self._ids:
                    stopped = "the run was stopped in the middle of this episode"
                    self._set_aside(replace(trajectory, error=stopped, metadata={**trajectory.metadata, "ended_by": "error"}))
            path.unlink()

    def _set_aside(self, trajectory: Trajectory) -> None:
        """The same episode may be interrupted again and again: each time is a record of its own."""
        path = self.path / INTERRUPTED
        if self._aside is None:
            self._aside = sum(1 for _ in read_lines(path)) if _mended(path) else 0
        self._aside += 1
        _append(path, encode_trajectory(replace(trajectory, id=f"{trajectory.id}~{self._aside}"), self.path))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise UsageError(f"{path}: another process is recording to this folder") from None
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot be written: {error.strerror}") from error


def _mended(path: Path) -> bool:
    """Cuts off a last line that a crash left incomplete; whether anything is there."""
    if not path.exists():
        return False
    with path.open("rb+") as file:
        size = start = file.seek(0, os.SEEK_END)
        tail = b""
        while start and b"\n" not in tail:
            end, start = start, max(0, start - _BLOCK)
            file.seek(start)
            tail = file.read(end - start) + tail
        last = tail[tail.rfind(b"\n") + 1 :]
        if last and _whole(last):
            file.seek(size)
            file.write(b"\n")
            return True
        file.truncate(size - len(last))
        return size > len(last)


def _whole(line: bytes) -> bool:
    """Whether only its newline is missing, as editors may leave it: no part of a JSON object is one."""
    try:
        json.loads(line)
    except ValueError:
        return False
    except RecursionError:
        return True  # whatever it is: no half of a line that is written here
    return True


def _append(path: Path, line: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        append_whole(file.fileno(), line)


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    part = part_of(path)
    with part.open("xb") as file:
        file.writelines(lines)
    part.replace(path)
