"""Requests, responses and the shared page layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prill.emulators.shop.store import SHIPPING, Customer, Site, Store, money, read_data

if TYPE_CHECKING:
    from jinja2 import Environment

# Templates contain line breaks. Between two elements, only a single space is kept as text.
_LAYOUT = re.compile(r">(?:\n|\s{2,})<")
_NAMES = {"shopping_admin": "Lantern Admin", "reddit": "Forum", "gitlab": "Projects"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopRequest:
    """One request.

    `path` has no query; `parts` are the parameters of the route's path; `user` is signed in on this
    site; `session` is the session cookie.
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
        """Returns the signed-in customer, for pages that require one."""
        assert self.user is not None
        return self.store.customers[self.user]


@dataclass(frozen=True, slots=True)
class Response:
    """One response. `location` makes it a redirect; `session` is the session cookie to set, and an
    empty text removes it.
    """

    body: str = ""
    status: int = 200
    location: str | None = None
    session: str | None = None
    kind: str = "text/html"


T = TypeVar("T")
Handler = Callable[[ShopRequest], Response]


@dataclass(frozen=True, slots=True)
class Route:
    """A path of a site; `private` ones redirect to the login page unless the user is signed in."""

    method: str
    path: str
    handler: Handler
    private: bool = False


class PageError(Exception):
    """Raised for an error page, with its HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def whole_number(text: str, name: str, least: int = 0, most: int = 10_000) -> int:
    """Parses a whole number of a form. Raises PageError."""
    try:
        number = int(text.strip())
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise PageError(400, f"{name} must be a whole number from {least} to {most}.")
    return number


def find(things: Iterable[T], is_it: Callable[[T], bool], what: str) -> T:
    """Returns the first of the things that is meant. Raises PageError with status 404."""
    for thing in things:
        if is_it(thing):
            return thing
    raise PageError(404, f"There is no such {what}.")


def redirect(location: str, session: str | None = None) -> Response:
    """Redirects to another page after a form."""
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
    """Renders a part of a page: a template macro with these values."""
    made: str = getattr(_templates().get_template(template).module, part)(*values, **named)
    return made


def _page(template: str, status: int, **values: object) -> Response:
    from markupsafe import Markup

    text = _templates().get_template(template).render(style=Markup(style()), **values)
    return Response(_LAYOUT.sub("><", text), status)


def shop_page(
    request: ShopRequest, title: str, body: str, *, status: int = 200, message: str = ""
) -> Response:
    """Renders a page of the shop with header, categories, footer, and `message` above the content.
    `body` is made by `draw`.
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
    """Renders a page of another site; `links` are the names and URLs of its menu."""
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
    """Returns the style sheet of all sites."""
    return read_data("shop.css")


@dataclass(frozen=True, kw_only=True)
class SignIn:
    """The login and logout of a site.

    `path` is the form's path; `page` renders a page from a title and a body; `user` and `password`
    are the form's fields; `look` has further values for the template. `is_skipped`: users who are
    already signed in are redirected to `home`.
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
        """Shows the form, with the error of the previous attempt."""
        if self.is_skipped and request.user is not None:
            return redirect(self.home)
        form = partial(draw, "parts.html", "sign_in", message, self.path, self.button)
        return self.page(request, self.title, form(self.user, self.password, **self.look))

    def enter(self, request: ShopRequest) -> Response:
        """Signs the user in, or shows the form with an error."""
        names = request.form.get(self.user, ""), request.form.get(self.password, "")
        token = request.store.sign_in(self.site, *names)
        return self.show(request, self.wrong) if token is None else redirect(self.home, token)

    def leave(self, request: ShopRequest) -> Response:
        """Signs the user out."""
        request.store.sign_out(request.session)
        return redirect(self.left, "")

    @property
    def routes(self) -> tuple[Route, ...]:
        """Returns the routes of the form, its submission and the logout."""
        return (
            Route("GET", self.path.rstrip("/"), self.show),
            Route("POST", self.path.rstrip("/"), self.enter),
            Route("GET", self.leave_path, self.leave),
        )
