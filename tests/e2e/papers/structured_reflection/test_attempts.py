"""A planner that errs on purpose, on real pages in Chromium: later attempts mend what it did, step
by step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.record import Pool
from prill.io.retries import ReflexionResults
from prill.io.store import iter_trajectories
from prill.papers.structured_reflection.actions import format_line
from prill.papers.structured_reflection.agent import FORCED, REPLAYED, StructuredReflection
from prill.papers.structured_reflection.memory import AttemptMemory, build_memory
from prill.protocols import Learner
from prill.refine.reflexion import PlaySettings, run_reflexion
from prill.refine.retries import Challenge, RetrySpec
from prill.types import Task, Trajectory
from tests.support.chromium import need_chromium
from tests.support.papers.trials import solved_by, within
from tests.support.programmatic.structured import StructuredPlanner

need_chromium("miniwob")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]
# Some of the paper's 13 tasks in which an action reveals a new screen: where the plan goes wrong,
# and how often the first reflections of a step do.
TASKS = {
    "click-menu-2": ((1,), 0),
    "search-engine": ((0, 2), 0),
    "email-inbox-nl-turk": ((0, 1), 1),
}
ATTEMPTS = 5


@dataclass(frozen=True)
class Played:
    """What came of all attempts, and their records by task."""

    results: ReflexionResults
    attempts: dict[str, list[Trajectory]]

    def later(self) -> list[tuple[Trajectory, Trajectory, AttemptMemory]]:
        """Each attempt but the first, with the one before it and what its lessons say."""
        return [
            (before, attempt, build_memory(attempt.metadata["lessons"]))
            for attempts in self.attempts.values()
            for before, attempt in pairwise(attempts)
        ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Played]:
    """Five attempts at each task, by the loop of `prill reflexion`, with the page's reward as
    judge.
    """
    out: Path = tmp_path_factory.mktemp("attempts")
    environment = MiniWoB(out / "images", text="html", boxes=True)
    play: PlaySettings[Any] = PlaySettings(oracle=lambda one, attempt: one.grade(attempt))
    pool: Pool[Any] = Pool([environment])
    try:
        challenges = [challenge(name) for name in TASKS]
        results = await run_reflexion(
            pool, challenges, None, out, RetrySpec(attempts=ATTEMPTS), play=play
        )
    finally:
        await environment.close()
    found = {item.id: item for item in iter_trajectories(out / "trajectories.jsonl")}
    yield Played(
        results,
        {task.name: [found[attempt.id] for attempt in task.attempts] for task in results.tasks},
    )


def challenge(name: str) -> Challenge[MiniWoB]:
    slips, misjudged = TASKS[name]
    planner = StructuredPlanner(slips, misjudged=misjudged)

    async def task(environment: MiniWoB) -> Task:
        return await environment.task(name, 1000)

    def learner(lessons: Sequence[str], number: int) -> Learner:
        return StructuredReflection(planner, lessons=lessons)

    return Challenge(name=name, id=lambda number: f"{name}-a{number}", task=task, learner=learner)


def lines(attempt: Trajectory) -> list[str]:
    return [format_line(step.action) for step in attempt.steps if not step.action.is_final]


async def test_success_rises_with_attempts(played: Played) -> None:
    solved = solved_by(played.results.tasks)
    assert [sum(within(solved, attempts).values()) for attempts in (1, ATTEMPTS)] == [0, len(TASKS)]
    assert [len(attempts) for attempts in played.attempts.values()] == [2, 3, 5]


async def test_each_attempt_repeats_what_was_right(played: Played) -> None:
    for before, attempt, memory in played.later():
        prefix = memory.prefix
        assert tuple(lines(attempt)[: len(prefix)]) == prefix == tuple(lines(before)[: len(prefix)])
        assert {step.thought for step in attempt.steps[: len(prefix)]} <= {REPLAYED}
        states = [
            [step.observation.text for step in one.steps[: len(prefix) + 1]]
            for one in (before, attempt)
        ]
        assert states[0] == states[1], "the same actions lead to the same pages"
    assert any(memory.prefix for _, _, memory in played.later())


async def test_the_step_to_mend_is_forced(played: Played) -> None:
    for _, attempt, memory in played.later():
        step = attempt.steps[len(memory.prefix)]
        assert (step.thought, format_line(step.action)) == (
            FORCED,
            memory.notes[len(memory.prefix)].replacement,
        )
