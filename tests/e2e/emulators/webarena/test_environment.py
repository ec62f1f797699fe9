"""WebArena's environment: addresses and resets by themselves, logins and tasks in the real Chromium
on the shop.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from prill.datasets.webarena_tasks import TaskConfig, make_task, read_configs
from prill.emulators.browser.chromium import Chromium
from prill.emulators.shop import Shop, ShopPlay, shop_configs, shop_solutions
from prill.emulators.shop.store import Store
from prill.emulators.webarena.environment import WebArena, WebArenaSpec, collect_setups
from prill.emulators.webarena.sites import Sites, reset_sites
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, Trajectory

LOCAL = {
    "SHOPPING": "http://localhost:7770/",
    "SHOPPING_ADMIN": "http://localhost:7770/admin",
    "REDDIT": "http://localhost:9999",
    "WA_GITLAB": "https://localhost:8023",
}
NOWHERE = "http://127.0.0.1:9"
pytestmark = pytest.mark.asyncio(loop_scope="module")


def sites(**variables: str) -> Sites:
    return Sites.from_environment(LOCAL | variables)


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("http://onestopmarket.com", "http://localhost:7770"),
        ("http://onestopmarket.com/mugs.html?p=2#top", "http://localhost:7770/mugs.html?p=2#top"),
        ("http://luma.com/admin/dashboard", "http://localhost:7770/admin/dashboard"),
        ("http://onestopmarket.com/administrator", "http://localhost:7770/administrator"),
        ("http://reddit.com/f/books", "http://localhost:9999/f/books"),
        ("http://gitlab.com?a=http://reddit.com", "https://localhost:8023?a=http://reddit.com"),
        ("http://example.com/reddit.com", "http://example.com/reddit.com"),
        ("http://reddit.community/f", "http://reddit.community/f"),
        ("about:blank", "about:blank"),
    ],
)
async def test_addresses_are_mapped_both_ways(shown: str, real: str) -> None:
    assert sites().real(shown) == real
    assert sites().public(real) == shown


async def test_passwords_are_not_printed() -> None:
    found = sites(SHOPPING_USERNAME="me@example.com", SHOPPING_PASSWORD="hush")
    assert (found.account("SHOPPING").user, found.account("SHOPPING").password) == (
        "me@example.com",
        "hush",
    )
    assert found.account("GITLAB").user == "byteblaze"
    assert "hush" not in repr(found) + str(found)
    with pytest.raises(UsageError, match="wikipedia"):
        found.account("WIKIPEDIA")


async def test_failed_reset_hides_the_password() -> None:
    with pytest.raises(
        EnvironmentFailedError, match="status 3: no access for hello … here"
    ) as caught:
        await reset_sites("echo no access for hello hush here >&2; exit 3", 60, ("hush",))
    assert "hush" not in str(caught.value)


async def test_resets_have_a_time_limit() -> None:
    with pytest.raises(EnvironmentFailedError, match="not finished after 0.2 s and was killed"):
        await reset_sites("sleep 60", 0.2)


async def test_reset_server_is_waited_for() -> None:
    with Shop() as shop:
        shop.store.products.clear()
        await reset_sites(shop.reset_url, 60)
        assert shop.store.products
        with pytest.raises(EnvironmentFailedError, match="rejected with status 403") as caught:
            await reset_sites(f"{shop.url}/reset?token=wrong-one", 60)
        assert "wrong-one" not in str(caught.value)
    with pytest.raises(EnvironmentFailedError, match=f"{shop_host(NOWHERE)} failed"):
        await reset_sites(f"{NOWHERE}/reset", 60)


def shop_host(url: str) -> str:
    return url.removeprefix("http://")


# From here on with Chromium.


@pytest_asyncio.fixture(loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    async with Shop() as shop:
        yield shop


Make = Callable[..., WebArena]


@pytest_asyncio.fixture(loop_scope="module")
async def make(browser: Chromium, shop: Shop, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes an environment on the shop; keywords in capitals set variables."""
    made: list[WebArena] = []

    def make(**options: object) -> WebArena:
        variables = {name: str(options.pop(name)) for name in list(options) if name.isupper()}
        setups = collect_setups(CONFIGS.values())
        setups |= options.pop("setups", {})  # type: ignore[arg-type]
        sites = Sites.from_environment(shop.environ | variables)
        spec = WebArenaSpec(**options)  # type: ignore[arg-type]
        made.append(WebArena(tmp_path / "images", setups, spec, sites=sites, browser=browser))
        return made[-1]

    yield make
    for environment in made:
        await environment.close()


