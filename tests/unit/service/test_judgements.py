"""Judgements under way: limited, equal ones made once, none endless, and unready when stuck."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

import prill
from prill.refine.rewards import Reward
from prill.refine.rewards.service.judgements import JudgeError, Judgements, RefusedError
from prill.testing import MockServer
from prill.types import Task, Trajectory, Verdict
from tests.support.service.gate import Gate, release


def attempt(id: str, goal: str = "success") -> Trajectory:
    return Trajectory(id=id, task=Task(goal=goal))


def later(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@pytest_asyncio.fixture
async def shut() -> AsyncIterator[Gate]:
    """A judge of one slot that holds every judgement."""
    gate = Gate(concurrency=1)
    gate.open.clear()
    release.clear()
    yield gate
    gate.open.set()
    release.set()


async def until_in_flight(judgements: Judgements, count: int = 1) -> None:
    async with asyncio.timeout(30):
        while judgements.in_flight != count:
            await asyncio.sleep(0)


async def test_equal_trajectories_are_judged_once(shut: Gate) -> None:
    judgements = Judgements(Reward(shut))
    work = [asyncio.create_task(judgements.result(attempt("same"))) for _ in range(8)]
    await until_in_flight(judgements)
    shut.open.set()
    answers = await asyncio.gather(*work)
    assert sorted(answer.source for answer in answers) == ["judged", *["shared"] * 7]
    assert (await judgements.result(attempt("same"))).source == "remembered"
    assert shut.asked == {"same": 1}


async def test_few_verdicts_are_remembered_and_no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wordy(Gate):
        async def __call__(self, trajectory: Trajectory) -> Verdict:
            words = "x" * (5000 if trajectory.id == "long" else 300)
            return replace(await super().__call__(trajectory), reason=words)

    monkeypatch.setattr("prill.refine.rewards.service.judgements.MAX_REMEMBERED_BYTES", 2000)
    gate = Wordy()
    judgements = Judgements(Reward(gate))
    for id in ("a", "b", "c", "d", "a", "long", "long", "a"):
        await judgements.result(attempt(id))
    for _ in range(2):
        await judgements.result(attempt("x", "timeout"))
    assert gate.asked == {"a": 2, "b": 1, "c": 1, "d": 1, "long": 2, "x": 2}


async def test_deadline_ends_the_wait_and_not_the_judgement(shut: Gate) -> None:
    judgements = Judgements(Reward(shut))
    for id in ("begun", "waiting"):
        with pytest.raises(RefusedError) as busy:
            await judgements.result(attempt(id), later(0.01))
        assert (busy.value.status, busy.value.after >= 1) == (503, True)
    assert judgements.waiting == 0, "nobody waits for it any more"
    shut.open.set()
    await until_in_flight(judgements, 0)
    assert (await judgements.result(attempt("begun"))).source != "judged"
    assert shut.asked == {"begun": 1}


async def test_places_are_limited() -> None:
    judgements = Judgements(Reward(Gate()), limit=3)
    with judgements.admitted(2):
        with pytest.raises(RefusedError) as busy, judgements.admitted(2):
            pass
        assert busy.value.status == 429
    assert judgements.active == 0


@pytest.mark.parametrize("deed", ["hang", "thread"])
async def test_judge_that_hangs_frees_its_slot(deed: str, shut: Gate) -> None:
    shut.open.set()
    judgements = Judgements(Reward(shut), judge_seconds=0.05)
    hung, fine = await asyncio.gather(
        judgements.result(attempt("a", deed)), judgements.result(attempt("b"))
    )
    assert (hung.result.verdict.unscored, fine.result.reward) == ("timeout", 1.0)
    assert (judgements.in_flight, judgements.waiting) == (0, 0)


async def test_judge_that_ignores_its_end_keeps_its_slot(shut: Gate) -> None:
    """Judgements that never end do not pile up; the service is unready."""
    shut.open.set()
    judgements = Judgements(Reward(shut), judge_seconds=0.02, stalled_seconds=0.03)
    hung = await judgements.result(attempt("a", "stubborn"))
    assert hung.result.verdict.unscored == "timeout"
    with pytest.raises(RefusedError):
        await judgements.result(attempt("b"), later(0.05))
    assert "none was freed" in await judgements.trouble() and shut.asked == {"a": 1}


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ("bug", "the judge raised KeyError"),  # and none of its words
        ("gone", "unreachable"),
        *(
            (goal, "the judge raised")
            for goal in ("leave", "interrupt", "close", "blind", "nothing")
        ),
        ("cancel", "cancelled"),
        *((goal, "invalid verdict") for goal in ("surrogate", "other", "odd")),
    ],
)
async def test_judge_that_breaks_costs_its_own_trajectory(goal: str, words: str) -> None:
    judgements = Judgements(Reward(Gate(concurrency=1)))
    for _ in range(2):  # nothing of it is remembered
        broken, fine = await asyncio.gather(
            judgements.result(attempt("bad", goal)),
            judgements.result(attempt("good")),
            return_exceptions=True,
        )
        assert isinstance(broken, JudgeError) and words in str(broken)
        assert not isinstance(fine, BaseException) and fine.result.reward == 1.0


async def test_unready_while_all_slots_are_old(shut: Gate) -> None:
    judgements = Judgements(Reward(shut), stalled_seconds=0.05)
    assert not await judgements.trouble()
    work = asyncio.create_task(judgements.result(attempt("a")))
    async with asyncio.timeout(60):
        while not await judgements.trouble():
            await asyncio.sleep(0.01)
    shut.open.set()
    await work
    assert not await judgements.trouble()


async def test_unready_while_nothing_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few missing replies may be chance, or the fault of their requests."""
    judgements = Judgements(Reward(Gate()))
    goals = [("dead", 5, True), ("parse", 1, False), ("dead", 4, False), ("bug", 1, True)]
    for goal, count, is_trouble in goals:
        work = [judgements.result(attempt(f"{goal}-{count}-{i}", goal)) for i in range(count)]
        await asyncio.gather(*work, return_exceptions=True)
        assert ("got no response" in await judgements.trouble()) == is_trouble
    # a cluster sends nothing to who is not ready: so this must end by itself
    monkeypatch.setattr("prill.refine.rewards.service.judgements._UNREADY", -1.0)
    assert not await judgements.trouble()


async def test_unready_while_the_endpoint_is_gone() -> None:
    options = {"captioner": "text", "model": "m", "api_key_env": "NONE"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gone = prill.judge("modular", base_url=f"http://127.0.0.1:{port}/v1", **options)
    trouble = await Judgements(Reward(gone)).trouble()
    assert trouble and str(port) not in trouble
    with MockServer() as server:
        there = prill.judge("modular", base_url=server.base_url, **options)
        assert not await Judgements(Reward(there)).trouble()
