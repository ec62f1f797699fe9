"""Which earlier steps a step is shown: groups of like steps, both orders, and the baselines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from prill.papers.embedders import normalized
from prill.papers.mind2web.mindact.memory import History, Order, Recall, Snippet, build_memory
from prill.papers.mind2web.pages.state import PageState
from prill.types import Task, Trajectory
from tests.support.papers.conversations import turn

STATE = PageState("<html/>", ("11",))


class Hashing:
    """Counts of words, each at the place that its hash tells; keeps what it was asked."""

    name = "hashing"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        self.asked.append(list(texts))
        rows = np.zeros((len(texts), 512), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[int(hashlib.sha256(word.encode()).hexdigest(), 16) % 512] += 1
        return normalized(rows)


def conversation(*turns: Trajectory, goal: str = "and towels") -> Task:
    return Task(id="now", goal=goal, earlier=turns)


TASK = conversation(
    turn("t0", "find red kettles", "[a]  kettles -> CLICK"),
    turn(
        "t1",
        "add two blue towels",
        "[a]  towels -> CLICK",
        "[a]  towels -> CLICK",
        "[b]  Add -> CLICK",
    ),
    turn("t2", "show the basket", "[a]  basket -> CLICK"),
    goal="add more blue towels",
)


def places(snippets: Sequence[Snippet]) -> list[tuple[int, int]]:
    return [(snippet.turn, snippet.step) for snippet in snippets]


async def recalled(
    task: Task,
    history: History,
    most: int = 1,
    order: Order = "relevance",
    past: tuple[str, ...] = (),
) -> list[tuple[int, int]]:
    recall = Recall(history, most, order, Hashing())
    return places(await recall(build_memory(task), task, PageState("<html/>", ("11",), past)))


def test_past_actions_restart_in_each_turn() -> None:
    memory = build_memory(TASK)
    assert places(memory) == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert [len(snippet.past) for snippet in memory] == [0, 0, 1, 2, 0]
    assert (
        memory[3].past == ("[a]  towels -> CLICK", "[a]  towels -> CLICK")
        and memory[3].key == "t1_u2"
    )
    assert build_memory(Task(goal="the first turn")) == ()


async def test_a_small_memory_is_shown_whole() -> None:
    assert await recalled(TASK, "matched", 5) == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    hashing = Hashing()
    memory = build_memory(TASK)
    await Recall("matched", 5, "relevance", hashing)(memory, TASK, STATE)
    assert hashing.asked == []


async def test_like_steps_are_one_group() -> None:
    assert await recalled(TASK, "matched", 1, past=("[a]  towels -> CLICK",)) == [(1, 0), (1, 1)]
    assert await recalled(TASK, "matched", 2) == [(1, 0), (1, 1), (1, 2)]
    hashing = Hashing()
    await Recall("matched", 2, "relevance", hashing)(
        build_memory(TASK), TASK, PageState("", (), ("x", "y"))
    )
    query, *texts = hashing.asked[0]
    assert query == "Task: add more blue towels\nActions: x; y"
    assert len(texts) == len(set(texts)) == 4


async def test_orders_are_relevance_and_time() -> None:
    task = conversation(*TASK.earlier, goal="show the basket and kettles")
    past = ("[a]  basket -> CLICK",)
    assert await recalled(task, "matched", 2, "relevance", past) == [(2, 0), (0, 0)]
    assert await recalled(task, "matched", 2, "relevance_reversed", past) == [(0, 0), (2, 0)]
    assert await recalled(task, "matched", 2, "time", past) == [(0, 0), (2, 0)]


async def test_baselines_show_what_they_should() -> None:
    task = conversation(
        *TASK.earlier, turn("t3", "pay", "[b]  Pay -> CLICK"), goal="add more blue towels"
    )
    assert await recalled(task, "none") == []
    assert await recalled(task, "all") == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0)]
    assert await recalled(task, "fixed") == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert await recalled(task, "turns") == [(1, 0), (1, 1), (1, 2)]
