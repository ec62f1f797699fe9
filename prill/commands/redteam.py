"""`prill redteam`: attack a judge with false claims and injected text, and see how far its verdicts move."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prill.commands.cautions import fitted_on
from prill.commands.options import add_judge_options, expected, make_evaluator, positive
from prill.errors import UsageError
from prill.evaluators.labels import gold_labels
from prill.evaluators.attacks.families import WHAT, Attack
from prill.evaluators.meta.redteam import BEFORE, SEED, AttackEffect, RedTeam, Shift, judge_attacked, measure, select_attacks
from prill.evaluators.metrics import DRAWS
from prill.scoring import Tally
from prill.store import encode, read_labels

_EXIT_ALL, _EXIT_SOME_UNSCORED, _EXIT_INTERRUPTED = 0, 3, 130
_HEADING = ("attack", "failures", "called success, before → after", "change", "successes", "recall, before → after", "change")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    attack_list = "; ".join(f"{name}: {what}" for name, what in WHAT.items())
    parser.epilog = (
        f"Attacks: {attack_list}. "
        "A judge that is fitted must not be attacked on what it was fitted on: its figures would flatter it. "
        "Exit codes: 0 done, 3 done and some verdicts are unscored, 2 nothing could be read or bad usage, 130 interrupted."
    )
    parser.add_argument("trajectories", nargs="+", metavar="TRAJ", help="trajectory file, .jsonl or .jsonl.gz")
    parser.add_argument("labels", metavar="LABELS", help="label file; false positives are counted on its failures")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FOLDER", help="verdicts, redteam.json and redteam.md; a run is taken up"
    )
    parser.add_argument("--attacks", metavar="A,B", help="these attacks only (default: all)")
    parser.add_argument("--source", metavar="S", help="labels to use where there are several sources, such as human or oracle")
    parser.add_argument("--concurrency", type=positive, default=16, metavar="N", help="most calls at once (default 16)")
    parser.add_argument("--limit", type=positive, metavar="N", help="look at the first N trajectories only")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the intervals' bootstrap (default {SEED})")
    parser.add_argument("--no-resume", action="store_true", help="begin anew; old verdict files get the ending .bak")
    parser.add_argument("--json", action="store_true", help="print the contents of redteam.json instead of the table")
    add_judge_options(parser, leave_out=("labels", "source"))


def run(args: argparse.Namespace) -> int:
    """Judges, measures, writes and prints; see `configure` for the exit codes."""
    folder = Path(args.output)
    names = args.attacks and [name.strip() for name in args.attacks.split(",") if name.strip()]
    gold_labels(read_labels(args.labels), args.source)  # what is wrong with the labels is said before any call is made
    evaluator = make_evaluator(args)
    selection = select_attacks(evaluator, names, folder)
    try:
        with _progress_bar(args, selection) as show:
            judging = judge_attacked(
                evaluator,
                args.trajectories,
                folder,
                selection,
                concurrency=args.concurrency,
                limit=args.limit,
                resume=not args.no_resume,
                progress=show,
            )
            tallies = asyncio.run(judging)
    except KeyboardInterrupt:
        print("prill redteam: stopped; the same command takes up where this run ended", file=sys.stderr)
        return _EXIT_INTERRUPTED
    result = measure(args.trajectories, args.labels, folder, selection, source=args.source, limit=args.limit, seed=args.seed)
    _write(folder, result)
    print(encode(result).decode().rstrip() if args.json else table(result))
    if broken := tallies[BEFORE].unscored["input"]:
        print(f"prill redteam: left out {broken} that could not be read; why is in {folder / BEFORE}.jsonl", file=sys.stderr)
    for caution in fitted_on(evaluator, args.trajectories):
        print(f"prill redteam: {caution}", file=sys.stderr)
    unscored = any(effect.became_unscored or effect.unscored_before for effect in result.effects)
    return _EXIT_SOME_UNSCORED if unscored else _EXIT_ALL


def table(result: RedTeam) -> str:
    """The effects as a Markdown table that can be read as it is, with what it does not show below it."""
    rows = [_HEADING, *(_row(effect) for effect in result.effects)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADING))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    evaluator = result.evaluator
    judge = ", ".join(part for part in (f"{evaluator.name} {evaluator.version}", evaluator.model) if part)
    notes = [
        f"Judge: {judge}. Labels: {result.source}. Attacks: version {result.attacks_version}.",
        f"Changes in points, with 95 % intervals: bootstrap over {result.clusters} tasks, {DRAWS} draws; "
        "* Wilson, as all draws are alike.",
    ]
    for effect in result.effects:
        counts = {
            "where it does not apply": effect.does_not_apply,
            "unscored before": effect.unscored_before,
            "that became unscored": effect.became_unscored,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if left_out:
            notes.append(f"Left out under {effect.attack}: {left_out}.")
    return "\n".join([*lines, "", *notes])


def _row(effect: AttackEffect) -> tuple[str, ...]:
    return (effect.attack, *_shift(effect.false_positives), *_shift(effect.recall))


def _shift(shift: Shift | None) -> tuple[str, str, str]:
    if shift is None:
        return "0", "-", "-"
    star = " *" if shift.interval == "wilson" else ""
    change = f"{100 * shift.change:+.1f} ({100 * shift.low:+.1f} to {100 * shift.high:+.1f}){star}"
    return str(shift.n), f"{100 * shift.before:.1f} % → {100 * shift.after:.1f} %", change


def _write(folder: Path, result: RedTeam) -> None:
    try:
        (folder / "redteam.json").write_bytes(encode(result))
        (folder / "redteam.md").write_text(table(result) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _progress_bar(args: argparse.Namespace, selection: Mapping[str, Attack]) -> Iterator[Callable[[str, Tally], None]]:
    from tqdm import tqdm

    total = expected(args.trajectories, args.limit) * (1 + len(selection))
    counts: dict[str, int] = {}
    with tqdm(total=total, unit="verdict", dynamic_ncols=True, file=sys.stderr, smoothing=0.1, delay=0.2) as bar:

        def show(name: str, tally: Tally) -> None:
            counts[name] = tally.skipped + tally.made
            bar.n = sum(counts.values())
            bar.set_postfix_str(name, refresh=False)
            bar.update(0)

        yield show
