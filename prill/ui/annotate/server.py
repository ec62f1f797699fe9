"""The annotation server: loopback only, protected by a token in the URL.

Every path begins with the token, so nothing depends on cookies, which browsers share between the
ports of a machine. The `Host` header is checked against DNS rebinding; what changes labels must be
JSON from the page itself. Pictures and page texts are named by place, never by path.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.io.images import read_image
from prill.types import Observation
from prill.ui.annotate.history import ConflictError
from prill.ui.annotate.session import LabelDecision, LabelSession
from prill.ui.templates import read_part, render

if TYPE_CHECKING:
    from aiohttp import web


_Request = TypeVar("_Request")
Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


class Site(Protocol):
    """A page and what it may ask for: `home` names its HTML file and its script; routes are a path,
    what reads it, and what writes to it.
    """

    @property
    def home(self) -> str:
        """The name of the page's HTML file and of its script."""
        ...

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Paths, each with what answers GET and what answers POST."""
        ...


PLACE = "{index:[0-9]{1,9}}"
_LOOPBACK = "127.0.0.1"
_MAX_BODY = 1_000_000
_SHARED = {"look.css": "text/css", "look.js": "text/javascript"}  # with the other pages of prill
_SCRIPTS = dict.fromkeys(("common.js", "page.js", "captions.js"), "text/javascript")
_PAGE = {"": "text/html", "page.css": "text/css", **_SCRIPTS, **_SHARED}
# By content: an SVG or HTML file that calls itself a picture could run scripts.
_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@contextlib.asynccontextmanager
async def serving(session: LabelSession | Site, port: int = 0) -> AsyncIterator[str]:
    """Serves the page while open; gives its address, with a token made for this time. Raises
    UsageError on a taken port.

    `port` 0 lets the system choose.
    """
    from aiohttp import web

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_LOOPBACK, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise UsageError(
            f"port {port} cannot be used ({error}); 0 takes any that is free, or choose another "
            "port",
            parameters=("port",),
        ) from None
    token = secrets.token_urlsafe(32)
    bound: int = listening.getsockname()[1]
    # Paths hold the token, so requests are not logged.
    runner = web.AppRunner(
        application(session, bound, token),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=2,
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listening).start()
        yield f"http://{_LOOPBACK}:{bound}/{token}/"
    finally:
        await runner.cleanup()
        listening.close()


def application(session: LabelSession | Site, port: int, token: str) -> web.Application:
    """The routes, behind a guard that asks every request for the token and for a loopback name with
    this port.
    """
    from aiohttp import web

    hosts = {f"{name}:{port}" for name in (_LOOPBACK, "localhost")}

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host not in hosts or len(request.headers.getall("Host", ())) != 1:
            raise web.HTTPForbidden(text="this address is not served here\n")
        request_token = request.raw_path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(
            request_token.encode("utf-8", "surrogateescape"), token.encode()
        ):
            raise web.HTTPForbidden(
                text="open the address that prill annotate printed: it holds the token\n"
            )
        if request.method not in ("GET", "HEAD"):
            if request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType(text="JSON only\n")
            if request.headers.get("Origin") != f"http://{request.host}":
                raise web.HTTPForbidden(text="only the page itself may write\n")
        return await handler(request)

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")

    app = web.Application(middlewares=[guard], client_max_size=_MAX_BODY)
    app.on_response_prepare.append(add_headers)
    site = SessionSite(session) if isinstance(session, LabelSession) else session

    async def page(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name:
            text = read_part(f"ui/{name}" if name in _SHARED else f"ui/annotate/{name}")
        else:
            text = render(f"ui/annotate/{site.home}.html", home=site.home)
        return web.Response(text=text, content_type=_PAGE[name], charset="utf-8")

    app.router.add_get(
        "/{token}/{name:((look|common|page|captions)\\.js|(look|page)\\.css)?}", page
    )
    for path, read, write in site.routes():
        if read is not None:
            app.router.add_get(f"/{{token}}/{path}", read)
        if write is not None:
            app.router.add_post(f"/{{token}}/{path}", write)
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest(LabelDecision):
    """A decision, and the version of the card which it was decided on; None for any."""

    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """The number of the decision to take back; None for the last of the sitting."""

    version: int | None = None


class SessionSite:
    """The page for labels of trajectories."""

    home = "page"

    def __init__(self, session: LabelSession) -> None:
        self.session = session

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Cards, pictures and page texts, by place."""
        return (
            ("api/overview", self.overview, None),
            (f"api/cards/{PLACE}", self.card, self.save),
            ("api/undo", None, self.undo),
            (f"pictures/{PLACE}/{{state:[0-9]{{1,9}}}}", self.picture, None),
            (f"texts/{PLACE}/{{state:[0-9]{{1,9}}}}", self.text, None),
        )

    async def overview(self, request: web.Request) -> web.StreamResponse:
        """All trajectories with their state."""
        return json_response(self.session.overview())

    async def card(self, request: web.Request) -> web.StreamResponse:
        """One trajectory with its label."""
        return json_response(self.session.card(self._index(request)))

    async def save(self, request: web.Request) -> web.StreamResponse:
        """Saves the label of a trajectory."""
        index = self._index(request)
        return await change_response(
            request, SaveRequest, lambda asked: self.session.save(index, asked, asked.version)
        )

    async def undo(self, request: web.Request) -> web.StreamResponse:
        """Takes the last change back."""
        return await change_response(
            request, UndoRequest, lambda asked: self.session.undo(asked.version)
        )

    async def picture(self, request: web.Request) -> web.StreamResponse:
        """The screenshot of a state."""
        return await picture_response(self._state(request).screenshot)

    async def text(self, request: web.Request) -> web.StreamResponse:
        """The page text of a state."""
        from aiohttp import web

        body = (self._state(request).text or "").encode("utf-8", "replace")
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    def _index(self, request: web.Request) -> int:
        from aiohttp import web

        index = int(request.match_info["index"])
        if index >= len(self.session.worklist):
            raise web.HTTPNotFound
        return index

    def _state(self, request: web.Request) -> Observation:
        from aiohttp import web

        states = self.session.worklist[self._index(request)].observations
        state = int(request.match_info["state"])
        if state >= len(states):
            raise web.HTTPNotFound
        return states[state]


