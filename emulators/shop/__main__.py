"""Serves the shop until it is interrupted.

    python -m prill.emulators.shop --port 7770

prints WebArena's environment variables, for `eval` in a shell, and the URL that resets the state.
The forum and the project site use the next two ports.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from prill.emulators.shop.server import Shop
from prill.served import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves the shop with the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m prill.emulators.shop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        help="Port of the shop; the other sites use the next two (default: 0, any free port).",
    )
    parser.add_argument(
        "--reset-token", help="Token that a reset request must carry (default: random)."
    )
    options = vars(parser.parse_args(arguments))
    return serve(lambda: Shop(**options), sys.stdout, sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
