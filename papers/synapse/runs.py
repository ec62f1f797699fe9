"""The command that makes an exemplar memory from trajectories that a judge accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.shared import LABELS, TRAJECTORIES, CalibrationOption, OneJudgeOption
from prill.config.values import Config
from prill.datasets.inputs import warn_left_out
from prill.errors import UsageError
from prill.evaluators.labels import latest_verdicts
from prill.io.joining import join, record_digest
from prill.io.outputs import expect_file
from prill.io.store import BadLine, iter_trajectories, read_labels
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.io.verdict_files import read_verdict_files
from prill.papers.embedders import EmbedderName, EmbedderUrl, make_embedder
from prill.papers.synapse.growth import PER_TASK, Growth, grow
from prill.papers.synapse.memory import EXEMPLARS, ExemplarMemory
from prill.refine.selection import calibrated_score, calibration_for
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, first_of
from prill.types import Trajectory, Verdict


@dataclass(frozen=True, kw_only=True)
class ExemplarsConfig(Config):
    """Configuration of `prill papers exemplars`: a memory for the policy `synapse`."""

    trajectories: Annotated[Sequence[str | Path], Meta(min_length=1), TRAJECTORIES]
    verdicts: OneJudgeOption
    output: Annotated[
        str | Path, Meta(description="Folder of the memory. Exemplars already in it are kept.")
    ]
    calibration: CalibrationOption = None
    threshold: Annotated[
        float | None, Meta(ge=0, le=1, description="Minimum score of an accepted trajectory.")
    ] = None
    embedder: EmbedderName = "tfidf"
    embedder_url: EmbedderUrl = None
    per_task: Annotated[int, Meta(ge=1, description="Maximum number of exemplars per task.")] = (
        PER_TASK
    )
    shipped: Annotated[
        bool, Meta(description="Start a new memory with the built-in exemplars.")
    ] = False
    labels: Annotated[str | Path | None, LABELS] = None
    source: SourceOption = None
    truth: TruthOption = "majority"

    def check(self) -> None:
        """Refuses incompatible options."""
        if self.calibration is not None and self.threshold is not None:
            raise UsageError(
                "give either calibration, whose file has a threshold, or threshold",
                parameters=("calibration", "threshold"),
            )


@dataclass(frozen=True)
class ExemplarsResult(Printed):
    """The extended memory, its folder, and the lines that could not be read."""

    growth: Growth
    output: str
    broken: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """The trajectories and lines that could not be used, one sentence each."""
        return (*self.broken, *self.growth.problems)

    @property
    def held(self) -> list[str]:
        """The task of each exemplar in the memory."""
        return [exemplar.name for exemplar in self.growth.memory.exemplars if exemplar.steps]

    def notes(self) -> Iterator[str]:
        """Yields the trajectories and lines that could not be used."""
        return first_of(self.problems)

    @property
    def exit_code(self) -> int:
        """Returns 3 if broken lines were skipped."""
        return EXIT_SOME if self.broken else EXIT_ALL

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts of added and skipped trajectories, for JSON."""
        growth = self.growth
        return {
            "added": len(growth.added),
            "exemplars": len(self.held),
            "left_out": dict(growth.left_out),
            "wrong": growth.wrong,
            "unlabelled": growth.unlabelled,
        }

    def __str__(self) -> str:
        growth, held = self.growth, self.held
        lines = [
            f"added: {len(growth.added)}; {self.output} holds {len(held)} exemplars of "
            f"{len(set(held))} tasks"
        ]
        lines += [f"left out: {count} {why}" for why, count in growth.left_out.items()]
        if growth.wrong is not None:
            known = len(growth.added) - growth.unlabelled
            lines.append(
                f"by the labels, {growth.wrong} of {known} new exemplars are wrong; "
                f"{growth.unlabelled} have no label"
            )
        return "\n".join(lines)


@as_run(ExemplarsConfig)
async def exemplars(
    config: ExemplarsConfig, *, progress: Callable[[], object] = lambda: None
) -> ExemplarsResult:
    """Adds the trajectories that a judge accepts to an exemplar memory.

    Args:
        config: The trajectories, the verdicts, and the folder of the memory.
        progress: Called after every trajectory.

    Returns:
        What was added and left out.

    Raises:
        UsageError: The files cannot be used, or verdicts are of several judges.
    """
    folder = Path(config.output)
    expect_file(folder, "a memory")
    memory = _memory(folder, config)
    verdicts, threshold = _verdicts(config)
    labels = (
        gold_labels(read_labels(config.labels), config.source, config.truth)[1]
        if config.labels
        else None
    )
    broken: list[str] = []
    digests: dict[str, str] = {}

    def good() -> Iterator[Trajectory]:
        for path in config.trajectories:
            for item in iter_trajectories(path, on_error="yield"):
                progress()
                if isinstance(item, BadLine):
                    broken.append(item.message)
                else:
                    digests[item.id] = record_digest(item)
                    yield item

    growth = await grow(
        memory, good(), verdicts, threshold=threshold, per_task=config.per_task, labels=labels
    )
    joined = join(verdicts.values(), (), digests)
    warn_left_out(config.verdicts[0], joined.counts)
    await growth.memory.save(folder)
    return ExemplarsResult(growth, str(config.output), tuple(broken))


def _memory(folder: Path, config: ExemplarsConfig) -> ExemplarMemory:
    embedder = make_embedder(config.embedder, base_url=config.embedder_url)
    if (folder / EXEMPLARS).is_file():
        if config.shipped:
            raise UsageError(
                f"{folder} already contains a memory; only a new one can start with the "
                "built-in exemplars"
            )
        return ExemplarMemory.load(folder, embedder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists without {EXEMPLARS}; give a new folder, or an exemplar memory"
        )
    shipped = ExemplarMemory.load(None, embedder)
    return (
        shipped if config.shipped else ExemplarMemory([], shipped.abstractions, embedder=embedder)
    )


def _verdicts(config: ExemplarsConfig) -> tuple[dict[str, Verdict], float | None]:
    """Returns the verdicts by id, calibrated if a calibration is given, and their threshold."""
    judge, found = latest_verdicts(read_verdict_files(config.verdicts))
    if config.calibration is None:
        return found, config.threshold
    calibration = calibration_for(judge, config.calibration)
    scored = {
        id: replace(verdict, score=calibrated_score(calibration, verdict))
        for id, verdict in found.items()
        if verdict.success is not None
    }
    return {**found, **scored}, calibration.threshold
