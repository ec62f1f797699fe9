"""What breaks in a browser ends the episode within its bound, says so, and the next episode starts clean."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from prill.emulators.browser import BrowserEnvironment
from prill.emulators.chromium import Chromium
from prill.errors import EnvironmentFailure
from prill.loop import rollout
from prill.types import Action, Observation, Step, Task

from .pages import Site, head, need_chromium, number, serving, tree

need_chromium()
pytestmark = pytest.mark.asyncio(loop_scope="module")
# Seconds; far more than the bounds asked for, since other work may slow the machine, and far less than for ever.
PATIENCE = 90.0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def environment(tmp_path: Path) -> AsyncIterator[BrowserEnvironment]:
    """One with short bounds and a browser of its own, so that it can be broken."""
    environment = BrowserEnvironment(tmp_path, navigation_timeout=3.0, answer_timeout=6.0)
    yield environment
    async with asyncio.timeout(PATIENCE):
        await environment.close()
    assert processes() == {}


class Once:
    """A policy that only knows one action."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def reset(self, task: Task) -> None:
        pass

    async def act(self, observation: Observation) -> Step:
        return Step(observation, self._action)


def processes() -> dict[int, str]:
    """The programs below this one that run now, with their command lines."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if state != "Z":
                parents[int(folder.name)], commands[int(folder.name)] = int(parent), command
    found: dict[int, str] = {}
    todo = [os.getpid()]
    while todo:
        above = todo.pop()
        for child in [one for one, parent in parents.items() if parent == above]:
            found[child] = commands[child]
            todo.append(child)
    return found


def browser_process() -> int:
    """The browser itself, above its renderers."""
    return next(pid for pid, command in processes().items() if "--remote-debugging" in command and "--type=" not in command)


async def starts_clean(environment: BrowserEnvironment, site: Site) -> None:
    async with asyncio.timeout(PATIENCE):
        seen = await environment.reset(Task(goal="g", start_url=site.url))
        told, _ = await environment.step(Action("click", target=number(seen, "button 'alert'")))
    assert head(told) == ["Tab 0 (current): Home", "! a dialog said 'Saved!' and was answered OK"]


async def test_a_page_that_hangs_after_a_click_ends_the_episode(environment: BrowserEnvironment, site: Site) -> None:
    seen = await environment.reset(Task(goal="g", start_url=site.url))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(EnvironmentFailure, match="the page does not answer after click"):
            await environment.step(Action("click", target=number(seen, "button 'hang'")))
    await starts_clean(environment, site)


async def test_a_page_that_hangs_while_it_loads_ends_the_episode(environment: BrowserEnvironment, site: Site) -> None:
    await environment.reset(Task(goal="g", start_url=site.url))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(EnvironmentFailure, match="the page does not answer after goto"):
            await environment.step(Action("goto", value=f"{site.url}/hung"))
        with pytest.raises(EnvironmentFailure, match="the page does not answer at the start"):
            await environment.reset(Task(goal="g", start_url=f"{site.url}/hung"))
    await starts_clean(environment, site)


async def test_a_hanging_tab_in_the_background_is_no_failure(environment: BrowserEnvironment, site: Site) -> None:
    await environment.reset(Task(goal="g", start_url=site.url))
    with pytest.raises(EnvironmentFailure):
        await environment.step(Action("goto", value=f"{site.url}/hung"))
    seen, _ = await environment.step(Action("new_tab"))
    assert head(seen) == ["Tab 0:  | Tab 1 (current): "]


async def test_a_page_that_never_answers_leaves_the_agent_where_it_was(environment: BrowserEnvironment, site: Site) -> None:
    seen = await environment.reset(Task(goal="g", start_url=site.url))
    async with asyncio.timeout(PATIENCE):
        clicked, _ = await environment.step(Action("click", target=number(seen, "link 'never answers'")))
        gone, _ = await environment.step(Action("goto", value=f"{site.url}/never"))
        other, _ = await environment.step(Action("click", target=number(gone, "link 'to two'")))
    assert (clicked.url, head(clicked)[1:]) == (seen.url, ["! another page did not come within 3 s"])
    assert (gone.url, head(gone)[1:]) == (seen.url, ["! no answer within 3 s"])
    assert (other.url, head(other)) == (f"{site.url}/two", ["Tab 0 (current): Two"])


async def test_pictures_and_fonts_that_never_come_do_not_hold_the_page_up(environment: BrowserEnvironment, site: Site) -> None:
    async with asyncio.timeout(PATIENCE):
        seen = await environment.reset(Task(goal="g", start_url=f"{site.url}/stuck"))
    assert "StaticText 'letters'" in tree(seen)


async def test_a_frame_that_never_comes_does_not_hold_the_page_up(environment: BrowserEnvironment, site: Site) -> None:
    async with asyncio.timeout(PATIENCE):
        seen = await environment.reset(Task(goal="g", start_url=f"{site.url}/advert"))
    assert "StaticText 'words'" in tree(seen)
    assert "button 'press me'" in tree(seen)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://no-such-host.invalid", "http://no-such-host.invalid cannot be opened: net::ERR_NAME_NOT_RESOLVED"),
        ("{site}/broken", "/broken cannot be opened: its server answered 503"),
        ("{site}/never", "/never cannot be opened: Timeout 3000ms exceeded"),
        ("no address", "no address cannot be opened: .*invalid URL"),
    ],
)
async def test_a_start_page_that_cannot_be_opened_is_no_fault_of_the_agent(
    environment: BrowserEnvironment, site: Site, address: str, said: str
) -> None:
    with pytest.raises(EnvironmentFailure, match=said):
        await environment.reset(Task(goal="g", start_url=address.replace("{site}", site.url)))
    await starts_clean(environment, site)


async def test_a_page_that_crashes_ends_the_episode(environment: BrowserEnvironment, site: Site) -> None:
    seen = await environment.reset(Task(goal="g", start_url=site.url))
    session = await environment.page.context.new_cdp_session(environment.page)
    crash = asyncio.ensure_future(session.send("Page.crash"))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(EnvironmentFailure, match="the page crashed|the page does not answer|the browser failed"):
            while True:
                await environment.step(Action("click", target=number(seen, "button 'alert'")))
        with pytest.raises(EnvironmentFailure, match="the page crashed"):
            await environment.step(Action("wait"))
        await starts_clean(environment, site)
        await asyncio.gather(crash, return_exceptions=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_browser_that_dies_or_stops_ends_the_episode(
    environment: BrowserEnvironment, site: Site, how: signal.Signals
) -> None:
    seen = await environment.reset(Task(goal="g", start_url=site.url))
    os.kill(browser_process(), how)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(EnvironmentFailure):
            await environment.step(Action("click", target=number(seen, "button 'alert'")))
        with pytest.raises(EnvironmentFailure):
            await environment.step(Action("wait"))
    await starts_clean(environment, site)


async def test_an_episode_that_runs_out_of_time_leaves_nothing_to_the_next_one(
    environment: BrowserEnvironment, site: Site
) -> None:
    task = Task(goal="g", start_url=site.url)
    await environment.reset(task)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await environment.step(Action("goto", value=f"{site.url}/never"))
    await starts_clean(environment, site)


async def test_a_browser_that_does_not_start_is_an_environment_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRILL_CHROMIUM", "/bin/false")
    environment = BrowserEnvironment(tmp_path)
    with pytest.raises(EnvironmentFailure, match="Chromium does not start"):
        await environment.reset(Task(goal="g"))
    await environment.close()
    await environment.close()


async def test_a_failure_is_on_the_record_of_the_episode(environment: BrowserEnvironment, site: Site) -> None:
    policy = Once(Action("goto", value=f"{site.url}/hung"))
    trajectory = await rollout(policy, environment, Task(goal="g", start_url=site.url), id="one")
    assert trajectory.error == "the page does not answer after goto"
    assert (len(trajectory.steps), trajectory.final) == (1, None)


@pytest.mark.slow
async def test_fifty_episodes_leave_no_processes_tabs_files_or_tasks_behind(site: Site, tmp_path: Path) -> None:
    browser = Chromium()
    environment = BrowserEnvironment(tmp_path, browser=browser)
    used: list[tuple[int, int, int]] = []
    for episode in range(50):
        seen = await environment.reset(Task(goal="g", start_url=f"{site.url}/two"))
        await environment.step(Action("click", target=number(seen, "button")))
        if episode % 10 == 0:
            await environment.step(Action("new_tab"))
        await environment.finish()
        used.append((len(processes()), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())))
    # Chromium keeps a spare renderer or two; what leaks in every episode would be tens.
    for first, last in zip(used[4], used[-1], strict=True):
        assert last <= first + 4, used
    await environment.close()
    await browser.close()
    end = time.monotonic() + PATIENCE
    while processes() and time.monotonic() < end:
        await asyncio.sleep(0.05)
    assert processes() == {}
