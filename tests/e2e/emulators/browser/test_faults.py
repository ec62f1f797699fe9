"""Browsers that die, stop or do not start: the next episode has a new one, and no process is left
behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.errors import EnvironmentFailedError
from prill.types import Action, Task
from tests.support.chromium import need_chromium
from tests.support.emulators.pages import Site, head, number
from tests.support.killing import below

need_chromium()
pytestmark = pytest.mark.asyncio(loop_scope="module")
# Seconds; far more than the bounds asked for, since other work may slow the machine, and far less
# than for ever.
PATIENCE = 90.0


def processes() -> dict[int, str]:
    """The browsers below this process, and what drives them, with their command lines; not what
    other tests started.
    """
    return {
        pid: command
        for pid, command in below(os.getpid()).items()
        if "chrom" in command or "playwright" in command
    }


def browser_process() -> int:
    """The browser itself, above its renderers."""
    return next(
        pid
        for pid, command in processes().items()
        if "--remote-debugging" in command and "--type=" not in command
    )


async def no_process_is_left() -> None:
    """A process that was told to end may need a moment for it."""
    end = time.monotonic() + PATIENCE
    while processes() and time.monotonic() < end:
        await asyncio.sleep(0.05)
    assert processes() == {}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_dead_browser_ends_only_its_episodes(
    site: Site, tmp_path: Path, how: signal.Signals
) -> None:
    browser = Chromium()
    pair = [
        BrowserEnvironment(tmp_path, PageSpec(answer_timeout=5.0), browser=browser)
        for _ in range(2)
    ]
    task = Task(goal="g", start_url=f"{site.url}/two")
    for environment in pair:
        await environment.reset(task)
    os.kill(browser_process(), how)
    async with asyncio.timeout(PATIENCE):
        broken = await asyncio.gather(
            *(one.step(Action("wait")) for one in pair), return_exceptions=True
        )
        assert [type(failure) for failure in broken] == [
            EnvironmentFailedError,
            EnvironmentFailedError,
        ]
        # The second has the browser that failed to give back, and must not take the new one from
        # the first.
        for environment in pair:
            await environment.reset(task)
        new = browser_process()
        for environment in pair:
            seen, _ = await environment.step(Action("click", target="button 'press me'"))
            assert head(seen) == ["Tab 0 (current): Done"]
            await environment.close()
        assert browser_process() == new
        await browser.close()
    await no_process_is_left()


async def test_browser_that_cannot_start_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRILL_CHROMIUM", "/bin/false")
    environment = BrowserEnvironment(tmp_path)
    with pytest.raises(EnvironmentFailedError, match="Chromium does not start"):
        await environment.reset(Task(goal="g"))
    await environment.close()
    await environment.close()


@pytest.mark.slow
async def test_twenty_episodes_leave_nothing_behind(site: Site, tmp_path: Path) -> None:
    browser = Chromium()
    environment = BrowserEnvironment(tmp_path, browser=browser)
    used: list[tuple[int, int, int]] = []
    try:
        for episode in range(20):
            seen = await environment.reset(Task(goal="g", start_url=f"{site.url}/two"))
            await environment.step(Action("click", target=number(seen, "button")))
            if episode % 4 == 0:
                await environment.step(Action("new_tab"))
            await environment.finish()
            used.append(
                (
                    len(processes()),
                    len(list(Path("/proc/self/fd").iterdir())),
                    len(asyncio.all_tasks()),
                )
            )
    finally:
        await environment.close()
        await browser.close()
    # Chromium keeps a spare renderer or two; what leaks in every episode would be fifteen.
    for first, last in zip(used[4], used[-1], strict=True):
        assert last <= first + 4, used
    await no_process_is_left()
