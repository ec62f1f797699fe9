"""WebArena's program_html evaluator: checks the content of pages after the episode.

Each page is opened in a new tab in the agent's browser context, and closed afterwards; `last` is
the agent's own page, unchanged. The original waits three seconds after each page. Here, a check that
passes once the page has settled ends at once, and a failed one is repeated until three seconds have
passed. A check on a site that is down (status 500 and above) is undecided.

A check may call five functions from a fixed table; no part of a check is executed as code. They
request the latest order and reviews from the shop's REST API, reduce a forum URL to that of its
post, or read a member's role from GitLab's page. Any error leaves the check undecided.

`paper` compares as the original code does. `fixed` corrects these known defects:

| selected                  | required     | paper | fixed | why |
|---------------------------|--------------|-------|-------|-----|
| null                      | "None"       | yes   | no    | a missing element became the word None |
| a script that fails       | exact ""     | yes   | no    | a missing value equalled an empty text |
| the text `&lt;b&gt;`      | "&lt;b&gt;"  | no    | yes   | texts from scripts were decoded as if they were HTML source |
| "Blue", "&nbsp;", "Band"  | "Blue Band"  | no    | yes   | a no-break space is a space |
| "$120"                    | "20"         | yes   | no    | numbers as in oracle_answers; "20.0000" holds "20" in both |
"""  # noqa: E501

from __future__ import annotations

import ast
import asyncio
import html
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from prill.datasets.webarena_tasks import Check, Mode, PageCheck, UndecidableError, require_sites
from prill.emulators.webarena.oracle_answers import equals, includes
from prill.models.replies import excerpt

if TYPE_CHECKING:
    import aiohttp
    from playwright.async_api import Page


