"""`prill table`: verdicts as a table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from prill.commands.options import add_label_options
from prill.files.outputs import check_output, write_output
from prill.tables import Table, table

_FORMATS = ("markdown", "csv", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("verdicts", metavar="VERDICTS", help="verdict file, .jsonl or .jsonl.gz")
    parser.add_argument("--labels", metavar="L", help="label file: a column more")
    add_label_options(parser)
    parser.add_argument("--format", choices=_FORMATS, help="what to write (default: by the name of FILE, else markdown)")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")


def run(args: argparse.Namespace) -> int:
    """Writes the table. Raises UsageError or InputError when a file cannot be read or written."""
    by_name = Path(args.output or "").suffix.removeprefix(".")
    form = args.format or (by_name if by_name in _FORMATS else "markdown")
    output = args.output or "-"
    check_output(output, "a table", [args.verdicts, args.labels])
    write_output(output, _text(table(args.verdicts, args.labels, source=args.source, truth=args.truth), form).encode())
    return 0


def _text(verdicts: Table, form: str) -> str:
    if form == "json":
        # In ASCII: a terminal obeys characters that JSON leaves as they are.
        return json.dumps(verdicts.to_rows(), indent=1) + "\n"
    return verdicts.to_csv() if form == "csv" else verdicts.to_markdown()
