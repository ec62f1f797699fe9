"""Requests, responses and the shared page layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources

from prill.emulators.shop.store import Customer, Product, Site, Store, money


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopRequest:
    """One request.

    `path` is without the query, `parts` are those of the route's path, `user` is who is signed in
    on this site, `session` the cookie.
    """

    store: Store
    path: str
    parts: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    user: str | None
    session: str

    @property
    def customer(self) -> Customer:
        """Whose account it is, on pages that need one."""
        assert self.user is not None
        return self.store.customers[self.user]


@dataclass(frozen=True, slots=True)
class Response:
    """One response. With `location` it is a redirection; `session` is a cookie to set, empty text
    one to remove.
    """

    body: str = ""
    status: int = 200
    location: str | None = None
    session: str | None = None
    kind: str = "text/html"


Handler = Callable[[ShopRequest], Response]


@dataclass(frozen=True, slots=True)
class Route:
    """A path of a site; `private` ones lead those who are not signed in to the login page."""

    method: str
    path: str
    handler: Handler
    private: bool = False


class PageError(Exception):
    """A page that cannot be had: its status and what to say."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def whole_number(text: str, name: str, least: int = 0, most: int = 10_000) -> int:
    """The number that a form holds; raises Refused."""
    try:
        number = int(text.strip())
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise PageError(400, f"{name} must be a whole number from {least} to {most}.")
    return number


def redirect(location: str, session: str | None = None) -> Response:
    """To another page, after a form."""
    return Response(status=303, location=location, session=session)


def shop_page(
    request: ShopRequest, title: str, body: str, *, status: int = 200, message: str = ""
) -> Response:
    """A page of the shop with its head, categories and foot. `said` is a message above the page."""
    if request.user is None:
        account, welcome = (
            '<a href="/customer/account/login/">Sign In</a>',
            "Welcome to Larch &amp; Lantern",
        )
    else:
        count = sum(request.customer.cart.values())
        account = (
            '<a href="/customer/account/">My Account</a><a href="/sales/order/history/">My '
            "Orders</a>"
            f'<a href="/wishlist/">My Wish List</a><a href="/checkout/cart/">My Cart ({count})</a>'
            '<a href="/customer/account/logout/">Sign Out</a>'
        )
        welcome = f"Welcome, {escape(request.customer.name)}!"
    tops = sorted({product.category.split("/")[0] for product in request.store.products.values()})
    links = "".join(f'<a href="/{top}.html">{top.capitalize()}</a>' for top in tops)
    head = (
        f'<header class="top"><span>{welcome}</span><nav '
        f'aria-label="Account">{account}</nav></header>'
        '<div class="bar"><a class="logo" href="/">Larch &amp; Lantern</a>'
        '<form role="search" action="/catalogsearch/result/"><input type="search" name="q" '
        'aria-label="Search entire store"'
        ' placeholder="Search entire store" '
        f'value="{escape(request.query.get("q", ""))}"><button>Search</button></form></div>'
        f'<nav class="menu" aria-label="Categories">{links}</nav>'
    )
    foot = (
        '<footer><a href="/contact/">Contact Us</a><span>Larch &amp; Lantern, things for desks '
        "and kitchens</span></footer>"
    )
    return Response(_frame(title, head, body, foot, message, "shop"), status)


def site_page(
    site: Site,
    title: str,
    links: Iterable[tuple[str, str]],
    body: str,
    *,
    status: int = 200,
    message: str = "",
) -> Response:
    """A page of one of the other sites; `links` are names and addresses of its menu."""
    menu = "".join(f'<a href="{escape(address)}">{escape(name)}</a>' for name, address in links)
    names = {"shopping_admin": "Lantern Admin", "reddit": "Forum", "gitlab": "Projects"}
    home = "/admin/dashboard" if site == "shopping_admin" else "/"
    head = (
        f'<div class="bar"><a class="logo" href="{home}">{names[site]}</a><nav '
        f'aria-label="Menu">{menu}</nav></div>'
    )
    return Response(_frame(title, head, body, "", message, site), status)


def _frame(title: str, head: str, body: str, foot: str, message: str, look: str) -> str:
    notice = f'<p role="status" class="said">{escape(message)}</p>' if message else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{style()}</style></head><body class="{look}">{head}'
        f"<main>{notice}<h1>{escape(title)}</h1>{body}</main>{foot}</body></html>"
    )


def style() -> str:
    """The style sheet of all sites."""
    return resources.files("prill.emulators.shop").joinpath("shop.css").read_text(encoding="utf-8")


def field(label: str, name: str, value: str = "", *, kind: str = "text", hint: str = "") -> str:
    """A labelled input."""
    more = f' placeholder="{escape(hint)}"' if hint else ""
    return (
        f'<label class="field"><span>{escape(label)}</span>'
        f'<input type="{kind}" name="{escape(name)}" value="{escape(value)}" '
        f'autocomplete="off"{more}></label>'
    )


def button_form(address: str, button: str, fields: str = "") -> str:
    """A form that is sent with one button."""
    return (
        '<form method="post" '
        f'action="{escape(address)}">{fields}<button>{escape(button)}</button></form>'
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]], name: str = "") -> str:
    """A table; the cells are HTML, the head is text."""
    tops = "".join(f"<th>{escape(top)}</th>" for top in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    label = f' aria-label="{escape(name)}"' if name else ""
    return f"<table{label}><thead><tr>{tops}</tr></thead><tbody>{body}</tbody></table>"


def stars(product: Product) -> str:
    """The rating as text."""
    count = len(product.reviews)
    many = f"{count} review{'s' if count != 1 else ''}"
    return f"Rating {product.rating:.1f} of 5 ({many})" if count else "Not yet rated"


def picture(product: Product) -> str:
    """A decorative drawing in place of a photograph, without an accessible name."""
    colour = {
        "lighting": "#e8b04b",
        "stationery": "#6b8f71",
        "kitchen": "#c0685a",
        "audio": "#5b7aa6",
    }
    tint = colour.get(product.category.split("/")[0], "#888")
    letters = escape("".join(word[0] for word in product.name.split()[:2]))
    return (
        '<svg class="picture" viewBox="0 0 100 100" aria-hidden="true"><rect width="100" '
        f'height="100" rx="6" fill="{tint}"/>'
        f'<circle cx="50" cy="46" r="26" fill="#fff" opacity=".35"/>'
        '<text x="50" y="56" font-size="26" text-anchor="middle" '
        f'fill="#fff">{letters}</text></svg>'
    )


def card(product: Product) -> str:
    """A product in a list."""
    return (
        f'<li class="card">{picture(product)}<a '
        f'href="/{product.slug}.html">{escape(product.name)}</a>'
        f'<span class="price">{money(product.price)}</span><span>{stars(product)}</span></li>'
    )
