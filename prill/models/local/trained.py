"""Checks that a folder contains a model, and that its training has finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prill.errors import UsageError
from prill.io.lines import read_json

# The record of a training: settings, data, metrics, and whether it has finished.
RECORD, FORMAT = "training.json", "prill training"


def read_record(folder: Path) -> dict[str, Any] | None:
    """Reads the record of a training, or returns None. Raises UsageError if it is unreadable."""
    path = folder / RECORD
    if not path.exists():
        return None
    remedy = "without it, the training cannot be resumed"
    return read_json(path, dict[str, Any], "damaged, it is not a JSON object", remedy)


def expect_model(folder: Path, name: object = None) -> None:
    """Raises UsageError if the folder contains no model, or one whose training has not finished.

    `name` is the folder's name in the message.
    """
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{name or folder}: not a model folder (it needs a config.json and weights)"
        )
    expect_trained(folder)


def expect_trained(folder: Path) -> None:
    """Raises UsageError if `prill train` has not finished these weights. Other folders pass."""
    record = read_record(folder)
    if (
        record is not None
        and str(record.get("format")).startswith(FORMAT)
        and not record.get("done")
    ):
        raise UsageError(
            f"{folder}: the training is not finished; run the same prill train command to resume it"
        )
