"""SteP on MiniWoB++ in the real Chromium: a model that answers by program calls the policies of the
library.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from prill.papers.step.agent import StepAgent
from prill.policies.registry import make_policy
from prill.refine.reflector import find_learner
from tests.support.chromium import need_chromium
from tests.support.programmatic.step import ProgrammaticStep

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
CALLED = {
    "multi-orderings": set[str](),
    "choose-date-easy": {"choose_date"},
    "search-engine": {"find_and_click_search_link"},
    "click-checkboxes-soft": {"click_checkboxes"},
    "email-inbox-forward-nl": {"process_email"},
    "book-flight": {"fill_text", "choose_date"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MiniWoB]:
    need_chromium("miniwob")
    environment = MiniWoB(tmp_path_factory.mktemp("images"), text="html", timeout=300)
    yield environment
    await environment.close()


@pytest.mark.parametrize("name", CALLED)
async def test_a_task_is_solved_by_the_stack(environment: MiniWoB, name: str) -> None:
    task = await environment.task(name, 40)
    agent = make_policy("step", model=ProgrammaticStep())
    assert isinstance(agent, StepAgent)
    played = await run_episode(agent, environment, task, id=name)
    assert played.error is None
    assert (await environment.grade(played)).success, [step.thought for step in played.steps]
    assert {event.frames[1] for event in agent.events if len(event.frames) > 1} == CALLED[name]
    # Judges see what was done on the page, and nothing else.
    assert {step.action.kind for step in played.steps} <= {"click", "type", "stop"}
    assert all(step.action.is_final or " where [" in step.action.text for step in played.steps)


async def test_the_flat_prompt_plays_as_well(environment: MiniWoB) -> None:
    task = await environment.task("multi-orderings", 41)
    model = ProgrammaticStep()
    played = await run_episode(
        make_policy("step", model=model, flat=True), environment, task, id="flat"
    )
    assert (await environment.grade(played)).success
    assert model.calls == len(played.steps)


async def test_it_can_be_taught_lessons() -> None:
    agent = StepAgent(ProgrammaticStep())
    find_learner(agent, ["Scroll first."])
    assert agent.lessons == ["Scroll first."]
