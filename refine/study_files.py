"""The files of a filtered-BC study, verified by checksums (see `prill.io.checksums`).

The checksum file of the study's folder covers its settings and the rounds' results. Each folder of
recordings has its own checksum file, which also holds its place in the study, so that the
recordings of two arms cannot be swapped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec

from prill.errors import UsageError
from prill.io.checksums import Checksums
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.lines import decode_json, read_whole

BASE, ROWS, ADAPTER = "base", "rows.jsonl", "adapter"
STUDY, MANIFEST, PLAYED = "study.json", "manifest.json", "played.txt"
_RECORDINGS = ("attempts", "evaluation")
_T = TypeVar("_T")


class _Judge(TypedDict):
    name: str
    precision: float | None
    recall: float | None


class _Attempts(TypedDict):
    episodes: int
    successes: int


class _Counted(TypedDict):
    count: int


@dataclass(frozen=True, slots=True)
class _Round:
    """The fields of a round's manifest that are read back."""

    arm: str
    seed: int
    round: int
    judge: _Judge
    attempts: _Attempts
    filter: dict[str, Any] | None = None
    rows: _Counted | None = None
    ended: str | None = None


def check_study(out: Path, *, taken_up: bool = False) -> None:
    """Compares all files of a study with their checksums. Raises UsageError that names a changed or
    moved file.

    `taken_up`: skip the settings file. The caller compares the settings by value, since an editor
    may save them in another format.
    """
    study = Checksums(out)
    study.check(but=[STUDY] if taken_up and (out / STUDY).is_file() else ())
    for folder in _recordings(out):
        Checksums(folder).check(place=folder.relative_to(out).as_posix())
    for file in _manifests(out):
        name, manifest = file.relative_to(out), read_manifest(file)
        if name.parts[:-1] != (
            f"seed-{manifest['seed']}",
            manifest["arm"],
            f"round-{manifest['round']}",
        ):
            of = f"seed {manifest['seed']}, {manifest['arm']}, round {manifest['round']}"
            raise UsageError(f"{file}: belongs to {of}; move it back")
        if name.as_posix() not in study:
            _expect_hashes(file, manifest)


def note_study(out: Path) -> None:
    """Records the checksums of new files. Their inputs were verified before (see `check_study`)."""
    study = Checksums(out)
    names = [STUDY, *(file.relative_to(out).as_posix() for file in _made(out))]
    study.note(*(name for name in names if name not in study))
    for folder in _recordings(out):
        if (folder / PLAYED).exists():
            played = Checksums(folder)
            played.note(*(name for name in (TRAJECTORIES, LABELS) if name not in played))
            played.belongs(folder.relative_to(out).as_posix())


def verdicts_suffix(description: str | Mapping[str, Any]) -> str:
    """Returns the file name suffix for a judge's verdicts, which arms with it share."""
    return f"-{hashlib.sha256(msgspec.json.encode(description, order='deterministic')).hexdigest()[:8]}.jsonl"  # noqa: E501


def compute_hash(file: Path) -> str:
    """Returns the SHA-256 of a file as manifests hold it."""
    with file.open("rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


def _manifests(out: Path) -> Iterator[Path]:
    return out.glob(f"seed-*/*/round-*/{MANIFEST}")


def _recordings(out: Path) -> Iterator[Path]:
    for name in _RECORDINGS:
        for parent in (out / BASE, *out.glob("seed-*/*/round-*")):
            if (parent / name).is_dir():
                yield parent / name


def _made(out: Path) -> Iterator[Path]:
    """Yields the result files of finished rounds, and the markers of finished recordings."""
    for file in _manifests(out):
        yield file
        if "ended" not in read_manifest(file):
            yield file.parent / ROWS
            yield from sorted((file.parent / ADAPTER).glob("adapter_*"))
    yield from (folder / PLAYED for folder in _recordings(out))


def _expect_hashes(file: Path, manifest: Mapping[str, Any]) -> None:
    """Compares the inputs of a new round with the hashes in its manifest."""
    folder, expected = file.parent, dict[Path, Any]()
    for name in _RECORDINGS:
        part = manifest.get(name) or {}
        location = folder / part.get("folder", name)
        expected |= {location / one: digest for one, digest in (part.get("sha256") or {}).items()}
    expected |= {
        folder / ADAPTER / one: digest for one, digest in (manifest.get("adapter") or {}).items()
    }
    if rows := manifest.get("rows"):
        expected[folder / ROWS] = rows.get("sha256")
    for path, digest in expected.items():
        if digest is not None and (not path.is_file() or compute_hash(path) != digest):
            state = "has changed" if path.is_file() else "is gone"
            raise UsageError(
                f"{path}: {state} since {file} was written; restore the original, or delete "
                f"{file.name}, which the study's command then writes again"
            )


def read_manifest(file: Path) -> dict[str, Any]:
    """Reads the manifest of a round. Raises UsageError that names an invalid field."""
    data = read_whole(file, "restore the file")
    remedy = "delete it; the study's command then writes it again"
    decode_json(data, _Round, f"{file}: not the manifest of a round", remedy)
    return decode_json(data, dict[str, Any], str(file), remedy)
