"""Presents the results of commands about files."""

from __future__ import annotations

import json

from prill.cli.layout import EXIT_ALL, EXIT_SOME, Switches, say
from prill.cli.showing import print_problems, print_result, progress_bar
from prill.io.outputs import write_output
from prill.runs import data
from prill.runs.export import ExportConfig
from prill.runs.export import export as run_export

EXIT_NOTHING = 2


def convert(config: data.ConvertConfig, switches: Switches) -> int:
    """Runs `prill convert`; returns 0 if all records are converted, 3 if some are broken and
    skipped.
    """
    with progress_bar(unit="record") as bar:
        result = data.convert(config, progress=bar.update)
    problems = result.report.problems
    print_problems("convert", [f"left out: {problem}" for problem in problems], 20)
    say(result)
    if switches.json:
        print(json.dumps(result.table()))
    if unrecognised := result.unrecognised():
        say(f"prill convert: {unrecognised}")
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
    problems = list(result.problems())
    print_problems("export", problems, len(problems))
    print_result(result, result.table, switches, config.output)
    return EXIT_SOME if result.left_out else EXIT_ALL


def merge(config: data.MergeConfig, switches: Switches) -> int:
    """Runs `prill merge`; returns 0 if all lines are merged, 3 if a file ends in an incomplete
    line.
    """
    merged = data.merge(config)
    print_result(merged, lambda: merged, switches, config.output)
    print_problems("merge", [f"{path}: left out the incomplete last line" for path in merged.cut])
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
