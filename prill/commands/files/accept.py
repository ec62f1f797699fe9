"""`prill accept`: the files of a run folder as they are now, where they differ from its checksums."""

from __future__ import annotations

import argparse
from pathlib import Path

from prill.errors import UsageError
from prill.files.checksums import CHECKSUMS, Checksums


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = (
        "A command that reads a run folder refuses files that are not as its run left them (checksums.jsonl), and names them.\n"
        "Put back what was there. Where that cannot be, or you changed them on purpose, this takes them as they are now:\n"
        "every figure of the folder then rests on them."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", metavar="DIR", help="folder of a run or a study, with the folders in it")


def run(args: argparse.Namespace) -> int:
    """Says which files are accepted. Raises UsageError for a folder without checksums, and for a link."""
    folder = Path(args.folder)
    records = sorted(folder.rglob(CHECKSUMS))
    if not records:
        raise UsageError(f"{folder}: has no {CHECKSUMS}: it is no folder of a run, or its files are taken as they are")
    for record in records:
        for name in Checksums(record.parent).renew():
            print(record.parent / name)
    return 0
