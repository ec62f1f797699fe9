"""Attempts and verdicts for the tests of refine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from prill.protocols import Message
from prill.types import (
    Action,
    EvaluatorInfo,
    Observation,
    Step,
    StepVerdict,
    Task,
    Trajectory,
    Verdict,
)

JUDGE = EvaluatorInfo("vlm", "1", "m")
STEP_JUDGE = EvaluatorInfo("steps", "2", "m")
REWARDS = {"reached": 1.0, "towards": 0.5, "not_sure": -0.5, "away": -0.5}
PAGE = "[1] RootWebArea 'Shop'\n\t[7] link 'Cart'\n\t[9] textbox 'Search'"


def click(number: int) -> Action:
    return Action(
        "click", f"click [{number}] where [{number}] is x", target=f"[{number}] link 'Cart'"
    )


def attempt(
    id: str, *actions: Action, task: str = "k", pages: tuple[str, ...] = (), site: str | None = None
) -> Trajectory:
    """Returns an attempt whose states have these page texts (the last is the final state), or texts
    that all differ.
    """
    texts = pages or tuple(
        f"{PAGE}\n\t[{20 + i}] StaticText 'state {i}'" for i in range(len(actions) + 1)
    )
    steps = tuple(
        Step(Observation(text=text), action) for text, action in zip(texts, actions, strict=False)
    )
    final = Observation(text=texts[len(actions)]) if len(texts) > len(actions) else None
    return Trajectory(
        id=id,
        task=Task(id=task, goal="Open the cart", platform="web", site=site),
        steps=steps,
        final=final,
    )


def verdict(
    id: str, success: bool | None = True, score: float | None = None, **more: Any
) -> Verdict:
    unscored: Any = "timeout" if success is None else None
    return Verdict(id=id, success=success, score=score, unscored=unscored, evaluator=JUDGE, **more)


def step_verdict(id: str, *labels: Any) -> Verdict:
    """Returns a verdict of the judge `steps`, with its usual rewards."""
    steps = tuple(StepVerdict(i, label, REWARDS[label]) for i, label in enumerate(labels))
    rewards = tuple(step.reward for step in steps)
    return Verdict(
        id=id, success="reached" in labels, steps=steps, rewards=rewards, evaluator=STEP_JUDGE
    )


def picture(path: Path, color: str = "red") -> str:
    Image.new("RGB", (8, 6), color).save(path)
    return str(path)


class Parrot:
    """A teacher that demonstrates fixed texts."""

    def __init__(
        self, *answers: str, messages: Sequence[Message] = (Message("user", ("What now?",)),)
    ) -> None:
        self.answers, self.messages = answers, messages

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        return self.messages, self.answers[index]
