"""Executes actions on a page with real mouse and keyboard events.

An action that cannot be carried out returns the reason. Typing clicks the middle of the element
and replaces its content or, as in WebArena, appends to it. A click on a covered element hits the
element on top, as in WebArena; a hidden checkbox is clicked on its label. Scrolling moves by the
window's height. A drop-down list does not open its menu, which no screenshot would show. A click
focuses it; its options are clicked, chosen by `select`, or typed. Date, time, colour and range
inputs are set as a whole, in HTML's value format.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from prill.actions.keys import key_combination
from prill.types import Action, Point

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page


Typing = Literal["replace", "append"]
# Longer texts are inserted at once, since typing key by key would take seconds.
_BY_KEYS = 500
_DRAG_STEPS = 10
_SELECT_ALL = "Meta+a" if sys.platform == "darwin" else "Control+a"
# Seconds until a click has turned a text into a field.
_LATE_FIELD = 0.2
_WAYS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
# Special clicks: the mouse button and the number of clicks.
OTHER_CLICKS: dict[str, tuple[Literal["left", "right", "middle"], int]] = {
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
}
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
# Chooses in a drop-down list, whose menu must not open. Returns "" or the reason why not; null for
# another element.
_MENU = """function(chosen) {
  const el = this.nodeType === Node.ELEMENT_NODE ? this : this.parentElement;
  const menu = el && el.closest("select");
  if (!menu) return null;
  const squeeze = (text) => text.replace(/\\s+/g, " ").trim();
  let option = el.closest("option");
  if (chosen !== null) {
    const wanted = squeeze(chosen), options = [...menu.options];
    option = options.find((o) => squeeze(o.label) === wanted || squeeze(o.text) === wanted || o.value === wanted)
      || options.find((o) => squeeze(o.label).toLowerCase() === wanted.toLowerCase());
  } else if (menu.multiple || menu.size > 1) return null;
  if (menu.disabled || option?.disabled) return "it is disabled";
  menu.focus();
  if (!option && chosen !== null)
    return "no such option; it has " + [...menu.options].slice(0, 10).map((o) => JSON.stringify(squeeze(o.label))).join(", ");
  if (!option || option.selected) return "";
  option.selected = true;
  for (const event of ["input", "change"]) menu.dispatchEvent(new Event(event, { bubbles: true }));
  return "";
}"""  # noqa: E501
# Checks what a pointer at (x, y) of the window would hit; x is null if the element is not visible.
# Returns {} for the element, {spot} for the label that stands for it, or {why}.
_AIM = """function(x, y) {
  const el = this.nodeType === Node.ELEMENT_NODE ? this : this.parentElement;
  if (!el) return {};
  if (el.closest(":disabled")) return { why: "it is disabled" };
  let left = 0, top = 0;
  try {
    for (let view = el.ownerDocument.defaultView; view !== view.top; view = view.parent) {
      const frame = view.frameElement, at = frame.getBoundingClientRect();
      left += at.left + frame.clientLeft;
      top += at.top + frame.clientTop;
    }
  } catch { return {}; }
  const above = (node) => node.assignedSlot || node.parentElement || node.getRootNode().host;
  const isIn = (node, outer) => { while (node && node !== outer) node = above(node); return Boolean(node); };
  const hit = (x, y) => {
    let top_ = el.ownerDocument.elementFromPoint(x - left, y - top), inner;
    while ((inner = top_?.shadowRoot?.elementFromPoint(x - left, y - top)) && inner !== top_) top_ = inner;
    return top_;
  };
  const meets = (other) => !other || isIn(other, el) || isIn(el, other) || other.closest("label")?.control === el;
  const other = x === null ? null : hit(x, y);
  if (x !== null && meets(other)) return {};
  for (const label of el.labels || []) {
    label.scrollIntoView({ block: "nearest", behavior: "instant" });
    const at = label.getBoundingClientRect(), spot = [at.left + left + at.width / 2, at.top + top + at.height / 2];
    if (at.width && at.height && meets(hit(...spot))) return { spot };
  }
  const name = (node) => node.getAttribute("aria-label") || node.innerText || node.tagName.toLowerCase();
  return { why: other ? "it is covered by " + JSON.stringify(name(other).trim().slice(0, 60)) : "it is not visible" };
}"""  # noqa: E501
# Returns whether keys go to a field, to an element of the page's own, or nowhere; and whether the
# field cannot be changed.
_FOCUS = """function() {
  let at = (this.ownerDocument || this).activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  if (!at) return "none";
  if (at.isContentEditable || ["IFRAME", "FRAME", "OBJECT", "EMBED"].includes(at.tagName)) return "field";
  const kinds = ["text", "search", "url", "tel", "email", "password", "number", "date", "time", "month", "week", "datetime-local"];
  if (at.tagName === "TEXTAREA" || (at.tagName === "INPUT" && kinds.includes(at.type))) return at.readOnly ? "fixed" : "field";
  const own = ["textbox", "searchbox", "combobox", "spinbutton", "grid", "listbox", "tree", "menu", "application"];
  const role = at.getAttribute("role"), plain = at.tagName.includes("-") || ["DIV", "SPAN", "CANVAS"].includes(at.tagName);
  return at.tabIndex >= 0 && (role ? own.includes(role) : plain) ? "own" : "none";
}"""  # noqa: E501
_CONNECTED = "function() { return this.isConnected; }"
_LINK = "function() { return Boolean((this.parentElement && this.nodeType !== 1 ? this.parentElement : this).closest('a[href]:not([contenteditable] *)')); }"  # noqa: E501
_ASK_FILE = """function() {
  const el = this.nodeType === Node.ELEMENT_NODE ? this : this.parentElement;
  const field = el?.matches("input[type=file]") ? el : el?.control || el?.querySelector("input[type=file]");
  if (field?.type === "file") field.click();
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
    page: Page,
    session: CDPSession,
    action: Action,
    element: BrowserElement | None,
    typing: Typing = "replace",
) -> str | None:
    """Performs an action on the page, at its point if it has one, or else at the element.

    Returns why the action was not carried out, or not on this element; None: it was. Actions on
    tabs and addresses are not performed here. `session` is the page's CDP session.
    """
    place: BrowserElement | Point | None = (
        element if action.point is None else pixels(page, action.point)
    )
    lost = isinstance(place, BrowserElement) and not await _call(place, _CONNECTED)
    if lost or (action.target is not None and place is None):
        return "no such element"
    match action.kind:
        case "click":
            return await _click(page, session, place)
        case kind if kind in OTHER_CLICKS or kind == "hover":
            spot, why = await _aim(page, place)
            if spot is not None and kind == "hover":
                await page.mouse.move(*spot)
            elif spot is not None:
                await click_at(page, spot, kind)
            return why
        case "type" if action.value is not None:
            return await _type(page, session, place, action.value, typing)
        case "press" if action.value:
            return await _press(page, action.value)
        case "select" if action.value is not None:
            menu = await _element(session, place)
            chosen = None if menu is None else await _call(menu, _MENU, action.value)
            return "it is not a drop-down list" if chosen is None else str(chosen) or None
        case "scroll":
            await _scroll(page, session, place, action.value or "down")
        case "swipe" | "drag" if action.end_point is not None:
            return await _drag(page, place, pixels(page, action.end_point))
        case "swipe" if action.value in _OPPOSITE:
            # Swiping up scrolls the page down.
            await _scroll(page, session, place, _OPPOSITE[action.value])
        case "type" | "press" | "select" | "swipe" | "drag":
            pointer = action.kind in ("swipe", "drag")
            return f"it has no {'end point' if pointer else 'value'}"
        case _:
            return "no such action"
    return None


