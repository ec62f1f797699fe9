"""`prill score`: judge trajectory files into a verdict file."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from prill.commands.cautions import fitted_on, hard_scores, left_out, strangers, unknown_keys, weaker_second
from prill.commands.options import (
    add_engine_options,
    add_judge_options,
    expected,
    make_engine,
    make_evaluator,
    open_folders,
    positive,
    run_budget,
)
from prill.commands.runs.plan import add_dry_run, plan_judging, seconds_each, show_plan
from prill.commands.stopping import stopping_on_ctrl_c
from prill.commands.tallies import figures, say_counts
from prill.evaluators.combine import cascade_inside, savings
from prill.files.lines import is_stream
from prill.files.outputs import check_output, is_stdout, words_beside
from prill.files.shards import Shard
from prill.protocols import Evaluator
from prill.scoring import Tally, lasting_keys, score_files
from prill.store import read_verdicts
from prill.transcripts import transcript_folder
from prill.verdict_log import RETRIED

if TYPE_CHECKING:
    from tqdm import tqdm

_EXIT_ALL, _EXIT_SOME_UNSCORED, _EXIT_INTERRUPTED = 0, 3, 130
# What helps beyond trying again; of other reasons the message says enough.
_HINTS = {
    "truncated": "--max-tokens N gives replies more room (into another verdict file); a small model may run on all the same",
    "parse": "the model does not keep to the form it is asked for; a larger one may",
    "budget": "--budget-usd is of the whole run: the same command with a higher one goes on",
    "timeout": "a longer --timeout or a lower --concurrency gives the endpoint time",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.usage = "prill score TRAJ [TRAJ ...] -o FILE --evaluator NAME [options]"
    parser.description = (
        "Judges trajectories into a verdict file. The same command goes on where a run broke off.\n"
        "  prill score t.jsonl -o v.jsonl --evaluator vlm --model gpt-4o --budget-usd 5\n"
        "  prill score t.jsonl -o v.jsonl --evaluator modular --captioner text --model M --base-url http://localhost:8000/v1\n"
        "  prill score t.jsonl -o v.jsonl --evaluator cascade.toml"
    )
    parser.epilog = (
        "Exit codes: 0 all scored, 3 some unscored, 2 nothing could be read or bad usage, 4 endpoint gone, 130 interrupted."
    )
    parser.add_argument(
        "trajectories", nargs="+", metavar="TRAJ", help="trajectory file (.jsonl, .jsonl.gz), folder of them, or -"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="verdict file, where a run that broke off is taken up; or -"
    )
    parser.add_argument(
        "--concurrency",
        type=positive,
        default=16,
        metavar="N",
        help="most calls at once (default 16); --processes N: so many processes share the work (default 1)",
    )
    parser.add_argument("--processes", type=positive, default=1, help=argparse.SUPPRESS)  # the line above tells of it
    parser.add_argument("--limit", type=positive, metavar="N", help="look at the first N trajectories only")
    parser.add_argument(
        "--shard", type=Shard.read, metavar="I/N", help="this machine's share of the trajectories; see prill merge"
    )
    add_engine_options(parser)
    add_dry_run(parser)
    parser.add_argument("--no-resume", action="store_true", help="begin anew; an old verdict file becomes FILE.bak (.bak2, …)")
    parser.add_argument("--retry-unscored", action="store_true", help="judge again what is unscored, besides what is missing")
    transcripts = parser.add_mutually_exclusive_group()
    transcripts.add_argument(
        "--transcripts", metavar="DIR", help="keep what models were asked and answered there (default: beside FILE)"
    )
    transcripts.add_argument("--no-transcripts", action="store_true", help="keep none")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    add_judge_options(parser)


def run(args: argparse.Namespace) -> int:
    """Scores, or plans; see `configure` for the exit codes."""
    open_folders(args)
    check_output(args.output, "verdicts", args.trajectories, continued=not args.no_resume)
    args.engine = make_engine(args)
    with run_budget(args, file=args.output, begin_again=args.no_resume):
        evaluator = make_evaluator(args)
        return _plan(args, evaluator) if args.dry_run else _run(args, evaluator)


def _run(args: argparse.Namespace, evaluator: Evaluator) -> int:
    try:
        tally = asyncio.run(_score(args, evaluator))
    except asyncio.CancelledError:
        print("prill score: dropped the calls under way; the same command takes up where this run ended", file=sys.stderr)
        return _EXIT_INTERRUPTED
    _report(args, tally, evaluator)
    if tally.stopped:
        return _EXIT_INTERRUPTED
    return _EXIT_SOME_UNSCORED if tally.unscored else _EXIT_ALL


async def _score(args: argparse.Namespace, evaluator: Evaluator) -> Tally:
    stop = asyncio.Event()
    with stopping_on_ctrl_c("score", stop), _progress_bar(args) as bar:

        def show(tally: Tally) -> None:
            bar.initial = tally.skipped
            bar.n = tally.skipped + tally.made
            bar.set_postfix_str(_costs(tally), refresh=False)
            bar.update(0)

        return await score_files(
            args.trajectories,
            evaluator,
            args.output,
            concurrency=args.concurrency,
            processes=args.processes,
            engine=args.engine,
            limit=args.limit,
            shard=args.shard,
            resume=not args.no_resume,
            retry_unscored=args.retry_unscored,
            transcripts=_transcripts(args),
            stop=stop,
            progress=show,
        )


def _transcripts(args: argparse.Namespace) -> str | Path | None:
    """The folder for transcripts; None: keep none, as for verdicts that go to no file of their own."""
    if args.no_transcripts or args.transcripts:
        return args.transcripts or None
    return None if is_stdout(args.output) or is_stream(args.output) else transcript_folder(args.output)


@contextlib.contextmanager
def _progress_bar(args: argparse.Namespace) -> Iterator[tqdm[NoReturn]]:
    from prill.commands.tallies import progress_bar

    total = expected(args.trajectories, args.limit)
    if args.shard is not None:
        total = round(total / args.shard.count)  # about: ids decide
    # The rate and the remaining time count what this run does, not what it skips.
    with progress_bar(total=total, unit="traj", dynamic_ncols=True, file=sys.stderr, smoothing=0.1, delay=0.2) as bar:
        yield bar


def _costs(tally: Tally) -> str:
    usage = tally.usage
    parts = [f"{(usage.prompt_tokens + usage.completion_tokens) / 1000:.1f}k tokens"]
    parts.append("cost unknown" if usage.usd is None else f"${usage.usd:.4f}")
    parts.append(f"{sum(tally.unscored.values())} unscored")
    return ", ".join(parts)


def _plan(args: argparse.Namespace, evaluator: Evaluator) -> int:
    keys = {} if args.no_resume else lasting_keys(args.output, retry_unscored=args.retry_unscored)
    plan = plan_judging(args, evaluator, keys, args.shard)
    each = seconds_each(args.output) if keys else None
    return show_plan(args, plan.run_plan(seconds=None if each is None else each * plan.todo / args.concurrency))


def _report(args: argparse.Namespace, tally: Tally, evaluator: Evaluator) -> None:
    if args.json:
        summary = {
            **figures(tally),
            "seconds": round(tally.seconds, 3),
            "stopped": tally.stopped,
            "evaluator": msgspec.to_builtins(evaluator.info),
            "output": args.output,
            "untranscribed": tally.untranscribed,
        }
        print(json.dumps(summary), file=words_beside(args.output))
    say = partial(print, file=sys.stderr)
    say_counts(tally, args.output)
    for reason, hint in _HINTS.items():
        if reason in tally.unscored:
            say(f"{reason}: {hint}")
    on_disk = not is_stdout(args.output) and not is_stream(args.output)
    if on_disk and tally.read and cascade_inside(evaluator) is not None:
        say(_savings_line(args.output))
    if tally.untranscribed:
        say(f"{tally.untranscribed} transcripts could not be written to {_transcripts(args)}; the verdicts are whole")
    cautions = (
        fitted_on(evaluator, args.trajectories),
        strangers(evaluator),
        weaker_second(evaluator),
        hard_scores(evaluator, tally),
        left_out(evaluator, tally),
    )
    for caution in chain(unknown_keys(tally.unknown_keys), *cautions):
        say(f"prill score: {caution}")
    if tally.stopped:
        say("stopped; the same command takes up where this run ended")
    elif tally.unscored.keys() - {*RETRIED, "no_evidence"}:
        say("the same command with --retry-unscored tries those again")


def _savings_line(path: str) -> str:
    """What a cascade saved, in words."""
    saving = savings(read_verdicts(path))
    words = f"cascade: the second judge was asked for {saving.escalated} of {saving.judged}"
    if saving.calls is None:
        return words
    usd = "" if not saving.usd else f" and ${saving.usd:.4f}"
    return f"{words}; that saved about {saving.calls:.0f} of its calls{usd}"
