"""Recording many episodes: each once, whatever breaks, and nothing lost when the process is
killed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from prill.episodes.record import Episode, Pool, RecordTally, record
from prill.episodes.run_folder import RunFolder
from prill.errors import EnvironmentFailedError, TransportError, UsageError
from prill.io.store import iter_trajectories, read_labels
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory
from tests.support.paths import ROOT


class Counter:
    """An environment that counts actions; it fails to begin while `dead`, and tells how many used
    it at one time.
    """

    def __init__(self, dead: bool = False, breaks_at: int = 99) -> None:
        self.dead, self.breaks_at = dead, breaks_at
        self.begun = self.closed = self.inside = 0

    async def reset(self, task: Task) -> Observation:
        self.begun += 1
        self.seen = 0
        if self.dead:
            raise EnvironmentFailedError("the phone is gone")
        return Observation(text="0")

    async def step(self, action: Action) -> tuple[Observation, bool]:
        self.inside += 1
        assert self.inside == 1, "two episodes in one environment"
        await asyncio.sleep(0)
        self.inside -= 1
        self.seen += 1
        if self.seen == self.breaks_at:
            raise EnvironmentFailedError("the browser is gone")
        return Observation(text=str(self.seen)), False

    async def close(self) -> None:
        self.closed += 1

    async def task(self, name: str) -> Task:
        return Task(id=name, goal=f"count, {name}")

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        return LabelRecord(id=trajectory.id, success=self.seen == 2, source="oracle")


class Clicks:
    """Clicks twice and answers; raises what it is told to instead."""

    def __init__(self, raises: Exception | None = None) -> None:
        self.raises = raises

    def reset(self, task: Task) -> None:
        self.goal = task.goal

    async def act(self, observation: Observation) -> Step:
        if self.raises is not None:
            raise self.raises
        return Step(
            observation,
            Action("answer", value=self.goal) if observation.text == "2" else Action("click"),
        )


def episodes(*names: str, raises: Exception | None = None) -> list[Episode[Counter]]:
    return [
        Episode(
            id=name,
            task=partial(Counter.task, name=name),
            policy=partial(Clicks, raises),
            metadata={"seed": 3},
        )
        for name in names
    ]


def names(count: int) -> list[str]:
    return [f"t{i}" for i in range(count)]


def recorded(out: Path, file: str = "trajectories.jsonl") -> list[Trajectory]:
    return list(iter_trajectories(out / file)) if (out / file).exists() else []


async def test_pool_records_each_episode_once(tmp_path: Path) -> None:
    phones = [Counter(), Counter(), Counter()]
    counts = await record(Pool(phones), episodes(*names(20)), tmp_path, oracle=Counter.grade)
    assert counts == RecordTally(success=20)
    assert sorted(t.id for t in recorded(tmp_path)) == sorted(names(20))
    assert {
        (t.answer == t.task.goal, t.metadata["seed"], len(t.steps)) for t in recorded(tmp_path)
    } == {(True, 3, 3)}
    assert sorted(label.id for label in read_labels(tmp_path / "labels.jsonl")) == sorted(names(20))
    assert all(phone.begun > 1 for phone in phones)
    assert not list((tmp_path / "partial").iterdir())
    again = await record(Pool(phones), episodes(*names(21)), tmp_path, oracle=Counter.grade)
    assert again == RecordTally(success=1, skipped=20)


async def test_what_a_spent_budget_ended_before_is_played_by_the_next_run(tmp_path: Path) -> None:
    """Earlier versions kept such an episode as broken, for good."""
    error = "the agent's model gave no action (budget): the budget of $1 is used up"
    with RunFolder(tmp_path) as folder:
        for name in ("b", "c"):
            folder.keep(Trajectory(id=name, task=Task(goal="count"), error=error), None)
    again = await record(Pool([Counter()]), episodes("a", "b"), tmp_path, oracle=Counter.grade)
    assert (again.success, again.skipped) == (2, 0)
    assert {t.id: t.error is None for t in recorded(tmp_path)} == {
        "a": True,
        "b": True,
        "c": False,
    }, "c was not asked for"
    assert [t.id for t in recorded(tmp_path, "interrupted.jsonl")] == ["b~1"]


async def test_dead_environment_is_set_aside(tmp_path: Path) -> None:
    dead, well = Counter(dead=True), Counter()
    pool = Pool([dead, well])
    counts = await record(pool, episodes(*names(20)), tmp_path)
    assert (counts, pool.size) == (RecordTally(undecided=20), 1)
    assert (dead.begun, dead.closed) == (3, 1)


async def test_run_ends_without_environments(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentFailedError, match="all environments failed; last error: the phone is gone"
    ):
        await record(Pool([Counter(dead=True), Counter(dead=True)]), episodes(*names(20)), tmp_path)
    assert {t.error for t in recorded(tmp_path)} <= {"the phone is gone"}


async def test_no_beginnings_end_the_run(tmp_path: Path) -> None:
    pool = Pool([Counter(dead=True) for _ in range(3)], patience=1000)
    with pytest.raises(
        EnvironmentFailedError,
        match=r"no episode could start for .* in a row; last error: the phone is gone",
    ):
        await asyncio.wait_for(
            record(pool, episodes(*names(100_000)), tmp_path, oracle=Counter.grade, patience=0.05),
            30,
        )
    left = Pool([Counter()])
    assert (
        await record(left, episodes(*names(3)), tmp_path, oracle=Counter.grade, patience=0.05)
    ).total == 3


async def test_broken_episodes_can_be_retried(tmp_path: Path) -> None:
    await record(Pool([Counter(breaks_at=2)]), episodes("a", "b"), tmp_path, oracle=Counter.grade)
    assert await record(Pool([Counter()]), episodes("a", "b"), tmp_path) == RecordTally(skipped=2)
    counts = await record(
        Pool([Counter()]), episodes("a", "b"), tmp_path, oracle=Counter.grade, retry_broken=True
    )
    assert counts == RecordTally(success=2)
    assert [t.error for t in recorded(tmp_path)] == [None, None]
    assert [t.id for t in recorded(tmp_path, "interrupted.jsonl")] == ["a~1", "b~2"]
    assert [(label.id, label.success) for label in read_labels(tmp_path / "labels.jsonl")] == [
        ("a", True),
        ("b", True),
    ]


async def test_model_failure_is_on_the_record(tmp_path: Path) -> None:
    failing = episodes("a", "b", raises=TransportError("no answer"))
    counts = await record(Pool([Counter()]), [*failing, *episodes("c")], tmp_path)
    assert (counts.broken, counts.undecided) == (2, 1)
    assert recorded(tmp_path)[0].error == "the agent's model gave no action (transport): no answer"


async def test_cancelled_run_is_taken_up(tmp_path: Path) -> None:
    class Stuck(Clicks):
        async def act(self, observation: Observation) -> Step:
            if observation.text == "1":
                reached.set()
                await asyncio.sleep(60)
            return await super().act(observation)

    reached = asyncio.Event()
    slow = [Episode(id="a", task=partial(Counter.task, name="a"), policy=Stuck)]
    run = asyncio.create_task(record(Pool([Counter()]), slow, tmp_path))
    await reached.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await record(Pool([Counter()]), episodes("a"), tmp_path) == RecordTally(undecided=1)
    (left,) = recorded(tmp_path, "interrupted.jsonl")
    assert (left.id, len(left.steps), left.error) == (
        "a~1",
        1,
        "the run was interrupted during this episode",
    )


async def test_bug_ends_the_run_next_goes_on(tmp_path: Path) -> None:
    class Faulty(Clicks):
        async def act(self, observation: Observation) -> Step:
            if observation.text == "1":
                raise KeyError("sk-secret")
            return await super().act(observation)

    def planned() -> list[Episode[Counter]]:
        faulty = Episode[Counter](
            id="b", task=partial(Counter.task, name="b"), policy=Faulty, metadata={"seed": 3}
        )
        return [*episodes("a"), faulty, *episodes("c")]

    with pytest.raises(KeyError) as raised:
        await record(Pool([Counter()]), planned(), tmp_path)
    assert "episode b" in raised.value.__notes__[0]
    assert await record(Pool([Counter()]), planned(), tmp_path) == RecordTally(
        skipped=2, undecided=1
    )
    broken = recorded(tmp_path)[1]
    assert (broken.id, len(broken.steps), broken.error) == (
        "b",
        1,
        "a bug ended the episode: KeyError",
    )
    assert broken.metadata == {"date": broken.metadata["date"], "ended_by": "error", "seed": 3}


async def test_second_run_in_folder_is_refused(tmp_path: Path) -> None:
    from prill.episodes.run_folder import RunFolder

    with RunFolder(tmp_path), pytest.raises(UsageError, match="another process is recording"):
        await record(Pool([Counter()]), episodes("a"), tmp_path)


PROGRAM = """
    import asyncio, os, sys
    from functools import partial
    from pathlib import Path
    sys.path.insert(0, sys.argv[3])
    from tests.integration.test_record import Clicks, Counter, episodes, names
    from prill.episodes.record import Pool
    from prill.episodes.record import record

    kill_at = int(sys.argv[2])
    steps = 0

    class Deadly(Counter):
        async def step(self, action):
            global steps
            steps += 1
            if steps == kill_at:
                os.kill(os.getpid(), 9)
            return await super().step(action)

    print(asyncio.run(record(Pool([Deadly(), Deadly()]), episodes(*names(12)), Path(sys.argv[1]), oracle=Counter.grade)).total)
