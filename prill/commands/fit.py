"""`prill fit`: a judge from your own labelled trajectories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing

from prill.commands.options import add_label_options, open_folders
from prill.errors import UsageError
from prill.evaluators.fitted.fit import HARDENED_FAMILIES, Origin, examples, fit_with_scores
from prill.evaluators.fitted.student import Attacked, HeldOut, Student, StudentModel, label_of
from prill.evaluators.labels import gold_labels
from prill.files.outputs import check_output, words_beside, write_output
from prill.runs.cautions import sha256_of
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
    add_label_options(parser)
    parser.add_argument(
        "--evidence-only",
        action="store_true",
        help="look at no thoughts, answers and messages: claims cannot turn the judge",
    )
    parser.add_argument(
        "--harden",
        action="store_true",
        help="let nothing that an agent can add to speak for success, and fit with attacked copies of failures too",
    )
    parser.add_argument(
        "--families",
        metavar="A,B",
        help=f"with --harden: the attacks to fit against, named as by `prill redteam` (default: {','.join(HARDENED_FAMILIES)})",
    )
    parser.add_argument(
        "--out-of-fold",
        metavar="VERDICTS",
        help="also write what judges fitted without a run's task say of it, for `prill calibrate`",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for the folds of the cross-validation (default 0)")
    parser.add_argument("--json", action="store_true", help="print the card as JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Fits, writes the file and prints its card. Raises UsageError."""
    open_folders(args)
    check_output(args.output, "a fitted judge", [*args.trajectories, args.labels])
    if args.out_of_fold:
        check_output(args.out_of_fold, "verdicts", [*args.trajectories, args.labels, args.output])
    source, gold = gold_labels(read_labels(args.labels), args.source, args.truth)
    broken: list[str] = []
    if args.families and not args.harden:
        raise UsageError("families of attacks are for a judge that is hardened", parameters=("harden",))
    harden = tuple(args.families.split(",") if args.families else HARDENED_FAMILIES) if args.harden else ()
    with closing(Intake(args.trajectories)) as intake:
        # For what hardening costs the same runs are read once more, as they would be without it.
        trajectories = list(_good(intake, broken)) if harden else _good(intake, broken)
        runs, left_out = examples(trajectories, gold, args.kind, args.evidence_only, harden)
    plain = examples(trajectories, gold, args.kind, args.evidence_only)[0] if harden else ()
    if not runs:
        raise UsageError(f"no trajectory has a decided label of source {source!r}: do the ids of both files match?")
    origin = Origin(data=tuple(sha256_of(path) for path in (*args.trajectories, args.labels)), source=source)
    result = fit_with_scores(
        runs,
        args.kind,
        args.evidence_only,
        hardened=bool(harden),
        seed=args.seed,
        left_out=left_out + len(broken),
        origin=origin,
        plain=plain,
    )
    model, data = result.model, encode(result.model)
    write_output(args.output, data)
    if args.out_of_fold:
        judge = Student(model, label=label_of(data))
        held_out = judge.out_of_fold([run.id for run in runs], result.out_of_fold)
        write_output(args.out_of_fold, b"".join(map(encode, held_out)))
    words = words_beside(args.output, args.out_of_fold)
    print(encode(model.card).decode().rstrip() if args.json else card(model), file=words)
    print(f"{args.kind} -> {args.output} ({len(data) / 1000:.0f} kB)", file=sys.stderr)
    if args.out_of_fold:
        print(f"{len(runs)} verdicts, each by a judge fitted without the run's task -> {args.out_of_fold}", file=sys.stderr)
    for problem in broken[:10]:
        print(f"prill fit: left out: {problem}", file=sys.stderr)
    return _EXIT_SOME_BROKEN if broken else _EXIT_ALL


def card(model: StudentModel) -> str:
    """What a person should know before trusting the judge."""
    facts = model.card
    claims = ", without the agent's claims" if model.evidence_only else ""
    hardened = ", hardened" if model.hardened else ""
    lines = [
        f"Judge: {model.kind}{claims}{hardened}; success from a probability of {model.threshold:g}",
        f"Fitted on {facts.runs} runs of {facts.tasks} tasks, {facts.successes} successes; labels: {facts.source or 'unknown'}"
        + (f"; left out {facts.left_out} without label or steps" if facts.left_out else ""),
        "",
        f"{'on runs it was not fitted on':<36}{'runs':>6}{'successes':>11}{'AUC':>7}{'accuracy':>10}{'balanced':>10}"
        f"{'kappa':>8}{'abstains':>10}",
        _row(f"all ({facts.folds} folds by task)", facts.all_runs),
        *([_row("all, were it not hardened", facts.not_hardened)] if facts.not_hardened else []),
        _row("those not cut off", facts.not_cut_off),
        *(_row(f"{site}, fitted on the others", figures) for site, figures in facts.other_sites.items()),
        "",
        *_attacks(facts.attacks),
    ]
    if guard := model.guard:
        lines.append(
            f"It judges last states of {guard.characters[0]:,} to {guard.characters[1]:,} characters and {guard.words[0]:,} to "
            f"{guard.words[1]:,} different words, {guard.coverage:.0%} of them known; of others it says no_evidence."
        )
    if facts.band.low > 0:
        lines.append(f"Of the runs scored below {facts.band.low:g} at least 95 % were failures: a cascade goes on from there.")
    if facts.other_sites:
        lines.append("It knows sites like those it was fitted on; the lines by site tell what to expect elsewhere.")
    else:
        lines.append("It knows runs like those it was fitted on; there are too few sites to tell what to expect elsewhere.")
    return "\n".join(lines)


def _attacks(attacks: Mapping[str, Attacked]) -> list[str]:
    """For each family the failures called successes, by judges fitted without their tasks."""
    if not attacks:
        return []
    head = f"{'failures called successes':<36}{'runs':>6}{'before':>11}{'attacked':>10}{'fitted without that family':>28}"
    rows = [
        f"{name:<36}{a.failures:>6}{a.before:>10.1%}{a.hardened:>10.1%}{a.unseen:>28.1%}" for name, a in sorted(attacks.items())
    ]
    return [head, *rows, ""]


def _row(name: str, figures: HeldOut) -> str:
    cells = "".join(
        f"{'-' if value is None else format(value, '.3f'):>{width}}"
        for value, width in ((figures.auc, 7), (figures.accuracy, 10), (figures.balanced_accuracy, 10), (figures.kappa, 8))
    )
    return f"{name:<36}{figures.runs:>6}{figures.successes:>11}{cells}{figures.abstained:>10}"


def _good(intake: Intake, broken: list[str]) -> Iterator[Trajectory]:
    for _, item in intake:
        if isinstance(item, BadLine):
            broken.append(item.message)
        else:
            yield item
