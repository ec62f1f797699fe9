"""Runs commands in separate processes, kills them with kill -9, restarts them, and finds their
leftover processes.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.paths import ROOT

_LONGEST = 120.0  # seconds: the event comes long before, unless there is a fault
_MARK = "PRILL_TEST_FAMILY"


def below(root: int) -> dict[int, str]:
    """Returns the running processes that a process has started, and they, and so on, with their
    command lines.
    """
    parents, commands = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if state != "Z":
            parents[int(folder.name)] = int(parent)
            commands[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: commands[pid] for pid in found - {root}}


class Family:
    """A command of prill with all its descendant processes, which inherit a mark in their
    environment.
    """

    def __init__(self, *words: object, folder: Path, env: Mapping[str, str] = {}) -> None:
        self._mark = secrets.token_hex(8)
        self.log = folder / "stderr.txt"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), _MARK: self._mark, **env}
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "prill", *map(str, words)]
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log
            )

    def wait_until(self, happened: Callable[[], bool]) -> bool:
        """Returns whether the event happened before the command ended."""
        deadline = time.monotonic() + _LONGEST
        while not happened():
            if self.process.poll() is not None:
                return happened()
            assert time.monotonic() < deadline, f"it did not happen: {self.said()}"
            time.sleep(0.002)
        return True

    def kill(self) -> None:
        """Kills only the command itself."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def finish(self) -> int:
        """Returns the exit code once the command has ended by itself."""
        return self.process.wait(timeout=_LONGEST)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def left(self) -> dict[int, str]:
        """Returns the running descendant processes by number, with their command lines."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if f"{_MARK}={self._mark}".encode() in (place / "environ").read_bytes():
                    found[int(place.name)] = (
                        (place / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")[:200]
                    )
            except OSError:  # it has ended, or belongs to another user
                continue
        return found

    def gone(self) -> bool:
        """Returns whether all descendants end, which may take a while after a kill. It ends those
        that do not.
        """
        deadline = time.monotonic() + _LONGEST / 4
        while left := self.left():
            if time.monotonic() > deadline:
                for number in left:
                    os.kill(number, signal.SIGKILL)
                return False
            time.sleep(0.02)
        return True
