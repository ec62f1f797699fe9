"""Writes traces with Playwright itself, in a real Chromium, of our pages.

    python make_playwright.py OUT CHROMIUM

OUT gets `long.zip`, `short.zip` (without screenshots) and `broken.zip`, whose last action fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Error, Page, sync_playwright

PAGE = """data:text/html,<!doctype html><title>Tea shop</title><body style="margin:0">
<h1>Tea shop</h1><input aria-label="Search" style="position:absolute;left:40px;top:80px;width:200px;height:40px">
<select aria-label="Size" style="position:absolute;left:40px;top:140px;width:120px;height:40px">
<option>Small<option>Large</select>
<button style="position:absolute;left:300px;top:80px;width:100px;height:40px" onclick="document.body.style.background='pink'">
Buy</button><p style="margin-top:1200px">The end</p></body>"""  # noqa: E501


def short(page: Page) -> None:
    page.goto(PAGE)
    page.get_by_role("button", name="Buy").click()


def long(page: Page) -> None:
    page.goto(PAGE)
    page.get_by_label("Search").fill("green tea")
    page.get_by_label("Search").press("Enter")
    page.get_by_label("Size").select_option("Large")
    page.get_by_role("button", name="Buy").hover()
    page.get_by_role("button", name="Buy").click()
    page.mouse.click(320, 240)
    page.mouse.wheel(0, 400)
    page.keyboard.type("more")
    page.wait_for_timeout(300)
    page.evaluate("document.title")
    page.screenshot()
    page.get_by_role("button", name="Buy").dblclick()


def broken(page: Page) -> None:
    page.goto(PAGE)
    page.get_by_role("button", name="Sell").click(timeout=300)


def main(out: Path, chromium: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, act in (("short", short), ("long", long), ("broken", broken)):
            context = browser.new_context(viewport={"width": 640, "height": 480})
            context.tracing.start(
                title=f"{name} trace", screenshots=name != "short", snapshots=name == "long"
            )
            try:
                act(context.new_page())
            except Error as error:
                print(str(error).splitlines()[0])
            context.tracing.stop(path=out / f"{name}.zip")
            context.close()
        browser.close()


main(Path(sys.argv[1]), sys.argv[2])