# Placeholders stay: the environment fills them in.
CONFIGS: dict[int, TaskConfig] = {
    config.task_id: config for config in read_configs(shop_configs(), {})
}


def has_wish(store: Store) -> bool:
    """Whether task 1006 is done."""
    return store.customers["emma.lopez@gmail.com"].wishes == ["LL-205"]


async def play(environment: WebArena, number: int, lines: tuple[str, ...]) -> Trajectory:
    trajectory = await run_episode(
        ShopPlay(lines), environment, make_task(CONFIGS[number]), id="one", max_steps=60
    )
    assert (trajectory.error, trajectory.metadata["ended_by"]) == (None, "agent")
    return trajectory


async def test_reset_restores_the_first_state(make: Make, shop: Shop) -> None:
    environment = make(reset=shop.reset_url)
    await play(environment, 1006, shop_solutions()[1006].right)
    assert has_wish(shop.store)
    observation = await environment.reset(make_task(CONFIGS[1006]))
    assert not has_wish(shop.store)
    assert "Welcome, Emma Lopez!" in (observation.text or "")


@pytest.mark.parametrize(
    ("when", "resets"),
    [
        ("changes", ["webarena.1001 shopping", "webarena.1001 shopping"]),
        ("always", [f"webarena.{n} shopping" for n in (1001, 1002, 1006, 1001)]),
    ],
)
async def test_sites_are_reset_where_tasks_change_them(
    make: Make, tmp_path: Path, when: Literal["changes", "always"], resets: list[str]
) -> None:
    log = tmp_path / "resets"
    environment = make(
        reset=f'echo "$PRILL_TASK $PRILL_SITES" >> {shlex.quote(str(log))}', reset_when=when
    )
    for number in (1001, 1002, 1006, 1001):  # looks, looks, changes, looks
        await environment.reset(make_task(CONFIGS[number]))
    assert log.read_text().splitlines() == resets


async def test_oracles_see_the_real_page(make: Make, shop: Shop) -> None:
    environment = make()
    await environment.reset(make_task(CONFIGS[1004]))
    observation, _ = await environment.step(
        Action("goto", value="http://onestopmarket.com/wishlist/")
    )
    assert observation.url == "http://onestopmarket.com/wishlist/"
    assert environment.page.url == f"{shop.url}/wishlist/"
    assert "heading 'My Wish List'" in (observation.text or "")
    observation, _ = await environment.step(Action("goto", value="http://wikipedia.org/"))
    assert "could not be opened" in (observation.text or "")


async def test_each_episode_signs_in_again(
    make: Make, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = make()
    for number in (1, 2):
        observation = await environment.reset(make_task(CONFIGS[1004]))
        assert "Welcome, Emma Lopez!" in (observation.text or "")
        assert shop.store.logins == number
    assert not list(tmp_path.glob("prill-cookies-*"))


async def test_dead_browser_ends_one_episode(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from playwright.async_api import BrowserContext

    async def die(context: BrowserContext) -> object:
        await context.close()
        return await state(context)

    state = BrowserContext.storage_state
    monkeypatch.setattr(BrowserContext, "storage_state", die)
    with pytest.raises(EnvironmentFailedError, match="the browser failed after signing in"):
        await make().reset(make_task(CONFIGS[1004]))


async def test_network_record_has_no_login(make: Make, tmp_path: Path) -> None:
    environment = make(hars=tmp_path / "hars")
    for _ in range(2):
        await environment.reset(make_task(CONFIGS[1004]))
        await environment.step(Action("goto", value="http://onestopmarket.com/contact/"))
        await environment.finish()
    assert sorted(file.name for file in (tmp_path / "hars").iterdir()) == [
        "webarena.1004-2.har",
        "webarena.1004.har",
    ]
    assert environment.har is not None
    text = environment.har.read_text()
    assert any(
        entry["request"]["url"].endswith("/contact/")
        for entry in json.loads(text)["log"]["entries"]
    )
    assert "Password.123" not in text
