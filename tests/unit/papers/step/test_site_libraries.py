"""The libraries of WebArena's sites and of the airline's desk: complete, small enough, without
hosts, true to the pages.
"""

from __future__ import annotations

import ast
import html
import http.cookiejar
import re
import urllib.parse
import urllib.request

import pytest

from prill.emulators.shop import Shop
from prill.papers.step.agent import ChatPolicy, ReplyTurn, StepAgent, StepSpec
from prill.papers.step.library import Template, library_for, load_library
from prill.testing import ScriptedModel
from prill.types import Observation, Task

ROOTS = {"github_agent", "reddit_agent", "shopping_admin_agent", "shopping_agent", "maps_agent"}
# arXiv 2310.03720: fourteen policies below the five roots, with what each root may call.
CALLS = {
    "github_agent": {"find_commits", "search_issues", "create_project", "create_group"},
    "reddit_agent": {"find_subreddit", "find_user"},
    "shopping_admin_agent": {"find_customer_review", "find_order", "search_customer"},
    "shopping_agent": {"search_order", "list_products", "search_reviews"},
    "maps_agent": {"find_directions", "search_nearest_place"},
}
TEMPLATES = [
    (name, one) for name in ("webarena", "airline") for one in sorted(load_library(name).templates)
]


def template(library: str, name: str) -> Template:
    return load_library(library).templates[name]


def whole(one: Template) -> str:
    """All that the template says of its own."""
    return "\n".join(
        [
            one.front.purpose,
            one.usage,
            one.front.remind,
            one.rules,
            *(repr(each) for each in one.examples),
        ]
    )


def test_webarena_has_its_nineteen_policies() -> None:
    library = load_library("webarena")
    assert {name: set(library.templates[name].front.calls) for name in ROOTS} == CALLS
    assert set(library.templates) == ROOTS | set.union(*CALLS.values()) | {"web_agent"}
    assert set(template("webarena", "web_agent").front.calls) == ROOTS
    assert sum(map(len, CALLS.values())) == 14


@pytest.mark.parametrize(
    ("task", "given", "shown"),
    [("1002", None, True), ("12", None, False), ("12", 9, True), ("1002", 0, False)],
)
async def test_examples_stand_where_sites_look_so(
    task: str, given: int | None, shown: bool
) -> None:
    """They show the local shop; on the benchmark's sites, which look otherwise, they would
    mislead.
    """
    model = ScriptedModel(["REASON: r\nACTION: stop [x]"])
    agent = StepAgent(model, StepSpec(examples=given))
    agent.reset(Task(id=f"webarena.{task}", goal="g", site="shopping_admin"))
    await agent.act(Observation(text="[1] link 'Orders'", url="http://shop.example/admin"))
    assert ("EXAMPLE 1" in str(model.seen[0][0].parts[0])) == shown


def test_the_root_of_several_sites_can_work_on_a_page() -> None:
    assert {"click", "type", "scroll"} <= set(template("webarena", "web_agent").front.verbs)


def test_airline_has_a_root_and_four_skills() -> None:
    skills = {"low_level_action", "fill_text", "choose_date", "select_flight"}
    assert set(load_library("airline").templates) == {"airline_agent"} | skills
    assert set(template("airline", "airline_agent").front.calls) == skills
    assert all(template("airline", name).examples for name in skills)


@pytest.mark.parametrize(
    ("task", "library", "root"),
    [
        (Task(id="webarena.7", goal="g", site="map"), "webarena", "maps_agent"),
        (Task(id="webarena.1009", goal="g", site="reddit"), "webarena", "reddit_agent"),
        (Task(id="webarena.100", goal="g", site="multi"), "webarena", "web_agent"),
        (
            Task(id="airline/book-flight?seed=0", goal="g", site="airline"),
            "airline",
            "airline_agent",
        ),
    ],
)
def test_tasks_find_library_and_root(task: Task, library: str, root: str) -> None:
    found = library_for("auto", task)
    assert (found.name, found.get_root(task.site)) == (library, root)


@pytest.mark.parametrize(("library", "name"), TEMPLATES)
def test_templates_stay_under_4000_tokens(library: str, name: str) -> None:
    assert ChatPolicy(load_library(library)).tokens(template(library, name)) < 4000


