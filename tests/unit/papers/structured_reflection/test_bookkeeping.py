"""Attempts, lessons and planning calls as the loop of `prill reflexion` keeps them, also after a
run was ended from outside.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.episodes.record import Pool
from prill.io.store import read_trajectories
from prill.papers.structured_reflection.agent import StructuredReflection, planning_calls
from prill.protocols import Learner
from prill.refine.outcomes import ReflexionResults, read_lessons
from prill.refine.reflexion import Challenge, PlaySettings, run_reflexion
from prill.refine.retries import RetrySpec
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory, Verdict
from tests.support.papers.pages import TASK, Answers, Site, chain
from tests.support.papers.trials import solved_by, within


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
        for item in read_trajectories(out / "trajectories.jsonl")
        if isinstance(item, Trajectory)
    ]


async def test_attempts_end_with_success(tmp_path: Path) -> None:
    model = Answers(
        ["click id=1\nclick id=2", "click id=1"], ["For action index=2, you should click id=1"]
    )
    results = await play(tmp_path, chain("one", "two", "three"), model)
    (task,) = results.tasks
    assert (task.ended, [attempt.truth for attempt in task.attempts]) == ("accepted", [False, True])
    assert [planning_calls(played) for played in recorded(tmp_path)] == [1, 1]
    assert len(model.prompts("reflection")) == 1, "nothing is reflected on after the last attempt"


async def test_signals_stay_in_the_record(tmp_path: Path) -> None:
    model = Answers(
        ["click id=2"] * 2,
        ["For action index=1, you should click id=1", "For action index=2, you should click id=1"],
    )
    await play(tmp_path, chain("one", "two"), model, attempts=2)
    assert [played.answer for played in recorded(tmp_path)] == ["NO_CHANGE", "NO_CHANGE"]


async def test_no_readable_lesson_ends_the_task(tmp_path: Path) -> None:
    results = await play(tmp_path, chain("one"), Answers(["click id=2"], ["Try harder."] * 2))
    (task,) = results.tasks
    assert (
        task.ended == "no_lesson"
        and task.attempts[0].problem is not None
        and "no action index" in task.attempts[0].problem
    )


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


# A log in the form of Reflexion's own runs (env_results_trial_N.json), written for this test: who
# was solved when, and how much each remembered after the trial.
LOG = [
    [("a", True, 0, False), ("b", False, 1, False), ("c", False, 1, False), ("d", False, 1, False)],
    [("a", True, 0, True), ("b", True, 1, False), ("c", False, 2, False), ("d", False, 2, False)],
    [("a", True, 0, True), ("b", True, 1, True), ("c", True, 2, False), ("d", False, 3, False)],
]


class Logged:
    """An environment, and a learner, that do what the log tells."""

    def __init__(self, lessons: Sequence[str] = ()) -> None:
        self.lessons = list(lessons)
        self.task = ""

    async def step(self, action: Action) -> tuple[Observation, bool]:
        raise AssertionError("it only stops")

    async def close(self) -> None:
        pass

    async def act(self, observation: Observation) -> Step:
        return Step(observation, Action("stop", "stop"))

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        return f"Trial {len(self.lessons)} of {trajectory.task.goal} went wrong."


class LoggedRoom(Logged):
    """The environment's side."""

    async def reset(self, task: Task) -> Observation:
        return Observation(text=task.goal)


class LoggedAgent(Logged):
    """The agent's side."""

    def reset(self, task: Task) -> None:
        self.task = task.goal


async def test_trials_are_kept_as_reflexion_logs_do(tmp_path: Path) -> None:
    log = [
        [{"name": n, "is_success": s, "memory": [""] * m, "skip": skip} for n, s, m, skip in trial]
        for trial in LOG
    ]
    logged = json.loads(json.dumps(log))

    async def oracle(room: Any, played: Trajectory) -> LabelRecord:
        name, _, number = played.id.partition("-a")
        success = next(one["is_success"] for one in logged[int(number)] if one["name"] == name)
        return LabelRecord(id=played.id, success=success, source="oracle")

    def challenge(name: str) -> Challenge[Any]:
        async def task(environment: object) -> Task:
            return Task(id=name, goal=name)

        return Challenge(
            name=name,
            id=lambda n: f"{name}-a{n}",
            task=task,
            learner=lambda lessons, n: LoggedAgent(lessons),
        )

    pool: Pool[Any] = Pool([LoggedRoom()])
    every = [challenge(one["name"]) for one in logged[0]]
    spec = RetrySpec(attempts=len(logged))
    results = await run_reflexion(
        pool, every, None, tmp_path, spec, play=PlaySettings(oracle=oracle)
    )
    solved = solved_by(results.tasks)
    lessons = read_lessons(tmp_path / "lessons.jsonl")
    for number, trial in enumerate(logged):
        assert sum(within(solved, number + 1).values()) == sum(one["is_success"] for one in trial)
        for one in trial:
            played = [f"{one['name']}-a{n}" for n in range(number + 1)]
            # Our last trial draws no lesson, for no attempt would use it.
            unused = number == len(logged) - 1 and not one["is_success"]
            assert sum(id in lessons for id in played) == len(one["memory"]) - unused
    assert [len(task.attempts) for task in results.tasks] == [1, 2, 3, 3], (
        "what is solved is not played again"
    )
