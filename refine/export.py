"""Writes a folder of training rows with a manifest and a report about the filter.

The folder appears once it is complete. A folder that this module wrote is replaced; any other
folder is left unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.io.checksums import CHECKSUMS, Checksums
from prill.io.lines import UNREADABLE
from prill.io.outputs import expect_file, part_path, write_errors
from prill.io.store import copy_image, encode
from prill.refine.demonstration import Teacher
from prill.refine.filter import Filtered, KeptStep
from prill.refine.formats import KINDS, Kind, make_format
from prill.refine.report import page
from prill.refine.rows import Row, dpo_rows, kto_rows, sft_rows

FORMAT = "prill rows 1"
MANIFEST, PAGE, IMAGES = "manifest.json", "report.html", "images"
_MAKERS: dict[Kind, Callable[..., Iterator[Row]]] = {
    "sft": sft_rows,
    "kto": kto_rows,
    "dpo": dpo_rows,
}


@dataclass(frozen=True, kw_only=True)
class ExportSpec(Config):
    """The output format.

    Raises:
        UsageError: A kind of rows is unknown or named twice, or none is named.
    """

    rows: Annotated[
        Sequence[Kind],
        Meta(
            description="sft: kept steps. kto: also rejected steps, with the verdict as "
            "label. dpo: pairs in the same state."
        ),
    ] = ("sft",)
    format: Annotated[
        str,
        Meta(
            description="Format of the rows: trl, llama-factory, ms-swift, axolotl, or "
            "module:Object."
        ),
    ] = "trl"
    copy_images: Annotated[
        bool, Meta(description="Copy the images into the folder, so that it can be moved.")
    ] = False

    def check(self) -> None:
        """Checks that each kind of rows is named once.

        Raises:
            UsageError: A kind is unknown or named twice, or none is named.
        """
        if not self.rows or len(set(self.rows)) < len(self.rows):
            raise UsageError(
                f"rows: expected some of {', '.join(KINDS)}, each once", parameters=("rows",)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The counts of written rows by kind and of steps without a row by reason, with messages."""

    rows: Mapping[str, int]
    lost: Mapping[str, int]
    problems: tuple[str, ...]
    filtered: Filtered


@dataclass(frozen=True, slots=True)
class _File:
    """A file of rows."""

    name: str
    rows: int
    sha256: str
    images: bool
    labels: frozenset[bool | None]


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The fields of a manifest that are read back."""

    format: str
    files: tuple[str, ...]


def check_folder(folder: Path) -> None:
    """Raises UsageError if the folder cannot be written or holds files of another origin."""
    expect_file(folder, "a folder of rows")
    # the folder is replaced as a whole, so its parent must be writable
    expect_file(Path(os.path.realpath(folder)).parent, "a folder of rows")
    with write_errors(folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise UsageError(f"{folder}: this is a file; give a folder", parameters=("output",))
        names = {path.name for path in folder.iterdir()}
    if not names:
        return
    own = _list_files(folder)
    if strange := sorted(names - own):
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        raise UsageError(
            f"{folder}: contains {', '.join(strange[:3])}{more}, which would be deleted; "
            "choose another folder",
            parameters=("output",),
        )


def export_rows(
    folder: Path,
    filtered: Filtered,
    teacher: Teacher | None = None,
    spec: ExportSpec = ExportSpec(),
    *,
    about: Mapping[str, Any] | None = None,
    truth: Mapping[str, bool | None] | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Exported:
    """Writes a folder of training rows, with a manifest and an HTML report. The folder appears once
    it is complete.

    Args:
        folder: The folder to create. Rows of an earlier export in it are replaced.
        filtered: The filtered steps.
        teacher: The policy to train, which builds the prompts. None: prill's own prompt
            (`PlainTeacher`).
        spec: The kinds of rows and their format.
        about: Additional fields of the manifest. None: none.
        truth: The labelled success by trajectory id, for the report. None: not shown.
        progress: Called after every row.

    Returns:
        The number of rows of each kind, and the steps without a row by reason.

    Raises:
        UsageError: The folder holds other files or cannot be written, or a kind has no rows; the
            message says why.
    """
    check_folder(folder)
    form = make_format(spec.format)
    final, part = Path(os.path.realpath(folder)), part_path(Path(os.path.realpath(folder)))
    noted: dict[tuple[str, int], str] = {}
    given: set[tuple[str, int]] = set()
    problems: dict[str, None] = {}

    def note(step: KeptStep, why: str, message: str) -> None:
        noted[step.trajectory.id, step.index] = why
        problems[message] = None

    def place(path: str) -> str:
        inside = (
            Path(os.path.relpath(copy_image(path, part / IMAGES), part))
            if spec.copy_images
            else None
        )
        return (inside or Path(os.path.relpath(os.path.realpath(path), final))).as_posix()

    try:
        with write_errors(folder):
            part.mkdir(parents=True)
            files: dict[Kind, _File] = {}
            for kind in spec.rows:
                rows = _MAKERS[kind](filtered, teacher, place=place, note=note)
                files[kind] = _write(
                    part / f"{kind}.jsonl", rows, partial(form.row, kind), progress, given
                )
                _expect_rows(kind, files[kind], filtered, noted)
            for step in given & noted.keys():  # the step gives a row of another kind
                del noted[step]
            written = _after(filtered, noted)
            for name, text in form.other_files(
                spec.rows, images=any(file.images for file in files.values())
            ).items():
                (part / name).write_text(text, encoding="utf-8")
            counts: dict[str, int] = {kind: file.rows for kind, file in files.items()}
            (part / PAGE).write_text(page(written, counts, truth), encoding="utf-8")
            names = sorted({path.name for path in part.iterdir()} | {MANIFEST, CHECKSUMS})
            manifest = {
                "format": FORMAT,
                "files": names,
                "rows": {
                    kind: {"file": file.name, "rows": file.rows, "sha256": file.sha256}
                    for kind, file in files.items()
                },
                "settings": msgspec.to_builtins(spec),
                **figures(written),
                **(about or {}),
            }
            (part / MANIFEST).write_text(
                json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
            Checksums(part).note(
                *sorted(
                    path.relative_to(part).as_posix() for path in part.rglob("*") if path.is_file()
                )
            )
            _put(part, final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Exported(
        rows=counts, lost=dict(Counter(noted.values())), problems=tuple(problems), filtered=written
    )


def figures(filtered: Filtered) -> dict[str, Any]:
    """Returns the counts for the manifest; `threshold` is the one applied."""
    return {
        "judge": msgspec.to_builtins(filtered.judge),
        "attempts": filtered.attempts,
        "unscored": dict(filtered.unscored),
        "attempts_kept": len({step.trajectory.id for step in filtered.steps}),
        "steps_kept": len(filtered.steps),
        "steps_lost": dict(sorted(Counter(fact.why for fact in filtered.lost).items())),
        "verdicts_of_others": filtered.unmatched,
        "threshold": filtered.threshold,
        "expected_precision": filtered.expected_precision,
        "label_noise": filtered.label_noise,
    }


def _write(
    path: Path,
    rows: Iterator[Row],
    convert: Callable[[Row], Row],
    progress: Callable[[], object],
    given: set[tuple[str, int]],
) -> _File:
    """Writes the rows, adds their steps to `given`, and returns the file's row count and hash."""
    digest, count, images, labels = hashlib.sha256(), 0, False, set()
    with path.open("xb") as file:
        for row in rows:
            count += 1
            given.add((row["trajectory"], row["step"]))
            line = encode(convert(row))
            file.write(line)
            digest.update(line)
            images = images or "images" in row
            labels.add(row.get("label"))
            progress()
        file.flush()
        os.fsync(file.fileno())
    return _File(path.name, count, digest.hexdigest(), images, frozenset(labels))


