"""The manifest of a stage: a JSON file with its settings, its versions, and the SHA-256 of its files.

It is written when the stage ends. Files that a run appends to are not hashed: their readers check
what they must contain.
"""  # noqa: E501

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from prill.errors import UsageError
from prill.io.lines import UNREADABLE
from prill.io.outputs import write_output

MANIFEST, VERSIONS, HASHES = "manifest.json", "versions", "sha256"
# those whose version may matter to a result
_PACKAGES = ("prill", "torch", "transformers", "trl", "peft", "playwright", "miniwob")


class _Hashes(msgspec.Struct):
    sha256: dict[str, str] = {}


def write_manifest(path: Path, value: Mapping[str, Any], files: Iterable[Path] = ()) -> None:
    """Writes a manifest with the hashes of files, named relative to it. Raises UsageError."""
    hashes = {os.path.relpath(file, path.parent): compute_hash(file) for file in files}
    manifest = {VERSIONS: _versions(), **value, **({HASHES: hashes} if hashes else {})}
    text = json.dumps(manifest, indent=1, ensure_ascii=False, default=str)
    write_output(path, text.encode() + b"\n")


def expect_unchanged(manifest: Path, remedy: str, *, only: str | None = None) -> None:
    """Compares the files of a manifest, or one of them, with their hashes, if there are any.

    Raises UsageError that names the file that differs, and ends with `remedy`.
    """
    hashes = dict[str, str]()
    with suppress(OSError, *UNREADABLE):  # its own reader says what is wrong with it
        hashes = msgspec.json.decode(manifest.read_bytes(), type=_Hashes).sha256
    for name in hashes if only is None else hashes.keys() & {only}:
        file = manifest.parent / name
        try:
            state = "" if compute_hash(file) == hashes[name] else "has changed"
        except OSError:
            state = "is gone"
        if state:
            raise UsageError(
                f"{file}: {state} since {manifest} was written; restore it, or {remedy}"
            )


def compute_hash(file: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 of a file. Raises OSError."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _versions() -> dict[str, str]:
    found = dict[str, str]()
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
