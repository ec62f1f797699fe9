"""The oracle on whole episodes: the shop's tasks, played right and wrong in the real Chromium, and
graded on the page left.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from prill.actions.webarena import read_action
from prill.datasets.webarena_tasks import Mode, TaskConfig, make_task, read_configs
from prill.emulators.browser.chromium import Chromium
from prill.emulators.shop import Shop, shop_configs, shop_solutions
from prill.emulators.webarena.oracle import WebArenaOracle
from prill.emulators.webarena.oracle_pages import ShopAccess
from prill.testing import ScriptedModel
from prill.types import Action, LabelRecord, Observation, Step, Trajectory
from tests.support.emulators.webarena_tasks import MODES

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from prill.protocols import Message

NUMBERS = sorted(shop_solutions())
_NAMED = re.compile(r"(click|type) \[(\w+) '(.*?)'\](?: \[(.*)\] \[0\])?")


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


def marked(messages: Sequence[Message]) -> str:
    """What a judge says who knows the right answer of the fuzzy task; to the reason of another it
    says `different`.
    """
    said = str(messages[1].parts[0])
    if "names no telephone number" in said:
        return "Reasoning: another reason.\nVerdict: different"
    return (
        "Reasoning: compared.\nVerdict: "
        f"{'correct' if 'not manufactured any more' in said else 'incorrect'}"
    )


async def played(
    context: BrowserContext, task: TaskConfig, lines: tuple[str, ...]
) -> tuple[Trajectory, Page]:
    """The play carried out without an emulator: elements are found by role and name."""
    for index, start in enumerate(task.start_url.split(" |AND| ")):
        page = await context.new_page() if index else context.pages[0]
        await page.goto(start)
    page = context.pages[0]
    answer = ""
    for line in lines:
        if found := _NAMED.fullmatch(line):
            verb, role, name, typed = found.groups()
            element = page.get_by_role(role, name=name).first  # type: ignore[arg-type]
            await (element.click() if verb == "click" else element.fill(typed))
            await page.wait_for_load_state("load")
        else:
            action = read_action(line)
            if action.kind == "press":
                await page.keyboard.press(action.value or "")
            elif action.kind == "focus_tab":
                page = context.pages[int(action.value or 0)]
            else:
                assert action.kind == "stop"
                answer = action.value or ""
    steps = (Step(Observation(url=page.url), Action("stop", lines[-1])),)
    return Trajectory(id="one", task=make_task(task), steps=steps, answer=answer), page


async def signed_in(context: BrowserContext, shop: Shop, sites: Sequence[str]) -> None:
    """Signs in as the accounts that WebArena's images come with; the context shares its cookies
    with requests.
    """
    magento = ("login[username]", "login[password]")
    forms = {
        "shopping": ("/customer/account/login/", *magento, "emma.lopez@gmail.com", "Password.123"),
        "shopping_admin": ("", *magento, "admin", "admin1234"),
        "reddit": ("/login", "_username", "_password", "MarvelsGrantMan136", "test1234"),
        "gitlab": ("/users/sign_in", "user[login]", "user[password]", "byteblaze", "hello1234"),
    }
    for site in sites:
        path, user, secret, name, password = forms[site]
        answer = await context.request.post(
            shop.environ[site.upper()] + path, form={user: name, secret: password}
        )
        assert answer.ok


async def graded(browser: Chromium, number: int, how: str, mode: Mode) -> LabelRecord:
    """The label of a play; grading twice gives the same and leaves the agent's tabs as they are."""
    async with Shop() as shop:
        configs = {task.task_id: task for task in read_configs(shop_configs(), shop.environ)}
        context = await browser.context(1280, 720)
        try:
            await context.new_page()
            await signed_in(context, shop, configs[number].sites)
            trajectory, page = await played(
                context, configs[number], getattr(shop_solutions()[number], how)
            )
            before = [tab.url for tab in context.pages]
            access = ShopAccess(address=shop.url)
            oracle = WebArenaOracle(
                configs.values(), mode=mode, model=ScriptedModel(marked), shop=access, settle=0.7
            )
            label = await oracle.grade(trajectory, page)
            if how == "right":
                assert await oracle.grade(trajectory, page) == label
            assert [tab.url for tab in context.pages] == before
            return label
        finally:
            await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def labels(browser: Chromium) -> dict[tuple[int, str], LabelRecord]:
    """The label of every play. They mostly wait, so four at a time take little longer than one."""
    plays = [(number, how) for number in NUMBERS for how in ("right", "wrong")]
    gate = asyncio.Semaphore(4)

    async def one(number: int, how: str) -> LabelRecord:
        async with gate:
            # Each mode has every second task.
            return await graded(browser, number, how, MODES[number % 2])

    return dict(zip(plays, await asyncio.gather(*(one(*play) for play in plays)), strict=True))


@pytest.mark.parametrize("how", ["right", "wrong"])
@pytest.mark.parametrize("number", NUMBERS)
def test_right_and_wrong_ends_differ(
    labels: dict[tuple[int, str], LabelRecord], number: int, how: str
) -> None:
    label = labels[number, how]
    assert label.success is (how == "right"), label.note
    assert (label.note is None) == (how == "right")


@pytest.mark.asyncio(loop_scope="module")
async def test_refused_interface_leaves_it_open(browser: Chromium, shop: Shop) -> None:
    tasks = read_configs(shop_configs(), shop.environ)
    context = await browser.context(1280, 720)
    try:
        page = await context.new_page()
        await page.goto(shop.url)
        for task, access, words in (
            (
                1008,
                ShopAccess(address=shop.url, password="wrong"),
                "responds to the login with status 401",
            ),
            (1012, ShopAccess(address="http://127.0.0.1:1"), "gave no usable response"),
        ):
            config = next(one for one in tasks if one.task_id == task)
            episode = Trajectory(id="one", task=make_task(config), final=Observation(url=shop.url))
            label = await WebArenaOracle([config], shop=access).grade(episode, page)
            assert label.success is None
            assert words in (label.note or "")
            assert "wrong" not in (label.note or "")
    finally:
        await context.close()
