"""Opens recordings of any known format as trajectory files for the duration of a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from prill.datasets.convert import ConversionReport, convert
from prill.datasets.formats import FormatConfig, FormatLike, only_format, open_recording, recognise
from prill.datasets.reading.records import decode_json, read_file
from prill.datasets.reading.sources import Source
from prill.errors import InputError, UsageError
from prill.io.kinds import TRAJECTORIES
from prill.io.lines import is_stream
from prill.io.store import BadLine
from prill.temporary import TempFolder, remove_abandoned
from prill.types import StrPath, Trajectory

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


def is_native(path: StrPath) -> bool:
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


def recording_format(path: StrPath, format: FormatLike | None = None) -> str | None:
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
    paths: Iterable[StrPath],
    format: FormatLike | None = None,
    goal: str | None = None,
    goals: StrPath | None = None,
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
    names = [os.fspath(path) for path in paths]
    opened: list[str] = []
    recordings: list[Recording] = []
    with ExitStack() as folders:
        formats = [recording_format(path, format) for path in names]
        logs = [path for path, name in zip(names, formats, strict=True) if name is not None]
        for path, name in zip(names, formats, strict=True):
            if name is None:
                opened.append(path)
                continue
            remove_abandoned(_PREFIX)
            folder = TempFolder(_PREFIX)
            folders.callback(folder.close)
            trajectories, _ = open_recording(format or name, path, goal=goal, goals=by_id)
            named = _distinguished(trajectories, path, logs)
            report = convert(named, (), folder.path, keep_broken=True)
            expect_trajectories(path, name, report)
            for problem in report.problems[:_MAX_PROBLEMS]:
                _log.warning("%s", problem)
            _log.info("%s: read as %s, %d trajectories", path, name, report.trajectories)
            recordings.append(Recording(Path(path), name, folder.path / TRAJECTORIES, report))
            opened.append(str(recordings[-1].file))
        yield opened, recordings


def _base(path: str) -> Path:
    """Returns the folder that names in a file or folder are relative to."""
    whole = Path(os.path.abspath(path))
    return whole if whole.is_dir() else whole.parent


def _stems(path: str) -> set[str]:
    """Returns what ids may begin with: names of files without suffixes, and of folders of files."""
    names = list(map(Path, Source(path).names if os.path.isdir(path) else [Path(path).name]))
    files = {(name.parent / name.name.partition(".")[0]).as_posix() for name in names}
    return files.union(parent.as_posix() for name in names for parent in name.parents[:-1])


def _distinguished(
    items: Iterator[Trajectory | BadLine], path: str, paths: Iterable[str]
) -> Iterator[Trajectory | BadLine]:
    """Yields the runs of a file or folder. Ids that are made of a name which another of the paths
    has, too, also have the folder, as if the folder of them all were read.
    """
    base, stems = _base(path), _stems(path)
    others = {_base(other): stems & _stems(other) for other in paths if _base(other) != base}
    shared = set[str]().union(*others.values())
    alike = [base, *(other for other, names in others.items() if names)]
    folder = os.path.relpath(base, os.path.commonpath(alike))
    for item in items:
        ends = (i for i in range(1, len(item.id) + 1) if not item.id[i : i + 1].isalnum())
        here = folder != "." and any(item.id[:end] in shared for end in ends)
        yield replace(item, id=f"{folder}/{item.id}") if here else item


def expect_trajectories(path: StrPath, format: str, report: ConversionReport) -> None:
    """Raises UsageError with the errors if no trajectory of a recording could be read."""
    if not report.trajectories:
        problems = "".join(f"\nleft out: {problem}" for problem in report.problems[:_MAX_PROBLEMS])
        has_goals = any("no goal" in problem for problem in report.problems)
        raise UsageError(
            f"{path}: no trajectory of format {format} could be read{problems}",
            parameters=("goal", "goals") if has_goals else (),
        )


def read_goals(path: StrPath) -> Mapping[str, str]:
    """Reads goals by the id of a run or of its task from a JSON object, or from JSON lines of
    objects with `id` and `goal`. Raises InputError for a broken file.
    """
    try:
        data = read_file(path)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    try:
        return decode_json(data, dict[str, str])
    except InputError:
        pass
    goals: dict[str, str] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                row = decode_json(line, _Goal)
            except InputError as error:
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
