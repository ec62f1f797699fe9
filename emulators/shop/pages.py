"""Requests, responses and the shared page layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.emulators.shop.store import SHIPPING, Customer, Site, Store, money

if TYPE_CHECKING:
    from jinja2 import Environment

# Templates are laid out in lines. What stands between two elements is text if it is one blank.
_LAYOUT = re.compile(r">(?:\n|\s{2,})<")
_NAMES = {"shopping_admin": "Lantern Admin", "reddit": "Forum", "gitlab": "Projects"}


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


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["money"] = money
    environment.globals["shipping"] = SHIPPING
    return environment


def draw(template: str, part: str, *values: object, **named: object) -> str:
    """A part of a page: a macro of a template, called with these values."""
    made: str = getattr(_templates().get_template(template).module, part)(*values, **named)
    return made


def _page(template: str, status: int, **values: object) -> Response:
    from markupsafe import Markup

    text = _templates().get_template(template).render(style=Markup(style()), **values)
    return Response(_LAYOUT.sub("><", text), status)


def shop_page(
    request: ShopRequest, title: str, body: str, *, status: int = 200, message: str = ""
) -> Response:
    """A page of the shop with its head, categories and foot; `message` stands above the page.
    `body` is what `draw` makes.
    """
    return _page(
        "shop.html",
        status,
        title=title,
        body=body,
        message=message,
        customer=None if request.user is None else request.customer,
        categories=sorted({p.category.split("/")[0] for p in request.store.products.values()}),
        sought=request.query.get("q", ""),
    )


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
    return _page(
        "site.html",
        status,
        title=title,
        body=body,
        message=message,
        site=site,
        name=_NAMES[site],
        home="/admin/dashboard" if site == "shopping_admin" else "/",
        links=links,
    )


def style() -> str:
    """The style sheet of all sites."""
    return resources.files("prill.emulators.shop").joinpath("shop.css").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class SignIn:
    """How a site is signed in to and out of.

    `path` is the form's, `page` makes a page of a title and a body, `user` and `password` are the
    fields of the form, `look` what else the template takes; `is_skipped`: who is signed in already
    is led to `home`.
    """

    site: Site
    path: str
    leave_path: str
    home: str
    left: str
    page: Callable[[ShopRequest, str, str], Response]
    title: str
    button: str
    wrong: str
    user: str
    password: str
    look: Mapping[str, Any]
    is_skipped: bool = False

    def show(self, request: ShopRequest, message: str = "") -> Response:
        """The form, below what was wrong with the one before."""
        if self.is_skipped and request.user is not None:
            return redirect(self.home)
        form = partial(draw, "parts.html", "sign_in", message, self.path, self.button)
        return self.page(request, self.title, form(self.user, self.password, **self.look))

    def enter(self, request: ShopRequest) -> Response:
        """Signs in, or says that it cannot."""
        names = request.form.get(self.user, ""), request.form.get(self.password, "")
        token = request.store.sign_in(self.site, *names)
        return self.show(request, self.wrong) if token is None else redirect(self.home, token)

    def leave(self, request: ShopRequest) -> Response:
        """Signs out."""
        request.store.sign_out(request.session)
        return redirect(self.left, "")

    @property
    def routes(self) -> tuple[Route, ...]:
        """The form, what it sends, and the way out."""
        return (
            Route("GET", self.path.rstrip("/"), self.show),
            Route("POST", self.path.rstrip("/"), self.enter),
            Route("GET", self.leave_path, self.leave),
        )
