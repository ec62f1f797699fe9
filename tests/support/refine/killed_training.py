"""Kills a training run at its nth change of the disk and resumes it. It is a script, so that forks
share one import of torch.

    python killed_training.py MODEL ROWS FOLDER POINT…

Points are file operations of the training below its folder: opening a file to write, renaming,
removing, making a folder, and, for files written by compiled code, the middle of the write. A POINT
is a name pattern, such as `half */optimizer.pt`; it selects the first match, or all. For each, the
script prints a line of JSON: whether the training was killed, the error of the second run if any,
and whether it ended like an undisturbed run.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
_SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-2,
    "steps": 4,
    "dropout": 0.2,
    "checkpoint_every": 2,
    "keep_checkpoints": 1,
}
_SETTINGS |= {"rank": 4, "batch": 4, "micro_batch": 2, "log_every": 1, "device": "cpu"}


class Points:
    """Counts the points that are passed, and kills the process at one of them as kill -9 does."""

    def __init__(self, folder: Path, last: int | None) -> None:
        self.folder, self.last, self.passed = str(folder), last, 0
        self.names: list[str] = []

    def listen(self) -> None:
        import safetensors.torch
        import torch

        sys.addaudithook(self._hear)
        torch.save = self._halving(torch.save)
        safetensors.torch.save_file = self._halving(safetensors.torch.save_file)

        for name, module in list(sys.modules.items()):
            if (
                name.startswith(("peft", "transformers"))
                and getattr(module, "__dict__", {}).get("safe_save_file") is not None
            ):
                module.__dict__["safe_save_file"] = safetensors.torch.save_file

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if (
            event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        ) or event in _CHANGES:
            self._pass(event, given[0])

    def _pass(self, event: str, path: Any) -> None:
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(self.folder):
            self.passed += 1
            self.names.append(f"{event} {os.path.relpath(path, self.folder)}")
            if self.passed == self.last:
                os.kill(os.getpid(), signal.SIGKILL)

    def _halving(self, save: Callable[..., Any]) -> Callable[..., Any]:
        def halved(what: Any, path: Any, *rest: Any, **more: Any) -> Any:
            made = save(what, path, *rest, **more)
            if isinstance(path, (str, os.PathLike)):
                if self.passed + 1 == self.last:
                    os.truncate(path, Path(path).stat().st_size // 2)
                self._pass("half", path)
            return made

        return halved


def train_in_fork(model: str, rows: str, folder: Path, last: int | None = None) -> dict[str, Any]:
    """Returns the result: `status`, the passed points, an error."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        points, error = Points(folder, last), None
        try:
            from prill.refine.training.spec import training_spec
            from prill.refine.training.train import train_rows as train

            points.listen()
            train(training_spec("paper", model=model, **_SETTINGS), rows, folder)
        except Exception as failure:  # noqa: BLE001 - whatever it is, the parent process is told
            error = f"{type(failure).__name__}: {failure}"
            traceback.print_exc()
        os.write(writing, json.dumps({"error": error, "names": points.names}).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    return {
        "status": os.waitstatus_to_exitcode(status),
        **(json.loads(said) if said else {"error": None, "names": []}),
    }


def outcome(folder: Path) -> Any:
    """Returns the losses, and the bytes of the weights."""
    record = json.loads((folder / "training.json").read_bytes())
    weights = (folder / "adapter_model.safetensors").read_bytes()
    return record["done"], record["figures"]["losses"], weights


def main(model: str, rows: str, place: str, *points: str) -> None:
    import torch

    from prill.models.local.torchvision import mend_torchvision

    torch.set_num_threads(1)
    mend_torchvision()
    import peft  # noqa: F401
    import trl  # noqa: F401

    gc.collect()
    gc.freeze()  # garbage collection in a fork would touch, and so copy, all shared memory
    folder, is_long = Path(place), bool(os.environ.get("PRILL_LONG"))
    whole = train_in_fork(model, rows, folder / "whole")
    assert whole["error"] is None, whole
    expected = outcome(folder / "whole")
    count = len(whole["names"])
    every = range(1, count + 1)
    fitting = [
        [point for point in every if fnmatch(whole["names"][point - 1], pattern)]
        for pattern in points
    ]
    assert all(fitting), whole["names"]
    chosen = sorted(
        {point for of_pattern in fitting for point in (of_pattern if is_long else of_pattern[:1])}
    )
    for point in chosen:
        there = folder / f"at-{point}"
        killed = train_in_fork(model, rows, there, point)
        again = train_in_fork(model, rows, there)
        same = again["error"] is None and outcome(there) == expected
        parts = [str(path.relative_to(there)) for path in there.rglob("*.part")]
        facts = {
            "point": point,
            "of": count,
            "name": whole["names"][point - 1],
            "killed": killed["status"] == -signal.SIGKILL,
        }
        print(
            json.dumps({**facts, "error": again["error"], "same": same, "parts": parts}), flush=True
        )
        shutil.rmtree(there, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
