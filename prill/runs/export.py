"""Exports verdicts to other tools: as annotations in a copy of their log, or as a file to
import.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.config.values import Config
from prill.datasets.annotations import langsmith, openinference, run_id, trace_id
from prill.datasets.formats import annotate_recording
from prill.datasets.recordings import opened_recordings, recording_format
from prill.errors import UsageError
from prill.io.outputs import check_output, expect_file, write_output, writing
from prill.io.store import BadLine, TrajectoryReader, read_verdicts
from prill.io.tables import table
from prill.runs.base import FormatOption, asynchronous, opened_folders
from prill.types import Verdict

Target = Literal["atif", "browser-use", "csv", "inspect", "langsmith", "openinference"]
_LOGS = frozenset({"atif", "browser-use", "inspect"})  # formats that have a field for verdicts
_MAX_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Config):
    """What `prill export` does: write verdicts in the form of another tool."""

    verdicts: Annotated[
        Sequence[str | Path], Meta(min_length=1, description="Verdict files, one judge per file.")
    ]
    to: Annotated[
        Target,
        Meta(
            description="atif, browser-use, inspect: a copy of the recording with the "
            "verdicts added. openinference: OTLP JSON with one span per verdict. "
            "langsmith: feedback as JSON Lines. csv: a table."
        ),
    ]
    recording: Annotated[
        str | Path | None,
        Meta(
            description="Recording that was judged. Required for copies, and for the ids of "
            "traces and runs."
        ),
    ] = None
    output: Annotated[
        str | Path,
        Meta(description="Output file, or a folder if a recording that is a folder is copied."),
    ]
    format: FormatOption = None

    def check(self) -> None:
        """Validates that a recording is named if it is to be copied.

        Raises:
            UsageError: The format copies a recording, and none is named.
        """
        if self.to in _LOGS and self.recording is None:
            raise UsageError(
                f"{self.to}: recording is missing; the result is a copy of it with the "
                "verdicts added",
                parameters=("recording",),
            )


@dataclass(frozen=True)
class ExportResult:
    """Result of an export.

    Attributes:
        output: The output file or folder.
        verdicts: The number of verdicts in it.
        unscored: The number of these verdicts that are unscored.
        left_out: The ids of verdicts that were skipped because the recording has no such id.
    """

    output: str
    verdicts: int
    unscored: int
    left_out: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Yields messages for the first skipped verdicts."""
        for id in self.left_out[:_MAX_PROBLEMS]:
            yield f"{id!r}: left out, because the recording has nothing with that id"
        if len(self.left_out) > _MAX_PROBLEMS:
            yield f"… and {len(self.left_out) - _MAX_PROBLEMS} more"

    def table(self) -> dict[str, Any]:
        """Returns the counts as a JSON object."""
        counts = {
            "verdicts": self.verdicts,
            "unscored": self.unscored,
            "left_out": list(self.left_out),
        }
        return {"output": self.output, **counts}

    def __str__(self) -> str:
        left_out = f", {len(self.left_out)} left out" if self.left_out else ""
        return f"{self.output}: {self.verdicts} verdicts, {self.unscored} unscored{left_out}"


def export(config: ExportConfig) -> ExportResult:
    """Writes verdicts in the form of another tool; the recording itself is not changed.

    Args:
        config: The verdicts, the output format, and the recording.

    Returns:
        The counts.

    Raises:
        UsageError: A file cannot be read or written, the recording is of another format, or no
            verdict matches it.
        InputError: A line cannot be read.
    """
    verdicts = {
        (verdict.id, path): verdict
        for path in map(str, config.verdicts)
        for verdict in read_verdicts(path)
    }
    by_id: dict[str, list[Verdict]] = {}
    for verdict in verdicts.values():  # of a repeated id, the last verdict
        by_id.setdefault(verdict.id, []).append(verdict)
    found = _copy(config, by_id) if config.to in _LOGS else _file(config, by_id)
    if not found and config.to in _LOGS:
        raise UsageError(
            f"{config.recording}: has none of the {len(by_id)} ids in the verdicts; name what was "
            "judged",
            parameters=("recording",),
        )
    if not found:
        kind = "an OpenTelemetry trace" if config.to == "openinference" else "a LangSmith run"
        raise UsageError(
            f"none of the {len(by_id)} verdicts belongs to {kind}; name the log that was judged",
            parameters=("recording",),
        )
    exported = [verdict for id in found for verdict in by_id[id]]
    unscored = sum(verdict.unscored is not None for verdict in exported)
    return ExportResult(
        str(config.output), len(exported), unscored, tuple(id for id in by_id if id not in found)
    )


