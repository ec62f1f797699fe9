"""Checks that a folder contains a model, and that its training has finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prill.errors import UsageError

# The record of a training: settings, data, metrics, and whether it has finished.
RECORD, FORMAT = "training.json", "prill training"


def read_record(folder: Path) -> dict[str, Any] | None:
    """Reads the record of a training, or returns None. Raises UsageError if it is unreadable."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        problem = f"damaged, it is not valid JSON ({error})"
        raise UsageError(f"{path}: {problem}; without it, the training cannot be resumed") from None
    if not isinstance(record, dict):
        raise UsageError(
            f"{path}: damaged: expected a JSON object; without it, the training cannot be resumed"
        )
    return record


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
