"""`prill redteam`: attack a judge with families of attacks in rising strength, and see how far its verdicts move."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

from prill.commands.options import (
    add_judge_options,
    add_label_options,
    expected,
    make_evaluator,
    open_folders,
    positive,
    run_budget,
)
from prill.commands.runs.plan import JudgingPlan, add_dry_run, plan_judging, show_plan, together
from prill.errors import UsageError
from prill.evaluators.attacks.families import FAMILIES, Variant
from prill.evaluators.fitted.overlap import fitted_caution
from prill.evaluators.meta.redteam import (
    BEFORE,
    SEED,
    AttackEffect,
    RedTeam,
    Shift,
    judge_attacked,
    labelled_tasks,
    measure,
    select_attacks,
    under_attack,
    worst_by_family,
)
from prill.evaluators.metrics import DRAWS
from prill.files.outputs import Content, check_output, expect_place, write_output
from prill.protocols import Evaluator
from prill.scoring import Tally, lasting_keys
from prill.store import encode
from prill.types import Usage
from prill.ui.report.shifts import shift_svg

_EXIT_ALL, _EXIT_TURNED, _EXIT_SOME_UNSCORED, _EXIT_INTERRUPTED = 0, 1, 3, 130
_FILES: dict[str, Content] = {
    "redteam.json": "red team figures",
    "redteam.md": "red team figures",
    "redteam.svg": "a diagram",
}
_HEADING = ("attack", "failures", "called success, before → after", "change", "successes", "recall, before → after", "change")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    families = "\n".join(f"  {name:<20}{family.what}" for name, family in FAMILIES.items())
    parser.epilog = (
        f"families of attacks:\n{families}\n\n"
        "A judge that is fitted must not be attacked on what it was fitted on: its figures would flatter it.\n"
        "Exit codes: 0 done, 1 an attack adds more than --max-shift, 3 done and some verdicts are unscored, 2 nothing could\n"
        "be read or bad usage, 130 interrupted."
    )
    parser.add_argument(
        "trajectories", nargs="+", metavar="TRAJ", help="trajectory file (.jsonl, .jsonl.gz), folder of them, or -"
    )
    parser.add_argument("labels", metavar="LABELS", help="label file; false positives are counted on its failures")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FOLDER", help="verdicts, redteam.json, .md and .svg; a run is taken up"
    )
    parser.add_argument(
        "--attacks",
        "--attack",
        action="append",
        metavar="A,B",
        help="these families only, or one strength of them such as pad-after-2000 (default: all); module:Object for your own",
    )
    parser.add_argument(
        "--max-shift",
        type=_points,
        metavar="X",
        help="exit with 1 where an attack adds more than X points of false positives",
    )
    add_label_options(parser)
    parser.add_argument("--concurrency", type=positive, default=16, metavar="N", help="most calls at once (default 16)")
    parser.add_argument("--limit", type=positive, metavar="N", help="look at the first N trajectories only")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the intervals' bootstrap (default {SEED})")
    add_dry_run(parser)
    parser.add_argument("--no-resume", action="store_true", help="begin anew; old verdict files get the ending .bak")
    parser.add_argument("--json", action="store_true", help="print the contents of redteam.json instead of the table")
    add_judge_options(parser, leave_out=("labels", "source"))


def run(args: argparse.Namespace) -> int:
    """Judges, measures, writes and prints; see `configure` for the exit codes."""
    open_folders(args)
    expect_place(args.output, "a folder")
    folder = Path(args.output)
    for name, content in _FILES.items():
        check_output(folder / name, content, [*args.trajectories, args.labels])
    names = args.attacks and [name.strip() for names in args.attacks for name in names.split(",") if name.strip()]
    # What is wrong with the labels is said before any call is made.
    _, gold, tasks = labelled_tasks(args.trajectories, args.labels, source=args.source, truth=args.truth, limit=args.limit)
    if args.max_shift is not None and all(gold[id] for id in tasks):
        raise UsageError("no failure is labelled: there is no shift to compare", parameters=("max_shift",))
    with run_budget(args, folder=folder, begin_again=args.no_resume):
        return _run(args, folder, names)


def _run(args: argparse.Namespace, folder: Path, names: Sequence[str] | None) -> int:
    evaluator = make_evaluator(args)
    selection = select_attacks(evaluator, names, folder)
    if args.dry_run:
        return _plan(args, evaluator, folder, selection)
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
    result = measure(
        args.trajectories,
        args.labels,
        folder,
        selection,
        source=args.source,
        truth=args.truth,
        limit=args.limit,
        seed=args.seed,
    )
    _write(folder, result)
    print(encode(result).decode().rstrip() if args.json else table(result))
    if broken := tallies[BEFORE].unscored["input"]:
        print(f"prill redteam: left out {broken} that could not be read; why is in {folder / BEFORE}.jsonl", file=sys.stderr)
    if caution := fitted_caution(result.evaluator.name, result.fitted):
        print(f"prill redteam: {caution}", file=sys.stderr)
    return _exit_code(result, args.max_shift)


def _plan(args: argparse.Namespace, evaluator: Evaluator, folder: Path, selection: Mapping[str, Variant]) -> int:
    """The trajectories are judged once as they are, and once for each attack that applies."""
    judges = {BEFORE: evaluator, **{name: under_attack(evaluator, attack) for name, attack in selection.items()}}
    todo = done = 0
    usages: list[Usage | None] = []
    fresh: JudgingPlan | None = None
    for name, judge in judges.items():
        file = folder / f"{name}.jsonl"
        keys = {} if args.no_resume else lasting_keys(file, retry_unscored=False)
        if keys or fresh is None:
            plan = plan_judging(args, judge, keys)
            fresh = fresh if keys else plan
        else:
            plan = fresh  # an attack makes a trajectory no shorter that nobody has seen yet
        todo, done, usages = todo + plan.todo, done + plan.done, [*usages, plan.usage]
    whole = JudgingPlan(todo, done, together(usages), len(selection) > 0, plan.problems)
    return show_plan(args, whole.run_plan(f"{len(selection)} attacks, and no attack; would be written to {args.output}"))


def _exit_code(result: RedTeam, max_shift: float | None) -> int:
    if max_shift is not None:
        worst = worst_by_family(result)[0]
        if worst.false_positives is None:
            raise UsageError("no failure was judged with and without an attack: there is no shift to compare")
        if 100 * worst.false_positives.change > max_shift + 1e-9:  # a change in points is a sum of binary fractions
            print(f"prill redteam: {worst.attack} moves this judge by more than {max_shift:g} points", file=sys.stderr)
            return _EXIT_TURNED
    unscored = any(effect.became_unscored or effect.unscored_before for effect in result.effects)
    return _EXIT_SOME_UNSCORED if unscored else _EXIT_ALL


def table(result: RedTeam) -> str:
    """The worst strength of every family as a Markdown table, with what it does not show below it."""
    effects = worst_by_family(result)
    evaluator = result.evaluator
    judge = ", ".join(part for part in (f"{evaluator.name} {evaluator.version}", evaluator.model) if part)
    notes = [
        f"Judge: {judge}. Labels: {result.source}. Attacks: version {result.attacks_version}, {len(result.effects)} in "
        f"{len(effects)} families; of each family the strength that adds most false positives.",
        f"Changes in points, with 95 % intervals: bootstrap over {result.clusters} tasks, {DRAWS} draws; "
        "* Wilson, as all draws are alike.",
    ]
    if caution := fitted_caution(evaluator.name, result.fitted):
        notes.append(f"Warning: {caution}.")
    if not all(effect.keeps_success for effect in effects):
        notes.append("† The answer that was asked for, or a step, is gone: recall may rightly fall.")
    notes += _left_out(effects)
    worst = effects[0]
    if worst.false_positives is not None:
        worst_words = f"Worst: {worst.attack}, {_change(worst.false_positives)} points of false positives."
        notes.append(worst_words if worst.false_positives.change > 0 else "No family adds false positives.")
    return "\n".join([*_lines(effects), "", *notes])


def _every_strength(result: RedTeam) -> str:
    return "\n".join(["## Every strength", "", *_lines(result.effects), "", *_left_out(result.effects)]).rstrip()


def _lines(effects: Sequence[AttackEffect]) -> list[str]:
    rows = [_HEADING, *(_row(effect) for effect in effects)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADING))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _left_out(effects: Sequence[AttackEffect]) -> list[str]:
    """Who was left out, and who abstained, a line for all attacks with the same counts."""
    attacks: dict[str, list[str]] = {}
    for effect in effects:
        counts = {
            "where it does not apply": effect.does_not_apply,
            "unscored before": effect.unscored_before,
            "that became unscored": effect.became_unscored,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if left_out:
            attacks.setdefault(f"Left out: {left_out}", []).append(effect.attack)
        if effect.abstained_before or effect.abstained_after:
            abstained = f"{effect.abstained_before} before, {effect.abstained_after} after"
            attacks.setdefault(f"Abstained, which counts as no success: {abstained}", []).append(effect.attack)
    return [f"{words} ({', '.join(names)})." for words, names in attacks.items()]


def _row(effect: AttackEffect) -> tuple[str, ...]:
    count, shares, change = _shift(effect.recall)
    dagger = "" if effect.keeps_success or effect.recall is None else " †"
    return (effect.attack, *_shift(effect.false_positives), count, shares, change + dagger)


def _shift(shift: Shift | None) -> tuple[str, str, str]:
    if shift is None:
        return "0", "-", "-"
    return str(shift.n), f"{100 * shift.before:.1f} % → {100 * shift.after:.1f} %", _change(shift)


def _change(shift: Shift) -> str:
    star = " *" if shift.interval == "wilson" else ""
    return f"{100 * shift.change:+.1f} ({100 * shift.low:+.1f} to {100 * shift.high:+.1f}){star}"


def _points(text: str) -> float:
    points = float(text)
    if not 0 <= points < inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of points from 0")
    return points


def _write(folder: Path, result: RedTeam) -> None:
    texts = (f"{table(result)}\n\n{_every_strength(result)}\n", shift_svg(result))
    for name, data in zip(_FILES, (encode(result), *(text.encode() for text in texts)), strict=True):
        write_output(folder / name, data)


@contextlib.contextmanager
def _progress_bar(args: argparse.Namespace, selection: Mapping[str, Variant]) -> Iterator[Callable[[str, Tally], None]]:
    from prill.cli.showing import progress_bar

    total = expected(args.trajectories, args.limit) * (1 + len(selection))
    counts: dict[str, int] = {}
    with progress_bar(total=total, unit="verdict", dynamic_ncols=True, file=sys.stderr, smoothing=0.1, delay=0.2) as bar:

        def show(name: str, tally: Tally) -> None:
            counts[name] = tally.skipped + tally.made
            bar.n = sum(counts.values())
            bar.set_postfix_str(name, refresh=False)
            bar.update(0)

        yield show