export_async = asynchronous(export)
"""Runs `export` in a thread, with the same parameters, for programs with an event loop."""


def _file(config: ExportConfig, by_id: Mapping[str, list[Verdict]]) -> Sequence[str]:
    """Writes one file and returns the ids in it."""
    inputs = [*config.verdicts, *([config.recording] if config.recording is not None else [])]
    if config.to == "csv":
        check_output(config.output, "a table", inputs)
        write_output(
            config.output, table([one for ones in by_id.values() for one in ones]).to_csv().encode()
        )
        return tuple(by_id)
    check_output(config.output, "annotations", inputs)
    metadata = _metadata(config)
    identity = trace_id if config.to == "openinference" else run_id
    ids = [id for id in by_id if identity(id, metadata.get(id, {})) is not None]
    own_verdicts = [verdict for id in ids for verdict in by_id[id]]
    if own_verdicts:
        lines = (
            langsmith(own_verdicts, metadata)
            if config.to == "langsmith"
            else openinference(own_verdicts, metadata, now=time.time_ns())
        )
        with writing(config.output) as file:
            for line in lines:
                file.write(line)
    return ids


def _metadata(config: ExportConfig) -> dict[str, Mapping[str, Any]]:
    """Returns the metadata of the trajectories by id; it holds the ids of traces and runs."""
    if config.recording is None:
        return {}
    # Goals are not needed here: runs without a recorded goal were judged with one given on the
    # command line.
    with (
        opened_recordings([config.recording], config.format, goal="unknown") as (paths, _),
        closing(TrajectoryReader(opened_folders(paths))) as reader,
    ):
        return {item.id: item.metadata for _, item in reader if not isinstance(item, BadLine)}


def _copy(config: ExportConfig, by_id: Mapping[str, list[Verdict]]) -> Sequence[str]:
    """Copies the recording, with verdicts inserted into its files. Returns the ids that were
    annotated.
    """
    assert config.recording is not None
    source, output = Path(config.recording), Path(config.output)
    name = recording_format(source, config.format)
    if name != config.to:
        raise UsageError(
            f"{source}: is of {f'the format {name}' if name else 'no known format'}; only one of "
            f"{config.to} can be copied",
            parameters=("to",),
        )
    expect_file(output, "a copy of a recording")
    if output.exists():
        raise UsageError(f"{output}: already exists; choose another output", parameters=("output",))
    if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
        raise UsageError(
            f"{output}: inside the recording; choose another output", parameters=("output",)
        )
    used = _RecordedLookups(by_id)
    part = output.with_name(f".{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        if source.is_dir():
            shutil.copytree(source, part)
            for file, data in annotate_recording(config.to, source, used):
                (part / file).write_bytes(data)
            if used.ids:
                part.replace(output)
        else:
            made = [data for _, data in annotate_recording(config.to, source, used)]
            if used.ids:
                write_output(output, made[0])
    except OSError as error:
        raise UsageError(
            f"{output}: cannot be written: {error.strerror}", parameters=("output",)
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return tuple(used.ids)


class _RecordedLookups(Mapping[str, Sequence[Verdict]]):
    """Verdicts by id that records which ids were looked up."""

    def __init__(self, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
        self._verdicts = verdicts
        self.ids: dict[str, None] = {}

    def __getitem__(self, id: str) -> Sequence[Verdict]:
        found = self._verdicts[id]
        self.ids[id] = None
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._verdicts)

    def __len__(self) -> int:
        return len(self._verdicts)
