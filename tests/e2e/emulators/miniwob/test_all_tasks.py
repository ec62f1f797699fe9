"""Every task of MiniWoB++, in the real Chromium, every other one twice (PRILL_LONG=1: all): two
environments share one browser and take turns.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from prill.emulators.browser.chromium import Chromium, Profile
from prill.emulators.miniwob.environment import MiniWoB
from prill.types import Action, Observation, Task, Trajectory
from tests.support.chromium import need_chromium

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

need_chromium("miniwob")

SEED = 7
AGAIN = slice(None, None, 1 if os.environ.get("PRILL_LONG") else 2)
# What could outlive an episode: the pointer, the focus, a selection.
ACTIONS = (
    Action("click", point=(0.4, 0.45)),
    # Short: past the edge of a box with words in it, the browser itself would scroll, by the clock.
    Action("swipe", point=(0.3, 0.4), end_point=(0.45, 0.43)),
)
LITTER = (
    "() => { localStorage.x = sessionStorage.x = window.name = document.cookie = "
    "'left=behind'; window.left = 1; }"
)
TRACES = (
    "() => [localStorage.length, sessionStorage.length, window.name, document.cookie, typeof "
    "window.left]"
)


class Watched(Chromium):
    """A browser that notes what its pages ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self.contexts: list[BrowserContext] = []

    async def context(
        self, width: int, height: int, scale: float = 1.0, *, profile: Profile | None = None
    ) -> BrowserContext:
        context = await super().context(width, height, scale, profile=profile)
        context.on(
            "request",
            lambda request: self.asked.add(
                request.url.split("/")[2] if "//" in request.url else "data"
            ),
        )
        self.contexts.append(context)
        return context


@dataclass(frozen=True)
class Played:
    """One seed of a task: the task, its first state, the state after the actions, and the reward by
    then.
    """

    task: Task
    first: Observation
    last: Observation
    graded: str


@dataclass(frozen=True)
class Pass:
    """Every task, and those that were played again with the same seed."""

    once: dict[str, Played]
    again: dict[str, Played]
    browser: Watched


async def play(environment: MiniWoB, name: str) -> Played:
    task = await environment.task(name, SEED)
    first = last = await environment.reset(task)
    for action in ACTIONS:
        last, _ = await environment.step(action)
    label = await environment.grade(Trajectory(id=name, task=task))
    return Played(task, first, last, str(label.note))


async def play_all(images: Path) -> Pass:
    browser = Watched()
    once: dict[str, Played] = {}
    again: dict[str, Played] = {}

    async def work(environment: MiniWoB, waiting: list[str], played: dict[str, Played]) -> None:
        while waiting:
            name = waiting.pop()
            played[name] = await play(environment, name)

    names = list(MiniWoB.tasks())
    environments = [MiniWoB(images, browser=browser) for _ in range(2)]
    try:
        # In two orders, so that the episode before is another one each time.
        await asyncio.gather(
            work(environments[0], names[::-1], once), work(environments[1], names[AGAIN], again)
        )
    finally:
        for environment in environments:
            await environment.close()
        await browser.close()
    return Pass(once, again, browser)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Pass:
    return asyncio.run(play_all(tmp_path_factory.mktemp("images")))


def test_all_130_tasks_begin_and_act(played: Pass) -> None:
    assert len(played.once) == 130
    for name, one in played.once.items():
        assert one.task.goal, name
        assert "reward" in one.graded, name
        with Image.open(str(one.first.screenshot)) as picture:
            assert picture.size == (320, 420), name


def test_seed_decides_whatever_came_before(played: Pass) -> None:
    once, again = played.once, played.again
    assert len(again) >= 65
    assert {name for name in again if once[name].task != again[name].task} == set()
    assert {name for name in again if once[name].first.text != again[name].first.text} == set()
    assert {name for name in again if once[name].first != again[name].first} == set()


def test_same_actions_same_state_and_reward(played: Pass) -> None:
    once, again = played.once, played.again
    assert {name for name in again if once[name].last.text != again[name].last.text} == set()
    assert {name for name in again if once[name].last != again[name].last} == set()
    assert {name for name in again if once[name].graded != again[name].graded} == set()


async def test_pages_cannot_reach_the_network(tmp_path: Path) -> None:
    browser = Watched()
    environment = MiniWoB(tmp_path, browser=browser)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        called = threading.Event()
        thread = threading.Thread(target=lambda: accept(server, called))
        thread.start()
        try:
            await environment.reset(await environment.task("click-test", 0))
            page = browser.contexts[0].pages[0]
            await page.evaluate(
                "(url) => fetch(url).catch(() => null).then(() => 0)", f"http://{address}/"
            )
            await page.evaluate(
                "(url) => new Promise((done) => { const s = new WebSocket(url); s.onopen = "
                "s.onerror = () => done(); })",
                f"ws://{address}/",
            )
            assert not called.is_set()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            await environment.close()
            await browser.close()


def accept(server: socket.socket, called: threading.Event) -> None:
    try:
        connection, _ = server.accept()
    except OSError:
        return
    called.set()
    connection.close()


async def test_browser_state_does_not_carry_over(tmp_path: Path) -> None:
    browser = Watched()
    environment = MiniWoB(tmp_path, browser=browser)
    await environment.reset(await environment.task("click-test", 0))
    page = browser.contexts[0].pages[0]
    before = await page.evaluate(TRACES)
    await page.evaluate(LITTER)
    assert await page.evaluate(TRACES) != before
    await environment.reset(await environment.task("click-test", 1))
    assert await browser.contexts[0].pages[0].evaluate(TRACES) == before
    await environment.close()
    await browser.close()