async def click_at(page: Page, spot: Point, kind: str) -> None:
    """Clicks at a point in CSS pixels with the action's kind of click."""
    button, count = OTHER_CLICKS.get(kind, ("left", 1))
    await page.mouse.click(*spot, button=button, click_count=count)


async def ask_for_file(element: BrowserElement) -> None:
    """Opens the file chooser of a file input that cannot be clicked, or of the one inside."""
    await _call(element, _ASK_FILE)


async def _click(
    page: Page, session: CDPSession, target: BrowserElement | Point | None
) -> str | None:
    element = await _element(session, target)
    if element is not None and (chosen := await _call(element, _MENU, None)) is not None:
        return str(chosen) or None
    spot, why = await _aim(page, target)
    if spot is not None:
        await page.mouse.click(*spot)
    return why


async def _aim(
    page: Page, target: BrowserElement | Point | None
) -> tuple[Point | None, str | None]:
    """Returns the point to act on, in CSS pixels of the window, and why it does not meet the
    target.
    """
    if target is None:
        return None, "it names no element"
    spot = await _spot(page, target)
    if not isinstance(target, BrowserElement):
        return spot, None
    found = await _call(target, _AIM, *(spot or (None, None)))
    aim: dict[str, Any] = found if isinstance(found, dict) else {}
    if "spot" in aim:
        return (aim["spot"][0], aim["spot"][1]), None
    return spot, aim.get("why") or ("it is not visible" if spot is None else None)


async def _type(
    page: Page,
    session: CDPSession,
    place: BrowserElement | Point | None,
    value: str,
    typing: Typing,
) -> str | None:
    text, enter = value.removesuffix("\n"), value.endswith("\n")
    element, why = await _element(session, place), None
    if element is not None:
        if (chosen := await _call(element, _MENU, text)) is not None:
            return str(chosen) or None
        if await _call(element, _SET, text):
            if enter:
                await page.keyboard.press("Enter")
            return None
        if typing == "replace" and await _call(element, _LINK):
            return "it takes no text"
        why = await _click(page, session, place)
        if why is not None and (typing == "replace" or not why.startswith("it is covered")):
            return why
    focus = await _focus(page, element)
    if focus == "none" and element is not None and typing == "replace":
        await asyncio.sleep(_LATE_FIELD)
        focus = await _focus(page, element)
    why = why or {"none": "it takes no text", "fixed": "it cannot be changed"}.get(focus)
    if element is None:
        why = "no field has the focus" if focus == "none" else None
    elif typing == "replace":
        if why is not None:
            return why
        if focus == "field":
            await page.keyboard.press(_SELECT_ALL)
            if not text:
                await page.keyboard.press("Delete")
    if len(text) > _BY_KEYS:
        await page.keyboard.insert_text(text)
    elif text:
        await page.keyboard.type(text)
    if enter:
        await page.keyboard.press("Enter")
    return why


async def _focus(page: Page, element: BrowserElement | None) -> str:
    if element is not None:
        return str(await _call(element, _FOCUS) or "field")
    return str(await page.evaluate(f"() => ({_FOCUS}).call(document)"))


async def _press(page: Page, keys: str) -> str | None:
    from playwright.async_api import Error

    try:
        await page.keyboard.press(key_combination(keys))
    except Error as error:
        # An unknown key is the agent's error, not a browser failure.
        if "Unknown key" not in error.message:
            raise
        for key in ("Control", "Shift", "Alt", "Meta"):
            await page.keyboard.up(key)
        return "no such key"
    return None


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


async def _drag(page: Page, place: BrowserElement | Point | None, end: Point) -> str | None:
    spot, why = await _aim(page, place)
    if spot is not None:
        await page.mouse.move(*spot)
        await page.mouse.down()
        await page.mouse.move(*end, steps=_DRAG_STEPS)
        await page.mouse.up()
    return why


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
