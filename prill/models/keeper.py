"""Supervises a command for a process that may die, and ends the command with it.

    python -I keeper.py COMMAND …

Standard input is a pipe that the owner holds open: it ends with the owner, also by kill -9. A file
of its own without prill's other modules, so that it stays small; in a session of its own, a Ctrl-C
in the terminal does not reach it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
GLANCE = 0.5  # seconds between two looks at the command
GENTLE = 15.0  # seconds between asking to end and ending


def keep(command: list[str]) -> int:
    """The exit status of the command, which ends at the latest with this process's owner."""
    owner = os.getppid()
    signal.signal(signal.SIGTERM, _leave)
    if sys.platform == "linux":
        # What the command leaves behind when it dies becomes a child of this process, which learns
        # so that it has ended.
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while child.poll() is None:
            # A forked child of the owner may hold the pipe open, too: then the owner's number
            # tells.
            if select.select([sys.stdin], [], [], GLANCE)[0] or os.getppid() != owner:
                break
    finally:
        end(child)
    return child.returncode


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends a command that leads a session, and what is left of its group."""
    for number, patience in ((signal.SIGTERM, GENTLE), (signal.SIGKILL, 5.0)):
        if not _signalled(child, number):
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(0.05)
            if child.poll() is not None:
                _reap()
            if not _signalled(child, 0):
                return


def _signalled(child: subprocess.Popen[bytes], number: int) -> bool:
    """Whether there is still a process of the group to be signalled."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):  # the latter: macOS, for what has ended
        return False
    return True


def _reap() -> None:
    """Takes note of the end of what the command has left behind: until then it counts as a process
    of its group.
    """
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
