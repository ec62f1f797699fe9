"""Serves the shop until it is interrupted.

    python -m prill.emulators.shop --port 7770

prints the variables that WebArena's users set, for `eval` in a shell, and where to reset the state.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from prill.emulators.shop.server import Shop
from prill.errors import PrillError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve with the settings of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m prill.emulators.shop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0, help="the shop's; the others take the next two (default: 0, any)")
    parser.add_argument("--reset-token", default=None, help="what a reset must know (default: drawn by chance)")
    options = parser.parse_args(arguments)
    signals = {signal.SIGINT, signal.SIGTERM}
    # Blocked before the thread starts, which inherits that: they then wait for sigwait and interrupt nothing.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with Shop(port=options.port, reset_token=options.reset_token) as shop:
            for name, address in shop.environ.items():
                print(f"export {name}={address}")
            print(f"# reset: {shop.reset_url}", flush=True)
            signal.sigwait(signals)
    except PrillError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
