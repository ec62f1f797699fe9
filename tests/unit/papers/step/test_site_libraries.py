"""The libraries of WebArena's sites and of the airline's desk: complete, small enough, without
hosts, true to the pages.
"""

from __future__ import annotations

import html
import http.cookiejar
import urllib.parse
import urllib.request

import pytest

from prill.papers.step.library import Template, library_for, load_library
from prill.types import Task

ROOTS = {"github_agent", "reddit_agent", "shopping_admin_agent", "shopping_agent", "maps_agent"}
# arXiv 2310.03720: fourteen policies below the five roots, with what each root may call.
CALLS = {
    "github_agent": {"find_commits", "search_issues", "create_project", "create_group"},
    "reddit_agent": {"find_subreddit", "find_user"},
    "shopping_admin_agent": {"find_customer_review", "find_order", "search_customer"},
    "shopping_agent": {"search_order", "list_products", "search_reviews"},
    "maps_agent": {"find_directions", "search_nearest_place"},
}


def template(library: str, name: str) -> Template:
    return load_library(library).templates[name]


def test_webarena_has_its_nineteen_policies() -> None:
    library = load_library("webarena")
    assert {name: set(library.templates[name].front.calls) for name in ROOTS} == CALLS
    assert set(library.templates) == ROOTS | set.union(*CALLS.values()) | {"web_agent"}
    assert set(template("webarena", "web_agent").front.calls) == ROOTS
    assert sum(map(len, CALLS.values())) == 14


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