_T = TypeVar("_T")
PREFIX = "func:"
PAGE, LAST_URL = "__page__", "__last_url__"
TIMEOUT = 30.0  # seconds for one response of a site
SETTLE = 3.0  # seconds: the original's sleep
LIMIT = 90.0  # seconds for one check, which may open two URLs
_LAST = "last"
_SCRIPTS = ("document.", "[...document.")
_OR = " |OR| "
_AGAIN = 0.25  # seconds between two attempts
_CLOSING = 10.0  # seconds
_MEMBER = "td[data-label='Account'] span.gl-avatar-labeled-sublabel"
_ROLE = f"""(name) => {{
  const names = [...document.querySelectorAll("{_MEMBER}")].map((one) => one.outerText);
  const role = document.querySelectorAll("td.col-max-role span")[names.indexOf("@" + name)];
  return role ? role.outerText : "";
}}"""
_NEWEST = {
    "searchCriteria[sortOrders][0][field]": "created_at",
    "searchCriteria[sortOrders][0][direction]": "DESC",
    "searchCriteria[pageSize]": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopAccess:
    """The shop's address, and the account for requests about orders and reviews. The default is the
    account in WebArena's own image.
    """

    address: str | None
    username: str = "admin"
    password: str = field(default="admin1234", repr=False)


def shop_access(environ: Mapping[str, str] | None = None) -> ShopAccess:
    """Reads SHOPPING and SHOPPING_ADMIN_USERNAME and _PASSWORD from `environ` (os.environ)."""
    values = os.environ if environ is None else environ
    address = (values.get("SHOPPING") or values.get("WA_SHOPPING") or "").rstrip("/") or None
    account = {
        "username": values.get("SHOPPING_ADMIN_USERNAME"),
        "password": values.get("SHOPPING_ADMIN_PASSWORD"),
    }
    return ShopAccess(address=address, **{key: value for key, value in account.items() if value})


class _Rating(msgspec.Struct):
    rating_name: str
    percent: int | float


class _Review(msgspec.Struct):
    nickname: str = ""
    ratings: tuple[_Rating, ...] = ()


class _Order(msgspec.Struct):
    increment_id: str


class _Orders(msgspec.Struct):
    items: tuple[_Order, ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """The inputs of a function: the shop, the checked page, and the agent's last address."""

    shop: ShopAccess
    page: Page
    last_url: str

    async def call(self, written: str) -> str:
        """Returns the result of `name('argument', …)`. Raises UndecidableError."""
        name, arguments = read_call(written)
        function, wanted = _FUNCTIONS[name]
        if len(arguments) != wanted:
            raise UndecidableError(f"{name} takes {wanted} arguments, not {len(arguments)}")
        return await function(
            self, *(argument.replace(LAST_URL, self.last_url) for argument in arguments)
        )


def read_call(written: str) -> tuple[str, tuple[str, ...]]:
    """Parses a call such as `name(__page__, 'text')` into name and arguments. Raises
    UndecidableError for anything else.
    """
    try:
        call = ast.parse(written.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UndecidableError(f"{written!r} is not a call of a function") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise UndecidableError(f"{written!r} is not a call of a function")
    if call.func.id not in _FUNCTIONS:
        raise UndecidableError(
            f"unknown function {call.func.id!r}; expected one of {', '.join(_FUNCTIONS)}"
        )
    arguments = []
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            arguments.append(argument.value)
        elif isinstance(argument, ast.Name) and argument.id in (PAGE, LAST_URL):
            arguments.append(argument.id)
        else:
            raise UndecidableError(
                f"{ast.unparse(argument)} in {written!r} is not a string, {PAGE} or {LAST_URL}"
            )
    return call.func.id, tuple(arguments)


def post_url(url: str) -> str:
    """Returns the URL of the forum post that a URL belongs to; other URLs are unchanged."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    return (
        f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"
        if len(path) >= 4 and path[1] == "f"
        else url
    )


async def _post_url(caller: Caller, url: str) -> str:
    return post_url(url)


async def _latest_order_url(caller: Caller) -> str:
    orders = await _ask_shop(caller.shop, "orders", msgspec.json.Decoder(_Orders), _NEWEST)
    if not orders.items or not orders.items[0].increment_id.isdecimal():
        raise UndecidableError("the shop's response contains no latest order")
    return f"{caller.shop.address}/sales/order/view/order_id/{int(orders.items[0].increment_id)}/"


async def _latest_author(caller: Caller, sku: str) -> str:
    reviews = await _reviews(caller, sku)
    return reviews[-1].nickname if reviews else ""


async def _latest_rating(caller: Caller, sku: str) -> str:
    reviews = await _reviews(caller, sku)
    if not reviews:
        return ""
    ratings = reviews[-1].ratings
    if not ratings or ratings[0].rating_name != "Rating":
        raise UndecidableError(f"the latest review of {sku} has no rating")
    return str(ratings[0].percent)


async def _reviews(caller: Caller, sku: str) -> tuple[_Review, ...]:
    return await _ask_shop(
        caller.shop,
        f"products/{quote(sku, safe='')}/reviews",
        msgspec.json.Decoder(tuple[_Review, ...]),
        {},
    )


async def _member_role(caller: Caller, page: str, name: str) -> str:
    return str(await caller.page.evaluate(_ROLE, name))


# The functions by the names in checks, with their number of arguments.
_FUNCTIONS: dict[str, tuple[Callable[..., Awaitable[str]], int]] = {
    "shopping_get_latest_order_url": (_latest_order_url, 0),
    "shopping_get_sku_latest_review_author": (_latest_author, 1),
    "shopping_get_sku_latest_review_rating": (_latest_rating, 1),
    "reddit_get_post_url": (_post_url, 1),
    "gitlab_get_project_memeber_role": (_member_role, 2),
}


async def _ask_shop(
    shop: ShopAccess, path: str, kind: msgspec.json.Decoder[_T], params: Mapping[str, str]
) -> _T:
    """Requests the shop's REST API as its administrator."""
    import aiohttp

    if shop.address is None:
        raise UndecidableError(
            "the environment variable SHOPPING, the address of the shop, is not set"
        )
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
            account = {"username": shop.username, "password": shop.password}
            async with session.post(
                f"{shop.address}/rest/default/V1/integration/admin/token", json=account
            ) as answer:
                token = msgspec.json.decode(await _body(answer, "the login"), type=str)
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(
                f"{shop.address}/rest/V1/{path}", params=params, headers=headers
            ) as answer:
                return kind.decode(await _body(answer, path))
    except (TimeoutError, aiohttp.ClientError, ValueError) as error:
        raise UndecidableError(
            f"the API of the shop at {shop.address} gave no usable response "
            f"({type(error).__name__})"
        ) from None


async def _body(answer: aiohttp.ClientResponse, what: str) -> bytes:
    if answer.status != 200:
        raise UndecidableError(
            f"the API of the shop responds to {what} with status {answer.status}"
        )
    return await answer.read()


async def check_pages(
    checks: Sequence[PageCheck],
    page: Page | None,
    shop: ShopAccess,
    mode: Mode,
    settle: float = SETTLE,
) -> list[Check]:
    """Returns the checks in order, undecided without a page, or if a page cannot be opened.

    `page` stays unchanged except for the `prep_actions` of checks on `last`.
    """
    if page is None:
        return [Check(None, "program_html: no browser is available") for _ in checks]
    return [await _checked(check, page, shop, mode, settle) for check in checks]


async def _checked(
    check: PageCheck, page: Page, shop: ShopAccess, mode: Mode, settle: float
) -> Check:
    from playwright.async_api import Error

    what = f"program_html: {check.url} {check.locator}".rstrip()
    caller = Caller(shop, page, page.url)
    try:
        require_sites(check.url)
        async with asyncio.timeout(LIMIT):
            url = (
                await caller.call(check.url.removeprefix(PREFIX))
                if check.url.startswith(PREFIX)
                else check.url
            )
            if url == _LAST:
                return await _look(check, caller, what, mode, 0.0)
            tab = await page.context.new_page()
            try:
                answer = await tab.goto(url)
                if answer is not None and answer.status >= 500:
                    raise UndecidableError(f"the site responds with status {answer.status}")
                return await _look(check, Caller(shop, tab, page.url), what, mode, settle)
            finally:
                with suppress(Error, TimeoutError):
                    async with asyncio.timeout(_CLOSING):
                        await tab.close()
    except UndecidableError as reason:
        return Check(None, f"{what}: {reason}")
    except Error as error:
        return Check(None, f"{what}: the page cannot be read ({error.message.splitlines()[0]})")
    except TimeoutError:
        return Check(None, f"{what}: no result within {LIMIT:g} s")


async def _look(check: PageCheck, caller: Caller, what: str, mode: Mode, settle: float) -> Check:
    """Checks the page of `caller`, repeatedly for up to `settle` seconds after it has loaded."""
    from playwright.async_api import TimeoutError as PageTimeout

    clock = asyncio.get_running_loop().time
    end = clock() + settle
    with suppress(PageTimeout):
        if settle:
            await caller.page.wait_for_load_state("networkidle", timeout=settle * 1000)
    if check.prep_actions:
        # Some actions undo themselves if repeated, so the page is checked only once, when it has
        # certainly settled.
        await asyncio.sleep(max(0.0, end - clock()))
        await _prepare(check, caller.page)
    while True:
        contents = await _selected(check, caller, mode)
        missing = _missing(check, contents, mode)
        if missing is None or check.prep_actions or clock() >= end:
            # The beginning of a whole page is not informative.
            gives = f" gives {excerpt(str(contents))}" if check.locator.strip() else ""
            return Check(missing is None, what if missing is None else f"{what}{gives}: {missing}")
        await asyncio.sleep(_AGAIN)


async def _prepare(check: PageCheck, page: Page) -> None:
    from playwright.async_api import Error

    with suppress(Error):  # as in the original, the selected content decides
        for action in check.prep_actions:
            await page.evaluate(f"() => {action}")


async def _selected(check: PageCheck, caller: Caller, mode: Mode) -> str | None:
    """Returns the text that the locator selects; None if it selects nothing and the mode
    distinguishes that from an empty text.
    """
    locator = check.locator
    if not locator.strip():
        return html.unescape(await caller.page.content())
    if locator.startswith(_SCRIPTS):
        contents = await _evaluated(locator, caller.page, mode)
    elif locator.startswith(PREFIX):
        contents = await caller.call(locator.removeprefix(PREFIX))
    else:
        raise UndecidableError(f"the kind of the locator {locator!r} is unknown")
    return html.unescape(contents) if mode == "paper" and contents is not None else contents


async def _evaluated(script: str, page: Page, mode: Mode) -> str | None:
    from playwright.async_api import Error

    nothing = "" if mode == "paper" else None
    try:
        value = await page.evaluate(f"() => {script}")
    except Error:
        # Either the script failed, or the page was closed. In the second case the next line fails
        # too, and the check is undecided.
        await page.evaluate("() => 1")
        return nothing
    return nothing if value is None and mode == "fixed" else str(value)


def _missing(check: PageCheck, contents: str | None, mode: Mode) -> str | None:
    """Describes the required content that is missing; None if nothing is missing."""
    required = check.required_contents
    if required.exact_match is None and not required.must_include:
        raise UndecidableError("the check has no requirement")
    if contents is None:
        return "nothing was found"
    if required.exact_match is not None:
        return (
            None
            if equals(required.exact_match, contents, mode)
            else f"it is not {required.exact_match!r}"
        )
    absent = [
        one
        for one in required.must_include
        if not any(includes(part, contents, mode) for part in one.split(_OR))
    ]
    return f"it does not include {', '.join(map(repr, absent))}" if absent else None
