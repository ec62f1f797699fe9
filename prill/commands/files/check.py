"""`prill check`: what files hold, and what is broken in them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

from prill.errors import UsageError
from prill.files.kinds import jsonl_files
from prill.schemas import KINDS, FileReport, check_file, schema
from prill.store import UniqueIds
from prill.tables import printable

_EXIT_ALL, _EXIT_NOTHING, _EXIT_SOME = 0, 2, 3
_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Exit codes: 0 all good, 3 something is broken, 2 nothing could be read or bad usage."
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="trajectories, labels or verdicts (.jsonl, .jsonl.gz), folders of them (and folders of these), or -",
    )
    parser.add_argument("--images", action="store_true", help="open every image instead of looking whether it is there")
    parser.add_argument("--schema", choices=KINDS, help="print the JSON Schema of one line of such a file")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON, with every problem")


def run(args: argparse.Namespace) -> int:
    """Checks, or prints a schema; see `configure` for the exit codes."""
    if bool(args.files) == bool(args.schema):
        raise UsageError("give either files to check or --schema")
    if args.schema:
        print(schema(args.schema), end="")
        return _EXIT_ALL
    from prill.cli.showing import progress_bar

    with progress_bar(unit="line", dynamic_ncols=True, file=sys.stderr, delay=0.5) as bar:
        files = list(_checked(args.files, args.images, bar.update))
    if args.json:
        print(json.dumps([_record(report) for report in files], indent=1))
    else:
        for report in files:
            _show(report)
    if not any(report.good for report in files):
        return _EXIT_NOTHING
    return _EXIT_SOME if any(report.problems for report in files) else _EXIT_ALL


def _checked(paths: list[str], images: bool, progress: Callable[[], object]) -> Iterator[FileReport]:
    """A report of each file. What is named together is judged together, so an id must not come again in it; folders in a
    folder are runs of their own."""
    with closing(UniqueIds()) as named:
        for path in paths:
            own = jsonl_files(path) if os.path.isdir(path) else [path]
            below = [] if own else list(_below(path))
            for file in own if own or below else [path]:
                yield check_file(file, decode_images=images, ids=named, progress=progress)
            for files in below:
                with closing(UniqueIds()) as ids:
                    for file in files:
                        yield check_file(file, decode_images=images, ids=ids, progress=progress)


def _below(folder: str) -> Iterator[list[str]]:
    """The files of each folder below one that has none itself."""
    for place, folders, _ in os.walk(folder):
        folders[:] = [] if place != folder and jsonl_files(place) else sorted(name for name in folders if name[0] != ".")
        if files := jsonl_files(place):
            yield files


def _record(report: FileReport) -> dict[str, object]:
    counts = {"good": report.good, "broken": report.broken}
    return {"file": report.path, "holds": report.kind, **counts, "problems": report.problems, "notes": report.notes}


def _show(report: FileReport) -> None:
    broken = f", {report.broken} broken" if report.broken else ""
    print(printable(f"{report.path}: {report.kind or 'of no known kind'}, {report.good} good lines{broken}"))
    for what, messages in (("problems", report.problems), ("notes", [f"note: {note}" for note in report.notes])):
        for message in messages[:_SHOWN]:
            print(printable(f"  {message}"))
        if len(messages) > _SHOWN:
            print(f"  … and {len(messages) - _SHOWN} more {what}")
