"""Serves a page on this machine only, protected by a token in the URL.

Every path begins with the token, so nothing depends on cookies, which browsers share between the
ports of a machine. The `Host` header is checked against DNS rebinding; changes must be JSON from
the page itself. Images and page texts are identified by index, never by path.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.io.images import read_image
from prill.served import listen
from prill.ui.history import ConflictError

if TYPE_CHECKING:
    from aiohttp import web


_Request = TypeVar("_Request")
Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


class Site(Protocol):
    """A page with its styles and scripts, and its routes."""

    def files(self) -> Mapping[str, str]:
        """Returns the files that the browser loads, by name; "" is the page itself."""
        ...

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Yields paths, each with its handlers of GET and POST."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """The number of the decision to undo; None for the last one of the session."""

    version: int | None = None


PLACE = "{index:[0-9]{1,9}}"
_LOOPBACK = "127.0.0.1"
_MAX_BODY = 1_000_000
_TYPES = {"": "text/html", "css": "text/css", "js": "text/javascript"}
# Detected by content: an SVG or HTML file with an image's name could run scripts.
_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@contextlib.asynccontextmanager
async def serving(site: Site, port: int = 0) -> AsyncIterator[str]:
    """Serves the page for the duration of the block and yields its URL with a new token.

    `port` 0 lets the system choose.

    Raises UsageError if the port is in use.
    """
    from aiohttp import web

    listening = listen(_LOOPBACK, port)
    token = secrets.token_urlsafe(32)
    bound: int = listening.getsockname()[1]
    # Paths contain the token, so requests are not logged, and malformed ones neither.
    logger = logging.getLogger("prill.ui.serving")
    logger.addFilter(_is_no_bad_request)
    runner = web.AppRunner(
        application(site, bound, token),
        access_log=None,
        logger=logger,
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


def _is_no_bad_request(record: logging.LogRecord) -> bool:
    from aiohttp.http_exceptions import HttpProcessingError

    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def application(site: Site, port: int, token: str) -> web.Application:
    """Makes the application: routes behind a guard that requires the token and a loopback host with
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
                text="open the address that the command printed: it holds the token\n"
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
    files = site.files()

    async def file(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in files:
            raise web.HTTPNotFound
        kind = _TYPES[name.rpartition(".")[2]]
        return web.Response(text=files[name], content_type=kind, charset="utf-8")

    app.router.add_get("/{token}/{name:([a-z]+\\.(js|css))?}", file)
    for path, read, write in site.routes():
        if read is not None:
            app.router.add_get(f"/{{token}}/{path}", read)
        if write is not None:
            app.router.add_post(f"/{{token}}/{path}", write)
    return app


async def picture_response(path: str | None) -> web.StreamResponse:
    """Returns an image; 404 if it is missing, 415 if its content is not an image."""
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
    """Returns the result of a change, or an error.

    400: invalid; 409: based on an outdated version; 507: not written.
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
    """Returns a response with the record as JSON."""
    from aiohttp import web

    return web.Response(
        body=msgspec.json.encode(record), status=status, content_type="application/json"
    )


def _picture_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _PICTURES if data.startswith(start)), None)
