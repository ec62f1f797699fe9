"""Verdicts as a table, or as annotations for another tool."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.config.shared import LABELS, VerdictFiles
from prill.config.values import Config
from prill.datasets.annotations import (
    Judged,
    annotation_name,
    langsmith,
    openinference,
    run_id,
    trace_id,
)
from prill.datasets.formats.agentrewardbench import leaderboard_row
from prill.datasets.formats.inspect import annotate
from prill.datasets.inputs import opened_folders, warn_left_out
from prill.datasets.recordings import opened_recordings
from prill.errors import UsageError
from prill.io.joining import expect_same_runs, join_labels, record_digest
from prill.io.outputs import check_output, is_stdout, write_output
from prill.io.store import BadLine, TrajectoryReader, read_labels
from prill.io.tables import Cell, Table, answers_table, table
from prill.io.truth import SourceOption, TruthOption
from prill.io.verdict_files import read_verdict_files
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, first_of
from prill.types import Task, Verdict

TableForm = Literal[
    "markdown", "csv", "json", "openinference", "langsmith", "inspect", "agentrewardbench"
]
_UNKNOWN = "unknown"  # the goal of runs whose log has none
_ANNOTATIONS = frozenset({"openinference", "langsmith", "inspect"})


@dataclass(frozen=True, kw_only=True)
class TableConfig(Config):
    """Configuration of `prill table`: write verdicts as a Markdown table, CSV or JSON, or as
    annotations for another tool.
    """

    verdicts: VerdictFiles
    labels: Annotated[str | Path | None, LABELS] = None
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
            "markdown). openinference: OTLP JSON with one span per verdict. langsmith: feedback "
            "as JSON Lines. inspect: a copy of the log with the verdicts as scores. "
            "agentrewardbench: a row of its leaderboard."
        ),
    ] = None
    recording: Annotated[
        str | Path | None,
        Meta(
            description="Log that was judged: what inspect copies, where the ids of traces and "
            "runs are found, and the benchmarks of agentrewardbench."
        ),
    ] = None
    output: Annotated[
        str | Path | None,
        Meta(
            description="Output file (default: stdout), or a new folder if the log that is "
            "copied is a folder."
        ),
    ] = None

    @property
    def form(self) -> TableForm:
        """Returns the output format."""
        by_name: dict[str, TableForm] = {".csv": "csv", ".json": "json"}
        return self.format or by_name.get(Path(self.output or "").suffix, "markdown")

    def check(self) -> None:
        """Validates options that depend on each other."""
        if self.labels is not None and (self.answers or self.form in _ANNOTATIONS):
            raise UsageError("labels are a column of a table of verdicts", parameters=("labels",))
        if self.form == "agentrewardbench" and (
            self.labels is None or self.recording is None or self.answers
        ):
            raise UsageError(
                "agentrewardbench: precision needs the labels, and the trajectories with the "
                "benchmark of each run",
                parameters=("labels", "recording"),
            )
        if self.form == "inspect" and (self.recording is None or self.output is None):
            raise UsageError(
                "inspect: the result is a copy of the log that was judged; name the log, and a "
                "file for the copy",
                parameters=("recording", "output"),
            )


@dataclass(frozen=True)
class TableResult(Printed):
    """A table of verdicts, or annotations.

    Args:
        table: The table, for data frames and notebooks.
        text: What is written; empty for a copy of a log.
        left_out: The ids of verdicts that belong to no trace, run or sample.
        output: The file; None: nothing was written.
    """

    table: Table
    text: str
    left_out: tuple[str, ...] = ()
    output: str | None = None

    def to_dict(self) -> list[dict[str, Cell]]:
        """Returns the rows."""
        return self.table.to_rows()

    def notes(self) -> Iterator[str]:
        """Yields the verdicts that were left out."""
        left_out = [f"{id!r}: left out, because it is not in the log" for id in self.left_out]
        return first_of(left_out, 20)

    @property
    def exit_code(self) -> int:
        """Returns 3 if verdicts belong to nothing in the log."""
        return EXIT_SOME if self.left_out else EXIT_ALL

    def __str__(self) -> str:
        if self.output is None:
            return self.text.rstrip("\n")
        return f"{len(self.table)} rows -> {self.output}"


@as_run(TableConfig)
def write_table(config: TableConfig) -> TableResult:
    """Makes a table or annotations of verdicts, and writes them if the configuration names an
    output.

    Args:
        config: The verdicts, the format, and where to write.

    Returns:
        The table, what is written, and the verdicts that were left out.

    Raises:
        UsageError: A file cannot be read or written, it is ambiguous which labels apply, or no
            verdict belongs to the log.
        InputError: A line cannot be read.
    """
    if config.output is not None:
        inputs = [*config.verdicts, *(path for path in (config.labels, config.recording) if path)]
        check_output(
            config.output, "annotations" if config.form in _ANNOTATIONS else "a table", inputs
        )
    verdicts = list(read_verdict_files(config.verdicts))
    labels = list(read_labels(config.labels)) if config.labels else None
    if config.labels:
        ids = {verdict.id for verdict in verdicts}
        warn_left_out(config.labels, join_labels(labels or (), ids)[1])
    rows = (
        answers_table(verdicts)
        if config.answers
        else table(verdicts, labels, source=config.source, truth=config.truth)
    )
    if config.form not in _ANNOTATIONS:
        text = (
            _leaderboard(config, rows, verdicts)
            if config.form == "agentrewardbench"
            else _table_text(rows, config.form)
        )
        if config.output is not None:
            write_output(config.output, text.encode())
        return TableResult(rows, text, output=_name(config.output))
    judged: Judged = {}
    for verdict in verdicts:  # of a judge's verdicts on one id, the last
        judged.setdefault(verdict.id, {})[annotation_name(verdict)] = verdict
    if config.form == "inspect":
        text, found = "", _copy(config, judged)
    else:
        text, found = _lines(config, judged)
    if not found:
        raise UsageError(
            f"none of the {len(judged)} ids in the verdicts is in {config.recording}"
            if config.recording
            else f"none of the {len(judged)} ids in the verdicts is the id of a trace or run",
            parameters=("recording",),
        )
    if config.output is not None and text:
        write_output(config.output, text.encode())
    left_out = tuple(id for id in judged if id not in found)
    return TableResult(rows, text, left_out, _name(config.output))


def _name(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def _table_text(rows: Table, form: TableForm) -> str:
    if form == "json":
        # Escape to ASCII: terminals interpret some characters that JSON leaves unescaped.
        return json.dumps(rows.to_rows(), indent=1) + "\n"
    return rows.to_csv() if form == "csv" else rows.to_markdown()


def _recorded(
    recording: str | Path, verdicts: Iterable[Verdict]
) -> dict[str, tuple[Task, Mapping[str, Any]]]:
    """Returns task and metadata of the runs of a log, by id.

    Raises UsageError if verdicts are on other contents of the runs. Where the log has no goal,
    which is not needed here, they are not compared.
    """
    runs: dict[str, tuple[Task, Mapping[str, Any]]] = {}
    digests: dict[str, str] = {}
    with (
        opened_recordings([recording], goal=_UNKNOWN) as (paths, _),
        closing(TrajectoryReader(opened_folders(paths))) as reader,
    ):
        for _, item in reader:
            if not isinstance(item, BadLine):
                runs[item.id] = item.task, item.metadata
                if item.task.goal != _UNKNOWN:
                    digests[item.id] = record_digest(item)
    expect_same_runs(verdicts, digests)
    return runs


def _leaderboard(config: TableConfig, rows: Table, verdicts: Sequence[Verdict]) -> str:
    """Returns a line for each judge, on the runs with a label that are in the recording."""
    assert config.recording is not None
    tasks = {id: task for id, (task, _) in _recorded(config.recording, verdicts).items()}
    judged: dict[str, dict[str, tuple[Task, bool | None, bool]]] = {}
    for row in rows.to_rows():
        id, truth, success = str(row["id"]), row["label"], row["success"]
        if truth is not None and id in tasks:
            name = f"{row['judge']} ({row['model']})" if row.get("model") else str(row["judge"])
            call = None if success is None else bool(success)
            judged.setdefault(name, {})[id] = tasks[id], call, bool(truth)
    if not judged:
        raise UsageError(
            f"no verdict has a label and a run in {config.recording}", parameters=("recording",)
        )
    found = (leaderboard_row(name, runs.values()) for name, runs in judged.items())
    return "".join(json.dumps(row) + "\n" for row in found)


def _lines(config: TableConfig, judged: Judged) -> tuple[str, set[str]]:
    """Returns the lines of spans or feedback, and the ids that belong to a trace or run."""
    metadata: dict[str, Any] = {}
    if config.recording is not None:
        runs = _recorded(config.recording, _flat(judged))
        metadata = {id: known for id, (_, known) in runs.items()}
    identify = trace_id if config.form == "openinference" else run_id
    ids = {id: identify(id, metadata.get(id, {})) for id in judged}
    found = [verdict for id in judged if ids[id] for verdict in judged[id].values()]
    lines = (
        openinference(found, ids, metadata, now=time.time_ns())
        if config.form == "openinference"
        else langsmith(found, ids)
    )
    return "".join(lines), {id for id, known in ids.items() if known}


def _flat(judged: Judged) -> Iterator[Verdict]:
    return chain.from_iterable(known.values() for known in judged.values())


def _copy(config: TableConfig, judged: Judged) -> set[str]:
    """Writes the judged logs with their scores; returns the ids of their samples."""
    assert config.recording is not None and config.output is not None
    source, output, found = Path(config.recording), Path(config.output), set[str]()
    _recorded(source, _flat(judged))
    logs = annotate(source, judged, found)
    if not source.is_dir():
        for _, data in logs:
            write_output(output, data)
        return found
    if is_stdout(output) or output.exists() or output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{output}: choose a new folder for the copies", parameters=("output",))
    for name, data in logs:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        write_output(output / name, data)
    return found
