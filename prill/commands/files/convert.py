"""`prill convert`: turn other tools' recordings into trajectories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

from prill.datasets.convert import ConversionReport, convert
from prill.datasets.formats import FORMATS
from prill.errors import UsageError
from prill.files.outputs import expect_place
from prill.store import BadLine
from prill.tables import printable
from prill.types import LabelRecord, Trajectory

_EXIT_ALL, _EXIT_SOME = 0, 3
# Options that some formats take, and why others do not.
_OF_FORMATS = {"scores": "no candidates that scores could order", "captions": "no caption files to choose from"}
_MAX_NAMES = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    formats = "; ".join(f"{name}: {what}" for name, (what, _) in FORMATS.items())
    parser.epilog = "Exit codes: 0 all converted, 3 some records are broken and left out, 2 nothing could be read or bad usage."
    parser.add_argument("format", metavar="FORMAT", choices=sorted(FORMATS), help=formats)
    parser.add_argument("source", metavar="IN", help="folder or file in that format")
    parser.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="folder for trajectories.jsonl, labels.jsonl and images/"
    )
    parser.add_argument(
        "--scores", metavar="FILE", help="mind2web: score file, JSON or pickle, that orders the candidates of each step"
    )
    parser.add_argument(
        "--captions", metavar="FILE", help="agent-eval-refine: which captions, by their name in captions/ or by path"
    )


def run(args: argparse.Namespace) -> int:
    """Converts; see `configure` for the exit codes. Raises UsageError when OUT is in use, or nothing could be converted."""
    from prill.cli.showing import progress_bar

    expect_place(args.output, "a folder")
    module = import_module(FORMATS[args.format].module)
    with progress_bar(unit="record", dynamic_ncols=True, file=sys.stderr, delay=0.5) as bar:
        report = convert(_trajectories(module, args), _labels(module, args.source), Path(args.output), bar.update)
    for problem in report.problems[:20]:
        print(f"prill convert: left out: {problem}", file=sys.stderr)
    if len(report.problems) > 20:
        print(f"prill convert: … and {len(report.problems) - 20} more", file=sys.stderr)
    if not report.trajectories:
        raise UsageError(f"{args.source}: no trajectory of format {args.format} could be read")
    unmatched = f" ({report.unmatched} of no trajectory here)" if report.unmatched else ""
    broken = f", {len(report.problems)} broken" if report.problems else ""
    print(f"{args.output}: {report.trajectories} trajectories, {report.labels} labels{unmatched}{broken}", file=sys.stderr)
    if report.unrecognised:
        print(f"prill convert: {_unrecognised(report)}", file=sys.stderr)
    return _EXIT_SOME if report.problems else _EXIT_ALL


def _unrecognised(report: ConversionReport) -> str:
    """Which actions the format's reader does not know, the most frequent first."""
    total, names = report.unrecognised.total(), report.unrecognised.most_common(_MAX_NAMES)
    shown = [f"{printable(name)}{f' {count:,}' if len(report.unrecognised) > 1 else ''}" for name, count in names]
    more = len(report.unrecognised) - len(names)
    shown += [f"and {more:,} more names"] if more else []
    were = "was" if total == 1 else "were"
    return f"{total:,} of {report.actions:,} actions {were} not recognised, and are of kind other: {', '.join(shown)}"


def _trajectories(module: ModuleType, args: argparse.Namespace) -> Iterator[Trajectory | BadLine]:
    given = {name: value for name in _OF_FORMATS if (value := getattr(args, name)) is not None}
    for name in given:
        if name not in signature(module.load).parameters:
            raise UsageError(f"{args.format} has {_OF_FORMATS[name]}", parameters=(name,))
    loaded: Iterator[Trajectory | BadLine] = module.load(args.source, **given)
    return loaded


def _labels(module: ModuleType, source: str) -> Iterator[LabelRecord | BadLine]:
    """The labels of a format that has some; looked for only when the trajectories were read."""
    if hasattr(module, "load_labels"):
        yield from module.load_labels(source)
