"""Opens recordings of any known format as trajectory files for the duration of a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prill.datasets.convert import ConversionReport, convert
from prill.datasets.formats import FormatConfig, FormatLike, only_format, open_recording, recognise
from prill.datasets.reading.records import UNREADABLE, read_file
from prill.datasets.reading.sources import Source
from prill.errors import InputError, UsageError
from prill.io.kinds import TRAJECTORIES
from prill.io.lines import is_stream
from prill.temporary import TempFolder, remove_abandoned

_PREFIX = "prill-recording-"
_MAX_PROBLEMS = 20
_log = logging.getLogger("prill.datasets.recordings")


@dataclass(frozen=True)
class Recording:
    """A recording and the result of converting it.

    Args:
        source: The file or folder.
        format: The name of its format.
        file: Its trajectories, in a folder with their images.
        report: Counts, and the error of each broken record.
    """

    source: Path
    format: str
    file: Path
    report: ConversionReport


def is_native(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file has prill's own records, or a folder has trajectories.

    Input from a pipe counts as prill's own.

    Verdicts in a folder of logs are those of an earlier run.
    """
    if is_stream(path):
        return True
    source = Source(path)
    if not source.is_folder and any(map(_is_record, source.records)):
        return True
    return source.has(lambda file: any(map(_is_trajectory, file.records)), "*.jsonl", "*.jsonl.gz")


def recording_format(path: str | os.PathLike[str], format: FormatLike | None = None) -> str | None:
    """Returns the name of the format of a file or folder, or the requested one; None if it is
    prill's own or unknown. Raises UsageError if several match, and none is requested.
    """
    if format is not None:
        described = FormatConfig.read(format, "format")
        return str(described.name)
    if is_native(path) or not Path(path).exists():
        return None
    found = recognise(path)
    return only_format(path, found) if found else None


@contextmanager
def opened_recordings(
    paths: Iterable[str | os.PathLike[str]],
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[list[str], list[Recording]]]:
    """Yields the paths with recordings in other formats replaced by temporary trajectory files.

    The files are removed after the block.

    Args:
        paths: Trajectory files, folders of them, and recordings.
        format: The format of all of them; None: detected from the content.
        goal: The goal of each run whose recording has none.
        goals: A file of such goals: see `read_goals`.

    Yields:
        The paths to read, and the recordings among them.

    Raises:
        UsageError: Several formats match a recording, or no trajectory could be read from it.
        InputError: The file of goals is broken.
    """
    by_id = read_goals(goals) if goals is not None else {}
    opened: list[str] = []
    recordings: list[Recording] = []
    with ExitStack() as folders:
        for path in paths:
            name = recording_format(path, format)
            if name is None:
                opened.append(os.fspath(path))
                continue
            remove_abandoned(_PREFIX)
            folder = TempFolder(_PREFIX)
            folders.callback(folder.close)
            trajectories, _ = open_recording(format or name, path, goal=goal, goals=by_id)
            report = convert(trajectories, (), folder.path, keep_broken=True)
            expect_trajectories(path, name, report)
            for problem in report.problems[:_MAX_PROBLEMS]:
                _log.warning("%s", problem)
            _log.info("%s: read as %s, %d trajectories", path, name, report.trajectories)
            recordings.append(Recording(Path(path), name, folder.path / TRAJECTORIES, report))
            opened.append(str(recordings[-1].file))
        yield opened, recordings


def expect_trajectories(
    path: str | os.PathLike[str], format: str, report: ConversionReport
) -> None:
    """Raises UsageError with the errors if no trajectory of a recording could be read."""
    if not report.trajectories:
        problems = "".join(f"\nleft out: {problem}" for problem in report.problems[:_MAX_PROBLEMS])
        has_goals = any("no goal" in problem for problem in report.problems)
        raise UsageError(
            f"{path}: no trajectory of format {format} could be read{problems}",
            parameters=("goal", "goals") if has_goals else (),
        )


def read_goals(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Reads goals by the id of a run or of its task from a JSON object, or from JSON lines of
    objects with `id` and `goal`. Raises InputError for a broken file.
    """
    try:
        data = read_file(path)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except UNREADABLE:
        pass
    goals: dict[str, str] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                row = msgspec.json.decode(line, type=_Goal)
            except UNREADABLE as error:
                raise InputError(
                    f"{path}:{number}: expected an object with id and goal: {error}"
                ) from None
            goals[row.id] = row.goal
    return goals


@dataclass(frozen=True)
class _Goal:
    id: str
    goal: str


def _is_trajectory(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("task"), dict)


def _is_record(value: object) -> bool:
    """Returns whether a value is a verdict or a label."""
    return isinstance(value, dict) and (
        isinstance(value.get("evaluator"), dict) or {"id", "success"} <= value.keys()
    )
