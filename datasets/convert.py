"""Converts a recording in another format to a folder of trajectories, labels and images."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from prill.errors import InputError, UsageError
from prill.io.outputs import part_path
from prill.io.store import (
    BadLine,
    copy_image,
    encode,
    encode_bad_line,
    encode_trajectory,
    with_screenshots,
)
from prill.types import Action, LabelRecord, Trajectory

_T = TypeVar("_T")
# The first word of a call or a command: `pyautogui.foo(…)`, `teleport [3]`,
# `{"action_type": "teleport"}`.
_NAME = re.compile(
    r"""\W*(?:"?(?:action_type|action|name|type)"?\s*[:=]\s*"?)?([^\W\d](?:[\w.:-]{0,58}\w)?)"""
)
_IMAGES = "images"


@dataclass(slots=True)
class ConversionReport:
    """The number of records written, and the error of each record that could not be converted.

    `unmatched` counts labels without a trajectory.

    Of the `actions`, `unrecognised` counts those of kind `other` by their name in the record:
    judges see their text, but no kind, position or answer.
    """

    trajectories: int = 0
    actions: int = 0
    unrecognised: Counter[str] = field(default_factory=Counter)
    labels: int = 0
    unmatched: int = 0
    problems: list[str] = field(default_factory=list)


def convert(
    trajectories: Iterable[Trajectory | BadLine],
    labels: Iterable[LabelRecord | BadLine],
    out: Path,
    progress: Callable[[], object] = lambda: None,
    *,
    keep_broken: bool = False,
) -> ConversionReport:
    """Fills `out` with trajectories.jsonl, labels.jsonl and images/, and records broken records in
    the report.

    With `keep_broken`, each broken trajectory keeps a line, so that a run counts it as broken.

    If an id is repeated, the first trajectory is kept and its labels are dropped, because they are
    ambiguous. Images are copied under a name derived from their content. The two files appear once
    both are complete, and only if they are not empty; without any trajectory, neither is written,
    and the folders and images created for them are removed. Failing to find labels is reported and
    does not stop the conversion. `progress` is called after every record. Raises UsageError if one
    of the files already exists, or if `trajectories` raises it.
    """
    names = ("trajectories.jsonl", "labels.jsonl")
    for name in names:
        if (out / name).exists():
            raise UsageError(
                f"{out / name} already exists; choose another folder", parameters=("output",)
            )
    made = [path for path in (out, *out.parents) if not path.exists()]
    had_images = (out / _IMAGES).exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{out}: cannot be written: {error.strerror}", parameters=("output",)
        ) from None
    report = ConversionReport()
    ids: dict[str, bool] = {}  # whether it is unique so far

    @cache
    def copied(path: str) -> str:
        return str(copy_image(path, out / _IMAGES))

    def trajectory_line(item: Trajectory) -> bytes | None:
        if item.id in ids:
            ids[item.id] = False
            report.problems.append(
                f"id {item.id!r} comes again: the first trajectory stays, labels of that id do not"
            )
            return None
        try:
            line = encode_trajectory(with_screenshots(item, lambda path, at: copied(path)), out)
        except InputError as error:
            report.problems.append(f"{item.id!r}: {error}")
            return (
                encode_bad_line(BadLine(item.id, item.id, str(error), b"")) if keep_broken else None
            )
        ids[item.id] = True
        report.actions += len(item.steps)
        report.unrecognised.update(
            _name(step.action) for step in item.steps if step.action.kind == "other"
        )
        return line

    def label_line(label: LabelRecord) -> bytes | None:
        report.unmatched += label.id not in ids
        return encode(label) if ids.get(label.id, True) else None

    partial_files = [part_path(out / name) for name in names]
    try:
        keep = encode_bad_line if keep_broken else None
        _write(partial_files[0], trajectories, trajectory_line, report.problems, progress, keep)
        report.trajectories = len(ids)
        try:
            report.labels = _write(partial_files[1], labels, label_line, report.problems, progress)
        except UsageError as error:
            report.problems.append(f"all labels: {error}")
        for name, partial_file, count in zip(
            names, partial_files, (report.trajectories, report.labels), strict=True
        ):
            if count and report.trajectories:
                partial_file.replace(out / name)
    finally:
        for partial_file in partial_files:
            partial_file.unlink(missing_ok=True)
        if not (out / names[0]).exists():
            if not had_images:
                shutil.rmtree(out / _IMAGES, ignore_errors=True)
            for folder in made:  # the innermost first
                with suppress(OSError):  # the folder meanwhile holds other files
                    folder.rmdir()
    # A file may be broken both for trajectories and for labels, with the same message.
    report.problems = list(dict.fromkeys(report.problems))
    return report


def _name(action: Action) -> str:
    """Returns an action's name, as far as its text shows it."""
    named = _NAME.match(action.text)
    return named[1] if named else "(no name)"


def _write(
    path: Path,
    items: Iterable[_T | BadLine],
    line: Callable[[_T], bytes | None],
    problems: list[str],
    progress: Callable[[], object],
    keep: Callable[[BadLine], bytes] | None = None,
) -> int:
    count = 0
    with path.open("xb") as file:
        for item in items:
            if isinstance(item, BadLine):
                problems.append(item.message)
                file.write(keep(item) if keep else b"")
            elif (encoded := line(item)) is not None:
                file.write(encoded)
                count += 1
            progress()
    return count
