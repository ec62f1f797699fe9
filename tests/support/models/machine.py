"""A machine with `vllm` on its path: a script that notes each start, with the mock endpoint behind
it.
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
    """A folder with a model in it, a `vllm` on the path, and what the latter noted: its words and
    processes.
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
        """A second model."""
        folder = self.folder / "other"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        return folder

    def script(self, last: str) -> None:
        """What `vllm` does in the end. First it notes its words, its process and one that it
        started, as vLLM's engine, and how many servers run with it."""
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
        """Whether each process that was ever noted has ended, within a minute."""
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
    try:  # nobody may have asked for the exit code of one that has ended
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc").is_dir()
