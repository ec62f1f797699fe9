"""An environment and an agent that a test expects to remain unused. Each reset and each answer
writes a line to `met`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prill.protocols import Message
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Usage,
    Verdict,
)


def note(what: str) -> None:
    """Records a reset, an action or a judgement."""
    with Path("met").open("a") as file:
        file.write(f"{what}\n")


class Ungraded:
    """An environment without an oracle."""

    def __init__(self, *, start: int = 0, wait: float = 0.0, title: str = "") -> None: ...

    async def reset(self, task: Task) -> Observation:
        """Records the call."""
        note("reset")
        return Observation(text="a page")

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Ends the episode."""
        return Observation(text="a page"), True

    async def close(self) -> None:
        """Does nothing."""


class Pages(Ungraded):
    """An environment with an oracle."""

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Labels every episode a success."""
        return LabelRecord(id=trajectory.id, success=True, source="oracle")


class Agent:
    """A policy with demonstrations and lessons."""

    def __init__(
        self, *, adapter: Path | None = None, mood: str = "calm", temper: float = 0.0
    ) -> None: ...

    def reset(self, task: Task) -> None:
        """Does nothing."""

    async def act(self, observation: Observation) -> Step:
        """Records the call."""
        note("act")
        return Step(observation, Action("stop", "stop", value="done"))

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the same question for every step."""
        return [Message("user", ("What now?",))], "stop"


class Learner(Agent):
    """A policy that takes lessons."""

    lessons: Sequence[str] = []

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        """Records the call."""
        note("reflect")
        return "Be quick."


class Judge:
    """A judge without a model, with one option."""

    def __init__(self, *, patience: float = 1.0) -> None:
        self.info = EvaluatorInfo("double", "1")

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns no screenshots."""
        return ()

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns an empty estimate."""
        return Usage()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Records the call."""
        note("judge")
        return Verdict(id=trajectory.id, success=True, evaluator=self.info)
