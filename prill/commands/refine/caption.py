"""`prill caption`: screenshots into words, each picture once, into a caption file; or rows to train a captioner on."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from prill.captioner.bulk import CaptionTally, caption_files, expect_pictures
from prill.captioner.planning import plan_captions
from prill.captioner.training import CAPTIONS, ROWS, TrainingSpec, training_data
from prill.cli.stopping import stopping_on_ctrl_c
from prill.commands.options import (
    add_captioner_options,
    add_engine_options,
    add_options_of,
    make_captioner,
    make_engine,
    open_folders,
    options_given,
    positive,
    run_budget,
)
from prill.commands.runs.plan import RunPlan, add_dry_run, cost_of, show_plan
from prill.errors import UsageError
from prill.files.outputs import expect_place
from prill.protocols import Captioner, Engine
from prill.registry import read_options
from prill.verdict_log import RETRIED

if TYPE_CHECKING:
    from tqdm import tqdm

_EXIT_ALL, _EXIT_SOME, _EXIT_INTERRUPTED = 0, 3, 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.usage = "prill caption TRAJ [TRAJ ...] -o FILE [options]"
    parser.description = (
        "Puts the screenshots of trajectories into words: each picture once, whatever its file is called.\n"
        "  prill caption t.jsonl -o captions.jsonl --model Qwen/Qwen2.5-VL-7B-Instruct --base-url http://localhost:8000/v1\n"
        "  prill score t.jsonl -o v.jsonl --judge modular --captions captions.jsonl --model M\n"
        "  prill caption t.jsonl -o data --for-training --model gpt-4o\n"
        "The same command goes on where a run broke off."
    )
    parser.epilog = (
        "Exit codes: 0 all captioned, 3 some pictures have no caption or some lines are broken, 2 nothing could be read or bad "
        "usage, 130 interrupted."
    )
    parser.add_argument("trajectories", nargs="+", metavar="TRAJ", help="trajectory file (.jsonl, .jsonl.gz), folder, or -")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="caption file, which is continued; or DIR")
    parser.add_argument("--for-training", action="store_true", help="make rows to train a captioner on (TRL's format), in DIR")
    parser.add_argument("--last", type=positive, metavar="N", help="only the last N states of each trajectory (default: all)")
    parser.add_argument("--limit", type=positive, metavar="N", help="look at the first N trajectories only")
    parser.add_argument("--concurrency", type=positive, default=16, metavar="N", help="most calls at once (default 16)")
    add_engine_options(parser)
    add_dry_run(parser)
    parser.add_argument("--no-resume", action="store_true", help="begin anew; an old caption file becomes FILE.bak (.bak2, …)")
    parser.add_argument("--retry-unscored", action="store_true", help="try pictures again that have no caption")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    add_captioner_options(parser)
    add_options_of(parser.add_argument_group("with --for-training"), TrainingSpec)


def run(args: argparse.Namespace) -> int:
    """Captions; see `configure` for the exit codes."""
    open_folders(args)
    if not args.for_training and (of_training := options_given(args, TrainingSpec)):
        raise UsageError(f"{', '.join(of_training)}: options of training data only", parameters=("for_training",))
    if args.for_training and args.engine:
        raise UsageError("an engine captions into a caption file only", parameters=("for_training", "engine"))
    engine = make_engine(args)
    spec = TrainingSpec(**read_options(TrainingSpec, options_given(args, TrainingSpec), "training data", lax=True))
    try:
        output = {"folder" if args.for_training else "file": args.output}
        with run_budget(args, **output, begin_again=args.no_resume):
            captioner = make_captioner(args)
            expect_pictures(captioner, engine)
            if args.dry_run:
                return _plan(args, captioner)
            made = _make_data(args, captioner, spec) if args.for_training else _caption(args, captioner, engine)
            tally = asyncio.run(made)
    except asyncio.CancelledError:
        print("prill caption: dropped the calls under way; the same command takes up where this run ended", file=sys.stderr)
        return _EXIT_INTERRUPTED
    _report(args, tally)
    if tally.stopped:
        return _EXIT_INTERRUPTED
    return _EXIT_SOME if tally.unscored or tally.broken else _EXIT_ALL


def _plan(args: argparse.Namespace, captioner: Captioner) -> int:
    file = Path(args.output) / CAPTIONS if args.for_training else Path(args.output)
    expect_place(args.output, "captions, which are continued,")
    about = {"last": args.last, "limit": args.limit, "resume": not args.no_resume, "retry_unscored": args.retry_unscored}
    plan = plan_captions(args.trajectories, captioner, file, **about)
    usage = plan.usage
    if usage is not None:
        usage = replace(usage, usd=cost_of(usage, args.model, args.prices))
    run = RunPlan(
        work=(f"{plan.todo} pictures to caption, {plan.kept} already there, {plan.equal} files equal to another",),
        counts={"pictures": plan.todo, "kept": plan.kept, "equal": plan.equal, "broken": len(plan.problems)},
        usage=usage,
        unknown="this captioner cannot say beforehand what it needs",
        most=args.for_training,
        problems=plan.problems,
    )
    return show_plan(args, run)


async def _caption(args: argparse.Namespace, captioner: Captioner, engine: Engine | None) -> CaptionTally:
    with _going_on() as more:
        settings = {**_of_both(args), "engine": engine}
        return await caption_files(args.trajectories, captioner, args.output, **settings, **more)


async def _make_data(args: argparse.Namespace, captioner: Captioner, spec: TrainingSpec) -> CaptionTally:
    with _going_on() as more:
        tally = await training_data(args.trajectories, captioner, args.output, spec, **_of_both(args), **more)
    if not tally.asked.stopped:
        dropped = ", ".join(f"{reason} {count}" for reason, count in tally.dropped.most_common()) or "none"
        mended = f" ({tally.mended} of them mended by hand)" if tally.mended else ""
        print(f"{tally.rows} rows{mended} -> {args.output}/{ROWS}; pictures left out: {dropped}", file=sys.stderr)
    return tally.asked


def _of_both(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "last": args.last,
        "limit": args.limit,
        "concurrency": args.concurrency,
        "resume": not args.no_resume,
        "retry_unscored": args.retry_unscored,
    }


@contextlib.contextmanager
def _going_on() -> Iterator[dict[str, Any]]:
    """The progress bar, and the stop by Ctrl-C, as options of the call."""
    stop = asyncio.Event()
    with stopping_on_ctrl_c("caption", stop), _progress_bar() as bar:
        yield {"stop": stop, "progress": partial(_show, bar)}


@contextlib.contextmanager
def _progress_bar() -> Iterator[tqdm[NoReturn]]:
    from prill.cli.showing import progress_bar

    with progress_bar(unit="picture", dynamic_ncols=True, file=sys.stderr, smoothing=0.1, delay=0.2) as bar:
        yield bar


def _show(bar: tqdm[NoReturn], tally: CaptionTally) -> None:
    # The rate and the remaining time count what this run asks for, not what it finds done.
    bar.total = tally.files
    bar.initial = tally.kept + tally.equal + tally.passed
    bar.n = tally.seen
    usage = tally.usage
    cost = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
    tokens = f"{(usage.prompt_tokens + usage.completion_tokens) / 1000:.1f}k tokens, {cost}, " if usage.calls else ""
    bar.set_postfix_str(f"{tokens}{sum(tally.unscored.values())} without", refresh=False)
    bar.update(0)


def _report(args: argparse.Namespace, tally: CaptionTally) -> None:
    without = sum(tally.unscored.values())
    if args.json:
        usage = msgspec.to_builtins(tally.usage)
        print(json.dumps({**asdict(tally), "usage": usage, "unscored": dict(tally.unscored), "output": args.output}))
    say = partial(print, file=sys.stderr)
    counts = [f"{tally.made} captions made", f"{tally.kept} already there", f"{tally.equal} files equal to another"]
    say(f"{', '.join(counts)}, {without} pictures without a caption -> {args.output}")
    if tally.truncated:
        say(f"{tally.truncated} captions were cut by the limit of tokens and say so at their end; --max-tokens gives them room")
    if without:
        say("without a caption: " + ", ".join(f"{reason} {count}" for reason, count in tally.unscored.most_common()))
    if tally.broken:
        say(f"{tally.broken} lines are no trajectories and are left out")
    for problem in tally.problems[:10]:
        say(f"  {problem}")
    if without + tally.broken > 10:
        say(f"  … and {without + tally.broken - 10} more")
    if tally.stopped:
        say("stopped; the same command takes up where this run ended")
    elif tally.unscored.keys() - set(RETRIED):
        say("the same command with --retry-unscored tries those again")
