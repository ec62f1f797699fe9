"""Helpers for training tests: marks, rows, and training runs in separate processes, killed or in
pairs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.warm import ONE_THREAD, TRAINING, warm_commands

_LAUNCHER = "accelerate.commands.launch"
_TOGETHER = (_LAUNCHER, "--multi_gpu", "--num_processes", 2, "--num_machines", 1)
_SETTLED = ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", 0)

needs_training = pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name)
        for name in ("torch", "transformers", "trl", "peft", "accelerate")
    ),
    reason="not installed: pip install '.[train]'",
)
QUIET = pytest.mark.filterwarnings("ignore")  # deprecation warnings inside the libraries
TRAINS = [needs_training, QUIET, pytest.mark.slow, pytest.mark.usefixtures("offline")]


def write_rows(folder: Path) -> Path:
    """Writes four rows of text, of two tasks."""
    path = folder / "rows.jsonl"
    with path.open("w") as file:
        for number in range(4):
            prompt = [{"role": "user", "content": f"Goal: buy {number}"}]
            row = {
                "prompt": prompt,
                "completion": [{"role": "assistant", "content": f"click [{number}]"}],
            }
            file.write(
                json.dumps(
                    {
                        **row,
                        "task": f"task-{number % 2}",
                        "trajectory": f"t{number}",
                        "step": number,
                    }
                )
                + "\n"
            )
    return path


def command(*words: object) -> subprocess.Popen[bytes]:
    """Starts a Python module with these arguments in another process."""
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, words)], env=environment, stdout=pipe, stderr=pipe
    )


def kill_training(
    what: str, rows: Path, folder: Path, settings: Mapping[str, Any], *words: object
) -> None:
    """Runs `prill train` with these settings and kills it at the checkpoint of its fourth step."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    run = command("prill", "train", what, rows, "-o", folder, *words, *flags)
    written = folder / "checkpoints/checkpoint-4/files.json"  # the last of its files
    while run.poll() is None and not written.exists():
        time.sleep(0.01)
    run.kill()
    output = run.communicate()
    assert written.exists(), output


def train_on_two_processes(*words: object, script: str | None = None) -> None:
    """Runs `prill train` with these arguments on two processes, as on several GPUs. The launcher
    and both share their imports, which are most of the cost.

    `script` is a module in this folder that takes the same arguments.
    """
    program = (
        ("-m", "prill", "train") if script is None else (Path(__file__).with_name(f"{script}.py"),)
    )
    launch = map(str, ("-m", *_TOGETHER, *_SETTLED, *program, *words))
    with warm_commands(*TRAINING, _LAUNCHER, **ONE_THREAD) as folder:
        python = str(folder / "python")
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT), "PYTHON_EXEC": python}
        run = subprocess.run(
            [python, *launch],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert run.returncode == 0, (run.stdout, run.stderr)
