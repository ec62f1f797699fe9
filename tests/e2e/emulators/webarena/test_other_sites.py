"""WebArena's environment on sites that are not WebArena's: a login by a table, cookies that are
trusted, addresses with credentials.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.webarena_tasks import TaskConfig, make_task, read_configs
from prill.emulators.browser.chromium import Chromium
from prill.emulators.shop import Shop
from prill.emulators.webarena.environment import WebArena, WebArenaSpec, collect_setups
from prill.emulators.webarena.login import read_forms
from prill.emulators.webarena.oracle_answers import check_url
from prill.emulators.webarena.sites import Sites
from prill.errors import UsageError
from prill.types import Action
from tests.support.emulators.pages import head, serving
from tests.support.emulators.webarena_tasks import config

pytestmark = pytest.mark.asyncio(loop_scope="module")
FORM = {
    "url": "/login",
    "user": "input[type=text], input:not([type])",
    "success_url": "/user/{user}/account",
    "success_text": "Delete",
}


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


def board(shop: Shop) -> dict[str, str]:
    """The shop's forum under a name that WebArena does not have."""
    account = Sites.from_environment(shop.environ).account("REDDIT")
    return {
        "MY_BOARD": shop.environ["REDDIT"],
        "MY_BOARD_USERNAME": account.user,
        "MY_BOARD_PASSWORD": account.password,
    }


def task_on_board(state: str | None = "./.auth/my-board_state.json") -> TaskConfig:
    record: dict[str, Any] = {
        "sites": ["my-board"],
        "task_id": 1,
        "require_login": True,
        "storage_state": state,
        "start_url": "__MY_BOARD__/f/desks",
        "geolocation": None,
        "intent_template": "t",
        "instantiation_dict": {},
        "intent": "__NOTOC__",
        "require_reset": False,
        "intent_template_id": 1,
        "eval": {"eval_types": ["url_match"], "reference_url": "__MY_BOARD__/f/desks"},
    }
    return read_configs(json.dumps([record]).encode(), {})[0]


def environment(
    task: TaskConfig, environ: dict[str, str], browser: Chromium, images: Path, **options: Any
) -> WebArena:
    forms = read_forms(options.pop("logins", None))
    sites = Sites.from_environment(environ, ["MY_BOARD"])
    setups = collect_setups([task])
    spec = WebArenaSpec(**options)
    return WebArena(images, setups, spec, sites=sites, browser=browser, forms=forms)


async def test_any_site_is_signed_in_by_a_table(
    shop: Shop, browser: Chromium, tmp_path: Path
) -> None:
    task, environ = task_on_board(), board(shop)
    assert task.intent == "__NOTOC__"
    bare = environment(task, environ, browser, tmp_path)
    with pytest.raises(UsageError, match="my_board has no login form"):
        bare.check(make_task(task).id)
    cookies = tmp_path / "cookies"
    played = environment(
        task, environ, browser, tmp_path, logins={"my_board": FORM}, cookies=cookies
    )
    for _ in range(2):
        seen = await played.reset(make_task(task))
        assert environ["MY_BOARD_USERNAME"] in (seen.text or "")
        assert seen.url == f"{environ['MY_BOARD']}/f/desks"
    assert shop.store.logins == 1
    await played.close()

    # the file alone, elsewhere, without a form or an account
    trusted = environment(
        task,
        {"MY_BOARD": environ["MY_BOARD"]},
        browser,
        tmp_path,
        cookies=cookies,
        trust_cookies=True,
    )
    own = tmp_path / "me.json"
    (cookies / "my_board_state.json").rename(cookies / "my-board_state.json")
    own.write_bytes((cookies / "my-board_state.json").read_bytes())
    seen = await trusted.reset(make_task(task))
    assert environ["MY_BOARD_USERNAME"] in (seen.text or "")
    await trusted.close()
    named = task_on_board(str(own))
    trusted = environment(
        named, {"MY_BOARD": environ["MY_BOARD"]}, browser, tmp_path, trust_cookies=True
    )
    seen = await trusted.reset(make_task(named))
    assert environ["MY_BOARD_USERNAME"] in (seen.text or "")
    await trusted.close()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"a": {**FORM, "buton": "x"}}, "logins: a: .*unknown field `buton`"),
        ({"a": {"url": "/login"}}, "missing required field"),
        ({"a": 1}, "logins: a: "),
    ],
)
async def test_a_wrong_table_is_named(table: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_forms(table)


async def test_credentials_of_an_address_are_not_compared(
    browser: Chromium, tmp_path: Path
) -> None:
    with serving() as site:
        address = site.url.replace("http://", "http://ann:hush%3Ahush@")
        task = replace(task_on_board(None), start_url="__MY_BOARD__/private")
        played = environment(task, {"MY_BOARD": address}, browser, tmp_path)
        assert "hush" not in repr(played.sites)
        seen = await played.reset(make_task(task))
        assert (head(seen)[0], seen.url) == ("Tab 0 (current): Private", f"{site.url}/private")
        there, _ = await played.step(Action("goto", value=f"{site.url}/private"))
        assert head(there)[0] == "Tab 0 (current): Private"
        await played.close()
    checks = {"reference_url": f"{address}/private", "url_note": None}
    assert check_url(config("url_match", **checks), f"{site.url}/private", "fixed").passed
    assert check_url(config("url_match", **checks), f"{site.url}/private", "paper").passed
