"""Executes actions on a page with real mouse and keyboard events.

An action on an element that is missing, has no size or does not accept it does nothing. As in
WebArena, typing clicks the middle of the element and appends to its content (to replace it, an
agent first presses Control+a and Backspace), a click on a covered element hits the element on top,
and scrolling moves by the window's height. A drop-down list does not open its menu, which no
screenshot would show. A click focuses it; its options are clicked, chosen by `select`, or typed.
Date, time, colour and range inputs are set as a whole, in HTML's value format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from prill.actions.keys import key_combination
from prill.types import Action, Point

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page


# Longer texts are inserted at once, since typing key by key would take seconds.
_BY_KEYS = 500
_DRAG_STEPS = 10
_WAYS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
# Special clicks: the mouse button and the number of clicks.
OTHER_CLICKS: dict[str, tuple[Literal["left", "right", "middle"], int]] = {
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
}
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
# Returns true if it handled a drop-down list, whose menu must then not open.
_MENU = """function(chosen) {
  const el = this.nodeType === Node.ELEMENT_NODE ? this : this.parentElement;
  const menu = el && el.closest("select");
  if (!menu) return false;
  const squeeze = (text) => text.replace(/\\s+/g, " ").trim();
  let option = el.closest("option");
  if (chosen !== null) {
    const wanted = squeeze(chosen), options = [...menu.options];
    option = options.find((o) => squeeze(o.label) === wanted || squeeze(o.text) === wanted || o.value === wanted)
      || options.find((o) => squeeze(o.label).toLowerCase() === wanted.toLowerCase());
  } else if (menu.multiple || menu.size > 1) return false;
  if (menu.disabled) return true;
  menu.focus();
  if (!option || option.disabled || option.selected) return true;
  option.selected = true;
  for (const event of ["input", "change"]) menu.dispatchEvent(new Event(event, { bubbles: true }));
  return true;
}"""  # noqa: E501
# The key order of these inputs depends on the browser's language, so the whole value is set.
_SET = """function(value) {
  const kinds = ["date", "time", "month", "week", "datetime-local", "color", "range"];
  if (this.tagName !== "INPUT" || !kinds.includes(this.type) || this.disabled || this.readOnly) return false;
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set, before = this.value;
  set.call(this, value);
  if (this.value.toLowerCase() !== value.toLowerCase()) { set.call(this, before); return false; }
  this.focus();
  for (const event of ["input", "change"]) this.dispatchEvent(new Event(event, { bubbles: true }));
  return true;
}"""  # noqa: E501
_SCROLL = """function(across, down) {
  const doc = this.ownerDocument || this, view = doc.defaultView, root = doc.scrollingElement || doc.body;
  const moves = (el) => across ? el.scrollWidth > el.clientWidth : el.scrollHeight > el.clientHeight;
  const free = (el) => ["auto", "scroll", "overlay"].includes(getComputedStyle(el)[across ? "overflowX" : "overflowY"]);
  let el = this === doc ? null : this.nodeType === Node.ELEMENT_NODE ? this : this.parentElement;
  if (!el && root && !(moves(root))) el = doc.elementFromPoint(view.innerWidth / 2, view.innerHeight / 2);
  while (el && el !== root && !(moves(el) && free(el))) el = el.parentElement;
  if (!el || el === root) root.scrollBy({ left: across * view.innerWidth, top: down * view.innerHeight, behavior: "instant" });
  else el.scrollBy({ left: across * el.clientWidth, top: down * el.clientHeight, behavior: "instant" });
}"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class BrowserElement:
    """An element of the page: its CDP session, Chromium's backend node id, and the element of its
    frame.

    `owner` is None unless that frame runs in its own process.
    """

    session: CDPSession
    number: int
    owner: BrowserElement | None = None


async def perform(
    page: Page, session: CDPSession, action: Action, element: BrowserElement | None
) -> None:
    """Performs an action on the page, at its point if it has one, or else at the element.

    Actions on tabs and addresses do nothing here. `session` is the page's CDP session.
    """
    place: BrowserElement | Point | None = (
        element if action.point is None else pixels(page, action.point)
    )
    match action.kind:
        case "click":
            await _click(page, session, place)
        case kind if kind in OTHER_CLICKS:
            if spot := await _spot(page, place):
                await click_at(page, spot, action.kind)
        case "hover":
            if spot := await _spot(page, place):
                await page.mouse.move(*spot)
        case "type" if action.value is not None:
            if action.target is None or place is not None:
                await _type(page, session, place, action.value)
        case "press" if action.value:
            await _press(page, action.value)
        case "select" if action.value is not None:
            if (menu := await _element(session, place)) is not None:
                await _call(menu, _MENU, action.value)
        case "scroll":
            if action.target is None or place is not None:
                await _scroll(page, session, place, action.value or "down")
        case "swipe" | "drag" if action.end_point is not None:
            await _drag(page, place, pixels(page, action.end_point))
        case "swipe" if action.value in _OPPOSITE:
            # Swiping up scrolls the page down.
            await _scroll(page, session, place, _OPPOSITE[action.value])


async def click_at(page: Page, spot: Point, kind: str) -> None:
    """Clicks at a point in CSS pixels with the action's kind of click."""
    button, count = OTHER_CLICKS.get(kind, ("left", 1))
    await page.mouse.click(*spot, button=button, click_count=count)


