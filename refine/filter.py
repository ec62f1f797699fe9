"""Filters judged steps into a folder of training rows, with a manifest and a report.

The folder appears once it is complete. A folder that this module wrote is replaced; any other
folder is left unchanged.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill import __version__
from prill.config.shared import LABELS, OneJudgeOption
from prill.config.values import Config
from prill.datasets.inputs import (
    FormatOption,
    GoalOption,
    GoalsOption,
    Recordings,
    count_lines,
    opened_folders,
    warn_left_out,
)
from prill.datasets.recordings import Recording, opened_recordings
from prill.errors import UsageError
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution, overlap_with
from prill.evaluators.metrics import wilson
from prill.io.joining import join_labels, record_digest
from prill.io.lines import UNREADABLE, file_sha256
from prill.io.manifest import MANIFEST, write_manifest
from prill.io.outputs import expect_file, part_path, write_errors
from prill.io.store import BadLine, TrajectoryReader, copy_image, encode, read_labels, read_verdicts
from prill.io.tables import data_frame, markdown_cell, markdown_table
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.io.verdict_files import read_verdict_files
from prill.policies.registry import Fingerprinted
from prill.refine.demonstration import (
    PLAIN,
    PlainTeacher,
    Teacher,
    TeacherConfig,
    TeacherLike,
    described,
    make_teacher,
)
from prill.refine.formats import KINDS, Kind, make_format
from prill.refine.rows import Row, dpo_rows, kto_rows, sft_rows
from prill.refine.selection import (
    Filtered,
    FilterSpec,
    KeptStep,
    StepFact,
    filter_steps,
    require_steps,
)
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, first_of
from prill.types import Trajectory

FORMAT = "prill rows 1"
REPORT, IMAGES = "report.md", "images"
_MAX_ROWS = 200
# The phase ("traj", "row"), the current count, and the total (0: unknown).
Say = Callable[[str, int, int], object]
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
        """Checks that each kind of rows is named once."""
        if not self.rows or len(set(self.rows)) < len(self.rows):
            raise UsageError(
                f"rows: expected some of {', '.join(KINDS)}, each once", parameters=("rows",)
            )


_FILTER, _EXPORT, _TEACHER = FilterSpec(), ExportSpec(), TeacherConfig(PLAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The counts of written rows by kind and of steps without a row by reason, with messages."""

    rows: Mapping[str, int]
    lost: Mapping[str, int]
    problems: tuple[str, ...]
    filtered: Filtered


@dataclass(frozen=True, kw_only=True)
class FilterConfig(Config):
    """Configuration of `prill filter`: keep the steps that a judge found good, and write them as
    training rows.
    """

    trajectories: Recordings
    verdicts: OneJudgeOption
    output: Annotated[
        str | Path,
        Meta(description="Folder for the rows: a new one, or that of an earlier filter."),
    ]
    filter: Annotated[
        FilterSpec | Mapping[str, Any], Meta(description="Which trajectories or steps are kept.")
    ] = _FILTER
    export: Annotated[
        ExportSpec | Mapping[str, Any], Meta(description="Kinds of rows to write.")
    ] = _EXPORT
    policy: Annotated[
        TeacherLike,
        Meta(
            description="Policy to train, which sets prompts and action language: a "
            "policy's name, module:Object, or plain."
        ),
    ] = _TEACHER
    labels: Annotated[str | Path | None, LABELS] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    recording_format: FormatOption = None  # --format is that of the rows
    goal: GoalOption = None
    goals: GoalsOption = None


