"""BrowserGym's tasks in our loop: actions become its calls everywhere; its real environments run
where it is installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import time
from pathlib import Path

import pytest
from PIL import Image

from prill.emulators.browser.chromium import chromium_path
from prill.emulators.browsergym.environment import BrowserGym, _middle, format_call
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, Observation, Step, Task
from tests.support.killing import below


@pytest.mark.parametrize(
    ("action", "call"),
    [
        (Action("click", target="[12] button 'OK', clickable"), "click('12')"),
        (Action("click", target="a7"), "click('a7')"),
        (Action("click", point=(0.5, 0.25)), "mouse_click(250, 100)"),
        (Action("hover", target="[3]"), "hover('3')"),
        (Action("hover", point=(0.1, 0.1)), "mouse_move(50, 40)"),
        (Action("type", target="[4] textbox ''", value="it's"), "fill('4', \"it's\")"),
        (Action("type", target="4", value="tea\n"), "fill('4', 'tea')\npress('4', 'Enter')"),
        (Action("type", value="tea\n"), "keyboard_type('tea')\nkeyboard_press('Enter')"),
        (
            Action("type", point=(0.0, 1.0), value="tea"),
            "mouse_click(0, 400)\nkeyboard_type('tea')",
        ),
        (Action("press", value="ctrl+a"), "keyboard_press('Control+a')"),
        (Action("press", target="4", value="RETURN"), "press('4', 'Enter')"),
        (Action("select", target="9", value="red"), "select_option('9', 'red')"),
        (Action("scroll", value="down"), "scroll(0, 400)"),
        (Action("scroll", target="5", value="up"), "hover('5')\nscroll(0, -400)"),
        (Action("scroll", point=(0.5, 0.5), value="left"), "scroll_at(250, 200, -500, 0)"),
        (
            Action("swipe", point=(0.0, 0.0), end_point=(1.0, 1.0)),
            "mouse_drag_and_drop(0, 0, 500, 400)",
        ),
        (Action("swipe", target="[1] image 'a'", value="[2] image 'b'"), "drag_and_drop('1', '2')"),
        (Action("back"), "go_back()"),
        (Action("forward"), "go_forward()"),
        (Action("goto", value="https://a.example/?q='"), 'goto("https://a.example/?q=\'")'),
        (Action("new_tab"), "new_tab()"),
        (Action("close_tab"), "tab_close()"),
        (Action("focus_tab", value="1"), "tab_focus(1)"),
        (Action("wait"), "noop(1000)"),
        (Action("wait", value="0.5"), "noop(500)"),
        (Action("answer", value='42 "x"'), "send_msg_to_user('42 \"x\"')"),
        (Action("stop"), "send_msg_to_user('')"),
    ],
)
def test_action_becomes_the_same_call(action: Action, call: str) -> None:
    assert format_call(action, 500, 400) == call


async def test_missing_browsergym_says_what_to_get(tmp_path: Path) -> None:
    if importlib.util.find_spec("browsergym") is not None:
        pytest.skip("browsergym is installed")
    environment = BrowserGym(tmp_path)
    with pytest.raises(UsageError, match=r"pip install .*\[browsergym\]"):
        await environment.task("miniwob.click-test", 0)
    await environment.close()


def missing() -> str | None:
    """Why the tests of the real thing cannot run here."""
    for module, package in (("browsergym", "browsergym-core"), ("miniwob", "miniwob")):
        if importlib.util.find_spec(module) is None:
            return (
                f"{package} is not installed: pip install browsergym-miniwob (in an "
                "environment of its own)"
            )
    if importlib.util.find_spec("browsergym.miniwob") is None:
        return "browsergym-miniwob is not installed: pip install browsergym-miniwob"
    try:
        chromium_path()
    except UsageError as error:
        return str(error)
    return None


real = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class EnterText:
    """Types what the goal says into the text field and submits, by the tree."""

    def reset(self, task: Task) -> None:
        self.word = re.findall(r'"(.*?)"', task.goal)[0]
        self.left = ["textbox", "button"]

    async def act(self, observation: Observation) -> Step:
        if not self.left:
            return Step(observation, Action("stop", "stop", value="done"))
        role = self.left.pop(0)
        line = next(line for line in (observation.text or "").splitlines() if f"] {role} " in line)
        return Step(
            observation,
            Action("type" if role == "textbox" else "click", target=line, value=self.word),
        )


@pytest.mark.parametrize(
    ("box", "middle"),
    [
        ((10, 20, 20, 40), (0.2, 0.2)),
        ((90, 190, 40, 40), (0.95, 0.975)),
        ((120, 0, 5, 5), None),
        ((10, 10, 0, 5), None),
    ],
)
def test_middle_is_of_what_is_seen(
    box: tuple[float, float, float, float], middle: tuple[float, float] | None
) -> None:
    assert _middle(box, 100, 200) == middle
    assert _middle(None, 100, 200) is None


@real
async def test_episode_is_graded_by_browsergym(tmp_path: Path) -> None:
    environment = BrowserGym(tmp_path / "images", slow_mo=0, pause=0.1)
    assert len(await environment.tasks("miniwob")) > 100
    task = await environment.task("miniwob.enter-text", 3)
    assert (task.site, task.id) == ("miniwob", "browsergym/miniwob.enter-text?seed=3")
    trajectory = await run_episode(EnterText(), environment, task, id="x")
    assert trajectory.metadata["ended_by"] == "environment", trajectory.error
    label = await environment.grade(trajectory)
    assert (label.success, label.note) == (True, "reward 1")
    for seen in trajectory.observations:
        with Image.open(str(seen.screenshot)) as picture:
            assert picture.size == (498, 321)  # a window of 332 x 214, enlarged by half
        assert "[" in (seen.text or "")
    field, button = (step.action for step in trajectory.steps[:2])
    assert field.point is not None and button.point is not None
    # the field stands above the button, both in the upper part
    assert field.point[1] < button.point[1] < 0.7
    assert "textbox" in str(field.target) and "button 'Submit'" in str(button.target)
    again = await environment.task("miniwob.enter-text", 3)
    assert again.goal == task.goal
    assert (await environment.reset(again)).text == trajectory.observations[0].text
    await environment.close()
    await environment.close()


@real
async def test_dead_host_breaks_one_episode_off(tmp_path: Path) -> None:
    environment = BrowserGym(tmp_path, slow_mo=0, pause=0.1)
    task = await environment.task("miniwob.click-test", 1)
    await environment.reset(task)
    first = set(below(os.getpid()))
    os.kill(host(), signal.SIGKILL)
    with pytest.raises(EnvironmentFailedError, match="BrowserGym failed"):
        await environment.step(Action("wait", value="0"))
    assert (await environment.reset(task)).text
    second = set(below(os.getpid()))
    await environment.close()
    assert await left_of(first | second) == set()


def host() -> int:
    """The one host that this process has started."""
    (pid,) = (pid for pid, command in below(os.getpid()).items() if "browsergym.host" in command)
    return pid


async def left_of(pids: set[int], seconds: float = 20) -> set[int]:
    """Which of the processes are still there after a while; those that have ended but were not
    collected do not count.
    """
    end = time.monotonic() + seconds
    while (there := {pid for pid in pids if running(pid)}) and time.monotonic() < end:
        await asyncio.sleep(0.1)
    return there


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
