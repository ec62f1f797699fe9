"""Fake phones to play with: python -m tests.support.android --port 5038 emulator-5554 emulator-5556

prints where the adb server and its control port listen, and serves until it is interrupted. Then,
in another terminal: `adb -P 5038 devices`,
`adb -P 5038 -s emulator-5554 exec-out screencap -p > screen.png`, or Appium with the capability
appium:adbPort. Faults: curl -X POST CONTROL_URL/fault/hang; state: curl CONTROL_URL/state
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from prill.errors import EnvironmentFailedError, UsageError
from tests.support.android.host import FakeAdb


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve with the settings of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.android",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "serials", nargs="*", metavar="SERIAL", help="the phones (default: emulator-5554)"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of the adb server; 0: any free port (default: 0)"
    )
    parser.add_argument("--control-port", type=int, default=0, help="0: any free port (default: 0)")
    parser.add_argument(
        "--frames",
        type=int,
        default=2,
        help="moving screenshots after each change of page (default: 2)",
    )
    parser.add_argument("--adb-keyboard", action="store_true", help="the ADB keyboard is installed")
    parser.add_argument(
        "--consoles",
        action="store_true",
        help="phones answer `adb emu` on the port in their serial",
    )
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="end with standard input, and so with the parent process",
    )
    options = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with FakeAdb(
            options.serials or ["emulator-5554"],
            port=options.port,
            control_port=options.control_port,
            frames=options.frames,
            adb_keyboard=options.adb_keyboard,
            consoles=options.consoles,
        ) as adb:
            print(f"adb -P {adb.port} devices\n{adb.control_url}", flush=True)
            if options.until_eof:
                threading.Thread(target=_wait_for_eof, args=(ended,), daemon=True).start()
            ended.wait()
    except (UsageError, EnvironmentFailedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _wait_for_eof(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
