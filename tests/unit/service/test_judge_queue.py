"""The queue: bounded, fair, equal work once, nothing judged that nobody waits for."""

import asyncio
from collections.abc import Callable

import pytest

from prill.refine.rewards import Reward
from prill.service.admission import AdmissionQueue, BusyError, FairQueue
from prill.service.judge_queue import JudgeError, JudgeQueue
from prill.types import Task, Trajectory
from tests.support.service.gate import Gate

FOREVER = float("inf")


def attempt(id: str, goal: str = "success") -> Trajectory:
    return Trajectory(id=id, task=Task(goal=goal))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0)


def later(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


def test_clients_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queue.push(item[0], item)
    queue.remove("a", "a2")
    assert [queue.pop() for _ in range(len(queue))] == ["a1", "b1", "c1", "a3", "c2"]
    with pytest.raises(IndexError):
        queue.pop()


async def test_a_greedy_client_delays_nobody() -> None:
    gate = Gate(concurrency=1)
    gate.open.clear()
    judge_queue = JudgeQueue(Reward(gate))
    work = [
        asyncio.create_task(judge_queue.result(attempt(f"greedy{i}"), "greedy", FOREVER))
        for i in range(20)
    ]
    await until(lambda: judge_queue.waiting == 19)
    work.append(asyncio.create_task(judge_queue.result(attempt("modest"), "modest", FOREVER)))
    await until(lambda: judge_queue.waiting == 20)
    gate.open.set()
    await asyncio.gather(*work)
    assert gate.order.index("modest") <= 2


async def test_equal_work_is_judged_once() -> None:
    gate = Gate()
    gate.open.clear()
    judge_queue = JudgeQueue(Reward(gate))
    work = [
        asyncio.create_task(judge_queue.result(attempt("same"), f"client{i}", FOREVER))
        for i in range(8)
    ]
    await until(lambda: judge_queue.in_flight == 1)
    gate.open.set()
    answers = await asyncio.gather(*work)
    assert gate.asked == {"same": 1}
    assert sorted(answer.source for answer in answers) == ["judged", *["shared"] * 7]
    assert (await judge_queue.result(attempt("same"), "late", FOREVER)).source == "remembered"


async def test_few_verdicts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prill.service.judge_queue.MAX_REMEMBERED", 2)
    gate = Gate()
    judge_queue = JudgeQueue(Reward(gate))
    for id in ("used", "old", "used", "new", "used", "old"):
        await judge_queue.result(attempt(id), "c", FOREVER)
    assert gate.asked == {"old": 2, "used": 1, "new": 1}


async def test_what_failed_is_not_remembered() -> None:
    gate = Gate()
    judge_queue = JudgeQueue(Reward(gate))
    for _ in range(2):
        assert (
            await judge_queue.result(attempt("x", "timeout"), "c", FOREVER)
        ).result.reward is None
    assert gate.asked == {"x": 2}


async def test_patience_ends_and_work_goes_on() -> None:
    gate = Gate(concurrency=1)
    gate.open.clear()
    judge_queue = JudgeQueue(Reward(gate))
    with pytest.raises(BusyError) as busy:
        await judge_queue.result(attempt("begun"), "c", later(0.01))
    assert busy.value.after >= 1
    with pytest.raises(BusyError):
        await judge_queue.result(attempt("waiting"), "c", later(0.01))
    assert judge_queue.waiting == 0  # nobody waits for it any more
    gate.open.set()
    await until(lambda: judge_queue.in_flight == 0)
    assert (await judge_queue.result(attempt("begun"), "c", FOREVER)).source == "remembered"
    assert gate.asked == {"begun": 1}


async def test_a_judge_that_breaks_costs_its_own() -> None:
    gate = Gate(concurrency=1)
    judge_queue = JudgeQueue(Reward(gate))
    work = [
        judge_queue.result(attempt(goal, goal), "c", FOREVER) for goal in ("bug", "gone", "success")
    ]
    bug, gone, fine = await asyncio.gather(*work, return_exceptions=True)
    # and none of its words
    assert isinstance(bug, JudgeError) and str(bug) == "the judge raised KeyError"
    assert isinstance(gone, JudgeError) and "unreachable" in str(gone)
    assert not isinstance(fine, BaseException) and fine.result.reward == 1.0


async def test_requests_are_admitted_in_turn() -> None:
    queue, inside, most = AdmissionQueue(2, 100), 0, 0

    async def visit(client: str) -> None:
        nonlocal inside, most
        async with queue.admitted(client, FOREVER):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(visit(f"client{i % 3}") for i in range(50)))
    assert (most, queue.active, queue.waiting) == (2, 0, 0)


async def test_clients_take_turns_at_admission_too() -> None:
    queue, order = AdmissionQueue(1, 100), list[str]()

    async def visit(client: str) -> None:
        async with queue.admitted(client, FOREVER):
            order.append(client)

    async with queue.admitted("greedy", FOREVER):
        visits = [asyncio.create_task(visit(client)) for client in (*["greedy"] * 8, "modest")]
        await until(lambda: queue.waiting == 9)
    await asyncio.gather(*visits)
    assert order.index("modest") == 1


async def test_too_many_requests_are_refused() -> None:
    queue = AdmissionQueue(1, 1)
    async with queue.admitted("a", FOREVER):
        waiting = asyncio.create_task(queue.admitted("b", later(0.05)).__aenter__())
        await until(lambda: queue.waiting == 1)
        with pytest.raises(BusyError, match="too many"):
            await queue.admitted("c", FOREVER).__aenter__()
        with pytest.raises(BusyError, match="busy"):
            await waiting
        assert queue.waiting == 0
    await asyncio.wait_for(queue.empty(), 30)


async def test_a_place_given_to_nobody_is_free() -> None:
    """Whoever leaves just as its turn comes passes the place on."""
    queue = AdmissionQueue(1, 10)
    first = queue.admitted("a", FOREVER)
    await first.__aenter__()
    waiting = asyncio.create_task(queue.admitted("b", FOREVER).__aenter__())
    await until(lambda: queue.waiting == 1)
    await first.__aexit__(None, None, None)  # the turn is b's now
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert queue.active == 0
    async with asyncio.timeout(30), queue.admitted("c", FOREVER):
        pass


async def test_a_closed_door_lets_the_waiting_in() -> None:
    queue = AdmissionQueue(1, 10)
    first = queue.admitted("a", FOREVER)
    await first.__aenter__()
    second = queue.admitted("b", FOREVER)
    waiting = asyncio.create_task(second.__aenter__())
    await until(lambda: queue.waiting == 1)
    queue.close()
    with pytest.raises(BusyError, match="shutting down"):
        await queue.admitted("c", FOREVER).__aenter__()
    await first.__aexit__(None, None, None)
    await waiting
    await second.__aexit__(None, None, None)
    await asyncio.wait_for(queue.empty(), 30)
