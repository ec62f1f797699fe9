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
from PIL import Image

from prill.emulators.browser.chromium import Chromium, chromium_path
from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError, UsageError
from prill.io.store import encode_trajectory
from prill.policies.scripted.policy import Behaviour, ScriptedPolicy
from prill.policies.scripted.scripts import SCRIPTS
from prill.types import Action, LabelRecord, Task, Trajectory
from tests.chromium import need_chromium

need_chromium("miniwob")

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


async def test_recorded_place_is_the_element(environment: MiniWoB) -> None:
    trajectory, _ = await play(environment, "click-button", 3, "solve")
    click, stop = (step.action for step in trajectory.steps)
    assert (click.kind, stop.point) == ("click", None)
    assert click.target is not None and click.point is not None
    await environment.reset(trajectory.task)
    await environment.step(Action("click", point=click.point))
    assert (await environment.grade(trajectory)).success


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


async def test_same_seed_is_the_same_episode(environment: MiniWoB) -> None:
    first, second, other = [await environment.task("social-media", seed) for seed in (5, 5, 6)]
    assert first == second
    assert first.goal != other.goal
    assert await environment.reset(first) == await environment.reset(second)
    assert (await environment.reset(first)).text != (await environment.reset(other)).text


async def test_last_state_shows_what_was_left(environment: MiniWoB) -> None:
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


async def test_click_by_fraction_of_the_area(environment: MiniWoB) -> None:
    await environment.reset(await environment.task("click-option", 0))
    after, _ = await environment.step(Action("click", point=(0.1, 0.27)))
    assert after.text is not None
    assert after.text.startswith('radio "AU" checked')


async def test_half_covered_button_is_clicked(environment: MiniWoB) -> None:
    # With this seed the middle of button ONE is covered by button TWO.
    _, label = await play(environment, "click-test-2", 6, "solve")
    assert label.success


async def test_element_by_its_whole_line(environment: MiniWoB) -> None:
    seen = await environment.reset(await environment.task("click-checkboxes", 0))
    assert seen.text is not None
    line = seen.text.splitlines()[1]
    assert line.endswith(" unchecked")
    after, _ = await environment.step(Action("click", target=line))
    assert after.text is not None
    assert after.text.splitlines()[1] == line.removesuffix("unchecked") + "checked focused"


async def test_unknown_key_leaves_none_pressed(environment: MiniWoB) -> None:
    await environment.reset(await environment.task("enter-text", 0))
    await environment.step(Action("press", value="Control+NoSuchKey"))
    after, _ = await environment.step(Action("type", target="textbox", value="abc"))
    assert after.text is not None
    assert 'value "abc"' in after.text


async def test_line_end_presses_enter(environment: MiniWoB) -> None:
    await environment.reset(await environment.task("terminal", 0))
    after, _ = await environment.step(Action("type", value="help\n"))
    assert after.text is not None
    assert "ls" in after.text


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


async def test_hidden_elements_are_marked(browser: Chromium, tmp_path: Path) -> None:
    environment = MiniWoB(tmp_path, browser=browser, hidden=True)
    shown = (await environment.reset(await environment.task("click-tab-2", 1))).text or ""
    visible = [line for line in shown.splitlines() if not line.endswith(" hidden")]
    assert len(visible) < len(shown.splitlines())
    plain = MiniWoB(tmp_path, browser=browser)
    seen = await plain.reset(await plain.task("click-tab-2", 1))
    assert [re.sub(r" #\d+", "", line) for line in visible] == [
        re.sub(r" #\d+", "", line) for line in (seen.text or "").splitlines()
    ]
    await environment.close()
    await plain.close()


async def test_first_reward_of_two_stands(environment: MiniWoB) -> None:
    task = await environment.task("click-test-2", 1)
    await environment.reset(task)
    for name in ("TWO", "ONE"):
        await environment.step(Action("click", target=f'button "{name}"'))
    assert (await environment.grade(Trajectory(id="x", task=task))).success is False


async def test_page_can_end_the_episode(browser: Chromium, tmp_path: Path) -> None:
    environment = MiniWoB(tmp_path, browser=browser)
    trajectory, label = await play(environment, "click-test-2", 1, "solve")
    assert trajectory.metadata["ended_by"] == "environment"
    assert label.success
    await environment.close()
    await environment.close()


async def test_broken_episode_gets_no_label(environment: MiniWoB) -> None:
    broken = Trajectory(id="x", task=Task(goal="g"), error="the browser failed")
    assert (await environment.grade(broken)).success is None


async def test_dead_browser_breaks_one_episode(tmp_path: Path) -> None:
    browser = Chromium()
    environment = MiniWoB(tmp_path, browser=browser)
    task = await environment.task("click-test-2", 1)
    await environment.reset(task)
    await browser.close()
    with pytest.raises(EnvironmentFailedError, match="the browser failed"):
        await environment.step(Action("click", target='button "ONE"'))
    _, label = await play(environment, "click-test-2", 1, "solve")
    assert label.success
    await environment.close()
    await browser.close()


async def test_unknown_task_is_named(environment: MiniWoB) -> None:
    with pytest.raises(UsageError, match="no-such-task"):
        await environment.task("no-such-task", 0)
    with pytest.raises(UsageError, match="expected miniwob/<name>"):
        await environment.reset(Task(id="click-button", goal="g"))


async def test_named_browser_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRILL_CHROMIUM", "/no/such/browser")
    with pytest.raises(UsageError, match="PRILL_CHROMIUM=/no/such/browser"):
        chromium_path()
    monkeypatch.delenv("PRILL_CHROMIUM")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="apt-get install chromium"):
        chromium_path()


async def test_shapes_and_sliders_have_lines(environment: MiniWoB) -> None:
    seen = await environment.reset(await environment.task("drag-shapes", 3))
    assert (seen.text or "").splitlines()[:2] == ['shape "circle yellow"', 'shape "polygon blue"']
    seen = await environment.reset(await environment.task("use-slider", 3))
    before = int((seen.text or "").split('text "')[1].split('"')[0])
    after, _ = await environment.step(Action("press", target="slider", value="down"))
    assert f'text "{before - 1}"' in (after.text or "")
