"""Trains a captioner, or runs a study of filtered behavioural cloning, on the GPUs of one machine.
A TOML file holds all settings.

    python examples/gpu/run.py examples/gpu/job.toml captioner|study [--gpus N] [--dry-run]

A captioner has one training run with a process for each GPU. A study starts a process for each GPU,
and the processes divide its arms and seeds. Schedulers send TERM before they preempt a machine; it
is forwarded to every process once. Training then writes a checkpoint, and the same command resumes
there. Exit codes: those of prill; 130 if the run was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

STOPPED, NOTHING_LEARNT = 130, 3
Environment = dict[str, str]
# FSDP settings for accelerate: weights, gradients and optimizer states are sharded over all GPUs.
FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
}


def captioner(settings: dict[str, Any], gpus: int) -> tuple[list[str], list[Environment]]:
    """Returns the command that trains a captioner, and the environment variables of each
    process.
    """
    command = ["train", "captioner", settings.pop("rows"), "-o", settings.pop("output")]
    in_full = (
        settings.get("method", "full" if settings.get("preset") == "captioner-paper" else "lora")
        == "full"
    )
    for name, value in settings.items():
        flag = name.replace("_", "-")
        command += (
            [f"--{flag}" if value else f"--no-{flag}"]
            if isinstance(value, bool)
            else [f"--{flag}", str(value)]
        )
    if gpus == 1:
        return command, [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        **(FSDP if in_full else {}),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(gpus),
    }
    return command, [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(gpus)]


def study(settings: dict[str, Any], gpus: int) -> tuple[list[str], list[Environment]]:
    """Returns the command that runs a study, and the environment variables of each process. The
    study's tables are written to a file next to its folder.
    """
    output, seeds = Path(settings.pop("output")), str(settings.pop("seeds", "0"))
    output.parent.mkdir(parents=True, exist_ok=True)
    config = output.with_name(f"{output.name}.study.json")
    config.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    each = [{"CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in range(gpus)] if gpus > 1 else [{}]
    return ["filtered-bc", str(config), "-o", str(output), "--seeds", seeds], each


def run(command: list[str], environments: list[Environment]) -> int:
    """Runs a process for each environment until all have ended. If one fails, the others are
    stopped.
    """
    program = [sys.executable, "-m", "prill", *command]
    # Separate sessions: a signal to the whole terminal or job reaches each process once, from here.
    processes = [
        subprocess.Popen(program, env={**os.environ, **one}, start_new_session=True)
        for one in environments
    ]
    waiting = {process.pid for process in processes}
    told: set[int] = set()

    def tell(number: int, frame: object = None) -> None:
        if number == signal.SIGTERM and number in told:
            return  # a second signal would end training at once, without a checkpoint
        told.add(number)
        for process in waiting:
            os.kill(process, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    result, is_stopped = 0, False
    while waiting:
        process, status = os.wait()
        waiting.discard(process)
        code = os.waitstatus_to_exitcode(status)
        is_stopped = is_stopped or bool(told)
        if code and result in (0, NOTHING_LEARNT):
            result = code if code > 0 else 128 - code
            if code != NOTHING_LEARNT:
                tell(signal.SIGTERM)  # processes that wait for a dead one would hang
    return (
        STOPPED
        if is_stopped and result in (STOPPED, 128 + signal.SIGTERM, 128 + signal.SIGINT)
        else result
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", help="TOML file with the tables job, captioner and study")
    parser.add_argument("part", choices=("captioner", "study"))
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs to use (default: job.gpus)")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print GPUs, memory, disk and hours, and refuse what cannot fit",
    )
    args = parser.parse_args()
    job = tomllib.loads(Path(args.job).read_text(encoding="utf-8"))
    gpus = args.gpus or job["job"]["gpus"]
    command, environments = {"captioner": captioner, "study": study}[args.part](
        job[args.part], gpus
    )
    if args.dry_run:
        devices = f"{gpus}x{job['job']['gpu']}"
        print(f"gpus     {devices}", flush=True)
        command += ["--dry-run", "--gpus", devices]
        environments = [{name: value for name, value in environments[0].items() if name in FSDP}]
    sys.exit(run(command, environments))
