"""Serves the shop, its forum and its project site on three local ports from a thread."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from prill.emulators.shop import account, admin, catalog, forum, projects, rest
from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    draw,
    redirect,
    shop_page,
    site_page,
)
from prill.emulators.shop.store import Site, Store
from prill.served import LocalSite

if TYPE_CHECKING:
    from aiohttp import web


_COOKIES: dict[Site, str] = {
    "shopping": "shop",
    "shopping_admin": "admin",
    "reddit": "forum",
    "gitlab": "projects",
}
_LOGINS: dict[Site, str] = {
    part.SIGN_IN.site: part.SIGN_IN.path for part in (account, admin, forum, projects)
}


class Shop(LocalSite):
    """The sites, served inside a block: `with Shop() as shop: shop.url`, or `async with`.

    `store` is the state, which tests may read and change.

    Args:
        port: The shop's port; the forum and the project site use the next two. 0: free ports.
        reset_token: The token in `reset_url`. None: drawn at random.

    Raises:
        UsageError: The port is invalid.
    """

    _what = "shop"
    _ports = 3

    def __init__(self, *, port: int = 0, reset_token: str | None = None) -> None:
        super().__init__(port)
        self.store = Store()
        self._token = secrets.token_urlsafe(12) if reset_token is None else reset_token

    @property
    def environ(self) -> dict[str, str]:
        """Returns WebArena's environment variables with these sites' addresses."""
        names = {"SHOPPING": self.url, "SHOPPING_ADMIN": f"{self.url}/admin"}
        return names | {"REDDIT": self._address(1), "GITLAB": self._address(2)}

    @property
    def reset_url(self) -> str:
        """Returns the URL whose GET or POST request restores the initial state. Its token prevents
        agents from using it.
        """
        return f"{self.url}/reset?token={self._token}"

    @property
    def shell_lines(self) -> Sequence[str]:
        """Returns the environment variables and the reset URL as text."""
        return [*super().shell_lines, f"# reset: {self.reset_url}"]

    def _applications(self) -> Sequence[web.Application]:
        shop = (*catalog.ROUTES, *account.ROUTES)
        return (
            self._application({"shopping": shop, "shopping_admin": (*admin.ROUTES, *rest.ROUTES)}),
            self._application({"reddit": forum.ROUTES}),
            self._application({"gitlab": projects.ROUTES}),
        )

    def _application(self, sites: Mapping[Site, tuple[Route, ...]]) -> web.Application:
        from aiohttp import web

        app = web.Application()
        if "shopping" in sites:
            app.router.add_route("*", "/reset", self._reset)
            app.router.add_get("/status", self._status)
        for site, routes in sites.items():
            for route in routes:
                app.router.add_route(route.method, route.path, self._handler(site, route))
                if route.path != "/" and not route.path.endswith(".html"):
                    app.router.add_route(route.method, f"{route.path}/", self._handler(site, route))
        app.router.add_route(
            "*", "/{rest:.*}", self._handler(next(iter(sites)), Route("*", "", _no_such_page))
        )
        return app

    def _handler(
        self, site: Site, route: Route
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            request = await self._request(http, site)
            if route.private and request.user is None:
                unsigned = Response(
                    json.dumps({"message": "The consumer isn't authorized."}),
                    401,
                    kind="application/json",
                )
                return _response(
                    unsigned if route.path.startswith("/rest") else redirect(_LOGINS[site]), site
                )
            try:
                return _response(route.handler(request), site)
            except PageError as error:
                return _response(_error_page(site, request, error.status, str(error)), site)

        return handle

    async def _request(self, http: web.Request, site: Site) -> ShopRequest:
        session = http.cookies.get(_COOKIES[site], "")
        if site == "shopping_admin" and http.path.startswith("/rest"):
            session = http.headers.get("Authorization", "").removeprefix("Bearer ")
        return ShopRequest(
            store=self.store,
            path=http.path,
            parts=dict(http.match_info),
            query=dict(http.query),
            form=await _form(http),
            user=self.store.user(site, session),
            session=session,
        )

    async def _reset(self, http: web.Request) -> web.Response:
        from aiohttp import web

        if not secrets.compare_digest(http.query.get("token", "").encode(), self._token.encode()):
            return web.Response(status=403, text="wrong token")
        self.store.reset()
        return web.Response(text="Reset initiated")

    async def _status(self, http: web.Request) -> web.Response:
        from aiohttp import web

        return web.Response(text="Ready for duty!")


def _no_such_page(request: ShopRequest) -> Response:
    raise PageError(404, "There is no such page.")


async def _form(http: web.Request) -> dict[str, str]:
    if http.method != "POST":
        return {}
    if http.content_type == "application/json":
        try:
            values = json.loads(await http.text())
        except ValueError:
            return {}
        return (
            {str(name): str(value) for name, value in values.items()}
            if isinstance(values, dict)
            else {}
        )
    return {name: value for name, value in (await http.post()).items() if isinstance(value, str)}


def _error_page(site: Site, request: ShopRequest, status: int, message: str) -> Response:
    title = "Whoops, our bad..." if status == 404 else "This did not work"
    body = draw("parts.html", "way_back")
    if site == "shopping":
        answer = shop_page(request, title, body, status=status, message=message)
    else:
        answer = site_page(site, title, (), body, status=status, message=message)
    return answer


def _response(answer: Response, site: Site) -> web.Response:
    from aiohttp import web

    headers = {"Location": answer.location} if answer.location is not None else {}
    response = web.Response(
        text=answer.body, status=answer.status, content_type=answer.kind, headers=headers
    )
    if answer.session:
        response.set_cookie(_COOKIES[site], answer.session, path="/", httponly=True, samesite="Lax")
    elif answer.session is not None:
        response.del_cookie(_COOKIES[site], path="/")
    return response
