"""Synapse on real MiniWoB++ pages in Chromium, with a model that follows its exemplars."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from prill.papers.embedders import TfidfEmbedder
from prill.papers.synapse.agent import Synapse, SynapseSpec
from prill.papers.synapse.memory import ExemplarMemory
from prill.papers.synapse.sandbox import Page, find
from prill.policies.registry import make_policy
from prill.testing import ScriptedModel
from tests.integration.papers.synapse.test_xpath import CASES
from tests.support.programmatic.synapse import ExemplarFollower

# Of the paper's 64 tasks: one turn, code for the page, two turns with code for each, and one
# without exemplars of its own.
TASKS = ("click-button", "enter-password", "find-word", "use-autocomplete", "click-test-2")
XPATHS = (
    *CASES,
    "//*[@id='query']/following-sibling::*",
    "//button",
    "//*[text()='Submit']",
    "(//input)[2]",
    "//p//label",
)
BROWSER = "xpath => { const found = document.evaluate(xpath, document, null, 7, null); " + (
    "return [...Array(found.snapshotLength).keys()].map(i => "
    "found.snapshotItem(i).getAttribute('data-test')); }"
)
MARK = (
    "() => [...document.querySelectorAll('body, body *')].forEach((el, i) => "
    "el.setAttribute('data-test', i))"
)


# Recorded solutions with loops, dates, keys, several turns, and what is opened first.
REPLAYED = (
    "click-menu", "choose-date", "search-engine", "enter-time", "terminal", "copy-paste-2",
    "navigate-tree",
)  # fmt: skip
# by code for their pages
NEW = {"click-tab-2", "read-table", "social-media-some", "login-user-popup"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MiniWoB]:
    pytest.importorskip("playwright", reason="not installed: pip install '.[web]'")
    pytest.importorskip("miniwob", reason="not installed: pip install --no-deps miniwob")
    made = MiniWoB(tmp_path_factory.mktemp("images"), text="html")
    yield made
    await made.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_tasks_are_solved_by_exemplars(environment: MiniWoB) -> None:
    came = {}
    for name in (*TASKS, *NEW):
        task = await environment.task(name, 3)
        run = await run_episode(
            make_policy("synapse", model=ExemplarFollower()), environment, task, id=task.id
        )
        came[name] = ((await environment.grade(run)).success, run.error)
    assert came == dict.fromkeys((*TASKS, *NEW), (True, None))


@pytest.mark.asyncio(loop_scope="module")
async def test_exemplars_solve_their_own_seed(environment: MiniWoB) -> None:
    memory, came = ExemplarMemory.load(None, TfidfEmbedder()), {}
    for name in REPLAYED:
        entry = memory.entry(name)
        assert entry is not None
        one = entry.exemplars[0]
        blocks = ScriptedModel([f"```\n{step.action}\n```" for step in one.steps])
        policy = Synapse(blocks, SynapseSpec(retrieval=False, abstraction="none"), opened=memory)
        task = await environment.task(name, int(one.source.rpartition("=")[2]))
        assert task.goal == one.task
        came[name] = (
            await environment.grade(
                await run_episode(policy, environment, task, id=task.id, max_steps=60)
            )
        ).note
    assert came == dict.fromkeys(REPLAYED, "raw reward 1")


@pytest.mark.asyncio(loop_scope="module")
async def test_xpaths_select_as_the_browser_does(environment: MiniWoB) -> None:
    page = await environment._clean_page()
    await page.set_content(HTML)
    await page.evaluate(MARK)
    shown = Page(await page.content())
    for xpath in XPATHS:
        assert [one.get("data-test") for one in await find(shown, xpath)] == await page.evaluate(
            BROWSER, xpath
        ), xpath


HTML = (
    '<div id="wrap"><p>Hi <b>x</b> there</p><button data-wob_ref="3">ok</button><button class="a '
    'b">no</button>'
    "<select><option>A</option><option selected>B</option></select><br><input type=text "
    "id=q></div><div>it's</div>"
    '<div id="query">q</div><div><p><label>a</label></p><input><button>Submit</button></div>'
)
