"""The rollout run: configuration, execution and result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.shared import RunFolderOption
from prill.config.values import Config
from prill.episodes.episodes import (
    EpisodePlan,
    EpisodesConfig,
    PolicyOption,
    RolloutSession,
    record_session,
)
from prill.episodes.episodes import session as episodes_session
from prill.episodes.record import RecordTally
from prill.io.kinds import INTERRUPTED, LABELS, TRAJECTORIES
from prill.io.outputs import check_output, expect_file
from prill.io.retries import lost_labels_note
from prill.io.store import iter_trajectories, read_labels
from prill.io.tables import data_frame
from prill.plans import RunPlan
from prill.policies.scripted.policy import BEHAVIOURS
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, wait_for
from prill.types import LabelRecord, Trajectory


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(Config):
    """Configuration of `prill rollout`: record what a policy does in an environment, in a folder
    that a later run continues.
    """

    spec: EpisodesConfig
    policy: PolicyOption = None
    output: RunFolderOption
    attempts: Annotated[
        int, Meta(ge=1, description="Number of attempts at each task and seed.")
    ] = 1
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
class RolloutResult(Printed):
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
    of_files = True

    @property
    def complete(self) -> bool:
        """Returns whether every episode ended without error and has a label.

        Labels are required only if the environment has an oracle.
        """
        counts = self.counts
        undecided = self.graded and (counts.undecided or counts.unlabelled)
        return not (counts.broken or counts.lost or undecided)

    @property
    def interrupted(self) -> Path | None:
        """Returns the file of interrupted attempts; None if there are none."""
        path = Path(self.output) / INTERRUPTED
        return path if path.exists() else None

    def trajectories(self) -> list[Trajectory]:
        """Returns the trajectories in the folder, including those of earlier runs."""
        path = Path(self.output) / TRAJECTORIES
        return (
            [one for one in iter_trajectories(path) if isinstance(one, Trajectory)]
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

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts and the folder as a JSON object."""
        return {**asdict(self.counts), "output": self.output}

    def notes(self) -> Iterator[str]:
        """Yields the last error, and what is left of interrupted attempts and labels."""
        counts = self.counts
        if counts.last_problem is not None:
            yield f"last error: {counts.last_problem}"
        if self.interrupted is not None:
            yield f"attempts that were interrupted are in {self.interrupted}"
        yield from lost_labels_note(self.output, counts.unlabelled, counts.total)

    @property
    def exit_code(self) -> int:
        """Returns 3 unless every episode ended without error and has a label."""
        return EXIT_ALL if self.complete else EXIT_SOME

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
    config: RolloutConfig, *, first_play: int = 0, planned: bool = False
) -> AbstractAsyncContextManager[RolloutSession]:
    """Makes the session of a configuration, as `prill.episodes.episodes` does.

    `first_play`: the number of the first attempt; `planned`: a dry run. Raises UsageError.
    """
    return episodes_session(
        config.spec,
        config.output,
        policy=config.policy,
        attempts=config.attempts,
        first_play=first_play,
        plan=config.plan,
        behaviour=config.behaviour,
        planned=planned,
    )


@as_run(RolloutConfig)
async def rollout(
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
