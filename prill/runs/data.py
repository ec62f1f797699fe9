"""Runs on files: check, convert, merge, accept, table."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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
from prill.datasets.recordings import (
    Recording,
    expect_trajectories,
    opened_recordings,
    read_goals,
    recording_format,
)
from prill.errors import UsageError
from prill.io.checksums import CHECKSUMS, Checksums
from prill.io.kinds import Kind, jsonl_files
from prill.io.outputs import check_output, expect_file, write_output
from prill.io.schemas import FileReport, check_file, schema
from prill.io.store import UniqueIds, encode
from prill.io.tables import Table, answers_table, printable, table
from prill.io.truth import SourceOption, TruthOption
from prill.io.verdict_log import Merged, merge_verdicts
from prill.runs.base import FormatOption, GoalOption, GoalsOption, Printed, asynchronous

_SHOWN = 20
_MAX_NAMES = 5
TableForm = Literal["markdown", "csv", "json"]


@dataclass(frozen=True, kw_only=True)
class TableConfig(Config):
    """Configuration of `prill table`: show a verdict file as a Markdown table, as CSV or as
    JSON.
    """

    verdicts: Annotated[
        str | Path, Meta(description="Verdict file (.jsonl or .jsonl.gz), or - for stdin.")
    ]
    labels: Annotated[
        str | Path | None, Meta(description="Label file. Adds a column with the labels.")
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    answers: Annotated[
        bool,
        Meta(
            description="Write a row for each answer of the judge `ask`, instead of one per "
            "verdict."
        ),
    ] = False
    format: Annotated[
        TableForm | None,
        Meta(
            description="Output format (default: from the suffix of the output file, else "
            "markdown)."
        ),
    ] = None
    output: Annotated[str | Path | None, Meta(description="Output file (default: stdout).")] = None

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: Labels are given for a table of answers.
        """
        if self.answers and self.labels is not None:
            raise UsageError("labels are of runs, not of answers", parameters=("labels",))

    @property
    def form(self) -> TableForm:
        """Returns the output format."""
        by_name: dict[str, TableForm] = {".csv": "csv", ".json": "json"}
        return self.format or by_name.get(Path(self.output or "").suffix, "markdown")


def write_table(config: TableConfig) -> Table:
    """Builds a table from a verdict file, and writes it if the configuration names an output.

    Args:
        config: The verdicts, and where to write the table.

    Returns:
        The table, for data frames and notebooks.

    Raises:
        UsageError: A file cannot be read or written, or it is ambiguous which labels apply.
        InputError: A line cannot be read.
    """
    if config.output is not None:
        check_output(
            config.output, "a table", [config.verdicts, *([config.labels] if config.labels else [])]
        )
    made = (
        answers_table(config.verdicts)
        if config.answers
        else table(config.verdicts, config.labels, source=config.source, truth=config.truth)
    )
    if config.output is not None:
        write_output(config.output, table_text(made, config.form).encode())
    return made


write_table_async = asynchronous(write_table)
"""Runs `write_table` in a thread, with the same parameters, for programs with an event loop."""


def table_text(verdicts: Table, form: TableForm) -> str:
    """Returns the table as text."""
    if form == "json":
        # Escape to ASCII: terminals interpret some characters that JSON leaves unescaped.
        return json.dumps(verdicts.to_rows(), indent=1) + "\n"
    return verdicts.to_csv() if form == "csv" else verdicts.to_markdown()


@dataclass(frozen=True, kw_only=True)
class MergeConfig(Config):
    """Configuration of `prill merge`: write the verdicts of several shards into one file."""

    verdicts: Annotated[
        Sequence[str | Path],
        Meta(min_length=1, description="Verdict files of one judge (.jsonl or .jsonl.gz)."),
    ]
    output: Annotated[
        str | Path,
        Meta(description="Output file, or - for stdout. Verdicts already in the file are kept."),
    ]


def merge(config: MergeConfig) -> Merged:
    """Merges the verdicts of several files into one, each id once.

    Args:
        config: The input files and the output file.

    Returns:
        The counts.

    Raises:
        UsageError: A file cannot be read, or its verdicts are from another judge.
        InputError: A line cannot be read.
    """
    return merge_verdicts(config.verdicts, config.output)


merge_async = asynchronous(merge)
"""Runs `merge` in a thread, with the same parameters, for programs with an event loop."""


@dataclass(frozen=True, kw_only=True)
class AcceptConfig(Config):
    """Configuration of `prill accept`: accept the current files of a run folder."""

    folder: Annotated[
        str | Path, Meta(description="Folder of a run or of a study, including its subfolders.")
    ]


@dataclass(frozen=True)
class AcceptResult:
    """The accepted files.

    Attributes:
        files: Their paths.
    """

    files: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.files)


def accept(config: AcceptConfig) -> AcceptResult:
    """Accepts the current files of a run folder where they differ from its checksums.

    Args:
        config: The folder.

    Returns:
        The files that differed.

    Raises:
        UsageError: The folder has no checksums, or a file in it is a link.
    """
    folder = Path(config.folder)
    records = sorted(folder.rglob(CHECKSUMS))
    if not records:
        raise UsageError(
            f"{folder}: no {CHECKSUMS}; the folder is not that of a run, or its changed "
            "files were accepted",
            parameters=("folder",),
        )
    return AcceptResult(
        tuple(
            str(record.parent / name)
            for record in records
            for name in Checksums(record.parent).renew()
        )
    )


accept_async = asynchronous(accept)
"""Runs `accept` in a thread, with the same parameters, for programs with an event loop."""


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
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
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

    def to_rows(self) -> list[dict[str, Any]]:
        """Returns a dictionary for each file."""
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
        return self.schema or "\n".join(
            line for report in self.files for line in _report_lines(report)
        )


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


check_async = asynchronous(check)
"""Runs `check` in a thread, with the same parameters, for programs with an event loop."""


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
class ConvertResult:
    """Result of a conversion.

    Attributes:
        output: The output folder.
        report: Counts, and what is wrong with each record that was left out.
        rubrics: The number of tasks with criteria in rubrics.jsonl; 0: there is no such file.
    """

    output: str
    report: ConversionReport
    rubrics: int = 0

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

    def table(self) -> dict[str, Any]:
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


convert_async = asynchronous(convert)
"""Runs `convert` in a thread, with the same parameters, for programs with an event loop."""
