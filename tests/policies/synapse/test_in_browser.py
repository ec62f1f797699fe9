"""Synapse on real MiniWoB++ pages in Chromium, with a model that follows its exemplars."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.emulators.miniwob.environment import MiniWoB
from prill.loop import rollout
from prill.policies.registry import make_policy
from prill.policies.synapse.html import read_html
from prill.policies.synapse.xpath import find
from prill.testing.programmatic.synapse import ExemplarFollower

from .test_xpath import CASES

# Of the paper's 64 tasks: one turn, code for the page, two turns with code for each, and one without exemplars of its own.
TASKS = ("click-button", "enter-password", "find-word", "use-autocomplete", "click-test-2")
XPATHS = (*CASES, "//*[@id='query']/following-sibling::*", "//button", "//*[text()='Submit']", "(//input)[2]", "//p//label")
BROWSER = "xpath => { const found = document.evaluate(xpath, document, null, 7, null); " + (
    "return [...Array(found.snapshotLength).keys()].map(i => found.snapshotItem(i).getAttribute('data-test')); }"
)
MARK = "() => [...document.querySelectorAll('body, body *')].forEach((el, i) => el.setAttribute('data-test', i))"


async def test_tasks_are_solved_by_exemplars(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="not installed: pip install 'prill[web]'")
    pytest.importorskip("miniwob", reason="not installed: pip install --no-deps miniwob")
    environment = MiniWoB(tmp_path, text="html")
    came = {}
    try:
        for name in TASKS:
            task = await environment.task(name, 3)
            policy = make_policy("synapse", model=ExemplarFollower())
            run = await rollout(policy, environment, task, id=task.id)
            came[name] = ((await environment.grade(run)).success, run.error)
        page = await environment._clean_page()
        await page.set_content(HTML)
        await page.evaluate(MARK)
        shown = read_html(await page.content())
        for xpath in XPATHS:
            assert [one.attributes["data-test"] for one in find(shown, xpath)] == await page.evaluate(BROWSER, xpath), xpath
    finally:
        await environment.close()
    assert came == dict.fromkeys(TASKS, (True, None))


HTML = (
    '<div id="wrap"><p>Hi <b>x</b> there</p><button data-wob_ref="3">ok</button><button class="a b">no</button>'
    "<select><option>A</option><option selected>B</option></select><br><input type=text id=q></div><div>it's</div>"
    '<div id="query">q</div><div><p><label>a</label></p><input><button>Submit</button></div>'
)
