"""`prill agree`: compare verdicts with labels."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from prill.evaluators.agreement import Agreement, Figure, agreement
from prill.evaluators.intervals import DRAWS
from prill.store import BadLine, encode, read_labels, read_trajectories, read_verdicts


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("verdicts", metavar="VERDICTS", help="verdict file, as `prill score` writes it")
    parser.add_argument("labels", metavar="LABELS", help="label file")
    parser.add_argument(
        "--trajectories", metavar="TRAJ", help="the judged file: intervals then draw whole tasks instead of single trajectories"
    )
    parser.add_argument("--source", metavar="S", help="labels to use where there are several sources, such as human or oracle")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Prints the comparison; 0. Raises UsageError when there is nothing to compare."""
    tasks = dict(_tasks(args.trajectories)) if args.trajectories else None
    found = agreement(read_verdicts(args.verdicts), read_labels(args.labels), source=args.source, tasks=tasks)
    print(encode(found).decode().rstrip() if args.json else table(found))
    return 0


def table(found: Agreement) -> str:
    """The comparison for a person to read."""
    evaluator = found.evaluator
    judge = ", ".join(part for part in (f"{evaluator.name} {evaluator.version}", evaluator.model) if part)
    unscored = sum(found.unscored.values())
    c = found.confusion
    constant = "always success" if found.majority_answer else "always failure"
    per_task = "tasks" if found.clustered_by == "task" else "trajectories"
    lines = [
        f"Judge: {judge}",
        f"Labels: {found.source}, {found.judged + unscored} trajectories; judged {found.judged}, unscored {unscored}",
        "",
        f"{'':<29}{'value':>7}   95 % interval",
        *map(_row, found.figures),
        f"{constant + ' (no judge)':<29}{found.majority:>7.3f}",
        "",
        f"{'':<16}{'label success':>15}{'label failure':>15}",
        f"{'judged success':<16}{c.tp:>15}{c.fp:>15}",
        f"{'judged failure':<16}{c.fn:>15}{c.tn:>15}",
        "",
        f"Intervals: bootstrap over {found.clusters} {per_task}, {DRAWS} draws" + _marks(found.figures),
    ]
    if unscored:
        reasons = ", ".join(f"{reason} {count}" for reason, count in found.unscored.items())
        lines.append(f"Unscored: {reasons}")
    apart = {
        "verdicts without label": found.verdicts_without_label,
        "labels without verdict": found.labels_without_verdict,
        "undecided labels": found.undecided,
    }
    if any(apart.values()):
        lines.append("Not compared: " + ", ".join(f"{count} {what}" for what, count in apart.items() if count))
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    if figure.undefined:
        return f"{figure.name:<29}{figure.value:>7.3f}   undefined"
    if figure.low is None or figure.high is None:
        return f"{figure.name:<29}{figure.value:>7.3f}   -"
    star = " *" if figure.interval == "wilson" else ""
    return f"{figure.name:<29}{figure.value:>7.3f}   {figure.low:.3f} to {figure.high:.3f}{star}"


def _marks(shown: tuple[Figure, ...]) -> str:
    return "; * Wilson, as every draw is alike" if any(figure.interval == "wilson" for figure in shown) else ""


def _tasks(path: str) -> Iterator[tuple[str, str]]:
    for item in read_trajectories(path):
        if not isinstance(item, BadLine):
            yield item.id, f"{item.task.site or ''}/{item.task.id or item.task.goal}"
