"""WebArena's program_html in the real Chromium, on pages made up here and served without a
network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from prill.datasets.webarena_tasks import Check, Mode, PageCheck, PageContents
from prill.emulators.browser.chromium import Chromium
from prill.emulators.webarena.oracle_pages import ShopAccess, check_pages
from tests.support.closing import closed
from tests.support.emulators.webarena_tasks import MODES

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Route

PAGES = {
    "/": "<h1>Blue&nbsp;Band</h1><p id=n>20.0000</p><p id=m>$120</p><input id=i value='a "
    "&amp;amp; b'><p id=code>&amp;lt;b&amp;gt;</p><input id=c type=checkbox checked>",
    "/late": (
        "<p id=p>loading</p><script>setTimeout(() => "
        "document.querySelector('#p').textContent = 'there', 900)</script>"
    ),
    "/f/books/12/": "<article>a post</article>",
    "/fold": (
        "<b id=t onclick=\"document.querySelector('#in').hidden ^= true\">more</b><p id=in "
        "hidden>40</p>"
    ),
    "/members": "".join(
        "<table><tr><td data-label=Account><span "
        f"class=gl-avatar-labeled-sublabel>@{name}</span></td>"
        f"<td class=col-max-role><span>{role}</span></td></tr></table>"
        for name, role in (("ann", "Guest"), ("bob", "Reporter"))
    ),
}
NOWHERE = ShopAccess(address=None)


class Probe:
    """A page of the real browser on `http://site.test/`."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def check(
        self,
        url: str,
        locator: str,
        mode: Mode = "paper",
        prep: tuple[str, ...] = (),
        **required: Any,
    ) -> Check:
        target = PageCheck(
            url=url, locator=locator, required_contents=PageContents(**required), prep_actions=prep
        )
        (found,) = await check_pages([target], self.page, NOWHERE, mode, settle=1.5)
        return found

    async def both(self, locator: str, **required: Any) -> tuple[bool | None, bool | None]:
        paper, fixed = [
            (await self.check("last", locator, mode, **required)).passed for mode in MODES
        ]
        return paper, fixed


async def site(browser: Chromium) -> BrowserContext:
    """A context in which `http://site.test/` has these pages."""

    async def serve(route: Route) -> None:
        path = "/" + route.request.url.split("/", 3)[3]
        body = PAGES.get(path)
        if body is None:
            await (
                route.fulfill(status=502, body="a bad gateway")
                if path == "/down"
                else route.abort()
            )
        else:
            await route.fulfill(
                body=f"<!doctype html><title>t</title>{body}",
                content_type="text/html; charset=utf-8",
            )

    context = await browser.context(800, 600)
    await context.route("**/*", serve)
    return context


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(browser: Chromium) -> AsyncIterator[BrowserContext]:
    context = await site(browser)
    yield context
    await closed(context)


@pytest_asyncio.fixture(loop_scope="module")
async def tested(shared: BrowserContext) -> AsyncIterator[Probe]:
    page = await shared.new_page()
    await page.goto("http://site.test/")
    yield Probe(page)
    await closed(page)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("locator", "required", "paper", "fixed"),
    [
        ("", {"must_include": ("Blue\u00a0Band", "20.0000")}, True, True),
        ("", {"must_include": ("Blue Band",)}, False, True),
        ("  ", {"must_include": ("Green Band |OR| BLUE",)}, True, True),
        ("", {"must_include": ("Green Band", "Blue")}, False, False),
        ("document.querySelector('h1').outerText", {"must_include": ("blue",)}, True, True),
        (
            "[...document.querySelectorAll('p')].map((p) => p.id).join()",
            {"exact_match": "n,m,code"},
            True,
            True,
        ),
        ("document.querySelector('#n').outerText", {"must_include": ("20",)}, True, True),
        ("document.querySelector('#m').outerText", {"must_include": ("20",)}, True, False),
        ("document.querySelector('#c').checked", {"exact_match": "true"}, True, True),
        ("document.querySelector('#gone')", {"exact_match": "None"}, True, False),
        ("document.querySelector('#gone').outerText", {"exact_match": ""}, True, False),
        ("document.querySelector('#gone').outerText", {"must_include": ("a",)}, False, False),
        ("document.querySelector('#code').outerText", {"exact_match": "&lt;b&gt;"}, False, True),
        ("document.querySelector('#i').value", {"exact_match": "a & b"}, True, False),
        ("document.querySelector('broken", {"must_include": ("a",)}, False, False),
        ("window.location", {"must_include": ("a",)}, None, None),
        ("document.body.outerText", {}, None, None),
        ("document.location.reload()", {"must_include": ("a",)}, False, False),
    ],
)
async def test_picked_contents_are_compared(
    tested: Probe, locator: str, required: dict[str, Any], paper: bool | None, fixed: bool | None
) -> None:
    assert await tested.both(locator, **required) == (paper, fixed)


async def test_late_contents_are_waited_for(tested: Probe) -> None:
    late = "document.querySelector('#p').outerText"
    assert (
        await tested.check("http://site.test/late", late, must_include=("there",))
    ).passed is True
    found = await tested.check("http://site.test/late", late, must_include=("here and now",))
    assert found == Check(
        False,
        f"program_html: http://site.test/late {late} gives 'there': it does not include 'here and "
        "now'",
    )


async def test_table_functions_give_addresses(tested: Probe) -> None:
    await tested.page.goto("http://site.test/f/books/12/")
    url = "func:reddit_get_post_url('__last_url__')"
    assert (await tested.check(url, "document.body.outerText", exact_match="a post")).passed is True
    for name, role in (("bob", "Reporter"), ("ann", "Guest"), ("nobody", "Guest")):
        member = f"func:gitlab_get_project_memeber_role(__page__, '{name}')"
        found = await tested.check("http://site.test/members", member, must_include=(role,))
        assert found.passed is (name != "nobody")
