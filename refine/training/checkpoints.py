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
from prill.io.outputs import write_errors, write_output
from prill.models.replies import excerpt

CHECKPOINTS = "checkpoints"
_STATE = "trainer_state.json"  # the last file that transformers writes to a checkpoint
_FILES = "files.json"  # written last: the size of each other file in bytes
_NAME = re.compile(r"checkpoint-(\d+)")


def last_checkpoint(output: Path) -> Path | None:
    """Returns the newest complete checkpoint."""
    return next((path for path in reversed(_checkpoints(output)) if _is_whole(path)), None)


def drop_torn(output: Path) -> None:
    """Removes incomplete checkpoints and files."""
    for path in _checkpoints(output):
        if not _is_whole(path):
            shutil.rmtree(path, ignore_errors=True)
    for part in output.glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)


@contextmanager
def saving_checkpoint(folder: Path, *, first: bool) -> Iterator[None]:
    """A context that removes a checkpoint if it cannot be written, and raises UsageError.

    At the end, the process with `first` records the size of each file.
    """
    try:
        with expect_room(folder, folder.parents[1]):
            yield
            if first:
                # With sharded weights, each process has written a file into a subfolder.
                files = (path for path in folder.rglob("*") if path.is_file())
                sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
                write_output(folder / _FILES, json.dumps(sizes, indent=1).encode() + b"\n")
    except UsageError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def expect_weights(saved: Path, numbers: int, output: Path) -> None:
    """Raises UsageError unless the weight files in `saved` hold at least `numbers` parameters.

    A trainer with sharded weights may write only a part of them, or none, without an error.
    """
    safetensors, there = import_module("safetensors"), 0
    for path in saved.glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            there += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118, it is no mapping
    if there < numbers:
        last = last_checkpoint(output)
        kept = f"; {last.name} has them, and the same call saves them again" if last else ""
        raise UsageError(
            f"{output}: the training ended, but only {there:,} of {numbers:,} weights were "
            "gathered from its processes. With FSDP set fsdp_state_dict_type "
            "FULL_STATE_DICT, with DeepSpeed stage3_gather_16bit_weights_on_model_save "
            f"true{kept}"
        )


def keep_newest(output: Path, most: int) -> None:
    """Removes all but the newest checkpoints, ordered by step because clocks may be set back."""
    with write_errors(output):
        for path in _checkpoints(output)[:-most]:
            # removed first, so that a partly deleted checkpoint does not count as complete
            (path / _STATE).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def expect_room(place: Path, output: Path) -> Iterator[None]:
    """Raises UsageError if `place` cannot be written; the message says from which checkpoint the
    training in `output` resumes.
    """
    # The errors of Python, torch and safetensors on a full disk.
    errors = (OSError, RuntimeError, import_module("safetensors").SafetensorError)
    try:
        yield
    except errors as error:
        last = last_checkpoint(output)
        goes_on = (
            f"the same call resumes from {last.name}" if last else "the same call starts again"
        )
        raise UsageError(
            f"{place}: cannot be written: {excerpt(str(error))}. Free some disk space; then "
            f"{goes_on}"
        ) from error


def _checkpoints(output: Path) -> list[Path]:
    """Returns the existing checkpoints by step."""
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
