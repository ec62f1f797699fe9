"""Serves the airline's site until interrupted.

    python -m prill.papers.step.airline.desk --port 7780

It prints its address and the token for its scenario service.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from prill.papers.step.airline.desk.server import AirlineDesk
from prill.served import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves the site with the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m prill.papers.step.airline.desk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="Port (default: 0, any free port).")
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed of the generated data (default: 0)."
    )
    parser.add_argument(
        "--token", help="Token that requests must carry; '' for none (default: random)."
    )
    options = vars(parser.parse_args(arguments))
    return serve(lambda: AirlineDesk(**options), sys.stdout, sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
