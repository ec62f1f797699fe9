"""Serves the airline's desk until it is interrupted.

    python -m prill.papers.step.airline.desk --port 7780

prints its address, and the token that its service wants.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from prill.errors import PrillError
from prill.papers.step.airline.desk.server import AirlineDesk


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve with the settings of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m prill.papers.step.airline.desk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="default: 0, any free one")
    parser.add_argument("--seed", type=int, default=0, help="another number is another world (default: 0)")
    parser.add_argument("--token", default=None, help="what the service wants; '' for nothing (default: drawn by chance)")
    options = parser.parse_args(arguments)
    signals = {signal.SIGINT, signal.SIGTERM}
    # Blocked before the thread starts, which inherits that: they then wait for sigwait and interrupt nothing.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with AirlineDesk(port=options.port, seed=options.seed, token=options.token) as airline:
            print(f"export AIRLINE={airline.url}")
            print(f"export AIRLINE_TOKEN={airline.token}", flush=True)
            signal.sigwait(signals)
    except PrillError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
