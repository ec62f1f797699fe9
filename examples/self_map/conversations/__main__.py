"""Writes generated conversations in the format of MT-Mind2Web: DIR/train, DIR/dev (the same sites)
and DIR/test_website (other sites).

    python examples/self_map/conversations DIR --seed 0

It prints the files that it wrote.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from maker import COUNTS, Split, write_conversations


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes conversations with the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python examples/self_map/conversations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="where the folders of the splits are made"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="another number is another set (default: 0)"
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=0,
        help="pages grow to about so many nodes (default: about 150)",
    )
    for split, count in COUNTS.items():
        parser.add_argument(
            f"--{split.replace('_', '-')}",
            type=int,
            default=count,
            help=f"conversations (default: {count})",
        )
    options = parser.parse_args(arguments)
    counts: dict[Split, int] = {split: getattr(options, split) for split in COUNTS}
    try:
        written = write_conversations(
            options.folder, seed=options.seed, nodes=options.nodes, counts=counts
        )
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(*(path for paths in written.values() for path in paths), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
