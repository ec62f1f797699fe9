"""Attempts, lessons and planning calls as the loop of `prill reflexion` keeps them, also after a
run was ended from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.episodes.record import Pool
from prill.io.retries import ReflexionResults
from prill.io.store import iter_trajectories
from prill.papers.structured_reflection.agent import StructuredReflection
from prill.protocols import Learner
from prill.refine.reflexion import PlaySettings, run_reflexion
from prill.refine.retries import Challenge, RetrySpec
from prill.types import Action, LabelRecord, Observation, Task, Trajectory
from tests.support.papers.pages import TASK, Answers, Site, chain


async def won(site: Any, played: Trajectory) -> LabelRecord:
    return LabelRecord(id=played.id, success=site.at == "won", source="oracle")


async def play(out: Path, site: Site, model: Answers, attempts: int = 3) -> ReflexionResults:
    async def task(environment: Site) -> Task:
        return TASK

    def learner(lessons: Sequence[str], number: int) -> Learner:
        return StructuredReflection(model, lessons=lessons)

    one = Challenge(name="three", id=lambda number: f"three-a{number}", task=task, learner=learner)
    pool: Pool[Any] = Pool([site])
    return await run_reflexion(
        pool, [one], None, out, RetrySpec(attempts=attempts), play=PlaySettings(oracle=won)
    )


def recorded(out: Path) -> list[Trajectory]:
    return [
        item
        for item in iter_trajectories(out / "trajectories.jsonl")
        if isinstance(item, Trajectory)
    ]


async def test_signals_stay_in_the_record(tmp_path: Path) -> None:
    model = Answers(
        ["click id=2"] * 2,
        ["For action index=1, you should click id=1", "For action index=2, you should click id=1"],
    )
    await play(tmp_path, chain("one", "two"), model, attempts=2)
    assert [played.answer for played in recorded(tmp_path)] == ["NO_CHANGE", "NO_CHANGE"]


async def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:

    first = Answers(["click id=1\nclick id=2"], ["For action index=2, you should click id=1"])

    class Stopping(Site):
        """Stops the run in the middle of its second attempt."""

        async def step(self, action: Action) -> tuple[Observation, bool]:
            if first.prompts("reflection"):
                run.cancel()
                await asyncio.Event().wait()
            return await super().step(action)

    three = chain("one", "two", "three")
    run = asyncio.create_task(play(tmp_path, Stopping(three.pages, three.moves, "one"), first))
    with pytest.raises(asyncio.CancelledError):
        await run
    again = Answers(["click id=1"])
    results = await play(tmp_path, chain("one", "two", "three"), again)
    assert results.tasks[0].ended == "accepted"
    assert [kind for kind, _ in again.asked] == ["paraphrase", "paraphrase", "plan"]
    assert [played.id for played in recorded(tmp_path)] == ["three-a0", "three-a1"]
