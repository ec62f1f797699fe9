"""What `prill train` says of the weights in its folder: whether the training has ended, and what each file holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prill.errors import UsageError

# Settings, data and figures of a training; once it has ended, the hash of each file that it wrote.
RECORD, FORMAT = "training.json", "prill training"


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a training; None where there is none. Raises UsageError for one that cannot be read."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: damaged, it is not valid JSON ({error}); without it, the training cannot be resumed"
        ) from None
    if not isinstance(record, dict):
        raise UsageError(f"{path}: damaged, it is not a JSON object; without it, the training cannot be resumed")
    return record


def hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each of these files; those that are missing are left out."""
    found = {}
    for name in names:
        try:
            with (folder / name).open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            continue
    return found


def damage(folder: Path, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The files of a finished training that are missing, and those that do not hold what it wrote."""
    files = record.get("files") or {}  # trainings of older versions have no hashes
    there = hashes(folder, files)
    missing = [name for name in files if name not in there]
    return missing, [name for name, digest in there.items() if digest != files[name]]


def expect_trained(folder: Path) -> None:
    """Raises UsageError where `prill train` has not finished these weights, or a file no longer holds what it wrote.

    Folders of other origin pass.
    """
    record = read_record(folder)
    if record is None or not str(record.get("format")).startswith(FORMAT):
        return
    if not record.get("done"):
        raise UsageError(f"{folder}: its training has not ended; the same prill train command resumes it")
    missing, changed = damage(folder, record)
    if missing:
        raise UsageError(f"{folder / missing[0]}: missing; the same prill train command writes it again")
    if changed:
        raise UsageError(f"{folder / changed[0]}: {CHANGED}")


CHANGED = (
    "does not hold what the training wrote (cut or changed); copy it again, or delete it and run the same prill train command"
)
