"""Filters judged steps into training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill import __version__
from prill.config.registry import Option, list_options, read_options
from prill.config.values import Config
from prill.datasets.recordings import Recording, opened_recordings
from prill.errors import UsageError
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution, overlap_with
from prill.io.store import BadLine, TrajectoryReader, read_labels, read_verdicts
from prill.io.tables import data_frame
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.models.registry import asks_a_model
from prill.policies.registry import POLICIES, Fingerprinted, PolicyConfig, make_policy
from prill.protocols import Demonstrator
from prill.refine.demonstration import PlainTeacher, Teacher
from prill.refine.export import Exported, ExportSpec, check_folder, export_rows
from prill.refine.filter import Filtered, FilterSpec, filter_steps, require_steps
from prill.refine.report import summary_lines
from prill.runs.base import (
    FormatOption,
    GoalOption,
    GoalsOption,
    Recordings,
    UncalledModel,
    asynchronous,
    count_lines,
    opened_folders,
)
from prill.runs.cautions import file_sha256
from prill.types import Trajectory

PLAIN = "plain"
# The phase ("traj", "row"), the current count, and the total (0: unknown).
Say = Callable[[str, int, int], object]


class TeacherConfig(PolicyConfig):
    """The policy to train: a policy by name, or `plain`, a plain prompt of goal, history and state.

    It determines the prompt and the response format of a training row: `TeacherConfig("react",
    reasoning=False)`, `TeacherConfig("plain", images=False)`.
    """

    __slots__ = ()

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the policy that a table names, or of the plain prompt.

        There are no model options, because no model is called.
        """
        if table.get("name") == PLAIN:
            return list_options(PlainTeacher)
        model = "model" if asks_a_model(POLICIES.maker(str(table.get("name")))) else None
        return {
            name: option for name, option in super().options_for(table).items() if name != model
        }

    @classmethod
    def model_options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns no options: no model is called."""
        return {}


TeacherLike = TeacherConfig | PolicyConfig | str | Mapping[str, Any] | Teacher

_FILTER, _EXPORT, _TEACHER = FilterSpec(), ExportSpec(), TeacherConfig(PLAIN)


@dataclass(frozen=True, kw_only=True)
class FilterConfig(Config):
    """Configuration of `prill filter`: keep the steps that a judge found good, and write them as
    training rows.
    """

    trajectories: Recordings
    verdicts: Annotated[str | Path, Meta(description="Verdicts of one judge on the trajectories.")]
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
    labels: Annotated[
        str | Path | None,
        Meta(
            description="Label file, used to report how many of the kept attempts truly succeeded."
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    recording_format: FormatOption = None  # --format is that of the rows
    goal: GoalOption = None
    goals: GoalsOption = None


@dataclass(frozen=True)
class FilterResult:
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
        return "\n".join(
            (*summary_lines(self.filtered, self.truth), f"{counts} rows -> {self.output}")
        )


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


filter_async = asynchronous(filter)
"""Runs `filter` in a thread, with the same parameters, for programs with an event loop."""


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
    truth = (
        gold_labels(read_labels(config.labels), config.source, config.truth)[1]
        if config.labels
        else None
    )
    broken: list[str] = []
    total = count_lines(trajectories) if progress is not None else 0
    say: Say = progress or (lambda phase, done, total: None)
    with closing(TrajectoryReader(trajectories)) as reader:
        filtered = filter_steps(
            _good(reader, broken, total, say), read_verdicts(config.verdicts), spec
        )
    require_steps(filtered)
    inputs = [
        *trajectories,
        config.verdicts,
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
    fitted = find_overlap(read_verdicts(config.verdicts)) if truth is not None else None
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


def make_teacher(policy: TeacherLike) -> Teacher | None:
    """Makes the policy to train; None for the plain prompt without options.

    No model is called: a policy that requires one gets a stub that raises.

    Args:
        policy: A name, a table, a configuration, or a policy, which is returned unchanged.

    Raises:
        UsageError: The policy cannot turn recorded steps into training examples.
    """
    read = TeacherConfig.read(
        policy.table() if isinstance(policy, PolicyConfig) else policy, "policy"
    )
    if not isinstance(read, TeacherConfig):
        return _teacher(read, type(read).__name__)
    name, settings = read.name, dict(read.options)
    if name == PLAIN:
        return (
            PlainTeacher(**read_options(PlainTeacher, settings, "the plain prompt"))
            if settings
            else None
        )
    model = list_options(POLICIES.maker(name)).get("model")
    silent = (
        {"model": UncalledModel()}
        if model is not None and model.required and "model" not in settings
        else {}
    )
    return _teacher(make_policy(name, **{**silent, **settings}), name)


def _teacher(policy: Any, name: str) -> Teacher:
    if isinstance(policy, Demonstrator):
        return policy
    able = [name for name in POLICIES.entries if hasattr(POLICIES.maker(name), "demonstrate")]
    raise UsageError(
        f"policy {name} cannot make training rows: it has no demonstrate(trajectory, "
        f"index); policies with this method: {', '.join(able)}",
        parameters=("policy",),
    )


def described(policy: TeacherLike) -> dict[str, Any]:
    """Returns a teacher's name and options, for the record."""
    read = TeacherConfig.read(policy, "policy")
    table = (
        read.table()
        if isinstance(read, PolicyConfig)
        else {"name": f"{type(read).__module__}:{type(read).__qualname__}"}
    )
    return {"name": table.pop("name"), "options": table}


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
    reader: TrajectoryReader, broken: list[str], total: int, say: Say
) -> Iterator[Trajectory]:
    for number, (_, item) in enumerate(reader, 1):
        say("traj", number, total)
        if isinstance(item, BadLine):
            broken.append(item.message)
        else:
            yield item
