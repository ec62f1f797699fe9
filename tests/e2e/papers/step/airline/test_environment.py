"""The airline's desk as an environment: tasks and errors by themselves, an episode in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.emulators.browser.chromium import Chromium
from prill.emulators.shop import ShopPlay
from prill.episodes.loop import run_episode
from prill.papers.step.airline.desk.world import TASKS, scenario, solution
from prill.papers.step.airline.environment import LIMITS, PUBLIC, Airline, AirlineSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_episode_ends_when_it_is_done(browser: Chromium, tmp_path: Path) -> None:
    environment = Airline(tmp_path, browser=browser)
    task = await environment.task("cancel-flight", 3)
    done = await run_episode(ShopPlay(solution("TASK_CANCEL_FLIGHT", 3)), environment, task, id="e")
    label = await environment.grade(done)
    assert (done.error, done.metadata["ended_by"], len(done.steps)) == (None, "environment", 6)
    assert (label.success, label.note) == (True, "progress 1.00")
    assert {
        str(step.observation.url).partition("/?")[0].partition("/find")[0]
        for step in done.steps[:2]
    } == {PUBLIC}
    # The same scenario begins again, and half of it is some of the way.
    half = await run_episode(
        ShopPlay(solution("TASK_CANCEL_FLIGHT", 3)[:4]), environment, task, id="f"
    )
    label = await environment.grade(half)
    assert (half.metadata["ended_by"], label.success, label.note) == (
        "agent",
        False,
        "progress 0.67",
    )
    await environment.close()


async def test_limit_ends_an_episode(
    browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "find-booking", 1)
    ended = {}
    for limited in (True, False):
        environment = Airline(tmp_path, AirlineSpec(limited=limited), browser=browser)
        task = await environment.task("find-booking", 0)
        played = await run_episode(
            ShopPlay(["click [link 'Help']", "stop []"]), environment, task, id="e"
        )
        ended[limited] = played.metadata["ended_by"]
        await environment.close()
    assert ended == {True: "environment", False: "agent"}


async def test_goals_say_all_that_is_wanted(browser: Chromium, tmp_path: Path) -> None:
    environment = Airline(tmp_path, browser=browser)
    for name, kind in zip(environment.tasks(), TASKS, strict=True):
        details = scenario(kind, 7).details
        task = await environment.task(name, 7)
        for part in details.values():
            for value in part.values() if isinstance(part, dict) else [part]:
                assert str(value) in task.goal
        assert (task.id, task.site, task.start_url) == (
            f"airline/{name}?seed=7",
            "airline",
            f"{PUBLIC}/?scenario={kind}-07",
        )
