"""The one loop: what ends an episode, and what its record says."""

import asyncio
from dataclasses import replace
from pathlib import Path

from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError
from prill.io.store import write_trajectories
from prill.types import Action, Observation, Step, Task, Trajectory

TASK = Task(id="t", goal="count")


class Counter:
    """An environment that shows how many actions it has seen."""

    def __init__(self, ends_after: int = 99, breaks_after: int = 99, slow: float = 0.0) -> None:
        self.seen, self.ends_after, self.breaks_after, self.slow = 0, ends_after, breaks_after, slow

    async def reset(self, task: Task) -> Observation:
        self.seen = 0
        return Observation(text="0")

    async def step(self, action: Action) -> tuple[Observation, bool]:
        await asyncio.sleep(self.slow)
        self.seen += 1
        if self.seen > self.breaks_after:
            raise EnvironmentFailedError("the browser is gone")
        return Observation(text=str(self.seen)), self.seen >= self.ends_after

    async def close(self) -> None:
        pass


class Clicker:
    """A policy that clicks until it has seen enough, then answers."""

    def __init__(self, stops_at: int = 99) -> None:
        self.stops_at = stops_at

    def reset(self, task: Task) -> None:
        self.goal = task.goal

    async def act(self, observation: Observation) -> Step:
        done = int(observation.text or 0) >= self.stops_at
        return Step(
            observation, Action("answer", value="there") if done else Action("click"), self.goal
        )


async def test_final_action_ends_with_answer() -> None:
    environment = Counter()
    trajectory = await run_episode(Clicker(stops_at=2), environment, TASK, id="a")
    assert [s.action.kind for s in trajectory.steps] == ["click", "click", "answer"]
    assert (trajectory.answer, environment.seen, trajectory.final) == (
        "there",
        2,
        Observation(text="2"),
    )
    assert trajectory.metadata == {"date": trajectory.metadata["date"], "ended_by": "agent"}


async def test_unpaired_surrogates_are_marks_in_records(tmp_path: Path) -> None:
    """A page's script makes them where it cuts a text, and a model where it is cut: a record with
    one could not be written.
    """
    half, mark, seen = "half \ud83d", "half \N{REPLACEMENT CHARACTER}", list[str | None]()

    class Halving(Counter):
        async def reset(self, task: Task) -> Observation:
            return Observation(text=half, url=half)

        async def locate(self, action: Action) -> Action:
            return replace(action, target=half)

        async def step(self, action: Action) -> tuple[Observation, bool]:
            seen.append(action.value)
            if self.breaks_after == 0:
                raise EnvironmentFailedError(half)
            return Observation(text=half, caption="\ud83d\ude00"), False

    class Typist(Clicker):
        async def act(self, observation: Observation) -> Step:
            seen.append(observation.text)
            return Step(observation, Action("type", value=half, text=half), half)

    trajectory = await run_episode(Typist(), Halving(), TASK, id="a", max_steps=1)
    write_trajectories(tmp_path / "t.jsonl", [trajectory])
    (step,) = trajectory.steps
    assert seen == [mark, mark]
    assert (step.observation.url, step.action.text, step.action.target, step.thought) == (
        mark,
        mark,
        mark,
        mark,
    )
    assert trajectory.final == Observation(text=mark, caption="\N{GRINNING FACE}")
    assert (await run_episode(Typist(), Halving(breaks_after=0), TASK, id="a")).error == mark


async def test_environment_may_end_episode() -> None:
    trajectory = await run_episode(Clicker(), Counter(ends_after=3), TASK, id="a")
    assert (len(trajectory.steps), trajectory.final, trajectory.metadata["ended_by"]) == (
        3,
        Observation(text="3"),
        "environment",
    )


async def test_number_of_actions_is_bounded() -> None:
    trajectory = await run_episode(Clicker(), Counter(), TASK, id="a", max_steps=4)
    assert (len(trajectory.steps), trajectory.final, trajectory.metadata["ended_by"]) == (
        4,
        Observation(text="4"),
        "max_steps",
    )


async def test_broken_environment_keeps_steps() -> None:
    trajectory = await run_episode(Clicker(), Counter(breaks_after=1), TASK, id="a")
    assert (len(trajectory.steps), trajectory.final, trajectory.error) == (
        2,
        None,
        "the browser is gone",
    )


async def test_early_stop_is_no_answer() -> None:
    trajectory = await run_episode(
        Clicker(),
        Counter(),
        TASK,
        id="a",
        early_stop=lambda steps: "it turns in circles" if len(steps) == 3 else None,
    )
    assert (len(trajectory.steps), trajectory.final, trajectory.answer) == (
        3,
        Observation(text="3"),
        None,
    )
    assert trajectory.metadata == {
        "date": trajectory.metadata["date"],
        "ended_by": "early_stop",
        "stopped": "it turns in circles",
    }


async def test_watcher_sees_every_action() -> None:
    seen: list[tuple[int, str | None]] = []

    def watch(record: Trajectory) -> None:
        seen.append((len(record.steps), record.final.text if record.final else None))

    await run_episode(Clicker(stops_at=2), Counter(), TASK, id="a", watch=watch)
    assert seen == [(0, "0"), (1, "1"), (2, "2")]


async def test_timeout_is_an_error_no_verdict() -> None:
    trajectory = await run_episode(Clicker(), Counter(slow=5), TASK, id="a", timeout=0.05)
    assert trajectory.error == "the episode took more than 0.05 s"
