"""The shop as its visitors, its administrators and WebArena's graders find it, over HTTP."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import product

import pytest

from prill.datasets.webarena_tasks import SITES, read_configs
from prill.emulators.shop import Shop, shop_configs
from tests.support.paths import ROOT

EMMA = {"login[username]": "emma.lopez@gmail.com", "login[password]": "Password.123"}
ADMIN = {"login[username]": "admin", "login[password]": "admin1234"}


class Visitor:
    """A browser without a window: keeps cookies, follows redirections. An answer is its status,
    final path and text.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        )

    def __call__(
        self,
        path: str,
        form: dict[str, str] | None = None,
        *,
        body: str | None = None,
        token: str = "",
    ) -> tuple[int, str, str]:
        data = (
            body.encode()
            if body is not None
            else None
            if form is None
            else urllib.parse.urlencode(form).encode()
        )
        request = urllib.request.Request(self.address + path, data)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with self._opener.open(request, timeout=30) as answer:
                return answer.status, answer.url.removeprefix(self.address), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, path, error.read().decode()


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


@pytest.fixture
def emma(shop: Shop) -> Visitor:
    visitor = Visitor(shop.url)
    assert visitor("/customer/account/login/", EMMA)[1] == "/customer/account/"
    return visitor


@pytest.fixture
def admin(shop: Shop) -> Visitor:
    visitor = Visitor(shop.url)
    assert visitor("/admin", ADMIN)[1] == "/admin/dashboard"
    return visitor


def pages(visitor: Visitor) -> dict[str, str]:
    """Every page that links lead to from the first one, by path."""
    bodies: dict[str, str] = {}
    waiting = ["/", "/customer/address"]
    while waiting:
        path = waiting.pop()
        if path in bodies or "logout" in path:
            continue
        bodies[path] = visitor(path)[2]
        waiting += [
            links.replace("&amp;", "&") for links in re.findall(r'href="(/[^"]*)"', bodies[path])
        ]
    return bodies


def test_reset_brings_the_start_back(shop: Shop, emma: Visitor) -> None:
    before = pages(emma)
    emma("/checkout/cart/add/LL-202", {"qty": "2"})
    emma("/checkout/", {})
    emma("/wishlist/add/LL-205", {})
    emma("/review/alder-desk-lamp", {"nickname": "E", "title": "t", "detail": "d", "rating": "1"})
    assert pages(emma) != before
    assert Visitor(shop.url)(shop.reset_url.removeprefix(shop.url))[0] == 200
    assert emma("/wishlist/")[1] == "/customer/account/login/"
    emma("/customer/account/login/", EMMA)
    assert pages(emma) == before


def test_admin_changes_and_reads_reports(shop: Shop, admin: Visitor) -> None:
    admin(
        "/admin/catalog/product/edit/id/301/",
        {"product[name]": "Mug", "product[price]": "9.75", "product[quantity]": "40"},
    )
    mug = shop.store.products["LL-301"]
    assert (mug.name, mug.price, mug.stock) == ("Mug", 975, 40)
    for wrong in ("", "nan", "inf", "-1", "ten"):
        form = {"product[name]": "Mug", "product[price]": wrong, "product[quantity]": "40"}
        assert admin("/admin/catalog/product/edit/id/301/", form)[0] == 400
    admin("/admin/sales/order/view/order_id/178/cancel", {})
    assert (shop.store.orders[7].status, shop.store.products["LL-402"].stock) == ("Canceled", 26)
    assert admin("/admin/sales/order/view/order_id/178/ship", {})[0] == 400
    report = admin("/admin/reports/report_sales/bestsellers/?from=2023-01-01&to=2023-01-31")[2]
    assert re.findall(r"<td>(\d+)</td></tr>", report) == ["6", "2", "1", "1", "1"]


def test_written_markup_is_shown_as_text(emma: Visitor) -> None:
    evil = "<script>alert(1)</script>"
    emma(
        "/review/alder-desk-lamp", {"nickname": evil, "title": evil, "detail": evil, "rating": "1"}
    )
    address = {name: evil for name in ("street", "street2", "city", "state", "zip", "country")}
    emma("/customer/address/edit/", address)
    html = "".join(
        emma(path)[2]
        for path in (
            "/alder-desk-lamp.html",
            "/customer/address",
            f"/catalogsearch/result/?q={evil}",
        )
    )
    assert "&lt;script&gt;" in html
    assert "<script>" not in html


TOKEN = {"username": "admin", "password": "admin1234"}


def test_grader_orders_newest_first(shop: Shop, emma: Visitor) -> None:
    visitor = Visitor(shop.url)
    assert (
        visitor(
            "/rest/default/V1/integration/admin/token", body=json.dumps(TOKEN | {"password": "x"})
        )[0]
        == 401
    )
    assert visitor("/rest/default/V1/integration/admin/token", body="nonsense")[0] == 401
    token = json.loads(
        visitor("/rest/default/V1/integration/admin/token", body=json.dumps(TOKEN))[2]
    )
    newest = {
        "searchCriteria[sortOrders][0][field]": "created_at",
        "searchCriteria[sortOrders][0][direction]": "DESC",
        "searchCriteria[pageSize]": "1",
    }
    answer = json.loads(
        visitor(f"/rest/V1/orders?{urllib.parse.urlencode(newest)}", token=token)[2]
    )
    assert (answer["items"][0]["increment_id"], answer["total_count"]) == ("000000178", 8)
    whose = "searchCriteria[filter_groups][0][filters][0]"
    ben = newest | {f"{whose}[field]": "customer_email", f"{whose}[value]": "ben.adler@example.com"}
    answer = json.loads(
        visitor(f"/rest/default/V1/orders?{urllib.parse.urlencode(ben)}", token=token)[2]
    )
    assert (answer["items"][0]["increment_id"], answer["total_count"]) == ("000000175", 2)


def test_tasks_cover_every_kind_of_check(shop: Shop) -> None:
    configs = read_configs(shop_configs(), shop.environ)
    assert len({config.task_id for config in configs} - set(range(812))) == len(configs) >= 10
    assert not any(f"__{site}__" in config.start_url for config, site in product(configs, SITES))
    checks = [config.eval for config in configs]
    assert {kind for check in checks for kind in check.eval_types} == {
        "string_match",
        "url_match",
        "program_html",
    }
    answers = [check.reference_answers for check in checks if check.reference_answers is not None]
    assert any(a.exact_match for a in answers)
    assert any(a.must_include for a in answers)
    assert {type(a.fuzzy_match) for a in answers if a.fuzzy_match} == {tuple, str}
    told = shop_configs().decode()
    helpers = (
        "latest_order_url",
        "latest_review_rating",
        "latest_review_author",
        "get_post_url",
        "project_memeber_role",
    )
    for word in (
        *helpers,
        " |OR| ",
        " |AND| ",
        "document.querySelector",
        "prep_actions",
        "__last_url__",
        '"locator": ""',
    ):
        assert word in told


def test_command_prints_its_variables() -> None:
    command = [sys.executable, "-m", "prill.emulators.shop", "--reset-token", "t"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(5)]
        variables = dict(line.removeprefix("export ").split("=", 1) for line in lines[:4])
        assert list(variables) == ["SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB"]
        assert Visitor(variables["SHOPPING"])("/")[0] == 200
        assert lines[4] == f"# reset: {variables['SHOPPING']}/reset?token=t"
        taken = subprocess.run(
            [*command, "--port", variables["SHOPPING"].rpartition(":")[2]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (taken.returncode, taken.stdout, taken.stderr.count("\n")) == (2, "", 1)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
