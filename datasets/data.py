"""Runs on files: check, convert."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.values import Config
from prill.datasets.convert import ConversionReport
from prill.datasets.convert import convert as write_converted
from prill.datasets.formats import (
    FORMATS,
    FormatConfig,
    FormatLike,
    find_format,
    open_recording,
    recorded_rubrics,
)
from prill.datasets.inputs import FormatOption, GoalOption, GoalsOption
from prill.datasets.recordings import (
    Recording,
    expect_trajectories,
    opened_recordings,
    read_goals,
    recording_format,
)
from prill.errors import UsageError
from prill.io.kinds import Kind, jsonl_files
from prill.io.outputs import expect_file, write_output
from prill.io.schemas import FileReport, check_file, schema
from prill.io.store import UniqueIds, encode
from prill.io.tables import printable
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, first_of

_SHOWN = 20
_MAX_NAMES = 5


@dataclass(frozen=True, kw_only=True)
class CheckConfig(Config):
    """Configuration of `prill check`: report what files hold and what is broken in them, or print a
    schema.
    """

    files: Annotated[
        Sequence[str | Path],
        Meta(
            description="Trajectory, label or verdict files (.jsonl, .jsonl.gz), other "
            "tools' recordings, folders of these, or - for stdin."
        ),
    ] = ()
    format: FormatOption = None
    goal: GoalOption = None
    goals: GoalsOption = None
    images: Annotated[
        bool, Meta(description="Decode every image instead of only checking that its file exists.")
    ] = False
    schema: Annotated[
        Kind | None, Meta(description="Print the JSON Schema of one line of this kind of file.")
    ] = None

    def check(self) -> None:
        """Validates options that depend on each other."""
        if bool(self.files) == bool(self.schema):
            raise UsageError(
                "give either files to check, or a kind for schema", parameters=("schema",)
            )


@dataclass(frozen=True)
class CheckResult(Printed):
    """Result of checking files.

    Attributes:
        files: A report on each file.
        schema: The requested JSON Schema, as text; None if files were checked.
    """

    files: tuple[FileReport, ...]
    schema: str | None = None

    @property
    def readable(self) -> bool:
        """Returns whether any file has a valid line."""
        return any(report.good for report in self.files)

    @property
    def problems(self) -> tuple[str, ...]:
        """Returns a message for every broken line and image."""
        return tuple(problem for report in self.files for problem in report.problems)

    @property
    def exit_code(self) -> int:
        """Returns 2 if nothing could be read, 3 if something is broken."""
        if self.schema is None and not self.readable:
            return 2
        return EXIT_SOME if self.problems else EXIT_ALL

    def to_dict(self) -> Any:
        """Returns a dictionary for each file, or the schema."""
        if self.schema is not None:
            return json.loads(self.schema)
        return [
            {
                "file": report.path,
                "holds": report.kind,
                "good": report.good,
                "broken": report.broken,
                "problems": report.problems,
                "notes": report.notes,
            }
            for report in self.files
        ]

    def __str__(self) -> str:
        return (self.schema or "").rstrip() or "\n".join(
            line for report in self.files for line in _report_lines(report)
        )


@as_run(CheckConfig)
def check(config: CheckConfig, *, progress: Callable[[], object] = lambda: None) -> CheckResult:
    """Reports the contents of files and the broken lines in them.

    Args:
        config: The files, or the record type whose schema is requested.
        progress: Called after every line.

    Returns:
        A report on each file, or the schema.

    Raises:
        UsageError: Several formats match a recording, or nothing in it could be read.
    """
    if config.schema is not None:
        return CheckResult((), schema(config.schema))
    reports: list[FileReport] = []
    with closing(UniqueIds()) as named:
        for path in map(str, config.files):
            if recording_format(path, config.format) is None:
                reports += _checked(path, config.images, named, progress)
                continue
            with opened_recordings([path], config.format, config.goal, config.goals) as (
                _,
                recordings,
            ):
                reports += [
                    _check_recording(recording, config.images, named, progress)
                    for recording in recordings
                ]
    return CheckResult(tuple(reports))


def _checked(
    path: str, images: bool, named: UniqueIds, progress: Callable[[], object]
) -> Iterator[FileReport]:
    """Returns a report on each file.

    Files that are named together must not repeat an id; folders inside a folder are separate runs.
    """
    own = jsonl_files(path) if os.path.isdir(path) else [path]
    below = [] if own else list(_below(path))
    for file in own if own or below else [path]:
        yield check_file(file, decode_images=images, ids=named, progress=progress)
    for files in below:
        with closing(UniqueIds()) as ids:
            for file in files:
                yield check_file(file, decode_images=images, ids=ids, progress=progress)


def _check_recording(
    recording: Recording, images: bool, named: UniqueIds, progress: Callable[[], object]
) -> FileReport:
    """Returns the report on a recording in another format; problems name their location in it."""
    report = check_file(recording.file, decode_images=images, ids=named, progress=progress)
    source, line = (
        str(recording.source),
        re.compile(rf"{re.escape(str(recording.file))}(?::\d+)?: "),
    )
    report.path = source
    report.problems = [
        line.sub("", problem).replace(str(recording.file.parent), source)
        for problem in report.problems
    ]
    report.notes = [f"read as {recording.format}"]
    return report


def _below(folder: str) -> Iterator[list[str]]:
    """Yields the files of each subfolder of a folder that has no files itself."""
    for path, folders, _ in os.walk(folder):
        folders[:] = (
            []
            if path != folder and jsonl_files(path)
            else sorted(name for name in folders if name[0] != ".")
        )
        if files := jsonl_files(path):
            yield files


def _report_lines(report: FileReport) -> Iterator[str]:
    broken = f", {report.broken} broken" if report.broken else ""
    yield printable(
        f"{report.path}: {report.kind or 'unknown kind'}, {report.good} good lines{broken}"
    )
    for what, messages in (
        ("problems", report.problems),
        ("notes", [f"note: {note}" for note in report.notes]),
    ):
        yield from (printable(f"  {message}") for message in messages[:_SHOWN])
        if len(messages) > _SHOWN:
            yield f"  … and {len(messages) - _SHOWN} more {what}"


@dataclass(frozen=True, kw_only=True)
class ConvertConfig(Config):
    """Configuration of `prill convert`: turn other tools' recordings into trajectories and
    labels.
    """

    format: Annotated[
        FormatLike | None,
        Meta(
            description="; ".join(
                f"{name}: {entry.what}" for name, entry in FORMATS.entries.items()
            )
            + "; or file.py:function for a reader of your own (default: detected from the content)"
        ),
    ] = None
    source: Annotated[str | Path, Meta(description="Folder or file in that format.")]
    output: Annotated[
        str | Path,
        Meta(
            description="Output folder for trajectories.jsonl, labels.jsonl, images/ and, "
            "for the judge `rubric`, rubrics.jsonl."
        ),
    ]
    goal: GoalOption = None
    goals: GoalsOption = None


@dataclass(frozen=True)
class ConvertResult(Printed):
    """Result of a conversion.

    Attributes:
        output: The output folder.
        report: Counts, and what is wrong with each record that was left out.
        rubrics: The number of tasks with criteria in rubrics.jsonl; 0: there is no such file.
    """

    output: str
    report: ConversionReport
    rubrics: int = 0
    of_files = True

    def notes(self) -> Iterator[str]:
        """Yields the records that were left out, and the actions that were not recognised."""
        yield from first_of([f"left out: {problem}" for problem in self.report.problems], 20)
        if unrecognised := self.unrecognised():
            yield unrecognised

    @property
    def exit_code(self) -> int:
        """Returns 3 if some records are broken and left out."""
        return EXIT_SOME if self.report.problems else EXIT_ALL

    def unrecognised(self) -> str | None:
        """Returns the actions that the format's reader does not recognise, most frequent first.

        None: it recognises all of them.
        """
        report = self.report
        if not report.unrecognised:
            return None
        total, names = report.unrecognised.total(), report.unrecognised.most_common(_MAX_NAMES)
        shown = [
            f"{printable(name)}{f' {count:,}' if len(report.unrecognised) > 1 else ''}"
            for name, count in names
        ]
        more = len(report.unrecognised) - len(names)
        shown += [f"and {more:,} more names"] if more else []
        were = "was" if total == 1 else "were"
        return (
            f"{total:,} of {report.actions:,} actions {were} not recognised and have kind "
            f"other: {', '.join(shown)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        report = self.report
        counts = {
            "trajectories": report.trajectories,
            "labels": report.labels,
            "unmatched": report.unmatched,
        }
        actions = {"actions": report.actions, "unrecognised": dict(report.unrecognised)}
        counts["rubrics"] = self.rubrics
        return {"output": self.output, **counts, **actions, "problems": report.problems}

    def __str__(self) -> str:
        report = self.report
        unmatched = f" ({report.unmatched} without a trajectory)" if report.unmatched else ""
        broken = f", {len(report.problems)} broken" if report.problems else ""
        rubrics = f", {self.rubrics} rubrics" if self.rubrics else ""
        return (
            f"{self.output}: {report.trajectories} trajectories, {report.labels} "
            f"labels{unmatched}{rubrics}{broken}"
        )


@as_run(ConvertConfig)
def convert(
    config: ConvertConfig, *, progress: Callable[[], object] = lambda: None
) -> ConvertResult:
    """Converts other tools' recordings into trajectories and, where available, labels.

    Args:
        config: The recording, its format, and the output folder.
        progress: Called after every record.

    Returns:
        The counts, and the error of each record that was skipped.

    Raises:
        UsageError: The folder is in use, the format lacks an option or cannot be detected from the
            content, or no trajectory could be read.
        InputError: The file of goals is broken.
    """
    expect_file(config.output, "a folder")
    format = config.format if config.format is not None else find_format(config.source)
    goals = read_goals(config.goals) if config.goals is not None else {}
    trajectories, labels = open_recording(format, config.source, goal=config.goal, goals=goals)
    report = write_converted(trajectories, labels, Path(config.output), progress)
    expect_trajectories(config.source, str(FormatConfig.read(format, "format").name), report)
    rubrics = recorded_rubrics(format, config.source)
    if rubrics:
        rows = ({"task_id": task, "criteria": criteria} for task, criteria in rubrics.items())
        write_output(Path(config.output) / "rubrics.jsonl", b"".join(map(encode, rows)))
    return ConvertResult(str(config.output), report, len(rubrics))