@dataclass(frozen=True)
class FilterResult(Printed):
    """Rows that a filter kept and wrote.

    Attributes:
        exported: Rows by type, the steps kept, and the steps dropped with reasons.
        output: The output folder.
        truth: Whether each attempt succeeded according to the labels, by id; None without labels.
        fitted: The overlap of these attempts with the judge's training data; None without labels.
        broken: A message for each line that is not a trajectory.
        cautions: Warnings to read before using the figures.
    """

    exported: Exported
    output: str
    truth: Mapping[str, bool | None] | None = None
    fitted: Overlap | None = None
    broken: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the rows, the counts and the precision by the labels as a JSON object."""
        labelled: dict[str, Any] = {}
        if self.truth is not None:
            right, decided = true_precision(self.filtered, self.truth)
            labelled = {"labelled": decided, "truly_successful": right, "fitted": self.fitted}
        rows = {"output": self.output, "rows": self.exported.rows}
        return {**rows, **figures(self.filtered), **labelled}

    def notes(self) -> Iterator[str]:
        """Yields the verdicts that were left out, cautions, and what could not be read."""
        yield from self.filtered.joined.lines()
        yield from self.cautions
        yield from first_of([*self.broken, *self.exported.problems])

    @property
    def exit_code(self) -> int:
        """Returns 3 if broken lines or images reduced the rows."""
        images = "missing or broken image" in self.exported.lost
        return EXIT_SOME if self.broken or images else EXIT_ALL

    @property
    def filtered(self) -> Filtered:
        """Returns the kept and dropped steps."""
        return self.exported.filtered

    def to_pandas(self) -> Any:
        """Returns every step, with the judge's verdict and why it was dropped, as a pandas
        DataFrame.
        """
        return data_frame([asdict(fact) for fact in self.filtered.facts])

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.exported.rows.items())
        lost = sorted(
            figures(self.filtered)["steps_lost"].items(), key=lambda one: (-one[1], one[0])
        )
        return "\n".join(
            (
                *summary_lines(self.filtered, self.truth),
                *(f"  lost {count:>6,}  {why}" for why, count in lost),
                f"{counts} rows -> {self.output}",
            )
        )


@as_run(FilterConfig)
def filter(config: FilterConfig, *, progress: Say | None = None) -> FilterResult:
    """Filters steps by a judge's verdicts, and writes the kept ones as training rows.

    The output is deterministic.

    Args:
        config: The trajectories, the filter rules, and the output format.
        progress: Called with the phase (`"traj"`, `"row"`), the current count, and the total (0:
            unknown).

    Returns:
        The rows that were kept and written.

    Raises:
        UsageError: No step is left, the folder holds something else, or options conflict.
        InputError: A file cannot be read.
    """
    with opened_recordings(
        config.trajectories, config.recording_format, config.goal, config.goals
    ) as (paths, recordings):
        return _filtered(config, opened_folders(paths), recordings, progress)


def _filtered(
    config: FilterConfig,
    trajectories: Sequence[str],
    recordings: Sequence[Recording],
    progress: Say | None,
) -> FilterResult:
    spec, kinds = FilterSpec.read(config.filter), ExportSpec.read(config.export)
    if recordings:  # temporary images are deleted after the run
        kinds = kinds.copy_with(copy_images=True)
    sources = {str(recording.file): recording.source for recording in recordings}
    teacher = make_teacher(config.policy)
    folder = Path(config.output)
    check_folder(folder)
    labels = list(read_labels(config.labels)) if config.labels else []
    truth = gold_labels(labels, config.source, config.truth)[1] if config.labels else None
    broken: list[str] = []
    digests: dict[str, str] = {}
    total = count_lines(trajectories) if progress is not None else 0
    say: Say = progress or (lambda phase, done, total: None)
    with closing(TrajectoryReader(trajectories)) as reader:
        filtered = filter_steps(
            _good(reader, broken, digests, total, say), read_verdict_files(config.verdicts), spec
        )
    if config.labels:
        warn_left_out(config.labels, join_labels(labels, digests)[1])
    require_steps(filtered)
    inputs = [
        *trajectories,
        *config.verdicts,
        *(path for path in (config.labels, spec.calibration) if path),
    ]
    about = {
        "prill": __version__,
        "inputs": [
            {"path": str(sources.get(str(path), path)), "sha256": file_sha256(str(path))}
            for path in inputs
        ],
        "filter": asdict(spec),
        "policy": {
            **described(config.policy),
            "prompts": _prompts(teacher or PlainTeacher(), filtered),
        },
    }
    made = 0

    def count(rows: int = 1) -> None:
        nonlocal made
        made += rows
        say("row", made, 0)

    exported = export_rows(
        folder, filtered, teacher, kinds, about=about, truth=truth, progress=count
    )
    fitted = (
        find_overlap(chain.from_iterable(map(read_verdicts, config.verdicts)))
        if truth is not None
        else None
    )
    cautions = [fitted_caution("the judge", fitted)]
    if truth is not None and spec.calibration is not None:
        runs = {
            step.trajectory.id: step.trajectory for step in (*filtered.steps, *filtered.rejected)
        }
        labelled = (run for id, run in runs.items() if truth.get(id) is not None)
        known = read_calibration(spec.calibration).fitted_to
        cautions.append(fitted_caution("the calibration", overlap_with(known, labelled)))
    return FilterResult(
        exported,
        str(config.output),
        truth,
        fitted,
        tuple(broken),
        tuple(caution for caution in cautions if caution),
    )


def _prompts(teacher: Teacher, filtered: Filtered) -> dict[str, str]:
    platforms = sorted(
        {step.trajectory.task.platform for step in (*filtered.steps, *filtered.rejected)}
    )
    return (
        {platform: teacher.fingerprint(platform) for platform in platforms}
        if isinstance(teacher, Fingerprinted)
        else {}
    )


def _good(
    reader: TrajectoryReader, broken: list[str], digests: dict[str, str], total: int, say: Say
) -> Iterator[Trajectory]:
    for number, (_, item) in enumerate(reader, 1):
        say("traj", number, total)
        if isinstance(item, BadLine):
            broken.append(item.message)
        else:
            digests[item.id] = record_digest(item)
            yield item


@dataclass(frozen=True, slots=True)
class _File:
    """A file of rows."""

    name: str
    rows: int
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
    """Writes a folder of training rows, with a manifest and a report. The folder appears once
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
            (part / REPORT).write_text(report_text(written, counts, truth), encoding="utf-8")
            names = sorted({path.name for path in part.iterdir()} | {MANIFEST})
            manifest = {
                "format": FORMAT,
                "files": names,
                "rows": {
                    kind: {"file": file.name, "rows": file.rows} for kind, file in files.items()
                },
                "settings": msgspec.to_builtins(spec),
                **figures(written),
                **(about or {}),
            }
            rows_files = [part / file.name for file in files.values()]
            write_manifest(part / MANIFEST, manifest, rows_files)
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
        "verdicts_of_others": filtered.joined.other_verdicts,
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
    """Writes the rows, adds their steps to `given`, and returns what the file has."""
    count, images, labels = 0, False, set()
    with path.open("xb") as file:
        for row in rows:
            count += 1
            given.add((row["trajectory"], row["step"]))
            file.write(encode(convert(row)))
            images = images or "images" in row
            labels.add(row.get("label"))
            progress()
        file.flush()
        os.fsync(file.fileno())
    return _File(path.name, count, images, frozenset(labels))


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