"""  # noqa: E501


def test_killed_runs_lose_no_step(tmp_path: Path) -> None:
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)]
    here = str(ROOT)
    done: list[int] = []
    for kill_at in (1, 4, 7, 5):
        assert subprocess.run([*program, str(kill_at), here], check=False).returncode == -9
        finished = recorded(tmp_path)
        done.append(len(finished))
        for partial_record in (tmp_path / "partial").glob("*.json"):
            json.loads(partial_record.read_text())
    assert (
        subprocess.run([*program, "0", here], check=True, capture_output=True, text=True).stdout
        == "12\n"
    )
    assert sorted(t.id for t in recorded(tmp_path)) == sorted(names(12))
    assert done == sorted(done)
    assert sorted(label.id for label in read_labels(tmp_path / "labels.jsonl")) == sorted(names(12))
    assert len(recorded(tmp_path, "interrupted.jsonl")) >= 4


# Episodes that want something for themselves


class Sites:
    """What is in use, over all environments: who enters a site that another one is on fails the
    test.
    """

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.at_once = 0


class Visitor(Counter):
    """An environment on sites that the task names."""

    def __init__(self, sites: Sites) -> None:
        super().__init__()
        self.sites, self.mine = sites, frozenset[str]()

    async def reset(self, task: Task) -> Observation:
        self.mine = frozenset((task.id or "").split("-")[0].split("+"))
        assert self.sites.used.isdisjoint(self.mine), "two workers are on one site"
        self.sites.used |= self.mine
        await asyncio.sleep(0)
        self.sites.at_once = max(self.sites.at_once, len(self.sites.used - self.mine) + 1)
        return await super().reset(task)

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        await asyncio.sleep(0)
        self.sites.used -= self.mine  # the oracle looks last
        return await super().grade(trajectory)


async def test_no_two_episodes_on_one_site(tmp_path: Path) -> None:
    """Three workers, tasks of one site in a row and some of two sites: each goes on where it is
    alone, and all are played.
    """
    names = [
        f"{site}-{i}"
        for site in ("shop", "shop+reddit", "reddit", "gitlab", "gitlab+shop")
        for i in range(4)
    ]
    sites = Sites()
    pool = Pool([Visitor(sites) for _ in range(3)])
    episodes = [
        Episode[Visitor](
            id=name,
            task=lambda env, name=name: env.task(name),
            policy=Clicks,
            needs=frozenset(name.split("-")[0].split("+")),
        )
        for name in names
    ]
    counts = await record(
        pool, episodes, tmp_path, oracle=lambda env, trajectory: env.grade(trajectory)
    )
    assert counts == RecordTally(success=len(names)) and not sites.used
    assert sites.at_once > 1, "sites that nobody is on are played at the same time"
    again = await record(
        pool, episodes, tmp_path, oracle=lambda env, trajectory: env.grade(trajectory)
    )
    assert again == RecordTally(skipped=len(names))
