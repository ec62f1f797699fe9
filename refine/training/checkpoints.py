"""Atomic checkpoints, and recovery after a crash."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from math import prod
from pathlib import Path

from prill.errors import UsageError
from prill.io.outputs import failures, write_output
from prill.models.replies import excerpt

CHECKPOINTS, SAMPLES = "checkpoints", "samples.jsonl"
_STATE = "trainer_state.json"  # the last file that transformers writes to a checkpoint
_FILES = "files.json"  # the last of all: the bytes of each other file
_NAME = re.compile(r"checkpoint-(\d+)")


def last_checkpoint(output: Path) -> Path | None:
    """The newest checkpoint that is whole."""
    return next((path for path in reversed(_checkpoints(output)) if _is_whole(path)), None)


def drop_torn(output: Path) -> None:
    """Removes checkpoints that a crash cut, files that were never finished, and what was sampled
    after the last checkpoint.
    """
    for path in _checkpoints(output):
        if not _is_whole(path):
            shutil.rmtree(path, ignore_errors=True)
    for part in output.glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
    last = last_checkpoint(output)
    step = int(last.name.partition("-")[2]) if last else 0
    if (output / SAMPLES).is_file():
        lines = (output / SAMPLES).read_bytes().splitlines(keepends=True)
        write_output(output / SAMPLES, b"".join(line for line in lines if _step(line) <= step))


@contextmanager
def saving_checkpoint(folder: Path, *, first: bool) -> Iterator[None]:
    """A checkpoint that cannot be written is removed, so that the one before it is the last. Raises
    UsageError then.

    Once all is written, the process that is `first` notes how long each file is.
    """
    try:
        with expect_room(folder, folder.parents[1]):
            yield
            if first:
                # Of weights in shards, each process has written a file into a folder below.
                files = (path for path in folder.rglob("*") if path.is_file())
                sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
                write_output(folder / _FILES, json.dumps(sizes, indent=1).encode() + b"\n")
    except UsageError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def expect_weights(saved: Path, numbers: int, output: Path) -> None:
    """Raises UsageError unless the files of weights in `saved` hold at least so many numbers.

    A trainer that shares weights among processes may write a part of them, or nothing, without an
    error.
    """
    safetensors, there = import_module("safetensors"), 0
    for path in saved.glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            there += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118, it is no mapping
    if there < numbers:
        last = last_checkpoint(output)
        kept = f"; {last.name} has them, and the same call saves them again" if last else ""
        raise UsageError(
            f"{output}: the training ended, and {there:,} of {numbers:,} weights were gathered "
            "from its processes. With FSDP "
            "set fsdp_state_dict_type FULL_STATE_DICT, with DeepSpeed "
            f"stage3_gather_16bit_weights_on_model_save true{kept}"
        )


def keep_newest(output: Path, most: int) -> None:
    """Removes all but the newest checkpoints, by their steps: clocks may be set back."""
    with failures(output):
        for path in _checkpoints(output)[:-most]:
            # first, so that nobody takes what is left for whole
            (path / _STATE).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def expect_room(place: Path, output: Path) -> Iterator[None]:
    """Raises UsageError where `place` cannot be written: it says from where the training in
    `output` will go on.
    """
    # What Python, torch and safetensors raise over a full disk.
    errors = (OSError, RuntimeError, import_module("safetensors").SafetensorError)
    try:
        yield
    except errors as error:
        last = last_checkpoint(output)
        goes_on = (
            f"the same call goes on from {last.name}" if last else "the same call begins again"
        )
        raise UsageError(
            f"{place}: cannot be written: {excerpt(str(error))}. Make room: then {goes_on}"
        ) from error


def _checkpoints(output: Path) -> list[Path]:
    """Those that are there, by step."""
    found = {
        path: _NAME.fullmatch(path.name) for path in (output / CHECKPOINTS).glob("checkpoint-*")
    }
    steps = {path: int(match[1]) for path, match in found.items() if match and path.is_dir()}
    return sorted(steps, key=lambda path: steps[path])


def _is_whole(folder: Path) -> bool:
    try:
        if not json.loads((folder / _STATE).read_bytes()):
            return False
        if not (folder / _FILES).exists():  # of an older version
            return True
        sizes = json.loads((folder / _FILES).read_bytes())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, RecursionError, AttributeError):
        return False


def _step(line: bytes) -> float:
    """The step after which a sample was taken; infinite for a line that is damaged."""
    try:
        return float(json.loads(line)["step"]) if line.endswith(b"\n") else float("inf")
    except (ValueError, KeyError, TypeError, RecursionError):
        return float("inf")
