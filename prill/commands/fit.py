"""`prill fit`: a judge from your own labelled trajectories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing

from prill.commands.cautions import sha256_of
from prill.commands.options import open_folders
from prill.errors import UsageError
from prill.evaluators.fitted.fit import Origin, examples, fit
from prill.evaluators.fitted.student import HeldOut, StudentModel
from prill.evaluators.labels import gold_labels
from prill.files.outputs import check_output, words_beside, write_output
from prill.store import BadLine, Intake, encode, read_labels
from prill.types import Trajectory

_EXIT_ALL, _EXIT_SOME_BROKEN = 0, 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Exit codes: 0 fitted, 3 fitted without some broken lines, 2 too few labelled runs or bad usage."
    parser.add_argument(
        "trajectories", nargs="+", metavar="TRAJ", help="trajectory file (.jsonl, .jsonl.gz), folder of them, or -"
    )
    parser.add_argument("labels", metavar="LABELS", help="label file")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the fitted judge goes, one JSON file")
    parser.add_argument(
        "--kind",
        choices=("student", "prior"),
        default="student",
        help="student (default): how the run went, and its texts; prior: how it went, without reading",
    )
    parser.add_argument("--source", metavar="S", help="labels to use where there are several sources, such as human or oracle")
    parser.add_argument(
        "--evidence-only",
        action="store_true",
        help="look at no thoughts, answers and messages: claims cannot turn the judge",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for the folds of the cross-validation (default 0)")
    parser.add_argument("--json", action="store_true", help="print the card as JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Fits, writes the file and prints its card. Raises UsageError."""
    open_folders(args)
    check_output(args.output, "a fitted judge", [*args.trajectories, args.labels])
    source, gold = gold_labels(read_labels(args.labels), args.source)
    broken: list[str] = []
    with closing(Intake(args.trajectories)) as intake:
        runs, left_out = examples(_good(intake, broken), gold, args.kind, args.evidence_only)
    if not runs:
        raise UsageError(f"no trajectory has a decided label of source {source!r}: do the ids of both files match?")
    origin = Origin(data=tuple(sha256_of(path) for path in (*args.trajectories, args.labels)), source=source)
    model = fit(runs, args.kind, args.evidence_only, seed=args.seed, left_out=left_out + len(broken), origin=origin)
    data = encode(model)
    write_output(args.output, data)
    print(encode(model.card).decode().rstrip() if args.json else card(model), file=words_beside(args.output))
    print(f"{args.kind} -> {args.output} ({len(data) / 1000:.0f} kB)", file=sys.stderr)
    for problem in broken[:10]:
        print(f"prill fit: left out: {problem}", file=sys.stderr)
    return _EXIT_SOME_BROKEN if broken else _EXIT_ALL


def card(model: StudentModel) -> str:
    """What a person should know before trusting the judge."""
    facts = model.card
    claims = ", without the agent's claims" if model.evidence_only else ""
    lines = [
        f"Judge: {model.kind}{claims}; success from a probability of {model.threshold:g}",
        f"Fitted on {facts.runs} runs of {facts.tasks} tasks, {facts.successes} successes; labels: {facts.source or 'unknown'}"
        + (f"; left out {facts.left_out} without label or steps" if facts.left_out else ""),
        "",
        f"{'on runs it was not fitted on':<36}{'runs':>6}{'successes':>11}{'AUC':>7}{'accuracy':>10}{'balanced':>10}",
        _row(f"all ({facts.folds} folds by task)", facts.all_runs),
        _row("those not cut off", facts.not_cut_off),
        *(_row(f"{site}, fitted on the others", figures) for site, figures in facts.other_sites.items()),
        "",
    ]
    if facts.other_sites:
        lines.append("It knows sites like those it was fitted on; the last lines tell what to expect elsewhere.")
    else:
        lines.append("It knows runs like those it was fitted on; there are too few sites to tell what to expect elsewhere.")
    return "\n".join(lines)


def _row(name: str, figures: HeldOut) -> str:
    cells = "".join(
        f"{'-' if value is None else format(value, '.3f'):>{width}}"
        for value, width in ((figures.auc, 7), (figures.accuracy, 10), (figures.balanced_accuracy, 10))
    )
    return f"{name:<36}{figures.runs:>6}{figures.successes:>11}{cells}"


def _good(intake: Intake, broken: list[str]) -> Iterator[Trajectory]:
    for _, item in intake:
        if isinstance(item, BadLine):
            broken.append(item.message)
        else:
            yield item
