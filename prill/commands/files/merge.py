"""`prill merge`: the verdict files of several shards as one."""

from __future__ import annotations

import argparse
import sys

from prill.files.outputs import words_beside
from prill.verdict_log import merge_verdicts

_EXIT_ALL, _EXIT_SOME = 0, 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = (
        "Writes the verdicts of several files into one, each id once. Files of different evaluators are refused.\n"
        "  prill score t.jsonl -o part1.jsonl --shard 1/2 ...    on one machine\n"
        "  prill score t.jsonl -o part2.jsonl --shard 2/2 ...    on another\n"
        "  prill merge part1.jsonl part2.jsonl -o v.jsonl\n"
        "What is missing then, `prill score t.jsonl -o v.jsonl ...` judges.\n"
        "Exit codes: 0 all merged, 3 a file ends in an incomplete line, which is left out, 2 bad usage."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("verdicts", nargs="+", metavar="VERDICTS", help="verdict file, .jsonl or .jsonl.gz")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="where to write them; verdicts that are there stay (- for stdout)"
    )


def run(args: argparse.Namespace) -> int:
    """Merges. Raises UsageError or InputError when a file cannot be read, or does not belong to the others."""
    merged = merge_verdicts(args.verdicts, args.output)
    words = f"{merged.verdicts} verdicts, {merged.unscored} of them unscored"
    twice = f"; {merged.left_out} lines left out, whose ids have a better or newer one" if merged.left_out else ""
    print(words + twice, file=words_beside(args.output))
    for path in merged.cut:
        print(f"prill merge: {path}: its last line is incomplete, as a crash leaves it, and was left out", file=sys.stderr)
    return _EXIT_SOME if merged.cut else _EXIT_ALL
