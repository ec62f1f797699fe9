"""The files of a filtered-BC study, verified by checksums (see `prill.io.checksums`).

The record of the study's folder has its settings and what its rounds made. Each folder of
recordings has a record of its own, which also says where in the study it belongs, so that what two
arms played cannot change places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec

from prill.episodes.run_folder import LABELS
from prill.errors import UsageError
from prill.io.checksums import Checksums
from prill.io.kinds import TRAJECTORIES

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
    """What is read of the manifest of a round."""

    arm: str
    seed: int
    round: int
    judge: _Judge
    attempts: _Attempts
    filter: dict[str, Any] | None = None
    rows: _Counted | None = None
    ended: str | None = None


def check_study(out: Path, *, taken_up: bool = False) -> None:
    """Compares all files of a study with their checksums. Raises UsageError that names what
    differs, or is in another place.

    `taken_up`: the settings are compared as such, by the caller: an editor may have saved them
    otherwise.
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
            raise UsageError(f"{file}: is of {of}; put it back where it belongs")
        if name.as_posix() not in study:
            _expect_hashes(file, manifest)


def note_study(out: Path) -> None:
    """Puts on record what is there and is not yet on record; what it was made of was compared
    before (see `check_study`).
    """
    study = Checksums(out)
    names = [STUDY, *(file.relative_to(out).as_posix() for file in _made(out))]
    study.note(*(name for name in names if name not in study))
    for folder in _recordings(out):
        if (folder / PLAYED).exists():
            played = Checksums(folder)
            played.note(*(name for name in (TRAJECTORIES, LABELS) if name not in played))
            played.belongs(folder.relative_to(out).as_posix())


def verdicts_suffix(description: str | Mapping[str, Any]) -> str:
    """How the names of files with verdicts of the judge that is described so end: arms that have
    the same judge share them.
    """
    return f"-{hashlib.sha256(msgspec.json.encode(description, order='deterministic')).hexdigest()[:8]}.jsonl"  # noqa: E501


def compute_hash(file: Path) -> str:
    """As manifests have it."""
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
    """What rounds that ended have made, and the marks of what was played."""
    for file in _manifests(out):
        yield file
        if "ended" not in read_manifest(file):
            yield file.parent / ROWS
            yield from sorted((file.parent / ADAPTER).glob("adapter_*"))
    yield from (folder / PLAYED for folder in _recordings(out))


def _expect_hashes(file: Path, manifest: Mapping[str, Any]) -> None:
    """Of a round that is not on record yet: its manifest says what it was made of."""
    folder, expected = file.parent, dict[Path, Any]()
    for name in _RECORDINGS:
        part = manifest.get(name) or {}
        place = folder / part.get("folder", name)
        expected |= {place / one: digest for one, digest in (part.get("sha256") or {}).items()}
    expected |= {
        folder / ADAPTER / one: digest for one, digest in (manifest.get("adapter") or {}).items()
    }
    if rows := manifest.get("rows"):
        expected[folder / ROWS] = rows.get("sha256")
    for path, digest in expected.items():
        if digest is not None and (not path.is_file() or compute_hash(path) != digest):
            state = "has changed" if path.is_file() else "is gone"
            raise UsageError(
                f"{path}: {state} since {file} was written; put back what was there, or delete "
                f"{file.name}: the study's own "
                "command makes it again"
            )


def read_manifest(file: Path) -> dict[str, Any]:
    """What a round came to. Raises UsageError that names the field."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    decoded(
        data,
        _Round,
        f"{file}: no manifest of a round",
        "delete it: the study's own command makes it again",
    )
    return decoded(data, dict[str, Any], str(file))


def decoded(
    data: bytes, type_: type[_T], problem: str, remedy: str = "put it back as it was"
) -> _T:
    """The object of a file of JSON. Raises UsageError that says the problem and the remedy."""
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{problem} ({error}); {remedy}") from None
