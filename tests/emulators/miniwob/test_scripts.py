"""Hard MiniWoB++ tasks are solved with the actions that there are: dragging, keys, the clipboard,
hovering, waiting.

The plays find their elements as an agent that reads HTML would, by XPath, and their places from the
picture.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Generator

import pytest
import pytest_asyncio

from prill.emulators.miniwob.environment import MiniWoB
from prill.types import Action, Trajectory
from tests.chromium import need_chromium

need_chromium("miniwob")

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUBMIT = Action("click", target="//button[starts-with(., 'Submit')]")
# A play is told the goal and the page, and after each action the page as it is then.
Plan = Generator[Action, str, None]
Play = Callable[[str, str], Plan]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MiniWoB]:
    environment = MiniWoB(tmp_path_factory.mktemp("images"), text="html")
    yield environment
    await environment.close()


def said(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, (pattern, text)
    return found[1]


def click(path: str) -> Action:
    return Action("click", target=path)


def press(keys: str) -> Action:
    return Action("press", value=keys)


def drag_box(goal: str, page: str) -> Plan:
    yield Action("swipe", target="//*[@id='draggableSmall']", value="//*[@id='draggableLarge']")
    yield SUBMIT


def drag_shapes(goal: str, page: str) -> Plan:
    shape = {"circles": "circle", "triangles": "polygon", "rectangles": "rect"}[
        said(r"all (\w+)", goal)
    ]
    path = f"//*[local-name()='{shape}'][not(@id)]"
    for place in range(1, page.count(f"<{shape} ") + 1 - (shape == "rect")):
        yield Action("swipe", target=f"({path})[{place}]", value="//*[@id='shape-container']")
    yield SUBMIT


def drag_items(goal: str, page: str) -> Plan:
    name = said(r"Drag (\S+)", goal)
    yield Action("swipe", target=f"//li[.='{name}']", end_point=(0.3, 0.23))


def drag_circle(goal: str, page: str) -> Plan:
    x, y = (float(said(f' c{axis}="([\\d.]+)"', page)) for axis in "xy")
    across, down = {"up": (0, -25), "down": (0, 25), "left": (-25, 0), "right": (25, 0)}[
        said(r"circle (\w+)", goal)
    ]
    # The drawing begins below the instruction, at (2, 52).
    start, end = ((2 + x) / 160, (52 + y) / 210), ((2 + x + across) / 160, (52 + y + down) / 210)
    yield Action("swipe", point=start, end_point=end)
    yield SUBMIT


def highlight(goal: str, page: str) -> Plan:
    yield Action("swipe", point=(0.02, 0.32), end_point=(0.99, 0.37))
    yield SUBMIT


def use_slider(goal: str, page: str) -> Plan:
    wanted, now = int(said(r"Select (-?\d+)", goal)), int(said(r'id="val"[^>]*>(-?\d+)', page))
    for _ in range(abs(wanted - now)):
        yield Action(
            "press",
            target="//span[contains(@class, 'ui-slider-handle')]",
            value="up" if wanted > now else "down",
        )
    yield SUBMIT


def choose_date(goal: str, page: str) -> Plan:
    month, day = (int(said(pattern, goal)) for pattern in (r"(\d+)/", r"/(\d+)/"))
    yield click("//input[@id='datepicker']")
    for _ in range(12 - month):
        yield click("//a[@title='Prev']")
    yield click(f"//a[.='{day}']")
    yield SUBMIT


def text_editor(goal: str, page: str) -> Plan:
    yield click("//div[@class='ql-editor']")
    yield press("ctrl+a")
    style = said(r"style (bold|italic|underline)", goal)
    yield click(f"//button[@class='ql-{style}']")
    yield SUBMIT


def copy_paste(goal: str, page: str) -> Plan:
    place = int(said(r"the (\d)\w\w text area", goal)) if "text area " in goal else 1
    yield click(f"(//textarea)[{place}]")
    yield press("Control+A")
    yield press("Control+C")
    yield click("//input")
    yield press("Control+V")
    yield SUBMIT


def resize(goal: str, page: str) -> Plan:
    assert "height is larger" in goal
    yield Action(
        "swipe", target="//div[contains(@class, 'ui-resizable-se')]", end_point=(0.7, 0.76)
    )
    yield SUBMIT


def autocomplete(goal: str, page: str) -> Plan:
    yield Action("type", target="//input", value=said(r'starts with "([^"]+)"', goal))
    yield press("arrow down")
    yield press("RETURN")
    yield SUBMIT


def buy_stock(goal: str, page: str) -> Plan:
    limit = float(said(r"less than \$([\d.]+\d)", goal))
    while (
        float(said(r"\$(?:<[^>]*>)*([\d.]+\d)", page.split("Buy ", 1)[1].split("price", 2)[2]))
        >= limit
    ):
        page = yield Action("wait", value="0")
    yield click("//button")


def button_delay(goal: str, page: str) -> Plan:
    yield click("//button[.='ONE']")
    yield Action("wait", value=said(r"wait (\d+) seconds", goal))
    yield click("//button[.='TWO']")


def terminal(goal: str, page: str) -> Plan:
    page = yield Action("type", value="ls\n")
    wanted = said(r"extension (\.\w+)", goal) if "extension ." in goal else ""
    names = re.sub(r"<[^>]*>", " ", page).split(" ls ")[1].replace("user$", "").split()
    name = next(n for n in names if (n.endswith(wanted) if wanted else "." not in n))
    yield Action("type", value=f"rm {name}\n")


def click_menu(goal: str, page: str) -> Plan:
    for name in said(r"Select (.*)", goal).split(">"):
        yield Action("hover", target=f"//li/div[.='{name}']")
    yield click(f"//li/div[.='{name}']")


def folded_list(goal: str, page: str) -> Plan:
    country = said(r"Select (.*) from", goal)
    yield click(f"//option[.='{country}']")
    yield SUBMIT


def click_color(goal: str, page: str) -> Plan:
    colour = said(r"the (\w+) col", goal)
    yield click(f"//div[@data-color='{colour}']")


def spinner(goal: str, page: str) -> Plan:
    wanted = int(said(r"Select (-?\d+)", goal))
    for _ in range(abs(wanted)):
        yield click(f"//a[contains(@class, 'ui-spinner-{'up' if wanted > 0 else 'down'}')]")
    yield SUBMIT


PLAYS: dict[str, Play] = {
    "button-delay": button_delay,
    "choose-date": choose_date,
    "choose-list": folded_list,
    "click-color": click_color,
    "click-menu": click_menu,
    "copy-paste": copy_paste,
    "copy-paste-2": copy_paste,
    "drag-box": drag_box,
    "drag-circle": drag_circle,
    "drag-items": drag_items,
    "drag-shapes": drag_shapes,
    "highlight-text": highlight,
    "resize-textarea": resize,
    "stock-market": buy_stock,
    "terminal": terminal,
    "text-editor": text_editor,
    "use-autocomplete": autocomplete,
    "use-slider": use_slider,
    "use-spinner": spinner,
}


@pytest.mark.parametrize("name", PLAYS)
async def test_task_is_solved_by_actions(environment: MiniWoB, name: str) -> None:
    task = await environment.task(name, 3)
    seen = await environment.reset(task)
    plan, done = PLAYS[name](task.goal, seen.text or ""), False
    action = next(plan, None)
    while action is not None:
        assert not done
        seen, done = await environment.step(action)
        try:
            action = plan.send(seen.text or "")
        except StopIteration:
            action = None
    label = await environment.grade(Trajectory(id=name, task=task))
    assert (done, label.success) == (True, True), (
        task.goal,
        label.note,
        seen.screenshot,
        seen.text,
    )
