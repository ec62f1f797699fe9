"""The shop as its visitors, its administrators and WebArena's graders find it, over HTTP."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import product

import pytest

from prill.actions.webarena import parse_action
from prill.emulators.shop import Shop, ShopPlay, shop_configs, shop_solutions
from prill.emulators.shop.server import _LOGINS
from prill.emulators.webarena.tasks import SITES, TaskConfig, read_configs
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Observation, Task
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


def test_closed_shop_leaves_nothing() -> None:
    with Shop() as shop:
        address = shop.url
        assert Visitor(address)("/")[0] == 200
    assert "prill-shop" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(urllib.error.URLError, match="refused"):
        Visitor(address)("/")
    with pytest.raises(UsageError, match="with"):
        _ = shop.url
    shop.close()


async def test_shop_opens_in_async_code_and_again() -> None:
    shop = Shop()
    for _ in range(2):
        async with shop:
            assert Visitor(shop.url)("/")[0] == 200


def test_taken_port_leaves_nothing_open(shop: Shop) -> None:
    port = int(shop.url.rpartition(":")[2])
    with pytest.raises(EnvironmentFailedError, match=str(port)), Shop(port=port):
        pass
    assert [thread.name for thread in threading.enumerate()].count("prill-shop") == 1
    with pytest.raises(UsageError, match="port 70000"):
        Shop(port=70000)


def test_two_shops_have_the_same_pages(emma: Visitor) -> None:
    bodies = pages(emma)
    assert len(bodies) > 40
    assert all("Whoops" not in text for text in bodies.values())
    with Shop() as other:
        visitor = Visitor(other.url)
        visitor("/customer/account/login/", EMMA)
        assert pages(visitor) == bodies


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


@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?token=%C3%A9"])
def test_reset_without_token_is_refused(shop: Shop, emma: Visitor, query: str) -> None:
    emma("/wishlist/add/LL-205", {})
    assert emma(f"/reset{query}")[0] == 403
    assert shop.store.customers["emma.lopez@gmail.com"].wishes == ["LL-205"]


@pytest.mark.parametrize("password", ["", "wrong", "password.123"])
def test_wrong_password_opens_nothing(shop: Shop, password: str) -> None:
    visitor = Visitor(shop.url)
    assert (
        "sign-in was incorrect"
        in visitor("/customer/account/login/", EMMA | {"login[password]": password})[2]
    )
    assert visitor("/wishlist/")[1] == "/customer/account/login/"
    assert shop.store.logins == 0


def test_customer_is_nobody_elsewhere(shop: Shop, emma: Visitor) -> None:
    assert "Dashboard" not in emma("/admin/dashboard")[2]
    token = json.loads(
        Visitor(shop.url)("/rest/default/V1/integration/admin/token", body=json.dumps(TOKEN))[2]
    )
    assert emma("/rest/V1/orders")[0] == 401
    assert emma("/rest/V1/orders", token=token)[0] == 200
    for site in ("REDDIT", "GITLAB"):
        visitor = Visitor(shop.environ[site])
        private = {"REDDIT": "/user/emma.lopez@gmail.com/account", "GITLAB": "/-/profile"}[site]
        assert visitor(private)[1] == _LOGINS["reddit" if site == "REDDIT" else "gitlab"]


def test_order_lowers_the_stock(shop: Shop, emma: Visitor, admin: Visitor) -> None:
    emma("/checkout/cart/add/LL-202", {"qty": "2"})
    assert "Order Total: $33.00" in emma("/checkout/")[2]
    assert "000000179" in emma("/checkout/", {})[2]
    assert shop.store.products["LL-202"].stock == 73
    assert "You have no items" in emma("/checkout/cart/")[2]
    assert "$33.00" in emma("/sales/order/view/order_id/179/")[2]
    assert "000000179" in admin("/admin/sales/order/?status=Pending&q=Lopez")[2]


@pytest.mark.parametrize("quantity", ["0", "-1", "two", "1.5", "76", "99999999999"])
def test_no_more_bought_than_there_is(shop: Shop, emma: Visitor, quantity: str) -> None:
    assert emma("/checkout/cart/add/LL-202", {"qty": quantity})[0] == 400
    assert shop.store.customers["emma.lopez@gmail.com"].cart == {}


def test_sold_out_meanwhile_is_not_sold(shop: Shop, emma: Visitor) -> None:
    emma("/checkout/cart/add/LL-202", {"qty": "2"})
    shop.store.products["LL-202"].stock = 1
    assert emma("/checkout/", {})[0] == 400
    assert len(shop.store.orders) == 8


def test_orders_of_others_are_hidden(emma: Visitor) -> None:
    assert emma("/sales/order/view/order_id/172/")[0] == 404
    assert emma("/checkout/success/?order=172")[0] == 404


def test_search_finds_every_word_and_sorts(emma: Visitor) -> None:
    text = emma("/catalogsearch/result/?q=lamp&product_list_order=price")[2]
    names = re.findall(r'html">([^<]+ Lamp)</a>', text)
    assert names == ["Beacon Clip Lamp", "Dune Table Lamp", "Alder Desk Lamp", "Cirrus Floor Lamp"]
    assert "no results" in emma("/catalogsearch/result/?q=lamp+teapot")[2]


def test_a_name_of_a_product_is_text_wherever_it_stands(shop: Shop, admin: Visitor) -> None:
    product = next(iter(shop.store.products.values()))
    form = {
        "product[name]": 'Mug"><b>bold</b>',
        "product[price]": "9.75",
        "product[quantity]": "40",
    }
    admin(f"/admin/catalog/product/edit/id/{product.id}/", form)
    for page in (admin("/")[2], admin("/admin/catalog/product/")[2]):
        assert "Mug" in page and "<b>" not in page


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


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/nothing.html", "/lighting/nothing.html", "/admin/nothing", "/alder-desk-lamp"],
)
def test_unknown_page_is_an_error_page(shop: Shop, path: str) -> None:
    status, _, text = Visitor(shop.url)(path)
    assert (status, "There is no such" in text) == (404, True)


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


def test_grader_finds_the_newest_review(shop: Shop, emma: Visitor) -> None:
    emma(
        "/review/kettle-stone-teapot",
        {"nickname": "Emma", "title": "t", "detail": "d", "rating": "4"},
    )
    visitor = Visitor(shop.url)
    token = json.loads(
        visitor("/rest/default/V1/integration/admin/token", body=json.dumps(TOKEN))[2]
    )
    reviews = json.loads(visitor("/rest/V1/products/LL-302/reviews", token=token)[2])
    assert (reviews[-1]["nickname"], reviews[-1]["ratings"]) == (
        "Emma",
        [{"rating_name": "Rating", "percent": 80, "value": 4}],
    )
    assert json.loads(visitor("/rest/V1/products/LL-205/reviews", token=token)[2]) == []
    assert visitor("/rest/V1/products/none/reviews", token=token)[0] == 404


def test_forum_counts_one_vote_a_person(shop: Shop) -> None:
    visitor = Visitor(shop.environ["REDDIT"])
    visitor("/login", {"_username": "MarvelsGrantMan136", "_password": "test1234"})
    assert 'class="vote vote--user-upvoted' in visitor("/sv/11", {"choice": "1"})[2]
    assert "vote--user" not in visitor("/sv/11", {"choice": "1"})[2]
    visitor("/sv/11", {"choice": "-1"})
    assert shop.store.submissions[0].votes == {"MarvelsGrantMan136": -1}
    assert visitor("/f/lighting/11")[0] == 404
    assert visitor("/submit/desks", {"title": " "})[0] == 400
    assert "Well said" in visitor("/f/desks/11/comment", {"text": "Well said"})[2]


def test_second_invitation_changes_the_role(shop: Shop) -> None:
    visitor = Visitor(shop.environ["GITLAB"])
    visitor("/users/sign_in", {"user[login]": "byteblaze", "user[password]": "hello1234"})
    for role in ("Guest", "Reporter"):
        visitor("/byteblaze/lantern-theme/-/project_members", {"account": "@mira", "role": role})
    assert [
        (m.account, m.role) for m in shop.store.projects["byteblaze/lantern-theme"].members[2:]
    ] == [("mira", "Reporter")]
    for wrong in ({"account": "nobody", "role": "Guest"}, {"account": "mira", "role": "King"}, {}):
        assert visitor("/byteblaze/lantern-theme/-/project_members", wrong)[0] == 400


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


@pytest.mark.parametrize(
    "config", read_configs(shop_configs(), {}), ids=lambda config: str(config.task_id)
)
def test_plays_are_in_webarena_grammar(config: TaskConfig) -> None:
    solution = shop_solutions()[config.task_id]
    for lines in (solution.right, solution.wrong):
        actions = [parse_action(line) for line in lines]
        assert "other" not in {action.kind for action in actions}
        assert [action.is_final for action in actions] == [False] * (len(actions) - 1) + [True]
    assert solution.right != solution.wrong


async def test_play_scrolls_and_names_the_missing() -> None:
    play = ShopPlay(["click [link 'Cart']", "type [textbox 'Qty'] [2] [0]"])
    play.reset(Task(goal=""))
    here = Observation(
        text="Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop'\n\t[7] link 'Cart (2)'\n\t[8] link "
        "'Cart' focused: True"
    )
    step = await play.act(here)
    line = "link 'Cart' focused: True"
    assert (step.action.kind, step.action.text, step.action.target) == (
        "click",
        f"click [8] where [8] is {line}",
        f"[8] {line}",
    )
    assert (await play.act(here)).action.kind == "scroll"
    typed = (await play.act(Observation(text="\t[9] textbox 'Qty' required: False"))).action
    assert (typed.text, typed.value) == (
        "type [9] [2] where [9] is textbox 'Qty' required: False",
        "2",
    )
    assert (await play.act(here)).action.is_final
    play.reset(Task(goal=""))
    with pytest.raises(UsageError, match="line 1 of the script.*link 'Cart'"):
        for _ in range(50):
            await play.act(Observation(text="[1] RootWebArea ''"))


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
