"""MiniWoB++ when the browser fails: the episode ends within a bound, the next one starts clean, and
nothing is left behind.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from prill.emulators.browser.chromium import Chromium, Profile
from prill.emulators.miniwob.environment import MiniWoB
from prill.errors import EnvironmentFailedError
from prill.types import Action, Trajectory
from tests.support.chromium import need_chromium
from tests.support.killing import below

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

need_chromium("miniwob")

CLICK = Action("click", target='button "Click Me!"')


class Counting(Chromium):
    """A browser that keeps its contexts in sight."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: list[BrowserContext] = []

    async def context(
        self, width: int, height: int, scale: float = 1.0, *, profile: Profile | None = None
    ) -> BrowserContext:
        self.contexts.append(await super().context(width, height, scale, profile=profile))
        return self.contexts[-1]


async def solve(environment: MiniWoB, seed: int) -> None:
    task = await environment.task("click-test", seed)
    await environment.reset(task)
    _, done = await environment.step(CLICK)
    assert done
    assert (await environment.grade(Trajectory(id="x", task=task))).success


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="reads /proc, which Linux has"
)


@needs_proc
async def test_killed_browser_breaks_one_episode(tmp_path: Path) -> None:
    environment = MiniWoB(tmp_path)
    before = set(below(os.getpid()))
    await environment.reset(await environment.task("click-test", 0))
    main = [
        pid
        for pid, command in below(os.getpid()).items()
        if "--remote-debugging-pipe" in command and "--type=" not in command
    ]
    for pid in set(main) - before:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailedError, match="the browser failed"):
        await environment.step(CLICK)
    await solve(environment, 1)
    await environment.close()


async def test_hanging_page_breaks_one_episode(tmp_path: Path) -> None:
    browser = Counting()
    environment = MiniWoB(tmp_path, browser=browser, timeout=10)
    await environment.reset(await environment.task("click-test", 0))
    await browser.contexts[0].pages[0].evaluate("() => { setTimeout(() => { for (;;); }, 0); }")
    started = time.monotonic()
    with pytest.raises(EnvironmentFailedError, match="does not respond"):
        await environment.step(CLICK)
    assert time.monotonic() - started < 60
    environment = MiniWoB(tmp_path, browser=browser)
    await solve(environment, 1)
    await environment.close()
    await browser.close()


@needs_proc
async def test_fifty_episodes_leak_nothing(tmp_path: Path) -> None:
    browser = Counting()
    environment = MiniWoB(tmp_path, browser=browser)
    at_first = set(below(os.getpid()))

    def used() -> tuple[int, int, int]:
        gc.collect()
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return len(list(Path("/proc/self/fd").iterdir())), len(below(os.getpid())), memory

    for seed in range(10):
        await solve(environment, seed)
    handles, processes, memory = used()
    for seed in range(50):
        await solve(environment, seed)
    handles_then, processes_then, memory_then = used()
    assert handles_then <= handles + 2
    # Chromium keeps a spare process or not, as it likes.
    assert processes_then <= processes + 1
    assert memory_then - memory < 20_000_000
    assert len(browser.contexts) == 1
    await environment.close()
    await browser.close()
    end = time.monotonic() + 20
    while set(below(os.getpid())) - at_first and time.monotonic() < end:
        time.sleep(0.1)
    assert set(below(os.getpid())) <= at_first


async def test_a_page_that_is_not_drawn_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.async_api import CDPSession, Error

    send = CDPSession.send
    failed: list[str] = []

    async def late(self: CDPSession, method: str, *given: Any) -> Any:
        if method == "Page.captureScreenshot" and len(failed) < 2:
            failed.append(method)
            raise Error("Protocol error (Page.captureScreenshot): Unable to capture screenshot")
        return await send(self, method, *given)

    monkeypatch.setattr(CDPSession, "send", late)
    environment = MiniWoB(tmp_path)
    await solve(environment, 1)
    assert len(failed) == 2
    await environment.close()
