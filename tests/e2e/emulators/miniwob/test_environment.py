"""MiniWoB++ in the real Chromium. One browser serves the whole file; every episode has its own
profile.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from prill.io.store import encode_trajectory
from prill.policies.scripted.policy import Behaviour, ScriptedPolicy
from prill.policies.scripted.scripts import SCRIPTS
from prill.types import Action, LabelRecord, Trajectory
from tests.support.chromium import need_chromium

need_chromium("miniwob")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def environment(browser: Chromium, tmp_path: Path) -> AsyncIterator[MiniWoB]:
    environment = MiniWoB(tmp_path / "images", browser=browser, announce_end=False)
    yield environment
    await environment.close()


async def play(
    environment: MiniWoB, name: str, seed: int, behaviour: Behaviour
) -> tuple[Trajectory, LabelRecord]:
    trajectory = await run_episode(
        ScriptedPolicy(behaviour), environment, await environment.task(name, seed), id="one"
    )
    assert trajectory.error is None
    return trajectory, await environment.grade(trajectory)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
async def test_scripts_solve_by_the_pages_reward(environment: MiniWoB, name: str) -> None:
    trajectory, label = await play(environment, name, 3, "solve")
    assert label == LabelRecord(id="one", success=True, source="oracle", note="raw reward 1")
    assert trajectory.metadata["ended_by"] == "agent"


@pytest.mark.parametrize(
    ("behaviour", "name"),
    [
        ("wrong-target", "click-link"),
        ("wrong-target", "click-checkboxes"),
        ("wrong-target", "email-inbox"),
        ("stop-early", "login-user"),
        ("stop-early", "search-engine"),
        ("no-submit", "choose-list"),
        ("no-submit", "click-option"),
        ("false-claim", "click-button"),
        ("false-claim", "read-table"),
    ],
)
async def test_ways_to_fail_fail_by_reward(
    environment: MiniWoB, behaviour: Behaviour, name: str
) -> None:
    trajectory, label = await play(environment, name, 2, behaviour)
    assert label.success is False
    assert label.note == (
        "raw reward -1" if behaviour == "wrong-target" else "not submitted: raw reward 0"
    )
    assert trajectory.steps[-1].action.is_final


async def test_reward_is_not_in_the_record(environment: MiniWoB, tmp_path: Path) -> None:
    for behaviour in ("solve", "wrong-target"):
        trajectory, _ = await play(environment, "click-dialog-2", 1, behaviour)
        record = encode_trajectory(trajectory, tmp_path).decode()
        assert not [
            word for word in ("reward", "oracle", "wrong", "success", behaviour) if word in record
        ]


async def test_absent_element_changes_nothing(environment: MiniWoB) -> None:
    before = await environment.reset(await environment.task("click-button", 0))
    for action in (
        Action("click", target='button "no such"'),
        Action("type", target='button "okay"', value="x"),
        Action("select", target='button "okay"', value="x"),
        Action("press", value="NoSuchKey"),
        Action("other"),
    ):
        assert await environment.step(action) == (before, False)


async def test_episodes_have_own_clipboards(browser: Chromium, tmp_path: Path) -> None:
    environments = [MiniWoB(tmp_path, browser=browser) for _ in range(2)]
    words = ("first", "second")
    for environment, word in zip(environments, words, strict=True):
        await environment.reset(await environment.task("form-sequence-2", 0))
        await environment.step(Action("type", target="textbox", value=word))
        await environment.step(Action("press", value="Control+a"))
        await environment.step(Action("press", value="Control+c"))
    for environment, word in zip(environments, words, strict=True):
        await environment.step(Action("click", target="textbox #2"))
        after, _ = await environment.step(Action("press", value="Control+v"))
        assert after.text is not None
        assert f'textbox #2 value "{word}"' in after.text
        await environment.reset(await environment.task("form-sequence-2", 0))
        await environment.step(Action("click", target="textbox #2"))
        after, _ = await environment.step(Action("press", value="Control+v"))
        assert after.text is not None
        assert 'textbox #2 value ""' in after.text
        await environment.close()


async def test_page_time_passes_by_actions(browser: Chromium, tmp_path: Path) -> None:
    """The price of a stock changes ten times a second."""
    environment = MiniWoB(tmp_path, browser=browser, settle=0.2)
    task = await environment.task("stock-market", 0)
    prices = []
    for pause in (0.0, 0.5):
        await environment.reset(task)
        await asyncio.sleep(pause)
        prices.append(
            [
                (await environment.step(Action("wait", value=seconds)))[0].text
                for seconds in ("0", "3", "0")
            ]
        )
    assert prices[0] == prices[1]
    assert len(set(prices[0])) == 3
    await environment.close()


async def test_html_shows_what_can_be_seen(browser: Chromium, tmp_path: Path) -> None:
    environment = MiniWoB(tmp_path, browser=browser, text="html")
    task = await environment.task("click-tab-2", 1)
    seen = await environment.reset(task)
    assert seen.text is not None
    assert not [
        word
        for word in ("<script", "<style", "reward-display", "sync-task-cover")
        if word in seen.text
    ]
    assert seen.text.count('role="tabpanel"') == 1
    assert task.goal in re.sub(r"<[^>]*>", "", seen.text)
    whole = MiniWoB(tmp_path, browser=browser, text="html", hidden=True)
    assert ((await whole.reset(task)).text or "").count('role="tabpanel"') == 3

    await environment.reset(await environment.task("enter-text", 1))
    after, _ = await environment.step(Action("type", target="//input", value='a "b"'))
    assert after.text is not None
    tag = re.search(r"<input[^>]*>", after.text)
    assert tag is not None
    assert 'value="a &quot;b&quot;"' in tag[0]
    for target, typed in (
        (tag[0], "by its tag"),
        (re.sub(r'.*_ref="(\d+)".*', r"\1", tag[0]), "by its number"),
    ):
        after, _ = await environment.step(Action("type", target=target, value=typed))
        assert f'value="{typed}"' in (after.text or "")
    for nothing in ("//input[", "//no-such-tag", "9999"):
        assert (await environment.step(Action("click", target=nothing)))[0] == after
    await environment.close()
    await whole.close()


async def test_page_can_end_the_episode(browser: Chromium, tmp_path: Path) -> None:
    environment = MiniWoB(tmp_path, browser=browser)
    trajectory, label = await play(environment, "click-test-2", 1, "solve")
    assert trajectory.metadata["ended_by"] == "environment"
    assert label.success
    await environment.close()
    await environment.close()