def _expect_rows(
    kind: Kind, file: _File, filtered: Filtered, noted: Mapping[tuple[str, int], str]
) -> None:
    """Raises UsageError if the rows do not suffice for a training."""
    lost = ", ".join(f"{why} {count}" for why, count in Counter(noted.values()).most_common())
    because = f"; steps without a row: {lost}" if lost else ""
    if kind == "kto" and len(file.labels) < 2:
        raise UsageError(
            "kto needs steps that the judge kept and steps that it rejected; got "
            f"{len(filtered.steps)} and {len(filtered.rejected)}{because}",
            parameters=("rows",),
        )
    if file.rows:
        return
    if kind == "dpo":
        raise UsageError(
            "no pair of a kept and a rejected step in the same state of a task exists, so "
            f"there are no dpo rows; more attempts at each task give some{because}",
            parameters=("rows",),
        )
    raise UsageError(f"no kept step gives a row{because}")


def _after(filtered: Filtered, noted: Mapping[tuple[str, int], str]) -> Filtered:
    """Returns the filter's result with the steps that gave no row counted as lost."""
    kept = tuple(step for step in filtered.steps if (step.trajectory.id, step.index) not in noted)
    facts = tuple(
        fact if fact.why else replace(fact, why=noted.get((fact.id, fact.index), ""))
        for fact in filtered.facts
    )
    return replace(filtered, steps=kept, facts=facts)


def _list_files(folder: Path) -> set[str]:
    """Returns the file names that a folder's manifest lists; empty if there is no manifest. Raises
    UsageError for a manifest without such a list.
    """
    file = folder / MANIFEST
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=_Manifest)
    except FileNotFoundError:
        return set()
    except (OSError, *UNREADABLE) as error:
        problem = f"does not list its row files ({error})"
    else:
        if manifest.format == FORMAT:
            return set(manifest.files)
        problem = f"its format is {manifest.format!r}, but this version of prill writes {FORMAT!r}"
    raise UsageError(
        f"{file}: {problem}, so nothing is replaced; choose another folder", parameters=("output",)
    )


def _put(part: Path, final: Path) -> None:
    """Replaces the old folder with the new one."""
    old = part_path(final)
    if final.exists():
        final.rename(old)
    part.rename(final)
    shutil.rmtree(old, ignore_errors=True)
