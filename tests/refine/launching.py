"""Trainings in processes of their own: one that may be killed, and two that train together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TOGETHER = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", 2, "--num_machines", 1)
_SETTLED = ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", 0)


def command(*words: object) -> subprocess.Popen[bytes]:
    """A module of Python with its words, begun in another process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", *map(str, words)], env=environment, stdout=pipe, stderr=pipe)


def train_on_two_processes(*words: object, script: str | None = None) -> None:
    """`prill train` with these words, started as on several GPUs; nearly all that it costs is three times the imports.

    `script` is a module beside this one that takes the same words.
    """
    program = ("-m", "prill", "train") if script is None else (Path(__file__).with_name(f"{script}.py"),)
    run = command(*_TOGETHER, *_SETTLED, *program, *words)
    output = run.communicate()
    assert run.returncode == 0, output