async def _click(page: Page, session: CDPSession, target: BrowserElement | Point | None) -> bool:
    """Clicks; returns False if there is no element to click on."""
    element = await _element(session, target)
    if element is not None and await _call(element, _MENU, None):
        return True
    spot = await _spot(page, target)
    if spot is not None:
        await page.mouse.click(*spot)
    return spot is not None


async def _type(
    page: Page, session: CDPSession, place: BrowserElement | Point | None, value: str
) -> None:
    text, enter = value.removesuffix("\n"), value.endswith("\n")
    element = await _element(session, place)
    if element is not None and await _call(element, _MENU, text):
        return
    if element is not None and await _call(element, _SET, text):
        text = ""
    elif place is not None and not await _click(page, session, place):
        return
    if len(text) > _BY_KEYS:
        await page.keyboard.insert_text(text)
    elif text:
        await page.keyboard.type(text)
    if enter:
        await page.keyboard.press("Enter")


async def _press(page: Page, keys: str) -> None:
    from playwright.async_api import Error

    try:
        await page.keyboard.press(key_combination(keys))
    except Error as error:
        # An unknown key is the agent's error, not a browser failure.
        if "Unknown key" not in error.message:
            raise


async def _scroll(
    page: Page, session: CDPSession, target: BrowserElement | Point | None, way: str
) -> None:
    across, down = _WAYS.get(way, _WAYS["up" if "up" in way else "down"])
    element = await _element(session, target)
    if element is not None:
        await _call(element, _SCROLL, across, down)
    else:
        await page.evaluate(
            f"([across, down]) => ({_SCROLL}).call(document, across, down)", [across, down]
        )


async def _drag(page: Page, place: BrowserElement | Point | None, end: Point) -> None:
    if spot := await _spot(page, place):
        await page.mouse.move(*spot)
        await page.mouse.down()
        await page.mouse.move(*end, steps=_DRAG_STEPS)
        await page.mouse.up()


def pixels(page: Page, point: Point) -> Point:
    """Converts a point to CSS pixels of the window."""
    size = page.viewport_size or {"width": 0, "height": 0}
    # The far edge is on the screen, and must map to the last pixel.
    return (
        min(point[0] * size["width"], size["width"] - 1),
        min(point[1] * size["height"], size["height"] - 1),
    )


async def _spot(page: Page, target: BrowserElement | Point | None) -> Point | None:
    """Returns the point to act on, in CSS pixels of the window, after scrolling the element into
    view. None if the element has no size.
    """
    if not isinstance(target, BrowserElement):
        return target
    if target.owner is not None:
        await _ask(target.owner, "DOM.scrollIntoViewIfNeeded")
    await _ask(target, "DOM.scrollIntoViewIfNeeded")
    return await spot_in_window(page, target)


async def spot_in_window(page: Page, element: BrowserElement) -> Point | None:
    """Returns the element's click point in the window, in CSS pixels; None if not visible."""
    corner = (0.0, 0.0)
    if element.owner is not None:
        frame = await _ask(element.owner, "DOM.getBoxModel")
        if frame is None:
            return None
        corner = (frame["model"]["content"][0], frame["model"]["content"][1])
    quads = await _ask(element, "DOM.getContentQuads")
    size = page.viewport_size or {"width": 0, "height": 0}
    for quad in () if quads is None else quads["quads"]:
        left, right = (
            max(0, min(quad[::2]) + corner[0]),
            min(size["width"], max(quad[::2]) + corner[0]),
        )
        top, low = (
            max(0, min(quad[1::2]) + corner[1]),
            min(size["height"], max(quad[1::2]) + corner[1]),
        )
        if right > left and low > top:
            return ((left + right) / 2, (top + low) / 2)
    return None


async def _element(
    session: CDPSession, place: BrowserElement | Point | None
) -> BrowserElement | None:
    """Returns the element, or the one at the point."""
    if place is None or isinstance(place, BrowserElement):
        return place
    return await element_at(session, place)


async def element_at(session: CDPSession, point: Point) -> BrowserElement | None:
    """Returns the element or text at a point, in CSS pixels of the window."""
    node = await _sent(
        session, "DOM.getNodeForLocation", {"x": round(point[0]), "y": round(point[1])}
    )
    return None if node is None else BrowserElement(session, node["backendNodeId"])


async def _call(element: BrowserElement, function: str, *arguments: object) -> object:
    """Calls a function with the element as `this`; None if the element no longer exists."""
    node = await _ask(element, "DOM.resolveNode")
    if node is None:
        return None
    target = node["object"]["objectId"]
    values = [{"value": value} for value in arguments]
    reply = await _sent(
        element.session,
        "Runtime.callFunctionOn",
        {
            "objectId": target,
            "functionDeclaration": function,
            "arguments": values,
            "returnByValue": True,
            "userGesture": True,
        },
    )
    await _sent(element.session, "Runtime.releaseObject", {"objectId": target})
    return None if reply is None else reply["result"].get("value")


async def _ask(element: BrowserElement, method: str) -> Mapping[str, Any] | None:
    return await _sent(element.session, method, {"backendNodeId": element.number})


async def _sent(
    session: CDPSession, method: str, params: dict[str, Any]
) -> Mapping[str, Any] | None:
    """Sends a CDP command; None if the element does not exist or has no size."""
    from playwright.async_api import Error

    try:
        reply: Mapping[str, Any] = await session.send(method, params)
    except Error as error:
        # A closed browser or page raises without a protocol error.
        if (
            "Protocol error" not in error.message
            or "closed" in error.message
            or "crashed" in error.message
        ):
            raise
        return None
    return reply
