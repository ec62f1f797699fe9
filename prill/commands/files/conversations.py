"""`prill conversations`: single tasks of Mind2Web as conversations in MT-Mind2Web's format."""

from __future__ import annotations

import argparse
import asyncio
import sys

from prill.cli.stopping import stopping_on_ctrl_c
from prill.commands.options import add_model_options, make_model, positive, run_budget
from prill.datasets.conversations import MOST_TASKS, Tally, make_conversations
from prill.files.outputs import expect_place
from prill.models.ledger import usage_text

_EXIT_ALL, _EXIT_SOME, _EXIT_INTERRUPTED = 0, 3, 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = (
        "Tasks of one site that share words become a conversation; long ones are divided into turns; --model divides and "
        "rewrites, rules do without it. The same command goes on where a run broke off. Exit codes: 0 all made, 3 some records "
        "are broken, a rule stood in for the model, or calls failed (FILE is then not written yet), 2 nothing could be read or "
        "bad usage, 130 interrupted."
    )
    parser.add_argument("source", metavar="IN", help="file or folder of Mind2Web, JSON")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="JSON file of conversations")
    parser.add_argument(
        "--most-tasks", type=positive, default=MOST_TASKS, metavar="N", help=f"of one conversation (default {MOST_TASKS})"
    )
    parser.add_argument("--concurrency", type=positive, default=8, metavar="N", help="most calls at once (default 8)")
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    """Makes them; see `configure` for the exit codes."""
    expect_place(args.output, "a file")
    with run_budget(args, file=args.output):
        tally = asyncio.run(_make(args))
    for problem in tally.problems[:20]:
        print(f"prill conversations: {problem}", file=sys.stderr)
    if len(tally.problems) > 20:
        print(f"prill conversations: … and {len(tally.problems) - 20} more", file=sys.stderr)
    if args.model:
        print(f"prill conversations: {usage_text(tally.usage)}", file=sys.stderr)
    if tally.stopped:
        print("prill conversations: stopped; the same command takes up where this run ended", file=sys.stderr)
        return _EXIT_INTERRUPTED
    if tally.unanswered:
        print(
            f"prill conversations: {tally.unanswered} of {tally.conversations} conversations got no answer, so {args.output} "
            "is not written; the same command asks for these again",
            file=sys.stderr,
        )
        return _EXIT_SOME
    rule = f"; the rule divided {tally.by_rule} tasks and worded {tally.not_rewritten} conversations" if args.model else ""
    print(
        f"{args.output}: {tally.conversations} conversations, {tally.turns} turns of {tally.tasks} tasks{rule}", file=sys.stderr
    )
    return _EXIT_SOME if tally.problems else _EXIT_ALL


async def _make(args: argparse.Namespace) -> Tally:
    from prill.cli.showing import progress_bar

    model = make_model(args) if args.model else None
    stop = asyncio.Event()
    with (
        stopping_on_ctrl_c("conversations", stop),
        progress_bar(unit="conversation", dynamic_ncols=True, file=sys.stderr, delay=0.5) as bar,
    ):

        def show(tally: Tally) -> None:
            bar.total = tally.conversations
            if model is not None:
                bar.set_postfix_str(usage_text(tally.usage), refresh=False)
            bar.update()

        return await make_conversations(
            args.source, args.output, model, most_tasks=args.most_tasks, at_once=args.concurrency, stop=stop, progress=show
        )
