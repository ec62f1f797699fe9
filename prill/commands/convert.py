"""`prill convert`: turn other tools' recordings into trajectories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from prill.datasets import androidworld, arb_webjudge
from prill.datasets.convert import convert
from prill.types import LabelRecord, Trajectory


class Importer(NamedTuple):
    """How to read a folder of one format; a label is never part of a trajectory."""

    load: Callable[[str], Iterator[Trajectory]]
    load_labels: Callable[[str], Iterator[LabelRecord]]


FORMATS = {
    "arb-webjudge": Importer(arb_webjudge.load, arb_webjudge.load_labels),
    "androidworld": Importer(androidworld.load, androidworld.load_labels),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("format", metavar="FORMAT", choices=sorted(FORMATS), help=" or ".join(sorted(FORMATS)))
    parser.add_argument("source", metavar="IN", help="folder with trajectories.jsonl(.gz) and labels.jsonl(.gz) in that format")
    parser.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="folder for trajectories.jsonl, labels.jsonl and images/"
    )


def run(args: argparse.Namespace) -> int:
    """Converts; 0. Raises UsageError when OUT is in use, InputError for a row that does not fit the format."""
    importer = FORMATS[args.format]
    converted, labelled = convert(importer.load(args.source), importer.load_labels(args.source), Path(args.output))
    print(f"{args.output}: {converted} trajectories, {labelled} labels", file=sys.stderr)
    return 0
