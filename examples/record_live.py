"""Records a custom agent while it drives a Playwright page.

Run: .venv/bin/python examples/record_live.py OUT

With browser-use: `Agent(…, register_new_step_callback=run.on_step,
register_done_callback=run.on_done)`.
"""

import os
import shutil
import sys

from playwright.sync_api import sync_playwright

import prill

SHOP = """<input aria-label="Search"><p></p>
<button onclick="document.querySelector('p').textContent = 'Sencha is ordered.'">Buy</button>"""

CHROMIUM = os.environ.get("PRILL_CHROMIUM") or shutil.which("chromium")

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    with prill.record(sys.argv[1], "Buy Sencha", agent="scripted") as run:
        page = run.page(browser.new_page())
        page.goto(f"data:text/html,{SHOP}")
        run.thought("I search for it.")
        page.get_by_label("Search").fill("sencha")
        page.get_by_role("button", name="Buy").click()
        run.answer(page.locator("p").inner_text(), success=True)
    browser.close()

for trajectory in prill.read_trajectories(f"{sys.argv[1]}/trajectories.jsonl"):
    for step in trajectory.steps:
        print(step.action.kind, step.action.target or step.action.value)
