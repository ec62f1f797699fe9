"""Detects what a file holds by its content, and which files of a folder are trajectories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from prill.errors import InputError, UsageError
from prill.io.checksums import CHECKSUMS
from prill.io.lines import read_lines

Kind = Literal["trajectories", "labels", "verdicts"]
# of a folder that is recorded to
TRAJECTORIES, INTERRUPTED = "trajectories.jsonl", "interrupted.jsonl"
# The first of these keys that a record has tells its kind.
_TELLTALE: dict[str, Kind] = {"task": "trajectories", "evaluator": "verdicts", "success": "labels"}


def detect_kind(data: bytes) -> Kind | None:
    """The kind of file that a line plainly belongs to; None when it does not tell."""
    record = parse_object(data)
    return (
        None
        if record is None
        else next((kind for key, kind in _TELLTALE.items() if key in record), None)
    )


def parse_object(data: bytes) -> dict[str, object] | None:
    """The JSON object of a line; None when it is none."""
    try:
        record = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def kind_of_file(path: str | os.PathLike[str]) -> Kind | None:
    """The kind of the first line that tells one. Raises UsageError or InputError for what cannot be
    read.
    """
    return next((kind for line in read_lines(path) if (kind := detect_kind(line.data))), None)


def trajectory_files(
    paths: Iterable[str | os.PathLike[str]], say: Callable[[str], object] = lambda words: None
) -> list[str | os.PathLike[str]]:
    """The files, and for each folder its trajectory files (`*.jsonl`, `*.jsonl.gz`) in the order of
    their names.

    `say` is told what else is there. Of a folder that was recorded to, interrupted attempts are
    left out. Raises UsageError for a folder without trajectories.
    """
    files: list[str | os.PathLike[str]] = []
    for path in paths:
        files += _of_folder(path, say) if os.path.isdir(path) else [path]
    return files


def jsonl_files(folder: str | os.PathLike[str]) -> list[str]:
    """The JSON Lines files of a folder, by name."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from None
    names = [
        name
        for name in names
        if name.endswith((".jsonl", ".jsonl.gz")) and name[0] != "." and name != CHECKSUMS
    ]
    return [os.path.join(folder, name) for name in names]


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
        there = f"; it has {', '.join(others)}" if others else ""
        raise UsageError(
            f"{folder}: is a directory without trajectory files (*.jsonl or *.jsonl.gz){there}; "
            "name another"
        )
    if others:
        say(f"{folder}: not read as trajectories: {', '.join(others)}")
    return files


def _content(path: str) -> str:
    try:
        return kind_of_file(path) or "of no known kind"
    except (UsageError, InputError):
        return "cannot be read"
