"""Supervises a command for a process that may die, and ends the command with it.

    python -I keeper.py COMMAND …

Standard input is a pipe that the owner holds open: it ends with the owner, also by kill -9. A file
of its own without prill's other modules, so that it stays small; in a session of its own, a Ctrl-C
in the terminal does not reach it. The owner begins it by `begin`, and shows what the command said
last by `last_words`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import IO

_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
GLANCE = 0.5  # seconds between two looks at the command
GENTLE = 15.0  # seconds between asking to end and ending
_LINES, _LINE, _TAIL = 15, 300, 64_000  # lines, characters and bytes of a log that are shown


def begin(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a keeper of the command, which writes to the log. Both end when its standard input is
    closed.
    """
    return subprocess.Popen(
        [sys.executable, "-I", __file__, *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,
    )


def last_lines(
    log: IO[bytes], most: int = _LINES, *, since: int = 0, secret: str = ""
) -> list[str]:
    """The last lines of a log from the byte `since` on, fit to be shown."""
    size = os.fstat(log.fileno()).st_size
    data = os.pread(log.fileno(), _TAIL, max(since, size - _TAIL))
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", data.decode("utf-8", "replace"))
    text = text.replace(secret, "***") if secret else text
    lines = [
        "".join(c if c.isprintable() else " " for c in line).rstrip()[:_LINE]
        for line in text.splitlines()
    ]
    return [line for line in lines if line][-most:]


def last_words(lines: Sequence[str]) -> str:
    """The end of a message with these lines."""
    return "; its last lines:\n  " + "\n  ".join(lines) if lines else "; it said nothing"


def keep(command: list[str]) -> int:
    """Runs the command until it ends or its owner dies; returns its exit status."""
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
