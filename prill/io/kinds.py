"""Detects a file's kind from its content, and finds the trajectory files of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from prill.errors import InputError, UsageError
from prill.io.lines import MAX_VALUES, UNREADABLE, check_values, is_stream, read_lines

Kind = Literal["trajectories", "labels", "verdicts"]
# file names in a recording folder
TRAJECTORIES, INTERRUPTED = "trajectories.jsonl", "interrupted.jsonl"
LABELS = "labels.jsonl"
# The first of these keys that a record contains determines its kind.
_TELLTALE: dict[str, Kind] = {"task": "trajectories", "evaluator": "verdicts", "success": "labels"}


def detect_kind(data: bytes) -> Kind | None:
    """Returns the kind of file that a line belongs to, or None if the line does not show it."""
    record = parse_object(data)
    return (
        None
        if record is None
        else next((kind for key, kind in _TELLTALE.items() if key in record), None)
    )


def parse_object(data: bytes) -> dict[str, object] | None:
    """Parses a line as a JSON object; None if it is not one."""
    try:
        check_values(data, MAX_VALUES)
        record = msgspec.json.decode(data)
    except UNREADABLE:
        return None
    return record if isinstance(record, dict) else None


def detect_file_kind(path: str | os.PathLike[str]) -> Kind | None:
    """Returns the kind of a file, from the first line that shows it.

    Raises UsageError or InputError if the file cannot be read.
    """
    return next((kind for line in read_lines(path) if (kind := detect_kind(line.data))), None)


def trajectory_files(
    paths: Iterable[str | os.PathLike[str]], say: Callable[[str], object] = lambda message: None
) -> list[str | os.PathLike[str]]:
    """Returns the files, and each folder's trajectory files (`*.jsonl`, `*.jsonl.gz`) sorted by
    name.

    `say` is called with a message about other files. Interrupted episodes of a recording folder are
    left out. Raises UsageError for a folder without trajectories.
    """
    files: list[str | os.PathLike[str]] = []
    for path in paths:
        files += _of_folder(path, say) if os.path.isdir(path) else [path]
    return files


def transcript_folder(verdicts: str | os.PathLike[str]) -> Path:
    """Returns the default transcripts folder of a verdict file.

    Returns:
        The folder next to it: `v.transcripts` for `v.jsonl`.
    """
    path = Path(verdicts)
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + ".transcripts")


def jsonl_files(folder: str | os.PathLike[str]) -> list[str]:
    """Returns the names of a folder's JSON Lines files, sorted.

    Pipes and devices are left out: reading from them could block forever.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from None
    names = [name for name in names if name.endswith((".jsonl", ".jsonl.gz")) and name[0] != "."]
    paths = (os.path.join(folder, name) for name in names)
    return [path for path in paths if not is_stream(path)]


def _of_folder(folder: str | os.PathLike[str], say: Callable[[str], object]) -> list[str]:
    files, others = [], []
    candidates = jsonl_files(folder)
    is_run = os.path.join(folder, TRAJECTORIES) in candidates
    for path in candidates:
        name = os.path.basename(path)
        holds = "interrupted attempts" if is_run and name == INTERRUPTED else _content(path)
        if holds == "trajectories":
            files.append(path)
        else:
            others.append(f"{name} ({holds})")
    if not files:
        contents = f"; it has {', '.join(others)}" if others else ""
        raise UsageError(
            f"{folder}: is a directory without trajectory files (*.jsonl or "
            f"*.jsonl.gz){contents}; choose another"
        )
    if others:
        say(f"{folder}: not read as trajectories: {', '.join(others)}")
    return files


def _content(path: str) -> str:
    try:
        return detect_file_kind(path) or "of unknown kind"
    except (UsageError, InputError):
        return "cannot be read"
