"""An environment and an agent that are never to be met: each reset and each answer leaves a line in
`met`.
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
    """Notes that something was played, judged or asked."""
    with Path("met").open("a") as file:
        file.write(f"{what}\n")


class Ungraded:
    """An environment without an oracle."""

    def __init__(self, *, start: int = 0, wait: float = 0.0, title: str = "") -> None: ...

    async def reset(self, task: Task) -> Observation:
        """Noted."""
        note("reset")
        return Observation(text="a page")

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Ends the episode."""
        return Observation(text="a page"), True

    async def close(self) -> None:
        """Nothing is open."""


class Pages(Ungraded):
    """The same with one."""

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """A success, always."""
        return LabelRecord(id=trajectory.id, success=True, source="oracle")


class Agent:
    """A policy that can be taught, and takes lessons."""

    def __init__(
        self, *, adapter: Path | None = None, mood: str = "calm", temper: float = 0.0
    ) -> None: ...

    def reset(self, task: Task) -> None:
        """Nothing is kept."""

    async def act(self, observation: Observation) -> Step:
        """Noted."""
        note("act")
        return Step(observation, Action("stop", "stop", value="done"))

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """The same question for every step."""
        return [Message("user", ("What now?",))], "stop"


class Learner(Agent):
    """One that takes lessons."""

    lessons: Sequence[str] = []

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        """Noted."""
        note("reflect")
        return "Be quick."


class Judge:
    """A judge that asks nobody, with one option."""

    def __init__(self, *, patience: float = 1.0) -> None:
        self.info = EvaluatorInfo("double", "1")

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """None are looked at."""
        return ()

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Nothing is spent."""
        return Usage()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Noted."""
        note("judge")
        return Verdict(id=trajectory.id, success=True, evaluator=self.info)
