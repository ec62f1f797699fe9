"""A machine with `vllm` on its path: a script that records each start and runs the mock
endpoint.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
import time
from pathlib import Path

from prill.models.replies import ReplyFormat
from prill.protocols import Message
from tests.support.paths import ROOT

FORM = ReplyFormat("thoughts", "status", ("success", "failure"))
ASK = (Message("user", ("Was it done? truth=success",)),)
STAND_IN = (
    f"exec env PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} "
    "-m tests.support.models.vllm"
)


class Machine:
    """A folder with a model in it, a `vllm` on the path, and the script's records: its arguments
    and processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "tiny"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.script(f'{STAND_IN} "$@"')

    def other(self) -> Path:
        """Makes a second model."""
        folder = self.folder / "other"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        return folder

    def script(self, last: str) -> None:
        """Writes the `vllm` script with these last lines. The script first records its arguments,
        its process, a child process like vLLM's engine, and the number of running servers.
        """
        path = self.bin / "vllm"
        count = (
            f"for p in $(cut -d ' ' -f 1 {self.folder}/processes); do kill -0 $p 2>/dev/null "
            "&& n=$((n + 1)); done"
        )
        notes = (
            f"sleep 600 & echo $$ $! >> {self.folder}/processes; n=0; {count}; echo $n >> "
            f"{self.folder}/running; "
            f'printf "%s\\n" "$*" >> {self.folder}/words'
        )
        path.write_text(f"#!/bin/sh\n{notes}\n{last}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def words(self) -> list[str]:
        return self.noted("words")

    def noted(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def all_ended(self) -> bool:
        """Returns whether every recorded process has ended, within a minute."""
        processes = [int(number) for line in self.noted("processes") for number in line.split()]
        deadline = time.monotonic() + 60
        while any(map(alive, processes)):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    try:  # the exit code of an ended process may be unread
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc").is_dir()
