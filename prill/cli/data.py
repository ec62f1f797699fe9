"""Presents the results of commands about files."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from prill.cli.layout import Switches
from prill.cli.showing import progress_bar
from prill.io.outputs import message_stream, write_output
from prill.runs import data
from prill.runs.export import ExportConfig
from prill.runs.export import export as run_export

EXIT_ALL, EXIT_NOTHING, EXIT_SOME = 0, 2, 3
_MAX_PROBLEMS = 20


def convert(config: data.ConvertConfig, switches: Switches) -> int:
    """Runs `prill convert`; returns 0 if all records are converted, 3 if some are broken and
    skipped.
    """
    with progress_bar(unit="record") as bar:
        result = data.convert(config, progress=bar.update)
    problems = result.report.problems
    for problem in problems[:_MAX_PROBLEMS]:
        print(f"prill convert: left out: {problem}", file=sys.stderr)
    if len(problems) > _MAX_PROBLEMS:
        print(f"prill convert: … and {len(problems) - _MAX_PROBLEMS} more", file=sys.stderr)
    print(result, file=sys.stderr)
    if switches.json:
        print(json.dumps(result.table()))
    if unrecognised := result.unrecognised():
        print(f"prill convert: {unrecognised}", file=sys.stderr)
    return EXIT_SOME if problems else EXIT_ALL


def check(config: data.CheckConfig, switches: Switches) -> int:
    """Runs `prill check`; returns 0 if all is valid, 3 if something is broken, 2 if nothing could
    be read.
    """
    with progress_bar(unit="line") as bar:
        result = data.check(config, progress=bar.update)
    if result.schema is not None:
        print(result.schema, end="")
        return EXIT_ALL
    print(json.dumps(result.to_rows(), indent=1) if switches.json else result)
    return EXIT_NOTHING if not result.readable else EXIT_SOME if result.problems else EXIT_ALL


def export(config: ExportConfig, switches: Switches) -> int:
    """Runs `prill export`; returns 0 if all verdicts are exported, 3 if some are skipped."""
    result = run_export(config)
    for problem in result.problems():
        print(f"prill export: {problem}", file=sys.stderr)
    print(
        json.dumps(result.table()) if switches.json else result, file=message_stream(config.output)
    )
    return EXIT_SOME if result.left_out else EXIT_ALL


def merge(config: data.MergeConfig, switches: Switches) -> int:
    """Runs `prill merge`; returns 0 if all lines are merged, 3 if a file ends in an incomplete
    line.
    """
    merged = data.merge(config)
    print(
        json.dumps(asdict(merged)) if switches.json else merged, file=message_stream(config.output)
    )
    for path in merged.cut:
        print(
            f"prill merge: {path}: left out the incomplete last line",
            file=sys.stderr,
        )
    return EXIT_SOME if merged.cut else EXIT_ALL


def table(config: data.TableConfig, switches: Switches) -> int:
    """Runs `prill table`; returns 0."""
    if switches.json:
        config = config.copy_with(format="json")
    made = data.write_table(config)
    if config.output is None:
        write_output("-", data.table_text(made, config.form).encode())
    return EXIT_ALL


def accept(config: data.AcceptConfig, switches: Switches) -> int:
    """Runs `prill accept`; returns 0."""
    result = data.accept(config)
    if switches.json:
        print(json.dumps(result.files))
    elif result.files:
        print(result)
    return EXIT_ALL