def report_text(
    filtered: Filtered, rows: Mapping[str, int], truth: Mapping[str, bool | None] | None = None
) -> str:
    """Formats the report as Markdown. `rows` counts the written rows; `truth` is the labelled
    success by trajectory id, if there are labels.
    """
    facts = filtered.facts
    counts = ", ".join(f"{kind} {count:,}" for kind, count in rows.items())
    headlines = (f"Judge: {filtered.judge.title}", *summary_lines(filtered, truth))
    reasons = _by_count(Counter(fact.why for fact in filtered.lost))
    lines = [
        "# What the filter kept",
        "",
        *(f"* {markdown_cell(line)}" for line in (*headlines, f"Rows: {counts}")),
        f"\n## Why steps were lost\n\n{markdown_table(('reason', 'steps'), reasons)}",
        _part("label", facts, lambda fact: fact.label),
        _part("action", facts, lambda fact: fact.action),
        _part("site", facts, lambda fact: fact.site or "(none)"),
        _part("task", facts, lambda fact: fact.task),
    ]
    return "\n".join(lines) + "\n"


def true_precision(filtered: Filtered, truth: Mapping[str, bool | None]) -> tuple[int, int]:
    """Returns how many attempts with a kept step truly succeeded, and how many are decided."""
    kept = {step.trajectory.id for step in filtered.steps}
    decided = [success for id in kept if (success := truth.get(id)) is not None]
    return sum(decided), len(decided)


def format_precision(right: int, decided: int) -> str:
    """Formats the share with its interval, which treats attempts as independent."""
    if not decided:
        return "no kept attempt has a label"
    low, high = wilson(right / decided, decided)
    return (
        f"{right} of {decided} labelled attempts that were kept truly succeeded: "
        f"{right / decided:.3f} [{low:.3f}, {high:.3f}]"
    )


def summary_lines(filtered: Filtered, truth: Mapping[str, bool | None] | None = None) -> list[str]:
    """Formats a summary of the kept steps as text."""
    kept, steps = len({step.trajectory.id for step in filtered.steps}), len(filtered.facts)
    lines = [
        (
            f"{len(filtered.steps):,} of {steps:,} steps kept, of {kept:,} of "
            f"{filtered.attempts:,} attempts"
        )
    ]
    if filtered.unscored:
        reasons = ", ".join(
            f"{reason} {count:,}" for reason, count in sorted(filtered.unscored.items())
        )
        lines.append(f"Without a row, because there was no verdict: {reasons}")
    if filtered.threshold is not None:
        lines.append(f"Threshold: {filtered.threshold:g}")
    if filtered.expected_precision is not None and filtered.label_noise is not None:
        lines.append(
            f"By the calibration, {filtered.expected_precision:.3f} of the kept attempts "
            f"are true successes; expect a share of {filtered.label_noise:.3f} false ones"
        )
    if truth is not None:
        lines.append(f"By the labels, {format_precision(*true_precision(filtered, truth))}")
    return lines


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _part(name: str, facts: Sequence[StepFact], value_of: Callable[[StepFact], str]) -> str:
    kept = Counter(value_of(fact) for fact in facts if not fact.why)
    every = _by_count(Counter(map(value_of, facts)))
    rows = [(value, kept[value], count - kept[value]) for value, count in every[:_MAX_ROWS]]
    more = f"\n\n… and {len(every) - len(rows):,} more" if len(every) > len(rows) else ""
    return f"\n## By {name}\n\n{markdown_table((name, 'kept', 'lost'), rows)}{more}"
