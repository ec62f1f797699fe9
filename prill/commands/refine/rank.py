"""`prill rank`: every candidate of every step by a ranker, into a score file; and how often the right one comes first."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from prill.cli.stopping import stopping_on_ctrl_c
from prill.commands.options import WideHelp, expected, positive
from prill.errors import UsageError
from prill.models.local.ranker import CrossEncoder
from prill.pages.ranking import Bm25, ByEmbedding, Ranker, RankingFigures, RankTally, rank_file
from prill.policies.embedders import make_embedder
from prill.tables import printable

_EXIT_DONE, _EXIT_SOME, _EXIT_INTERRUPTED = 0, 3, 130
_EMBEDDING = "embedding:"
_MOST_PROBLEMS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.formatter_class = WideHelp
    parser.usage = "prill rank GOLD -o FILE --ranker bm25|embedding:NAME|DIR [options]"
    parser.description = (
        "Scores every candidate of every recorded step, writes a score file as Mind2Web has them, and tells how often the\n"
        "right element comes first. The same command goes on where a run broke off.\n"
        "  prill rank test.jsonl -o scores.json --ranker bm25\n"
        "  prill rank test.jsonl -o scores.json --ranker ranker/      (trained by prill train ranker)\n"
        "  prill rank test.jsonl -o scores.json --ranker embedding:minilm --ranked ranked.jsonl"
    )
    parser.epilog = (
        "Exit codes: 0 all ranked, 3 without turns that cannot be read, 2 it cannot be, 130 interrupted: the same command goes "
        "on."
    )
    parser.add_argument("trajectories", metavar="GOLD", help="gold trajectories of recorded pages, .jsonl")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="score file, JSON")
    embedding = "embedding:NAME (tfidf, minilm, local:DIR, or a model at an endpoint)"
    ranker = f"bm25 (shared words, no model), {embedding}, or the folder of a ranker"
    parser.add_argument("--ranker", required=True, metavar="NAME|DIR", help=ranker)
    parser.add_argument("--ranked", metavar="OUT", help="also the trajectories with their candidates in the new order, .jsonl")
    parser.add_argument("--base-url", metavar="URL", help="the endpoint of an embedding (default $OPENAI_BASE_URL)")
    parser.add_argument("--device", metavar="NAME", help="of a ranker's folder: cuda, cpu, … (default: cuda if there)")
    parser.add_argument("--batch", type=positive, default=32, metavar="N", help="candidates that it reads at once (default 32)")
    parser.add_argument("--no-resume", action="store_true", help="begin anew")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Ranks; see `configure` for the exit codes."""
    tally = asyncio.run(_rank(args, _ranker(args)))
    if tally.stopped:
        print("prill rank: stopped; the same command goes on from there", file=sys.stderr)
        return _EXIT_INTERRUPTED
    found = tally.ranked.figures()
    if args.json:
        print(json.dumps({**asdict(found), "problems": len(tally.problems)}))
    else:
        print(in_words(found))
    print(f"{found.steps:,} steps -> {args.output}", file=sys.stderr)
    for problem in tally.problems[:_MOST_PROBLEMS]:
        print(f"prill rank: {printable(problem)}", file=sys.stderr)
    if (more := len(tally.problems) - _MOST_PROBLEMS) > 0:
        print(f"prill rank: … and {more} more", file=sys.stderr)
    return _EXIT_SOME if tally.problems else _EXIT_DONE


def in_words(found: RankingFigures) -> str:
    """The figures for people."""
    without = f" ({found.without:,} without a right candidate, counted as missed)" if found.without else ""
    recall = "  ".join(f"@{most} {share:.1%}" for most, share in found.recall.items())
    lines = {
        "steps": f"{found.steps:,}{without}",
        "accuracy": f"{found.accuracy:.1%} (by lot {found.chance:.1%})",
        "MRR": f"{found.mrr:.3f}",
        "recall": recall,
    }
    return "\n".join(f"{name:<9} {words}" for name, words in lines.items())


def _ranker(args: argparse.Namespace) -> Ranker:
    if args.ranker == Bm25.name:
        return Bm25()
    if args.ranker.startswith(_EMBEDDING):
        return ByEmbedding(make_embedder(args.ranker.removeprefix(_EMBEDDING), base_url=args.base_url))
    if not Path(args.ranker).is_dir():
        raise UsageError(f"--ranker {args.ranker}: there are bm25, embedding:NAME, and the folder of a ranker")
    return CrossEncoder(args.ranker, device=args.device, batch=args.batch)


async def _rank(args: argparse.Namespace, ranker: Ranker) -> RankTally:
    from prill.cli.showing import progress_bar

    stop = asyncio.Event()
    total = expected([args.trajectories], None)
    with (
        stopping_on_ctrl_c("rank", stop),
        progress_bar(total=total, unit="turn", dynamic_ncols=True, file=sys.stderr, delay=0.5) as bar,
    ):

        def show(tally: RankTally) -> None:
            bar.update(tally.turns - bar.n)

        return await rank_file(
            args.trajectories,
            ranker,
            args.output,
            reordered=args.ranked,
            resume=not args.no_resume,
            stop=stop,
            progress=show,
        )
