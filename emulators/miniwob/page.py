"""Page-level helpers for MiniWoB++: actions, text, screenshots, errors.

A page first loads `page_script()`. Targets are an element's line in the page's text, or a reference
as in html.js.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from prill.actions.keys import key_combination
from prill.emulators.browser.actions import OTHER_CLICKS, click_at
from prill.types import Action, Point

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Page


WIDTH, HEIGHT = 160, 210
# The default of `wait` in seconds of the page's time, as in BrowserGym.
WAIT = 1.0
_SCRIPTS = ("clock.js", "alone.js", "drawn.js", "html.js", "text.js")
_DRAG_STEPS = 8
_TIMES = re.compile(r"(?P<keys>.+?) x (?P<count>\d{1,9})")
_MAX_TIMES = 100
_HELD = ("Control", "Shift", "Alt", "Meta")


async def perform(page: Page, action: Action) -> tuple[float, float] | None:
    """Performs an action, and returns the pointer's position if it moved. An action on a missing
    element does nothing.

    `press` with `ArrowDown x 3` presses three times; `hold` and `release` are for Control, Shift,
    Alt and Meta. back, forward, home, goto and tab actions do nothing.
    """
    element = None if action.target is None else await _find(page, action.target)
    if action.target is not None and element is None:
        return None
    if action.kind in ("click", "hover", *OTHER_CLICKS):
        return await _point_at(page, action, element)
    if action.kind in ("swipe", "drag"):
        return await _drag(page, action, element)
    if action.kind == "type" and action.value is not None:
        await _type(page, element, action.value)
    elif action.kind == "press" and action.value:
        await _press(page, element, action.value)
    elif action.kind in ("hold", "release") and action.value:
        await _hold(page, action.kind, action.value)
    elif action.kind == "select" and element is not None:
        await element.evaluate("(el, value) => prillPage.select(el, value)", action.value or "")
    elif action.kind == "scroll":
        x, y = await _where(action.point, element) or (WIDTH / 2, HEIGHT / 2)
        scroll = "([x, y, down]) => prillPage.scroll(document.elementFromPoint(x, y), down)"
        await page.evaluate(scroll, [x, y, action.value != "up"])
    elif action.kind == "wait":
        await page.evaluate("(ms) => prillClock.advance(ms)", 1000 * _seconds(action.value))
    return None


async def located(page: Page, action: Action) -> Action:
    """Adds the click point of its element to the action, if it is visible."""
    element = (
        None
        if action.target is None or action.point is not None
        else await _find(page, action.target)
    )
    spot: list[float] | None = (
        None if element is None else await element.evaluate("(el) => prillPage.seen(el)")
    )
    if spot is None or not (0 <= spot[0] <= WIDTH and 0 <= spot[1] <= HEIGHT):
        return action
    return replace(action, point=(round(spot[0] / WIDTH, 4), round(spot[1] / HEIGHT, 4)))


async def _find(page: Page, target: str) -> ElementHandle | None:
    handle = await page.evaluate_handle("(target) => prillPage.find(target)", target)
    return handle.as_element()


async def _where(point: Point | None, element: ElementHandle | None) -> tuple[float, float] | None:
    """Returns the point to act on, in CSS pixels of the page; None if the element has no box."""
    if element is not None:
        centre: list[float] | None = await element.evaluate("(el) => prillPage.centre(el)")
        return None if centre is None else (centre[0], centre[1])
    return None if point is None else (point[0] * WIDTH, point[1] * HEIGHT)


async def _point_at(
    page: Page, action: Action, element: ElementHandle | None
) -> tuple[float, float] | None:
    if point := await _where(action.point, element):
        await page.mouse.move(*point)
        if action.kind != "hover":
            # Icons that change on hover have no size until the other image has loaded.
            await page.evaluate("() => prillDrawn()")
            await click_at(page, point, action.kind)
        return point
    if element is not None and action.kind == "click":
        # The options of a closed list have no box; a click on one selects it.
        await element.evaluate(
            "(el) => el.tagName === 'OPTION' && prillPage.select(el.closest('select'), el.value)"
        )
    return None


async def _drag(
    page: Page, action: Action, element: ElementHandle | None
) -> tuple[float, float] | None:
    """Drags from the target or point to `end_point`, or to the element that `value` names."""
    onto = await _find(page, action.value) if action.end_point is None and action.value else None
    end = await _where(action.end_point, onto)
    start = await _where(action.point, element)
    if start is None or end is None:
        return None
    await page.mouse.move(*start)
    await page.mouse.down()
    await page.mouse.move(*end, steps=_DRAG_STEPS)
    await page.mouse.up()
    return end


async def _type(page: Page, element: ElementHandle | None, value: str) -> None:
    """Replaces the element's text key by key; without an element, types into the focused one."""
    if element is None:
        return await page.keyboard.type(value)
    if not await element.evaluate("(el) => prillPage.editable(el)"):
        return
    kind = await element.get_attribute("type")
    if kind in ("date", "time", "month", "week", "datetime-local", "color", "range"):
        # The key order of these inputs depends on the browser's language, so the value is set.
        await element.evaluate("(el, value) => prillPage.set(el, value)", value)
        return
    await element.focus()
    await page.keyboard.press("Control+A")
    await page.keyboard.press("Delete")
    await page.keyboard.type(value)


async def _hold(page: Page, kind: str, key: str) -> None:
    name = key_combination(key)
    if name in _HELD:
        await (page.keyboard.down(name) if kind == "hold" else page.keyboard.up(name))


async def let_go(page: Page) -> None:
    """Releases every modifier key that an agent may still hold."""
    for name in _HELD:
        await page.keyboard.up(name)


async def _press(page: Page, element: ElementHandle | None, keys: str) -> None:
    from playwright.async_api import Error

    if times := _TIMES.fullmatch(keys):
        for _ in range(min(_MAX_TIMES, int(times["count"]))):
            await _press(page, element, times["keys"])
        return
    if element is not None:
        await element.focus()
    *modifiers, last = key_combination(keys).replace("++", "+plus").split("+")
    pressed: list[str] = []
    try:
        for key in modifiers:
            await page.keyboard.down(key)
            pressed.append(key)
        await page.keyboard.press("+" if last == "plus" else last)
    except Error as error:
        # An unknown key is the agent's error, not a browser failure.
        if "Unknown key" not in error.message:
            raise
    finally:
        for key in reversed(pressed):
            await page.keyboard.up(key)


def _seconds(value: str | None) -> float:
    """Parses the duration of `wait` in seconds, at most a minute."""
    try:
        return min(60.0, max(0.0, float(value or WAIT)))
    except ValueError:
        return WAIT


@cache
def page_script() -> str:
    """Returns the JavaScript that defines `prillClock`, `prillPage` and `prillHtml`; it has to run
    before the page's own scripts.
    """
    folder = resources.files("prill.emulators.miniwob")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