async def picture_response(path: str | None) -> web.StreamResponse:
    """A picture, or 404 for what is missing and 415 for what is none, whatever it calls itself."""
    from aiohttp import web

    if not path:
        raise web.HTTPNotFound
    try:
        data = await asyncio.to_thread(read_image, path)
    except InputError:
        raise web.HTTPNotFound from None
    kind = _picture_type(data)
    if kind is None:
        raise web.HTTPUnsupportedMediaType
    return web.Response(
        body=data, content_type=kind, headers={"Cache-Control": "private, max-age=3600"}
    )


async def change_response(
    request: web.Request, asked: type[_Request], change: Callable[[_Request], Awaitable[object]]
) -> web.StreamResponse:
    """What a change leaves, or why it was not made: 400 not understood, 409 decided on what is out
    of date, 507 not written.
    """
    try:
        return json_response(await change(msgspec.json.decode(await request.read(), type=asked)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputError) as error:
        return json_response({"error": f"not a decision: {error}"}, 400)
    except ConflictError as error:
        return json_response({"error": str(error)}, 409)
    except UsageError as error:
        return json_response({"error": str(error)}, 507)


def json_response(record: object, status: int = 200) -> web.Response:
    """A response with the record as JSON."""
    from aiohttp import web

    return web.Response(
        body=msgspec.json.encode(record), status=status, content_type="application/json"
    )


def _picture_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _PICTURES if data.startswith(start)), None)
