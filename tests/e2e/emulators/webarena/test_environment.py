"""WebArena's environment: addresses and resets by themselves, logins and tasks in the real Chromium
on the shop.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.emulators.shop import Shop, ShopPlay, shop_configs, shop_solutions
from prill.emulators.shop.store import Store
from prill.emulators.webarena.environment import Setup, WebArena, WebArenaSpec, collect_setups
from prill.emulators.webarena.login import Logins
from prill.emulators.webarena.sites import Sites, reset_sites
from prill.emulators.webarena.tasks import TaskConfig, make_task, read_configs
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, Task, Trajectory

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


@pytest.mark.parametrize(
    ("written", "real"),
    [
        ("https://onestopmarket.com/a", "http://localhost:7770/a"),
        ("reddit.com/f/books", "http://localhost:9999/f/books"),
        ("HTTP://WWW.Reddit.com/f/Books", "http://localhost:9999/f/Books"),
        ("__SHOPPING_ADMIN__/x", "http://localhost:7770/admin/x"),
        ("http://localhost:7770/a", "http://localhost:7770/a"),
    ],
)
async def test_addresses_in_several_spellings(written: str, real: str) -> None:
    assert sites().real(written) == real


async def test_unset_site_never_leads_outside() -> None:
    assert sites().real("http://wikipedia.org/wiki/Prill") == "http://wikipedia.invalid/wiki/Prill"


async def test_unset_variable_is_named_on_need() -> None:
    assert sites().address("SHOPPING") == "http://localhost:7770"
    assert sites().address("GITLAB") == "https://localhost:8023"
    with pytest.raises(UsageError, match="export MAP="):
        sites().address("MAP")
    with pytest.raises(UsageError, match="export HOMEPAGE="):
        sites().real("__HOMEPAGE__")
    with pytest.raises(UsageError, match=r"REDDIT=localhost.*http://"):
        sites(REDDIT="localhost:9999")


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


async def test_state_file_names_the_logins() -> None:
    assert Setup(sites=("gitlab",), storage_state="./.auth/gitlab.reddit_state.json").logins == (
        "GITLAB",
        "REDDIT",
    )
    assert Setup(
        sites=("shopping_admin",), storage_state="./.auth/shopping_admin_state.json"
    ).logins == ("SHOPPING_ADMIN",)
    assert Setup(sites=("map",)).logins == ()
    with pytest.raises(UsageError, match=r"cookies\.txt"):
        _ = Setup(sites=("map",), storage_state="cookies.txt").logins


async def test_reset_command_runs_to_its_end(tmp_path: Path) -> None:
    await reset_sites(f"echo done > {shlex.quote(str(tmp_path / 'file'))}", 60)
    assert (tmp_path / "file").read_text() == "done\n"


async def test_failed_reset_hides_the_password() -> None:
    with pytest.raises(
        EnvironmentFailedError, match="status 3: no access for hello … here"
    ) as caught:
        await reset_sites("echo no access for hello hush here >&2; exit 3", 60, ("hush",))
    assert "hush" not in str(caught.value)


async def test_hanging_reset_is_ended_whole(tmp_path: Path) -> None:
    started = tmp_path / "started"
    child = (
        "import os, time, pathlib; "
        f"pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    # The second command keeps the shell from becoming the first one.
    with pytest.raises(EnvironmentFailedError, match="not finished after 3 s"):
        await reset_sites(f"{shlex.quote(sys.executable)} -c {shlex.quote(child)}; true", 3)
    if started.exists():
        assert ended(int(started.read_text()))


def ended(process: int) -> bool:
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


async def test_reset_may_leave_servers_running(tmp_path: Path) -> None:
    number = tmp_path / "number"
    await reset_sites(f"sleep 600 & echo $! > {shlex.quote(str(number))}", 60)
    os.kill(int(number.read_text()), signal.SIGKILL)  # it was still running


async def test_only_the_limit_ends_a_reset_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=0.001))
    with Shop() as shop:
        await reset_sites(shop.reset_url, 60)


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
EMMA = "emma.lopez@gmail.com"
# One task for each login; that the other plays reach their ends is seen by the oracle's tests.
STATES: dict[int, Callable[[Store], bool]] = {
    1006: lambda store: store.customers[EMMA].wishes == ["LL-205"],
    1009: lambda store: (
        (store.submissions[-1].forum, store.submissions[-1].title[:22])
        == ("desks", "How do you hide cables")
    ),
    1010: lambda store: (
        (store.products["LL-301"].price, store.products["LL-301"].stock) == (975, 40)
    ),
    1011: lambda store: any(
        (m.account, m.role) == ("mira", "Reporter")
        for m in store.projects["byteblaze/lantern-theme"].members
    ),
}
LOOKS = (1001, 1002, 1003, 1004, 1005)


async def play(environment: WebArena, number: int, lines: tuple[str, ...]) -> Trajectory:
    trajectory = await run_episode(
        ShopPlay(lines), environment, make_task(CONFIGS[number]), id="one", max_steps=60
    )
    assert (trajectory.error, trajectory.metadata["ended_by"]) == (None, "agent")
    return trajectory


@pytest.mark.slow
async def test_right_play_reaches_server_state(make: Make, shop: Shop, tmp_path: Path) -> None:
    environment = make(cookies=tmp_path / "cookies")
    for number, reached in STATES.items():
        assert not reached(shop.store), number
        await play(environment, number, shop_solutions()[number].right)
        assert reached(shop.store), number
    assert shop.store.logins == 4


async def test_reset_restores_the_first_state(make: Make, shop: Shop) -> None:
    environment = make(reset=shop.reset_url)
    await play(environment, 1006, shop_solutions()[1006].right)
    assert STATES[1006](shop.store)
    observation = await environment.reset(make_task(CONFIGS[1006]))
    assert not STATES[1006](shop.store)
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


async def test_records_have_public_addresses(make: Make, tmp_path: Path) -> None:
    environment = make(cookies=tmp_path / "cookies")
    ends = {}
    for number in LOOKS:
        trajectory = await play(environment, number, shop_solutions()[number].right)
        ends[number] = trajectory.final.url if trajectory.final else None
    shop = "http://onestopmarket.com"
    assert ends == {
        1001: f"{shop}/dune-table-lamp.html",
        1002: f"{shop}/alder-desk-lamp.html",
        1003: f"{shop}/sales/order/view/order_id/174/",
        1004: f"{shop}/contact/",
        1005: f"{shop}/lighting.html?product_list_order=price",
    }


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


async def test_kept_cookies_last_until_refused(make: Make, shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "cookies"
    for environment in (make(cookies=folder), make(cookies=folder)):
        await environment.reset(make_task(CONFIGS[1004]))
        assert shop.store.logins == 1
    (file,) = folder.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("shopping_state.json", 0o600)
    shop.store.reset()
    observation = await environment.reset(make_task(CONFIGS[1004]))
    assert (shop.store.logins, "Welcome, Emma Lopez!" in (observation.text or "")) == (1, True)


async def test_broken_cookie_file_is_renewed(browser: Chromium, shop: Shop, tmp_path: Path) -> None:
    logins = Logins(Sites.from_environment(shop.environ), browser, tmp_path, reuse=True)
    for number, content in enumerate(["", "no json", "[]", '{"cookies": 3}'], 1):
        (tmp_path / "shopping_state.json").write_text(content)
        path = await logins.cookies(("SHOPPING",))
        assert shop.store.logins == number
        assert json.loads(path.read_text())["cookies"]


async def test_dead_browser_ends_one_episode(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from playwright.async_api import BrowserContext

    async def die(context: BrowserContext) -> object:
        await context.close()
        return await state(context)

    state = BrowserContext.storage_state
    monkeypatch.setattr(BrowserContext, "storage_state", die)
    with pytest.raises(EnvironmentFailedError, match="the browser failed after signing in"):
        await make().reset(make_task(CONFIGS[1004]))


async def test_two_sites_are_both_signed_in(make: Make, shop: Shop) -> None:
    both = Setup(sites=("gitlab", "reddit"), storage_state="./.auth/gitlab.reddit_state.json")
    environment = make(setups={"two": both})
    task = Task(id="two", goal="", start_url="__GITLAB__ |AND| __REDDIT__")
    observation = await environment.reset(task)
    assert (observation.text or "").startswith("Tab 0 (current): Projects | Tab 1: Forums")
    observation, _ = await environment.step(Action("focus_tab", value="1"))
    assert "link 'MarvelsGrantMan136'" in (observation.text or "")
    assert (observation.url or "").startswith("http://reddit.com")


@pytest.mark.parametrize("number", [1004, 1009, 1010, 1011])
async def test_wrong_password_is_not_told(make: Make, number: int) -> None:
    name = CONFIGS[number].sites[0].upper()
    environment = make(**{f"{name}_PASSWORD": "not-this-one"})
    with pytest.raises(
        EnvironmentFailedError, match=f"{name.lower()} at http.*{name}_PASSWORD"
    ) as caught:
        await environment.reset(make_task(CONFIGS[number]))
    error: BaseException | None = caught.value
    while error is not None:
        assert "not-this-one" not in repr(error)
        error = error.__cause__ or error.__context__


async def test_site_that_is_down_is_named(make: Make, shop: Shop) -> None:
    with pytest.raises(
        EnvironmentFailedError, match=f"the site shopping at {NOWHERE} does not respond"
    ):
        await make(SHOPPING=NOWHERE).reset(make_task(CONFIGS[1004]))
    with pytest.raises(
        EnvironmentFailedError, match=f"the site reddit at {shop.url} shows no login form"
    ):
        await make(REDDIT=shop.url, login_timeout=2.0).reset(make_task(CONFIGS[1009]))


async def test_missing_setup_is_a_usage_error(make: Make) -> None:
    with pytest.raises(UsageError, match=r"webarena\.7"):
        await make().reset(Task(id="webarena.7", goal=""))
    with pytest.raises(UsageError, match="export WIKIPEDIA="):
        await make(setups={"map": Setup(sites=("wikipedia",))}).reset(Task(id="map", goal=""))
    for state, words in (
        ("./.auth/homepage_state.json", "export HOMEPAGE="),
        ("me.txt", "storage_state 'me.txt'"),
    ):
        with pytest.raises(UsageError, match=words):
            make(setups={"x": Setup(sites=("shopping",), storage_state=state)}).check("x")


async def test_failed_reset_ends_the_episode(make: Make, shop: Shop) -> None:
    with pytest.raises(EnvironmentFailedError, match="the reset command exited with status 1"):
        await make(reset="false").reset(make_task(CONFIGS[1004]))
    assert shop.store.logins == 0


async def test_pages_can_ask_for_the_place(make: Make, shop: Shop) -> None:
    environment = make(setups={"here": Setup(sites=("shopping",), geolocation=(40.44, -79.94))})
    await environment.reset(Task(id="here", goal="", start_url="__SHOPPING__"))
    asked = (
        "() => new Promise((yes, no) => navigator.geolocation.getCurrentPosition((p) => "
        "yes(p.coords.latitude), no))"
    )
    assert await environment.page.evaluate(asked) == pytest.approx(40.44)
