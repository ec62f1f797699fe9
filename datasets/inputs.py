"""The trajectory files that a run reads: files, folders, and other tools' recordings."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, overload

from msgspec import Meta

from prill.config.values import Config
from prill.datasets.formats import FormatLike
from prill.datasets.recordings import Recording, is_native, opened_recordings
from prill.errors import InputError, UsageError
from prill.io.joining import JoinCounts
from prill.io.kinds import trajectory_files
from prill.io.lines import read_lines
from prill.io.store import BadLine, OnError, iter_trajectories
from prill.types import StrPath, Trajectory

log = logging.getLogger("prill.runs")
Recordings = Annotated[
    Sequence[str | Path],
    Meta(
        description="Trajectory files (.jsonl, .jsonl.gz), other tools' recordings, "
        "folders of these, or - for stdin."
    ),
]
FormatOption = Annotated[
    FormatLike | None,
    Meta(description="Format of the recordings (default: detected from their content)."),
]
GoalOption = Annotated[
    str | None, Meta(description="The agent's goal, for recordings without one.")
]
GoalsOption = Annotated[
    str | Path | None,
    Meta(
        description="Goals for recordings without one: a JSON object from id to goal, or lines "
        "with id and goal."
    ),
]


def opened_folders(paths: Iterable[str | Path]) -> list[str]:
    """Returns the trajectory files that paths and folders name, and logs the other files in the
    folders. Raises UsageError.
    """
    return [str(path) for path in trajectory_files(list(map(str, paths)), log.warning)]


@dataclass(frozen=True, kw_only=True)
class RecordingsConfig(Config):
    """Configuration of a run that reads recordings: the files, and what they do not say."""

    trajectories: Recordings
    format: FormatOption = None
    goal: GoalOption = None
    goals: GoalsOption = None

    def opened(self) -> contextlib.AbstractContextManager[tuple[list[str], list[Recording]]]:
        """Opens the trajectory files, and other tools' recordings as temporary ones.

        Returns:
            A context manager that yields the trajectory files, and the recordings among them.

        Raises:
            UsageError: A file is missing, or nothing could be read.
            InputError: The file of goals is broken.
        """
        return opened_recordings(self.trajectories, self.format, self.goal, self.goals)

    def runs(self, path: str | Path | None = None) -> Iterator[Trajectory]:
        """Yields the trajectories of all files, or of one, without broken lines, which are logged.

        Raises:
            UsageError: A file is missing, or nothing could be read.
        """
        names = self.trajectories if path is None else path
        return iter_recordings(names, "skip", format=self.format, goal=self.goal, goals=self.goals)


@contextlib.contextmanager
def opened_trajectories(config: RecordingsConfig) -> Iterator[list[str]]:
    """Opens the trajectory files of a run, as `RecordingsConfig.opened`, without those of folders
    that hold something else.
    """
    with config.opened() as (paths, _):
        yield opened_folders(paths)


@overload
def iter_recordings(
    paths: StrPath | Sequence[StrPath],
    on_error: Literal["raise", "skip"] = "raise",
    *,
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: StrPath | None = None,
) -> Iterator[Trajectory]: ...


@overload
def iter_recordings(
    paths: StrPath | Sequence[StrPath],
    on_error: Literal["yield"],
    *,
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: StrPath | None = None,
) -> Iterator[Trajectory | BadLine]: ...


def iter_recordings(
    paths: StrPath | Sequence[StrPath],
    on_error: OnError = "raise",
    *,
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: StrPath | None = None,
) -> Iterator[Trajectory | BadLine]:
    """Reads the trajectories that `read_trajectories` returns, one at a time.

    The images of another tool's recording are temporary files, deleted after the last trajectory.
    """
    names = [paths] if isinstance(paths, str | os.PathLike) else paths
    with opened_recordings(names, format, goal, goals) as (files, _):
        for file in files:
            yield from iter_trajectories(file, on_error)


_kept = contextlib.ExitStack()  # the images of recordings whose trajectories are in memory
atexit.register(lambda owner: _kept.close() if owner == os.getpid() else None, os.getpid())


@overload
def read_trajectories(
    paths: StrPath | Sequence[StrPath],
    on_error: Literal["raise", "skip"] = "raise",
    *,
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: StrPath | None = None,
) -> list[Trajectory]: ...


@overload
def read_trajectories(
    paths: StrPath | Sequence[StrPath],
    on_error: Literal["yield"],
    *,
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: StrPath | None = None,
) -> list[Trajectory | BadLine]: ...


def read_trajectories(
    paths: StrPath | Sequence[StrPath],
    on_error: OnError = "raise",
    *,
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: StrPath | None = None,
) -> list[Trajectory] | list[Trajectory | BadLine]:
    """Reads trajectories: prill's own files, folders of them, and other tools' recordings.

    `prill.iter_trajectories` takes the same and reads one at a time.

    Args:
        paths: A trajectory file (JSON Lines, plain or gzip), another tool's log, a folder of
            either, `-` for standard input, or a list of these.
        on_error: How a record that is not a trajectory is handled. `raise` stops with an error
            that contains file and line. `skip` leaves it out; the number of these is logged as a
            warning. `yield` returns a `BadLine` in its place, which `prill.score` turns into a
            verdict unscored with `input`.
        format: The format of the recordings. None: detected from their content.
        goal: The agent's goal, for recordings without one.
        goals: A file of goals by id, for recordings without one.

    Returns:
        The trajectories, in order. Images of recordings are temporary files until the process
        ends.

    Raises:
        InputError: With `raise`, a line is invalid. With any `on_error`, an archive is damaged.
        UsageError: A file does not exist, nothing could be read, or `on_error` is invalid.
    """
    names = [paths] if isinstance(paths, str | os.PathLike) else paths
    files, _ = _kept.enter_context(opened_recordings(names, format, goal, goals))
    return [item for file in files for item in iter_trajectories(file, on_error)]


def warn_left_out(path: str | Path, counts: JoinCounts) -> None:
    """Logs what the figures leave out of a file."""
    for line in counts.lines():
        log.warning("%s: %s", path, line)


def count_lines(paths: Iterable[str], limit: int | None = None) -> int:
    """Counts the lines of some files, up to `limit`. A damaged archive is counted up to the
    damage.
    """
    count = 0
    for path in paths:
        with contextlib.suppress(InputError):
            for _ in read_lines(path):
                count += 1
    return count if limit is None else min(count, limit)


def count_trajectories(paths: Iterable[str | Path], limit: int | None = None) -> int:
    """Counts the lines of trajectory files and folders, for a progress bar; 0 if the run will
    fail.
    """
    try:
        if not all(map(is_native, paths)):  # recordings are counted while they are read
            return 0
        return count_lines(map(str, trajectory_files(list(map(str, paths)))), limit)
    except UsageError:
        return 0
