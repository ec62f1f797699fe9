"""Simulates retries under an imperfect judge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.labels import make_task
from prill.io.checksums import Checksums
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.outputs import expect_file, write_output
from prill.io.store import read_labels, read_trajectories, read_verdicts
from prill.io.tables import data_frame
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.refine.outcomes import RESULTS, read_results
from prill.refine.simulation import (
    JudgeModel,
    Outcome,
    RecordedTruths,
    SimulationSpec,
    judge_from_calibration,
    judge_from_rates,
    judge_from_verdicts,
    simulate,
    simulation_chart,
    simulation_lines,
)
from prill.runs.base import asynchronous
from prill.types import Trajectory

TABLE, CHART, FIGURES = "simulation.md", "simulation.svg", "simulation.json"


@dataclass(frozen=True, kw_only=True)
class SimulationConfig(SimulationSpec):
    """Configuration of `prill simulate-retries`: simulate retries, by a judge's error rates or by
    its verdicts.
    """

    output: Annotated[
        str | Path,
        Meta(description="Output folder for simulation.md, simulation.svg and simulation.json."),
    ]
    recorded: Annotated[
        str | Path | None,
        Meta(description="Attempts of a run or recording, used instead of a success rate."),
    ] = None
    verdicts: Annotated[
        str | Path | None,
        Meta(description="Verdicts of your judge, used with labels instead of error rates."),
    ] = None
    labels: Annotated[str | Path | None, Meta(description="Labels of the same attempts.")] = None
    calibration: Annotated[
        str | Path | None,
        Meta(
            description="Calibration of that judge. Without verdicts and labels, the error "
            "rates stored in it are used."
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: Verdicts come without labels, or labels without verdicts.
        """
        if (self.verdicts is None) != (self.labels is None):
            raise UsageError(
                "verdicts and labels: give both; the judge's error rates are estimated from them",
                parameters=("verdicts", "labels"),
            )


@dataclass(frozen=True)
class SimulationResult:
    """Result of a simulation.

    Args:
        outcomes: Success after each number of retries, for each retry strategy.
        rates: The judge's rates: false positives among failures, false negatives among successes,
            unscored among all.
        output: The folder with the table, chart and figures.
    """

    outcomes: Mapping[str, Sequence[Outcome]]
    rates: tuple[float, float, float]
    output: str

    def to_pandas(self) -> Any:
        """Returns a row for each retry strategy and number of retries."""
        return data_frame(
            [{"way": way, **row._asdict()} for way, rows in self.outcomes.items() for row in rows]
        )

    def __str__(self) -> str:
        return "\n".join(simulation_lines(self.outcomes, self.rates))

    def _repr_html_(self) -> str:
        return simulation_chart(self.outcomes)


def simulate_retries(config: SimulationConfig) -> SimulationResult:
    """Simulates success by number of retries for each strategy, and writes a table, chart and
    figures.

    Args:
        config: The simulation and the judge.

    Returns:
        The outcomes; they print as a table.

    Raises:
        UsageError: A file cannot be read, or does not determine the judge's error rates.
    """
    expect_file(config.output, "a folder")
    judge = _judge(config)
    recorded = _recorded(Path(config.recorded)) if config.recorded is not None else ()
    result = SimulationResult(simulate(config, judge, recorded), judge.rates, str(config.output))
    figures = {
        "settings": {part.name: getattr(config, part.name) for part in fields(SimulationSpec)},
        "judge": dict(
            zip(("false_positives", "false_negatives", "unscored"), judge.rates, strict=True)
        ),
        "outcomes": {way: [row._asdict() for row in rows] for way, rows in result.outcomes.items()},
    }
    for name, text in (
        (TABLE, f"{result}\n"),
        (CHART, simulation_chart(result.outcomes)),
        (FIGURES, json.dumps(figures, indent=1) + "\n"),
    ):
        write_output(Path(config.output) / name, text.encode())
    return result


simulate_retries_async = asynchronous(simulate_retries)
"""Runs `simulate_retries` in a thread, with the same parameters, for programs with an event loop.
"""


def _judge(config: SimulationConfig) -> JudgeModel:
    calibration = None if config.calibration is None else read_calibration(str(config.calibration))
    if config.verdicts is not None and config.labels is not None:
        truth = gold_labels(read_labels(config.labels), config.source, config.truth)[1]
        return judge_from_verdicts(list(read_verdicts(config.verdicts)), truth, calibration)
    return judge_from_rates(config) if calibration is None else judge_from_calibration(calibration)


def _recorded(folder: Path) -> list[RecordedTruths]:
    """Returns the labels of a run's attempts by task.

    Retries keep their order; other attempts are sampled.
    """
    Checksums(folder).check()
    found = list(_retried(folder) if (folder / RESULTS).exists() else _first_attempts(folder))
    if not found:
        raise UsageError(f"{folder}: no attempt in it has a decided label")
    return found


def _retried(folder: Path) -> Iterator[RecordedTruths]:
    for task in read_results(folder).tasks:
        if truths := [attempt.truth for attempt in task.attempts if attempt.truth is not None]:
            yield RecordedTruths(truths, in_order=True)


def _first_attempts(folder: Path) -> Iterator[RecordedTruths]:
    labels = {label.id: label.success for label in read_labels(folder / LABELS)}
    by_task: dict[str, list[bool]] = {}
    for item in read_trajectories(folder / TRAJECTORIES):
        if isinstance(item, Trajectory) and (truth := labels.get(item.id)) is not None:
            by_task.setdefault(make_task(item), []).append(truth)
    yield from map(RecordedTruths, by_task.values())
