"""A guessing game, a scripted model as its agent, and judges with fixed verdicts, for tests of
retries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prill.episodes.record import Pool
from prill.io.retries import ReflexionResults
from prill.models.ledger import Ledger, Price
from prill.policies.react import React
from prill.protocols import Evaluator, Learner, Message, Reply
from prill.refine.reflector import Reflective, Reflector
from prill.refine.reflexion import PlaySettings, run_reflexion
from prill.refine.retries import Challenge, RetrySpec
from prill.testing import ScriptedModel
from prill.types import Action, EvaluatorInfo, LabelRecord, Observation, Task, Trajectory, Verdict

CANARY = "THE-ORACLE-SAID-THIS"


class Room:
    """An environment whose first state is a page. It counts its resets."""

    def __init__(self) -> None:
        self.begun = 0

    async def reset(self, task: Task) -> Observation:
        self.begun += 1
        return Observation(
            text=f"[1] button 'Go'\n[2] StaticText 'room of {task.id}'", url="http://room"
        )

    async def step(self, action: Action) -> tuple[Observation, bool]:
        return Observation(text="[3] StaticText 'inside'"), False

    async def close(self) -> None:
        pass


class Metered(ScriptedModel):
    """Each call costs 10 request tokens and 2 reply tokens, at one dollar per million."""

    def __init__(self, say: Callable[[Sequence[Message]], str]) -> None:
        super().__init__(say)
        self.ledger = Ledger(Price(1.0, 1.0))

    async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
        """Returns the next reply."""
        self.ledger.record(10, 2, 0)
        return await super().complete(messages, **options)


class Scribe(Metered):
    """The actor and the reflector. It stops with the number of its lessons, and its lessons are
    numbered.
    """

    def __init__(self, lesson: Callable[[str], str] | None = None) -> None:
        super().__init__(self.say)
        self.lesson = lesson or (
            lambda prompt: f"lesson {len(re.findall('TRIAL', prompt))} of {goal_in(prompt)}"
        )
        self.lessons_asked: list[str] = []

    def say(self, messages: Sequence[Message]) -> str:
        system, user = str(messages[0].parts[0]), str(messages[-1].parts[0])
        if "do better at its next attempt" in system:
            self.lessons_asked.append(user)
            return self.lesson(user)
        memory = user.partition("MEMORY:")[2].partition("PREVIOUS ACTION")[0]
        return f"I stop. ```stop [{memory.count('lesson')}]```"


def goal_in(prompt: str) -> str:
    return prompt.partition("OBJECTIVE: ")[2].partition("\n")[0]


@dataclass
class Written:
    """Verdicts by task, one letter per attempt: S, F, U (unscored), or a number for a score."""

    verdicts: Mapping[str, Sequence[str | float]]
    reason: str = "the page shows {word}"
    info: EvaluatorInfo = field(default_factory=lambda: EvaluatorInfo("written", "1"))
    seen: list[str] = field(default_factory=list)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        return ()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        task, _, number = trajectory.id.rpartition("-a")
        self.seen.append(trajectory.id)
        word = self.verdicts[task][int(number)]
        if word == "U":
            return Verdict(
                id=trajectory.id, unscored="timeout", reason="no answer", evaluator=self.info
            )
        score = {"S": 1.0, "F": 0.0}[word] if isinstance(word, str) else word
        reason = self.reason.format(word=word)
        return Verdict(
            id=trajectory.id, success=score >= 0.5, score=score, reason=reason, evaluator=self.info
        )


def challenges(tasks: Sequence[str], model: Any) -> list[Challenge[Room]]:
    def one(name: str) -> Challenge[Room]:
        async def task(room: Room) -> Task:
            return Task(id=name, goal=f"find {name}", platform="web")

        def learner(lessons: Sequence[str], number: int) -> Learner:
            return Reflective(React(model, lessons=lessons), Reflector(model))

        return Challenge(
            name=name, id=lambda number: f"{name}-a{number}", task=task, learner=learner
        )

    return [one(name) for name in tasks]


def oracle(truths: Mapping[str, Sequence[bool | None]]) -> Callable[[Room, Trajectory], Any]:
    async def grade(room: Room, trajectory: Trajectory) -> LabelRecord:
        task, _, number = trajectory.id.rpartition("-a")
        return LabelRecord(
            id=trajectory.id, success=truths[task][int(number)], source=CANARY, note=CANARY
        )

    return grade


async def run(
    out: Path,
    truths: Mapping[str, Sequence[bool | None]],
    judge: Evaluator | None,
    *,
    model: Any = None,
    room: Room | None = None,
    leftovers: str | None = None,
    retry: Mapping[str, Any] | None = None,
    **options: Any,
) -> ReflexionResults:
    play: PlaySettings[Room] = PlaySettings(oracle=oracle(truths), leftovers=leftovers)
    spec = RetrySpec(**options)
    pool = Pool([room or Room()])
    tasks = challenges(list(truths), model or Scribe())
    return await run_reflexion(pool, tasks, judge, out, spec, play=play, **(retry or {}))
