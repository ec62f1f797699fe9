"""Supervises a command for a process that may die, and ends the command with it.

    python -I keeper.py COMMAND …

Standard input is a pipe that the owner keeps open. It closes when the owner ends, also by kill -9.
This file imports no other module of prill, so that the process stays small. It runs in its own
session, so a Ctrl-C in the terminal does not reach it. The owner starts it with `begin`, and shows
the command's last output with `last_output`.
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
GLANCE = 0.5  # seconds between checks of the command
GENTLE = 15.0  # seconds between SIGTERM and SIGKILL
LINES, _LINE, _TAIL = 15, 300, 64_000  # lines, characters and bytes of a log that are shown


def begin(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a keeper of the command, whose output goes to the log.

    Both end when the keeper's standard input is closed.
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
    log: IO[bytes], most: int = LINES, *, since: int = 0, tail: int = _TAIL, secret: str = ""
) -> list[str]:
    """Returns the last lines of a log after byte `since`, sanitised for display.

    At most `tail` bytes are read.
    """
    size = os.fstat(log.fileno()).st_size
    data = os.pread(log.fileno(), tail, max(since, size - tail))
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", data.decode("utf-8", "replace"))
    text = text.replace(secret, "***") if secret else text
    lines = [
        "".join(c if c.isprintable() else " " for c in line).rstrip()[:_LINE]
        for line in text.splitlines()
    ]
    return [line for line in lines if line][-most:]


def last_output(lines: Sequence[str]) -> str:
    """Formats log lines as the end of a message."""
    return "; its last lines:\n  " + "\n  ".join(lines) if lines else "; it wrote no output"


def keep(command: list[str]) -> int:
    """Runs the command until it ends or its owner dies; returns its exit status."""
    owner = os.getppid()
    signal.signal(signal.SIGTERM, _leave)
    if sys.platform == "linux":
        # As a subreaper, this process becomes the parent of the command's orphaned children and is
        # notified when they end.
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while child.poll() is None:
            # A forked child of the owner may keep the pipe open, so the parent's process id is
            # checked too.
            if select.select([sys.stdin], [], [], GLANCE)[0] or os.getppid() != owner:
                break
    finally:
        end(child)
    return child.returncode


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends a command that leads a session, and the rest of its process group."""
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
    """Returns whether a process of the group still exists and was signalled."""
    try:
        os.killpg(child.pid, number)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # macOS raises PermissionError for ended processes
        return False
    return True


def _reap() -> None:
    """Reaps the command's orphaned children, which otherwise still count as part of its group."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