@pytest.mark.parametrize(("library", "name"), TEMPLATES)
def test_templates_name_no_hosts(library: str, name: str) -> None:
    # Local addresses stand in examples only; rules have the page's own.
    one = template(library, name)
    assert "://" not in one.rules
    assert not re.search(
        r"\b(?!example\.com)[\w-]+\.(com|org|net)\b", re.sub(r"@[\w.-]+", "", whole(one))
    )


def test_user_pages_are_on_the_page_host() -> None:
    asking = ChatPolicy(load_library("webarena"))
    turn = ReplyTurn("find_user [x]", "[1] link 'Home'", url="http://localhost:9999/f/desks")
    system = str(asking.messages(template("webarena", "find_user"), turn, called=True)[0].parts[0])
    assert "http://localhost:9999/user/NAME" in system


@pytest.mark.parametrize(("library", "name"), TEMPLATES)
def test_examples_call_by_the_right_verb(library: str, name: str) -> None:
    one = template(library, name)
    root = name.endswith("_agent")
    for example in one.examples:
        assert root or example.objective.startswith(f"{name} [")
        assert not re.match(r"[\"'`]", example.action)
        # Every number that an action or a reason names is on the page; the last of `type` is no
        # element.
        written = re.sub(r" \[[01]\]\Z", "", example.action)
        shown = set(re.findall(r"\[(\d+)\]", example.observation))
        assert (
            set(
                re.findall(
                    r"\[(\d+)\]", re.sub(r"\[[^\]]*\D[^\]]*\]", "", f"{example.reason} {written}")
                )
            )
            <= shown
        )


def test_older_orders_are_on_later_pages() -> None:
    rule = next(
        line for line in template("webarena", "search_order").rules.splitlines() if "Next" in line
    )
    assert re.search(r"Next leads to older .* Previous to newer", rule)


def site(address: str, login: str, form: dict[str, str], paths: list[str]) -> str:
    """The pages of one site as one text."""
    opener = urllib.request.build_opener(
        urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    )
    opener.open(address + login, urllib.parse.urlencode(form).encode(), timeout=30).close()
    pages = []
    for path in paths:
        with opener.open(address + path, timeout=30) as answer:
            pages.append(answer.read().decode())
    return html.unescape(" ".join(pages))


def test_examples_show_what_the_shop_shows() -> None:
    emma = {"login[username]": "emma.lopez@gmail.com", "login[password]": "Password.123"}
    orders = ["/sales/order/history/", "/sales/order/view/order_id/174/"]
    goods = [
        "/",
        "/lighting.html",
        "/lighting.html?product_list_order=price",
        "/grove-dotted-notebook.html",
    ]
    with Shop() as shop:
        at = shop.environ
        text = site(at["SHOPPING"], "/customer/account/login/", emma, [*goods, *orders])
        admin = {"login[username]": "admin", "login[password]": "admin1234"}
        text += site(at["SHOPPING"], "/admin", admin, ["/admin/sales/order/"])
        text += site(
            at["REDDIT"],
            "/login",
            {"_username": "MarvelsGrantMan136", "_password": "test1234"},
            ["/", "/f/desks", "/submit/desks"],
        )
        project = "/byteblaze/lantern-theme"
        git = {"user[login]": "byteblaze", "user[password]": "hello1234"}
        text += site(
            at["GITLAB"], "/users/sign_in", git, ["/", project, f"{project}/-/project_members"]
        )
    plain = re.sub(r"\s+", " ", text + re.sub(r"<[^>]+>", " ", text))
    for one in load_library("webarena").templates.values():
        for example in one.examples:
            typed = " ".join(example.previous)
            for line in example.observation.splitlines():
                if quoted := re.search(r"\] \w+ ('.*'|\".*\")", line):
                    words = re.sub(r"\s+", " ", str(ast.literal_eval(quoted[1]))).strip()
                    # A cell's name joins the pieces of what is in it.
                    assert (
                        words in plain
                        or words in typed
                        or all(word in plain for word in words.split())
                    ), (
                        one.front.name,
                        line,
                    )
