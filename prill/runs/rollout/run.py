"""The rollout run: configuration, execution and result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.episodes.record import RecordTally
from prill.episodes.run_folder import LABELS
from prill.io.kinds import INTERRUPTED, TRAJECTORIES
from prill.io.outputs import check_output, expect_place
from prill.io.store import read_labels, read_trajectories
from prill.io.tables import data_frame
from prill.policies.scripted.policy import BEHAVIOURS
from prill.runs.base import synchronous, wait_for
from prill.runs.plan import RunPlan
from prill.runs.rollout.episodes import EpisodePlan, EpisodesConfig, RolloutSession, record_session
from prill.runs.rollout.episodes import session as episodes_session
from prill.types import LabelRecord, Trajectory


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(EpisodesConfig):
    """What `prill rollout` does: record what a policy does in an environment, in a folder that a
    later run continues.
    """

    output: Annotated[
        str | Path, Meta(description="folder to write to; a run that was stopped resumes there")
    ]
    attempts: Annotated[int, Meta(ge=1, description="times to play each task and seed")] = 1
    first_play: Annotated[
        int, Meta(ge=0, description="number of the first attempt, for rounds that follow another")
    ] = 0
    plan: Annotated[
        str | Path | None,
        Meta(description="scripted: file that lists the episodes, instead of tasks and seeds"),
    ] = None
    behaviour: Annotated[
        str | None,
        Meta(
            description=f"scripted: any of {', '.join(BEHAVIOURS)}, with commas between (default: "
            "solve)"
        ),
    ] = None


@dataclass(frozen=True)
class RolloutResult:
    """What was recorded.

    Args:
        counts: Episodes by how they ended.
        output: The folder.
        graded: The environment has an oracle.
        agent: Who played, as records call it.
    """

    counts: RecordTally
    output: str
    graded: bool
    agent: str

    @property
    def complete(self) -> bool:
        """Every episode ended as it should, and has a label where the environment gives any."""
        counts = self.counts
        return not (counts.broken or counts.lost or (self.graded and counts.undecided))

    @property
    def interrupted(self) -> Path | None:
        """The file of attempts that were interrupted; None without any."""
        path = Path(self.output) / INTERRUPTED
        return path if path.exists() else None

    def trajectories(self) -> list[Trajectory]:
        """The trajectories in the folder, those of earlier runs included."""
        path = Path(self.output) / TRAJECTORIES
        return (
            [one for one in read_trajectories(path) if isinstance(one, Trajectory)]
            if path.exists()
            else []
        )

    def labels(self) -> list[LabelRecord]:
        """The labels in the folder, those of earlier runs included."""
        path = Path(self.output) / LABELS
        return list(read_labels(path)) if path.exists() else []

    def to_pandas(self) -> Any:
        """A row for each trajectory in the folder: id, goal, agent, steps, success, answer,
        error.
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
        """The counts and the folder, as `--json` prints them."""
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
    """The session of a configuration, as `prill.runs.rollout.episodes`; `planned`: nothing is
    played. Raises UsageError.
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
    """Plays episodes and records them in a folder, skipping what it already holds.

    Args:
        config: What to play, by whom, and where records go.
        progress: Called with the number of all episodes and the counts so far, once before the
            first and after each.

    Returns:
        The counts; `trajectories()` and `labels()` read the files.

    Raises:
        UsageError: The configuration cannot be carried out, or nothing can be written.
        EnvironmentFailedError: No environment is left that works.
        EndpointError: The model's endpoint takes no call.
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
"""`rollout_async`, waited for: the same parameters, in scripts and notebooks."""


async def plan_episodes(config: RolloutConfig) -> EpisodePlan:
    """What a configuration would play; everything is made, and nothing is played. Raises
    UsageError.
    """
    _check(config)
    async with rollout_session(config, planned=True) as made:
        return EpisodePlan.of(made)


def plan_rollout(config: RolloutConfig) -> RunPlan:
    """What the run would do and ask of models, found out without a call.

    Args:
        config: What to play, by whom, and where records go.

    Returns:
        Episodes to play, calls and cost.

    Raises:
        UsageError: The configuration cannot be carried out.
    """
    return wait_for(lambda: plan_episodes(config)).run_plan()


def _check(config: RolloutConfig) -> None:
    expect_place(str(config.output), "a folder")
    options = getattr(config.policy, "options", {})
    played = options.get("trajectories")  # that are played again
    inputs = [played] if isinstance(played, str | Path) else []
    check_output(Path(config.output) / TRAJECTORIES, "trajectories", inputs, continued=True)
