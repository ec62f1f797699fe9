"""The five functions that WebArena's checks may call (arXiv 2307.13854), as a fixed table: nothing of a check is run as code.

They ask the shop's programming interface for its latest order and reviews, cut a forum's address down to a post, or read a
member's role from GitLab's page. Whatever goes wrong on the way leaves the check undecided.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from prill.evaluators.oracle_checks import Undecidable

if TYPE_CHECKING:
    import aiohttp
    from playwright.async_api import Page

_T = TypeVar("_T")
PREFIX = "func:"
PAGE, LAST_URL = "__page__", "__last_url__"
TIMEOUT = 30.0  # seconds for one answer of a site
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
    """Where the shop is, and who may ask it about orders and reviews: by default the account in WebArena's own image."""

    address: str | None
    username: str = "admin"
    password: str = field(default="admin1234", repr=False)


def shop_access(environ: Mapping[str, str] | None = None) -> ShopAccess:
    """Access as SHOPPING, SHOPPING_ADMIN_USERNAME and SHOPPING_ADMIN_PASSWORD in `environ` (os.environ) say."""
    values = os.environ if environ is None else environ
    address = (values.get("SHOPPING") or values.get("WA_SHOPPING") or "").rstrip("/") or None
    account = {"username": values.get("SHOPPING_ADMIN_USERNAME"), "password": values.get("SHOPPING_ADMIN_PASSWORD")}
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
    """What a function may see: the shop, the page that is being checked, and the address that the agent ended on."""

    shop: ShopAccess
    page: Page
    last_url: str

    async def call(self, written: str) -> str:
        """The result of `name('argument', …)`. Raises Undecidable."""
        name, arguments = read_call(written)
        function, wanted = _FUNCTIONS[name]
        if len(arguments) != wanted:
            raise Undecidable(f"{name} takes {wanted} arguments, not {len(arguments)}")
        return await function(self, *(argument.replace(LAST_URL, self.last_url) for argument in arguments))


def read_call(written: str) -> tuple[str, tuple[str, ...]]:
    """The name and the arguments of a call such as `name(__page__, 'text')`. Raises Undecidable for anything else."""
    try:
        call = ast.parse(written.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Undecidable(f"{written!r} is not a call of a function") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise Undecidable(f"{written!r} is not a call of a function")
    if call.func.id not in _FUNCTIONS:
        raise Undecidable(f"there is no function {call.func.id!r}; there are {', '.join(_FUNCTIONS)}")
    arguments = []
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            arguments.append(argument.value)
        elif isinstance(argument, ast.Name) and argument.id in (PAGE, LAST_URL):
            arguments.append(argument.id)
        else:
            raise Undecidable(f"{ast.unparse(argument)} in {written!r} is no text, {PAGE} or {LAST_URL}")
    return call.func.id, tuple(arguments)


def post_url(url: str) -> str:
    """The address of the forum post that an address belongs to; the address itself when it belongs to none."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/" if len(path) >= 4 and path[1] == "f" else url


async def _post_url(caller: Caller, url: str) -> str:
    return post_url(url)


async def _latest_order_url(caller: Caller) -> str:
    orders = await _ask_shop(caller.shop, "orders", msgspec.json.Decoder(_Orders), _NEWEST)
    if not orders.items or not orders.items[0].increment_id.isdecimal():
        raise Undecidable("the shop names no latest order")
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
        raise Undecidable(f"the latest review of {sku} has no rating")
    return str(ratings[0].percent)


async def _reviews(caller: Caller, sku: str) -> tuple[_Review, ...]:
    return await _ask_shop(
        caller.shop, f"products/{quote(sku, safe='')}/reviews", msgspec.json.Decoder(tuple[_Review, ...]), {}
    )


async def _member_role(caller: Caller, page: str, name: str) -> str:
    return str(await caller.page.evaluate(_ROLE, name))


# By the names that the checks use, with the number of arguments.
_FUNCTIONS: dict[str, tuple[Callable[..., Awaitable[str]], int]] = {
    "shopping_get_latest_order_url": (_latest_order_url, 0),
    "shopping_get_sku_latest_review_author": (_latest_author, 1),
    "shopping_get_sku_latest_review_rating": (_latest_rating, 1),
    "reddit_get_post_url": (_post_url, 1),
    "gitlab_get_project_memeber_role": (_member_role, 2),
}


async def _ask_shop(shop: ShopAccess, path: str, kind: msgspec.json.Decoder[_T], params: Mapping[str, str]) -> _T:
    """What the shop's REST interface answers to its administrator."""
    import aiohttp

    if shop.address is None:
        raise Undecidable("the environment variable SHOPPING, the address of the shop, is not set")
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
            account = {"username": shop.username, "password": shop.password}
            async with session.post(f"{shop.address}/rest/default/V1/integration/admin/token", json=account) as answer:
                token = msgspec.json.decode(await _body(answer, "the login"), type=str)
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{shop.address}/rest/V1/{path}", params=params, headers=headers) as answer:
                return kind.decode(await _body(answer, path))
    except (TimeoutError, aiohttp.ClientError, ValueError) as error:
        raise Undecidable(f"the shop's interface at {shop.address} gave no usable answer ({type(error).__name__})") from None


async def _body(answer: aiohttp.ClientResponse, what: str) -> bytes:
    if answer.status != 200:
        raise Undecidable(f"the shop's interface answers {what} with status {answer.status}")
    return await answer.read()
