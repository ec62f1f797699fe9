"""SteP on the local shop, its neighbours and the airline's desk, in the real Chromium, with a model
that answers by program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prill.emulators.browser.chromium import Chromium
from prill.emulators.shop import Shop, shop_configs
from prill.emulators.webarena.environment import WebArena, WebArenaSpec, collect_setups
from prill.emulators.webarena.oracle import WebArenaOracle
from prill.emulators.webarena.oracle_pages import shop_access
from prill.emulators.webarena.sites import Sites
from prill.emulators.webarena.tasks import make_task, read_configs
from prill.episodes.loop import run_episode
from prill.papers.step.agent import read_annotations
from prill.papers.step.airline.environment import Airline
from prill.policies.registry import make_policy
from prill.types import Trajectory
from tests.support.programmatic.shop import ProgrammaticShop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


def called(played: Trajectory) -> set[str]:
    """The policies that were called, from what stands in the thoughts of the steps."""
    notes = [note for step in played.steps for note in read_annotations(step.thought)]
    return {action.partition(" [")[0] for kind, _, action, _ in notes if kind == "call"}


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """The local sites, one for all tests: each begins with a reset."""
    with Shop() as shop:
        yield shop


@pytest.mark.parametrize(
    ("number", "root", "calls"),
    [
        (1002, "shopping_agent", {"search_reviews"}),
        (1005, "shopping_agent", {"list_products"}),
        (1009, "reddit_agent", {"find_subreddit"}),
        (1010, "shopping_admin_agent", set()),
        (1011, "github_agent", set()),
    ],
)
async def test_step_does_a_task_on_each_site(
    number: int, root: str, calls: set[str], shop: Shop, chromium: Chromium, tmp_path: Path
) -> None:
    environ = {**os.environ, **shop.environ}
    configs = {config.task_id: config for config in read_configs(shop_configs(), environ)}
    spec, sites = WebArenaSpec(reset=shop.reset_url), Sites.from_environment(environ)
    environment = WebArena(
        tmp_path, collect_setups(configs.values()), spec, sites=sites, browser=chromium
    )
    task = make_task(configs[number])
    task = replace(task, start_url=sites.public(task.start_url or ""))
    played = await run_episode(
        make_policy("step", model=ProgrammaticShop()), environment, task, id="e"
    )
    label = await WebArenaOracle(configs.values(), shop=shop_access(environ)).grade(
        played, environment.page
    )
    await environment.close()
    assert (played.error, label.success, label.note) == (None, True, None)
    assert called(played) == calls
    assert read_annotations(played.steps[-1].thought)[-1][1] == (root,)
    # What happened on the stack is no step: the actions are those of the environment.
    assert not {step.action.kind for step in played.steps} & {"other", "call", "return"}


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("find-booking", {"fill_text"}),
        ("cancel-flight", {"fill_text"}),
        ("find-flight", {"fill_text", "choose_date", "select_flight"}),
        ("update-passenger-details", {"fill_text", "choose_date"}),
        ("book-flight", {"fill_text", "choose_date", "select_flight"}),
    ],
)
async def test_step_does_each_airline_task(
    name: str, calls: set[str], chromium: Chromium, tmp_path: Path
) -> None:
    environment = Airline(tmp_path, browser=chromium)
    task = await environment.task(name, 4)
    played = await run_episode(
        make_policy("step", model=ProgrammaticShop()), environment, task, id="e"
    )
    label = await environment.grade(played)
    await environment.close()
    assert (played.error, label.success, label.note) == (None, True, "progress 1.00")
    assert called(played) == calls
