"""Pages that are slow, never come, hang or crash: how long is waited, and what the record says. One
browser serves the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError
from prill.types import Action, Observation, Step, Task
from tests.support.chromium import need_chromium
from tests.support.emulators.pages import Site, head, number

need_chromium()
pytestmark = pytest.mark.asyncio(loop_scope="module")
# Seconds; far more than the bounds asked for, since other work may slow the machine, and far less
# than for ever.
PATIENCE = 90.0


@pytest_asyncio.fixture(loop_scope="module")
async def environment(browser: Chromium, tmp_path: Path) -> AsyncIterator[BrowserEnvironment]:
    """One with short bounds."""
    environment = BrowserEnvironment(
        tmp_path, PageSpec(navigation_timeout=3.0, answer_timeout=5.0), browser=browser
    )
    yield environment
    async with asyncio.timeout(PATIENCE):
        await environment.close()


class Once:
    """A policy that only knows one action."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def reset(self, task: Task) -> None:
        pass

    async def act(self, observation: Observation) -> Step:
        return Step(observation, self._action)


async def starts_clean(environment: BrowserEnvironment, site: Site) -> None:
    async with asyncio.timeout(PATIENCE):
        seen = await environment.reset(Task(goal="g", start_url=site.url))
        told, _ = await environment.step(Action("click", target=number(seen, "button 'alert'")))
    assert head(told) == ["Tab 0 (current): Home", "! a dialog said 'Saved!' and was answered OK"]


async def test_hanging_page_ends_the_episode(environment: BrowserEnvironment, site: Site) -> None:
    async with asyncio.timeout(PATIENCE):
        policy = Once(Action("click", target="button 'hang'"))
        trajectory = await run_episode(
            policy, environment, Task(goal="g", start_url=site.url), id="one"
        )
        seen, _ = await environment.step(Action("new_tab"))
        with pytest.raises(EnvironmentFailedError, match="the page does not respond at the start"):
            await environment.reset(Task(goal="g", start_url=f"{site.url}/hung"))
    assert trajectory.error == "the page does not respond after click"
    assert (len(trajectory.steps), trajectory.final) == (1, None)
    assert head(seen) == ["Tab 0:  | Tab 1 (current): "]
    await starts_clean(environment, site)


async def test_silent_page_keeps_the_agent_there(
    environment: BrowserEnvironment, site: Site
) -> None:
    seen = await environment.reset(Task(goal="g", start_url=site.url))
    async with asyncio.timeout(PATIENCE):
        clicked, _ = await environment.step(
            Action("click", target=number(seen, "link 'never answers'"))
        )
        gone, _ = await environment.step(Action("goto", value=f"{site.url}/never"))
        other, _ = await environment.step(Action("click", target=number(gone, "link 'to two'")))
    assert (clicked.url, head(clicked)[1:]) == (
        seen.url,
        ["! another page did not come within 3 s"],
    )
    assert (gone.url, head(gone)[1:]) == (seen.url, ["! no response within 3 s"])
    assert (other.url, head(other)) == (f"{site.url}/two", ["Tab 0 (current): Two"])


async def test_dead_start_page_is_a_failure(environment: BrowserEnvironment, site: Site) -> None:
    for address, said in (
        (
            "http://no-such-host.invalid",
            "http://no-such-host.invalid cannot be opened: net::ERR_NAME_NOT_RESOLVED",
        ),
        (f"{site.url}/broken", "/broken cannot be opened: its server responded with status 503"),
        (f"{site.url}/never", "/never cannot be opened: Timeout 3000ms exceeded"),
        ("no address", "no address cannot be opened: .*invalid URL"),
    ):
        with pytest.raises(EnvironmentFailedError, match=said):
            await environment.reset(Task(goal="g", start_url=address))
    await starts_clean(environment, site)


async def test_crashed_page_ends_the_episode(environment: BrowserEnvironment, site: Site) -> None:
    seen = await environment.reset(Task(goal="g", start_url=site.url))
    session = await environment.page.context.new_cdp_session(environment.page)
    crash = asyncio.ensure_future(session.send("Page.crash"))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(
            EnvironmentFailedError,
            match="the page crashed|the page does not respond|the browser failed",
        ):
            while True:
                await environment.step(Action("click", target=number(seen, "button 'alert'")))
        with pytest.raises(EnvironmentFailedError, match="the page crashed"):
            await environment.step(Action("wait"))
        await starts_clean(environment, site)
        await asyncio.gather(crash, return_exceptions=True)


async def test_page_is_looked_at_once_settled(environment: BrowserEnvironment, site: Site) -> None:
    await environment.reset(Task(goal="g", start_url=site.url))
    late, _ = await environment.step(Action("click", target="button 'late'"))
    assert head(late) == ["Tab 0 (current): Late"]
    clock, _ = await environment.step(Action("goto", value=f"{site.url}/clock"))
    assert head(clock) == ["Tab 0 (current): Clock"]


async def test_loading_is_told_and_patience_is_an_option(
    browser: Chromium, site: Site, tmp_path: Path
) -> None:
    environment = BrowserEnvironment(tmp_path, PageSpec(patience=0.5), browser=browser)
    told = ["Tab 0 (current): Stuck", "! the page is still loading"]
    assert head(await environment.reset(Task(goal="g", start_url=f"{site.url}/stuck"))) == told
    assert head((await environment.step(Action("wait")))[0]) == told
    await environment.close()


@pytest.mark.parametrize(("quiet", "title"), [(0.1, "Early"), (1.5, "Late")])
async def test_quiet_is_an_option(
    browser: Chromium, site: Site, tmp_path: Path, quiet: float, title: str
) -> None:
    environment = BrowserEnvironment(tmp_path, PageSpec(quiet=quiet), browser=browser)
    await environment.reset(Task(goal="g", start_url=f"{site.url}/two"))
    await environment.page.evaluate(
        "document.title = 'Early'; setTimeout(() => { document.title = 'Late' }, 1000)"
    )
    seen, _ = await environment.step(Action("hover", point=(0.5, 0.5)))
    assert head(seen) == [f"Tab 0 (current): {title}"]
    await environment.close()


@pytest.mark.parametrize("pause", [None, 0.1])
async def test_slow_page_is_waited_for(
    browser: Chromium, site: Site, tmp_path: Path, pause: float | None
) -> None:
    environment = BrowserEnvironment(tmp_path, PageSpec(pause=pause), browser=browser)
    await environment.reset(Task(goal="g", start_url=site.url))
    seen, _ = await environment.step(Action("click", target="link 'slow'"))
    assert seen.url == f"{site.url}/slow"
    await environment.close()
