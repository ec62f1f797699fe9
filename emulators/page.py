"""What every page needs: actions carried out, its text read (see page_text.js), pictures kept, errors named.

A page is first given `page_script()`; then an element is named by its line in the page's text.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from prill.errors import EnvironmentFailure, MissingExtra
from prill.types import Action

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Page

WIDTH, HEIGHT = 160, 210


async def perform(page: Page, action: Action, drawn: Callable[[], Awaitable[None]]) -> None:
    """Carries the action out; one on something that is not there does nothing. `drawn` waits until the page shows its state."""
    element = None if action.target is None else await _find(page, action.target)
    if action.target is not None and element is None:
        return
    if action.kind == "click":
        if point := await _where(action, element):
            await page.mouse.move(*point)
            # Icons that change under the pointer have no size until the other picture is there.
            await drawn()
            await page.mouse.click(*point)
    elif action.kind == "type" and action.value is not None:
        await _type(page, element, action.value)
    elif action.kind == "press" and action.value:
        await _press(page, action.value)
    elif action.kind == "select" and element is not None:
        await element.evaluate("(el, value) => prillPage.select(el, value)", action.value or "")
    elif action.kind == "scroll":
        x, y = await _where(action, element) or (WIDTH / 2, HEIGHT / 2)
        scroll = "([x, y, down]) => prillPage.scroll(document.elementFromPoint(x, y), down)"
        await page.evaluate(scroll, [x, y, action.value != "up"])


async def _find(page: Page, target: str) -> ElementHandle | None:
    handle = await page.evaluate_handle("(target) => prillPage.find(target)", target)
    return handle.as_element()


async def _where(action: Action, element: ElementHandle | None) -> tuple[float, float] | None:
    """Where to act, in CSS pixels of the page; None when the element has no place on it."""
    if element is not None:
        found: list[float] | None = await element.evaluate("(el) => prillPage.centre(el)")
        return None if found is None else (found[0], found[1])
    return None if action.point is None else (action.point[0] * WIDTH, action.point[1] * HEIGHT)


async def _type(page: Page, element: ElementHandle | None, value: str) -> None:
    """Replaces what the element holds, key by key; without an element, types into what has the focus."""
    if element is None:
        return await page.keyboard.type(value)
    if not await element.evaluate("(el) => prillPage.editable(el)"):
        return
    if await element.get_attribute("type") in ("date", "time", "month", "week", "datetime-local", "color"):
        # Keys go to the parts of these inputs in the order of the browser's language, so the value is set instead.
        await element.evaluate("(el, value) => prillPage.set(el, value)", value)
        return
    await element.focus()
    await page.keyboard.press("Control+A")
    await page.keyboard.press("Delete")
    await page.keyboard.type(value)


async def _press(page: Page, keys: str) -> None:
    from playwright.async_api import Error

    try:
        await page.keyboard.press(keys)
    except Error as error:
        # A key that no keyboard has is the agent's mistake, not a broken browser.
        if "Unknown key" not in error.message:
            raise


@contextmanager
def browser_failures() -> Iterator[None]:
    """Turns Playwright's errors into EnvironmentFailure."""
    try:
        from playwright.async_api import Error
    except ImportError:
        raise MissingExtra("playwright", "web") from None
    try:
        yield
    except Error as error:
        raise EnvironmentFailure(f"the browser failed: {error.message.splitlines()[0]}") from error


def page_script() -> str:
    """The JavaScript that gives a page `window.prillPage`."""
    return resources.files("prill.emulators").joinpath("page_text.js").read_text(encoding="utf-8")


def save_picture(png: bytes, folder: Path) -> str:
    """The path of the picture as a WebP file in the folder, named by its content."""
    from PIL import Image

    packed = io.BytesIO()
    # 32 colours without loss are half the size of lossy WebP on these flat pages, and the letters stay sharp.
    few = Image.open(io.BytesIO(png)).convert("RGB").quantize(32, dither=Image.Dither.NONE)
    few.convert("RGB").save(packed, "WEBP", lossless=True, quality=100, method=4)
    data = packed.getvalue()
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.webp"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(path)
