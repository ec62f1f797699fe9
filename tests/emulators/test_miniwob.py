"""MiniWoB++ in the real Chromium. One browser serves the whole file; every episode has its own profile."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from prill.agents.miniwob_scripts import SCRIPTS
from prill.agents.scripted import Behaviour, ScriptedPolicy
from prill.emulators.chromium import Chromium, chromium_path
from prill.emulators.miniwob import MiniWoB
from prill.errors import EnvironmentFailure, UsageError
from prill.loop import rollout
from prill.store import encode_trajectory
from prill.types import Action, LabelRecord, Task, Trajectory

for module in ("playwright", "miniwob"):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed", allow_module_level=True)
try:
    chromium_path()
except UsageError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Chromium]:
    browser = Chromium()
    yield browser
    await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def environment(browser: Chromium, tmp_path: Path) -> AsyncIterator[MiniWoB]:
    environment = MiniWoB(tmp_path / "images", browser=browser, announce_end=False)
    yield environment
    await environment.close()


async def play(environment: MiniWoB, name: str, seed: int, behaviour: Behaviour) -> tuple[Trajectory, LabelRecord]:
    trajectory = await rollout(ScriptedPolicy(behaviour), environment, await environment.task(name, seed), id="one")
    assert trajectory.error is None
    return trajectory, await environment.grade(trajectory)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
async def test_every_scripted_task_is_solved_by_the_page_s_own_reward(environment: MiniWoB, name: str) -> None:
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
async def test_every_way_to_fail_fails_by_the_page_s_own_reward(environment: MiniWoB, behaviour: Behaviour, name: str) -> None:
    trajectory, label = await play(environment, name, 2, behaviour)
    assert label.success is False
    assert label.note == ("raw reward -1" if behaviour == "wrong-target" else "not submitted: raw reward 0")
    assert trajectory.steps[-1].action.is_final


async def test_the_same_seed_gives_the_same_goal_text_and_picture(environment: MiniWoB) -> None:
    first, second, other = [await environment.task("social-media", seed) for seed in (5, 5, 6)]
    assert first == second
    assert first.goal != other.goal
    assert await environment.reset(first) == await environment.reset(second)
    assert (await environment.reset(first)).text != (await environment.reset(other)).text


async def test_the_last_state_shows_what_the_agent_left_after_the_page_gave_its_reward(environment: MiniWoB) -> None:
    trajectory, label = await play(environment, "enter-text", 1, "solve")
    typed = next(step.action.value for step in trajectory.steps if step.action.kind == "type")
    assert label.success
    assert trajectory.final is not None
    assert trajectory.final.text is not None
    assert f'textbox value "{typed}"' in trajectory.final.text
    with Image.open(str(trajectory.final.screenshot)) as shot:
        assert shot.size == (320, 420)
        # The yellow instruction; the cover that MiniWoB++ puts up at the end is nearly black.
        assert shot.convert("RGB").getpixel((310, 90)) == (255, 255, 0)


async def test_the_reward_is_nowhere_in_the_recorded_trajectory(environment: MiniWoB, tmp_path: Path) -> None:
    for behaviour in ("solve", "wrong-target"):
        trajectory, _ = await play(environment, "click-dialog-2", 1, behaviour)
        record = encode_trajectory(trajectory, tmp_path).decode()
        assert not [word for word in ("reward", "oracle", "wrong", "success", behaviour) if word in record]


async def test_an_action_on_something_that_is_not_there_changes_nothing(environment: MiniWoB) -> None:
    before = await environment.reset(await environment.task("click-button", 0))
    for action in (
        Action("click", target='button "no such"'),
        Action("type", target='button "okay"', value="x"),
        Action("select", target='button "okay"', value="x"),
        Action("press", value="NoSuchKey"),
        Action("other"),
    ):
        assert await environment.step(action) == (before, False)


async def test_a_click_can_be_given_as_a_fraction_of_the_task_area(environment: MiniWoB) -> None:
    await environment.reset(await environment.task("click-option", 0))
    after, _ = await environment.step(Action("click", point=(0.1, 0.27)))
    assert after.text is not None
    assert after.text.startswith('radio "AU" checked')


async def test_the_first_reward_stands(environment: MiniWoB) -> None:
    task = await environment.task("click-test-2", 1)
    await environment.reset(task)
    for name in ("TWO", "ONE"):
        await environment.step(Action("click", target=f'button "{name}"'))
    assert (await environment.grade(Trajectory(id="x", task=task))).success is False


async def test_the_page_ends_the_episode_when_asked_to(browser: Chromium, tmp_path: Path) -> None:
    environment = MiniWoB(tmp_path, browser=browser)
    trajectory, label = await play(environment, "click-test-2", 1, "solve")
    assert trajectory.metadata["ended_by"] == "environment"
    assert label.success
    await environment.close()
    await environment.close()


async def test_a_broken_off_episode_gets_no_label(environment: MiniWoB) -> None:
    broken = Trajectory(id="x", task=Task(goal="g"), error="the browser failed")
    assert (await environment.grade(broken)).success is None


async def test_a_browser_that_dies_breaks_the_episode_off_and_the_next_one_starts_another(tmp_path: Path) -> None:
    browser = Chromium()
    environment = MiniWoB(tmp_path, browser=browser)
    task = await environment.task("click-test-2", 1)
    await environment.reset(task)
    await browser.close()
    with pytest.raises(EnvironmentFailure, match="the browser failed"):
        await environment.step(Action("click", target='button "ONE"'))
    _, label = await play(environment, "click-test-2", 1, "solve")
    assert label.success
    await environment.close()
    await browser.close()


async def test_an_unknown_task_is_named(environment: MiniWoB) -> None:
    with pytest.raises(UsageError, match="no-such-task"):
        await environment.task("no-such-task", 0)
    with pytest.raises(UsageError, match="expected miniwob/<name>"):
        await environment.reset(Task(id="click-button", goal="g"))


async def test_the_browser_named_by_the_user_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRILL_CHROMIUM", "/no/such/browser")
    with pytest.raises(UsageError, match="PRILL_CHROMIUM=/no/such/browser"):
        chromium_path()
    monkeypatch.delenv("PRILL_CHROMIUM")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="apt-get install chromium"):
        chromium_path()
