"""The rollout run: configuration, execution and result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.episodes.record import RecordTally
from prill.io.kinds import INTERRUPTED, LABELS, TRAJECTORIES
from prill.io.outputs import check_output, expect_file
from prill.io.store import read_labels, read_trajectories
from prill.io.tables import data_frame
from prill.policies.scripted.policy import BEHAVIOURS
from prill.runs.base import RunFolderOption, synchronous
from prill.runs.plan import RunPlan
from prill.runs.rollout.episodes import EpisodePlan, EpisodesConfig, RolloutSession, record_session
from prill.runs.rollout.episodes import session as episodes_session
from prill.scoring.scorer import wait_for
from prill.types import LabelRecord, Trajectory


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(EpisodesConfig):
    """Configuration of `prill rollout`: record what a policy does in an environment, in a folder
    that a later run continues.
    """

    output: RunFolderOption
    attempts: Annotated[
        int, Meta(ge=1, description="Number of attempts at each task and seed.")
    ] = 1
    first_play: Annotated[
        int,
        Meta(
            ge=0, description="Number of the first attempt, for rounds that follow an earlier run."
        ),
    ] = 0
    plan: Annotated[
        str | Path | None,
        Meta(
            description="Only for the policy `scripted`: file that lists the episodes, instead "
            "of tasks and seeds."
        ),
    ] = None
    behaviour: Annotated[
        str | None,
        Meta(
            description=f"Only for the policy `scripted`: any of {', '.join(BEHAVIOURS)}, "
            "separated by commas (default: solve)."
        ),
    ] = None


@dataclass(frozen=True)
class RolloutResult:
    """Result of a rollout.

    Args:
        counts: Episodes by outcome.
        output: The output folder.
        graded: Whether the environment has an oracle.
        agent: The agent's name in records.
    """

    counts: RecordTally
    output: str
    graded: bool
    agent: str

    @property
    def complete(self) -> bool:
        """Returns whether every episode ended without error and has a label.

        Labels are required only if the environment has an oracle.
        """
        counts = self.counts
        return not (counts.broken or counts.lost or (self.graded and counts.undecided))

    @property
    def interrupted(self) -> Path | None:
        """Returns the file of interrupted attempts; None if there are none."""
        path = Path(self.output) / INTERRUPTED
        return path if path.exists() else None

    def trajectories(self) -> list[Trajectory]:
        """Returns the trajectories in the folder, including those of earlier runs."""
        path = Path(self.output) / TRAJECTORIES
        return (
            [one for one in read_trajectories(path) if isinstance(one, Trajectory)]
            if path.exists()
            else []
        )

    def labels(self) -> list[LabelRecord]:
        """Returns the labels in the folder, including those of earlier runs."""
        path = Path(self.output) / LABELS
        return list(read_labels(path)) if path.exists() else []

    def to_pandas(self) -> Any:
        """Returns a DataFrame with a row for each trajectory: id, goal, agent, steps, success,
        answer, error.
        """
        success = {label.id: label.success for label in self.labels()}
        rows = [
            {
                "id": one.id,
                "goal": one.task.goal,
                "agent": one.agent,
                "steps": len(one.steps),
                "success": success.get(one.id),
                "answer": one.answer,
                "error": one.error,
            }
            for one in self.trajectories()
        ]
        return data_frame(
            rows, columns=["id", "goal", "agent", "steps", "success", "answer", "error"]
        )

    def table(self) -> dict[str, Any]:
        """Returns the counts and the folder, as `--json` prints them."""
        return {**asdict(self.counts), "output": self.output}

    def __str__(self) -> str:
        counts = self.counts
        summary = {
            "success": counts.success,
            "failure": counts.failure,
            "without a label": counts.undecided,
            "broke off": counts.broken,
            "could not begin": counts.lost,
            "already there": counts.skipped,
        }
        return f"{', '.join(f'{n} {name}' for name, n in summary.items() if n) or 'nothing to do'} -> {self.output}"  # noqa: E501


def rollout_session(
    config: RolloutConfig, *, planned: bool = False
) -> AbstractAsyncContextManager[RolloutSession]:
    """Makes the session of a configuration, as `prill.runs.rollout.episodes` does.

    `planned`: a dry run. Raises UsageError.
    """
    return episodes_session(
        config,
        config.output,
        attempts=config.attempts,
        first_play=config.first_play,
        plan=config.plan,
        behaviour=config.behaviour,
        planned=planned,
    )


async def rollout_async(
    config: RolloutConfig,
    *,
    progress: Callable[[int, RecordTally], None] = lambda total, recorded: None,
) -> RolloutResult:
    """Plays episodes and records them in a folder, skipping those already recorded.

    Args:
        config: The environment, the policy, and the output folder.
        progress: Called with the total number of episodes and the counts so far, once before the
            first and after each.

    Returns:
        The counts; `trajectories()` and `labels()` read the files.

    Raises:
        UsageError: The configuration is invalid, or the folder cannot be written.
        EnvironmentFailedError: All environments failed.
        EndpointError: The model's endpoint accepts no call.
    """
    _check(config)
    async with rollout_session(config) as made:
        total = len(made.rows)
        progress(total, RecordTally())
        counts = await record_session(made, progress=lambda recorded: progress(total, recorded))
        return RolloutResult(
            counts, str(config.output), made.setting.oracle is not None, made.plan.agent
        )


rollout = synchronous(rollout_async)
"""Runs `rollout_async` with the same parameters, for scripts and notebooks."""


async def plan_episodes(config: RolloutConfig) -> EpisodePlan:
    """Plans the episodes of a configuration; makes every part and plays nothing.

    Raises UsageError.
    """
    _check(config)
    async with rollout_session(config, planned=True) as made:
        return EpisodePlan.of(made)


def plan_rollout(config: RolloutConfig) -> RunPlan:
    """Plans the run: its work and model calls, without making any.

    Args:
        config: The environment, the policy, and the output folder.

    Returns:
        The episodes to play, calls and cost.

    Raises:
        UsageError: The configuration is invalid.
    """
    return wait_for(lambda: plan_episodes(config)).run_plan()


def _check(config: RolloutConfig) -> None:
    expect_file(str(config.output), "a folder")
    options = getattr(config.policy, "options", {})
    played = options.get("trajectories")  # trajectories that are replayed
    inputs = [played] if isinstance(played, str | Path) else []
    check_output(Path(config.output) / TRAJECTORIES, "trajectories", inputs, continued=True)
