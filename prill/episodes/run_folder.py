"""A folder of recorded episodes while it is being written: whole after a crash, each id once.

`trajectories.jsonl` has the finished episodes, `labels.jsonl` what an oracle says of them. An episode under way stands in
`partial/`, rewritten after each step; what a stop leaves there goes to `interrupted.jsonl` when the run is taken up.
`checksums.jsonl` says what all of these hold, screenshots included (see `prill.io.checksums`).
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

from prill.episodes.loop import is_unpaid
from prill.errors import InputError, UsageError
from prill.io.checksums import Checksums, Growing
from prill.io.kinds import INTERRUPTED, TRAJECTORIES
from prill.io.outputs import Content, LockedFolder, append_whole, check_output, part_of
from prill.io.store import decode_trajectory, encode, encode_trajectory, read_labels, read_lines, screenshots_of
from prill.types import LabelRecord, Trajectory

_BLOCK = 1 << 16
LABELS, PARTIAL = "labels.jsonl", "partial"
_CONTENTS: dict[str, Content] = {TRAJECTORIES: "trajectories", INTERRUPTED: "trajectories", LABELS: "labels"}


class RunFolder(LockedFolder):
    """Opens or makes the folder. Of the episodes `again`, those that ended with an error leave `trajectories.jsonl`, to be
    played once more; so do those of the episodes `unpaid` that a spent budget ended. Their records go to `interrupted.jsonl`.
    `checked`: the caller has compared all files with their checksums, so only those that are written to are compared here.

    Raises UsageError when another process is writing there, nothing can be written, or a file is not as a run left it,
    InputError when a file is broken.
    """

    def __init__(self, path: Path, *, again: Collection[str] = (), unpaid: Collection[str] = (), checked: bool = False) -> None:
        self.path = path.resolve()
        self._aside: int | None = None
        self._left: set[str] = set()
        self._growing: dict[str, Growing] = {}
        with _writing(path):
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / PARTIAL).is_symlink():
                raise UsageError(f"{path / PARTIAL}: is a link, and what it leads to would be deleted; remove the link")
            for name, content in _CONTENTS.items():
                check_output(path / name, content)
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        with ExitStack() as on_failure:
            on_failure.callback(super().close)
            with _writing(path):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._checksums = Checksums(self.path)
                if not checked:
                    self._checksums.check()
                self._growing = {name: self._checksums.growing(name) for name in _CONTENTS}
                self._ids = self._finished(again, unpaid)
                self._drop_spare_labels(again)
                self._sweep()
            on_failure.pop_all()

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def close(self) -> None:
        """Notes that the files are whole, and lets others in; safe to call twice."""
        try:
            if self._lock >= 0:
                for growing in self._growing.values():
                    growing.close()
        finally:
            super().close()

    def note(self, trajectory: Trajectory) -> None:
        """Keeps what there is of an episode under way."""
        path = self._partial(trajectory.id)
        try:
            line = encode_trajectory(trajectory, self.path)
        except InputError as error:
            raise UsageError(f"{error}; an environment has to write its screenshots below {self.path}") from None
        with _writing(path):
            path.parent.mkdir(exist_ok=True)
            _written(path, [line]).replace(path)

    def drop(self, trajectory: Trajectory) -> None:
        """Sets an episode aside that is to be played again, or forgets it where it has no step."""
        with _writing(self.path):
            if trajectory.steps:
                self._set_aside(trajectory)
            self._partial(trajectory.id).unlink(missing_ok=True)

    def keep(self, trajectory: Trajectory, label: LabelRecord | None) -> None:
        """Keeps a finished episode. A crash between the two lines leaves a label to spare, which the next start drops."""
        with _writing(self.path):
            line = encode_trajectory(trajectory, self.path)
            self._checksums.note(*self._new_images(trajectory))
            if label is not None:
                self._append(LABELS, encode(label))
            self._append(TRAJECTORIES, line)
            self._ids.add(trajectory.id)
            self._partial(trajectory.id).unlink(missing_ok=True)

    def _partial(self, id: str) -> Path:
        return self.path / PARTIAL / f"{hashlib.sha256(id.encode()).hexdigest()[:16]}.json"

    def _finished(self, again: Collection[str], unpaid: Collection[str]) -> set[str]:
        path = self.path / TRAJECTORIES
        ids: set[str] = set()
        leave: set[int] = set()
        for line in read_lines(path) if self._mend(TRAJECTORIES) else ():
            try:
                trajectory = decode_trajectory(line.data, self.path)
            except InputError as error:
                raise InputError(f"{path}:{line.number}: {error}; mend the line or record to another folder") from None
            if (trajectory.error is not None and trajectory.id in again) or (
                is_unpaid(trajectory.error) and trajectory.id in unpaid
            ):
                self._left.add(trajectory.id)
                self._set_aside(trajectory)
                leave.add(line.number)
            else:
                ids.add(trajectory.id)
        if leave:
            self._replace(TRAJECTORIES, (line.data + b"\n" for line in read_lines(path) if line.number not in leave))
        return ids

    def _drop_spare_labels(self, again: Collection[str]) -> None:
        """An episode that is played again may end otherwise, so its old label must not stay; people's labels of others do."""
        labels = list(read_labels(self.path / LABELS)) if self._mend(LABELS) else []
        left = {*again, *self._left}
        kept = [x for x in labels if x.id in self._ids or (x.source == "human" and x.id not in left)]
        if len(kept) < len(labels):
            self._replace(LABELS, map(encode, kept))

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
            self._aside = sum(1 for _ in read_lines(path)) if self._mend(INTERRUPTED) else 0
        self._aside += 1
        self._append(INTERRUPTED, encode_trajectory(replace(trajectory, id=f"{trajectory.id}~{self._aside}"), self.path))

    def _new_images(self, trajectory: Trajectory) -> list[str]:
        """The screenshots of an episode that are not on record yet, as names in the folder."""
        names = dict.fromkeys(os.path.relpath(os.path.realpath(path), self.path) for path, _ in screenshots_of(trajectory))
        return [name for name in names if name not in self._checksums]

    def _mend(self, name: str) -> bool:
        """Cuts off a last line that a crash left incomplete; whether anything is there."""
        filled = _mended(self.path / name)
        self._growing[name].restart()
        return filled

    def _append(self, name: str, line: bytes) -> None:
        with self._growing[name].adding(line), (self.path / name).open("ab", buffering=0) as file:
            append_whole(file.fileno(), line)

    def _replace(self, name: str, lines: Iterable[bytes]) -> None:
        part = _written(self.path / name, lines)
        with self._growing[name].replacing(part):
            part.replace(self.path / name)
        self._growing[name].restart()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise UsageError(f"{path}: another process is recording to this folder") from None
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot be written: {error.strerror}") from error


def _mended(path: Path) -> bool:
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


def _written(path: Path, lines: Iterable[bytes]) -> Path:
    """What is to take the place of a file, beside it."""
    part = part_of(path)
    with part.open("xb") as file:
        file.writelines(lines)
    return part
