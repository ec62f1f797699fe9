"""The labelling page: its files and its routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prill.types import Observation
from prill.ui.annotate.session import LabelDecision, LabelSession
from prill.ui.serving import (
    PLACE,
    Handler,
    change_response,
    json_response,
    picture_response,
)
from prill.ui.templates import read_part, render

if TYPE_CHECKING:
    from aiohttp import web


def page_files(name: str) -> Mapping[str, str]:
    """Returns the files of a page of `prill annotate`; `name` is that of its HTML file and
    script.
    """
    shared = {part: read_part(f"ui/{part}") for part in ("look.css", "look.js")}
    own = (f"{name}.js", "common.js", "page.css")
    return {
        "": render(f"ui/annotate/{name}.html", home=name),
        **{part: read_part(f"ui/annotate/{part}") for part in own},
        **shared,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest(LabelDecision):
    """A decision, and the version of the card it was made on; None for any."""

    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """The number of the decision to undo; None for the last one of the session."""

    version: int | None = None


class SessionSite:
    """The page for labelling trajectories."""

    command = "prill annotate"

    def __init__(self, session: LabelSession) -> None:
        self.session = session

    def files(self) -> Mapping[str, str]:
        """Returns the page, its style and its scripts."""
        return page_files("page")

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Yields the routes of cards, images and page texts, by index."""
        return (
            ("api/overview", self.overview, None),
            (f"api/cards/{PLACE}", self.card, self.save),
            ("api/undo", None, self.undo),
            (f"pictures/{PLACE}/{{state:[0-9]{{1,9}}}}", self.picture, None),
            (f"texts/{PLACE}/{{state:[0-9]{{1,9}}}}", self.text, None),
        )

    async def overview(self, request: web.Request) -> web.StreamResponse:
        """Returns all trajectories with their state."""
        return json_response(self.session.overview())

    async def card(self, request: web.Request) -> web.StreamResponse:
        """Returns one trajectory with its label."""
        return json_response(self.session.card(self._index(request)))

    async def save(self, request: web.Request) -> web.StreamResponse:
        """Saves the label of a trajectory."""
        index = self._index(request)
        return await change_response(
            request, SaveRequest, lambda asked: self.session.save(index, asked, asked.version)
        )

    async def undo(self, request: web.Request) -> web.StreamResponse:
        """Undoes the last change."""
        return await change_response(
            request, UndoRequest, lambda asked: self.session.undo(asked.version)
        )

    async def picture(self, request: web.Request) -> web.StreamResponse:
        """Returns the screenshot of a state."""
        return await picture_response(self._state(request).screenshot)

    async def text(self, request: web.Request) -> web.StreamResponse:
        """Returns the page text of a state."""
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
