"""What tests of trainings need: marks, rows, and trainings in processes of their own, killed or two
together.
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

ROOT = Path(__file__).resolve().parents[2]
_TOGETHER = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", 2, "--num_machines", 1)
_SETTLED = ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", 0)

needs_training = pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name)
        for name in ("torch", "transformers", "trl", "peft", "accelerate")
    ),
    reason="not installed: pip install '.[train]'",
)
QUIET = pytest.mark.filterwarnings("ignore")  # the libraries' own, about their deprecations
TRAINS = [needs_training, QUIET, pytest.mark.slow, pytest.mark.usefixtures("offline")]


def write_rows(folder: Path) -> Path:
    """Four rows of text, of two tasks."""
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
    """A module of Python with its words, begun in another process."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, words)], env=environment, stdout=pipe, stderr=pipe
    )


def kill_training(
    what: str, rows: Path, folder: Path, settings: Mapping[str, Any], *words: object
) -> None:
    """`prill train` with these settings, killed once the checkpoint of its fourth step is there."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    run = command("prill", "train", what, rows, "-o", folder, *words, *flags)
    state = folder / "checkpoints/checkpoint-4/trainer_state.json"
    while run.poll() is None and not state.exists():
        time.sleep(0.01)
    run.kill()
    output = run.communicate()
    assert state.exists(), output


def train_on_two_processes(*words: object, script: str | None = None) -> None:
    """`prill train` with these words, started as on several GPUs; nearly all that it costs is three
    times the imports.

    `script` is a module beside this one that takes the same words.
    """
    program = (
        ("-m", "prill", "train") if script is None else (Path(__file__).with_name(f"{script}.py"),)
    )
    run = command(*_TOGETHER, *_SETTLED, *program, *words)
    output = run.communicate()
    assert run.returncode == 0, output
