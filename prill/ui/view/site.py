"""The page of `prill view`: its files and its routes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from prill.errors import InputError
from prill.ui.annotate.session import LabelDecision, LabelSession
from prill.ui.annotate.site import SaveRequest, UndoRequest
from prill.ui.report.entries import Judge, ReportRow, judged_row
from prill.ui.report.page import SCRIPTS
from prill.ui.serving import (
    PLACE,
    Handler,
    change_response,
    json_response,
    picture_response,
)
from prill.ui.templates import read_part, render
from prill.ui.view.library import JudgeProgress, Library

if TYPE_CHECKING:
    from aiohttp import web

_MAX_ROWS = 2000  # per response
_PAUSE = 1.0  # seconds between two reads of the files
_SLICE = 0.05  # seconds of reading before requests are handled
_STYLES = ("ui/look.css", "ui/report/page.css", "ui/view/view.css")


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRow:
    """A row that is new or has changed; `mine` is the label of the annotator at the page."""

    number: int
    row: ReportRow
    mine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The changes since the page's last request.

    A page with another `generation` reloads. `known` is the number of changes that it knows after
    this response, of `changes`; `read` is the fraction of the files that was read.
    """

    generation: int
    known: int
    changes: int
    read: float
    judges: tuple[JudgeProgress, ...]
    source: str
    parts: tuple[str, ...]
    problems: tuple[str, ...]
    annotator: str | None
    blind: bool
    pairs: object
    rows: tuple[NumberedRow, ...] = field(default=())


class ViewSite:
    """The page, which reads files in the background while `following`.

    Args:
        library: The runs to show.
        session: The session for labels; None: no labels are collected.
        blind: Whether verdicts and others' labels of a run are hidden until this annotator has
            labelled it.
        title: The title of the page.
    """

    command = "prill view"

    def __init__(
        self,
        library: Library,
        session: LabelSession | None = None,
        *,
        blind: bool = False,
        title: str = "prill view",
    ) -> None:
        self.title = title
        self.library = library
        self.session = session
        self.blind = blind and session is not None

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follows the files inside the block."""
        reading = asyncio.create_task(self._read())
        try:
            yield
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _read(self) -> None:
        while True:
            changes = self.library.refresh()
            while await asyncio.to_thread(_some, changes):
                pass
            await asyncio.sleep(_PAUSE)

    def files(self) -> Mapping[str, str]:
        """Returns the page, its style and its script."""
        own = ("ui/look.js", "ui/view/data.js"), ("ui/view/labels.js", "ui/view/follow.js")
        scripts = "\n".join(map(read_part, (*own[0], *SCRIPTS, *own[1])))
        return {
            "": render("ui/view/view.html", title=self.title, labels=self.session is not None),
            "view.css": "".join(map(read_part, _STYLES)),
            "view.js": f'(() => {{\n"use strict";\n{scripts}\n}})();\n',
        }

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Yields the routes of rows, runs, images, calls, the summary and labels."""
        return (
            ("api/state", self.state, None),
            ("api/search", self.search, None),
            ("api/summary", self.summary, None),
            (f"api/runs/{PLACE}", self.run, None),
            (f"api/calls/{PLACE}/{{judge:[0-9]{{1,4}}}}", self.calls, None),
            (f"pictures/{PLACE}/{{state:[0-9]{{1,9}}}}", self.picture, None),
            (f"api/labels/{PLACE}", self.label, self.save),
            ("api/undo", None, self.undo),
        )

    async def state(self, request: web.Request) -> web.StreamResponse:
        """Returns the changes since the page's last request."""
        library = self.library
        since = _number(request, "since")
        if _number(request, "generation") != library.generation:
            since = 0
        known, rows = library.changes(since, _MAX_ROWS)
        return json_response(
            State(
                generation=library.generation,
                known=known,
                changes=library.changed,
                read=library.read_share(),
                judges=tuple(library.progress()),
                source=library.label_source,
                parts=tuple(library.parts),
                problems=tuple(library.problems),
                annotator=self.session.log.annotator if self.session is not None else None,
                blind=self.blind,
                pairs=self.session.pairs if self.session is not None and not self.blind else (),
                rows=tuple(
                    NumberedRow(number=number, row=self._shown(row), mine=self._mine(row.id))
                    for number, row in rows
                ),
            )
        )

    async def search(self, request: web.Request) -> web.StreamResponse:
        """Returns the numbers of the runs that match a query; null: all."""
        query = request.query.get("q", "")
        found = await asyncio.to_thread(self.library.search, query, reasons=not self.blind)
        return json_response(None if found is None else sorted(found))

    async def summary(self, request: web.Request) -> web.StreamResponse:
        """Returns the figures as HTML; a blind page has none."""
        from aiohttp import web

        if self.blind:
            raise web.HTTPForbidden(text="figures are not shown while labels are given blindly\n")
        figures = await asyncio.to_thread(self.library.summary)
        text = render("ui/report/summary.html", summary=figures)
        return web.Response(text=text, content_type="text/html", charset="utf-8")

    async def run(self, request: web.Request) -> web.StreamResponse:
        """Returns a run with its verdicts and labels."""
        number = self._number(request)
        shown = await asyncio.to_thread(self.library.detail, number)
        if self._is_hidden(self.library.ids[number]):
            judges = len(self.library.judges)
            shown = replace(shown, verdicts=(None,) * judges, labels=(), retry=None)
        return json_response(shown)

    async def calls(self, request: web.Request) -> web.StreamResponse:
        """Returns the model transcript of a judge on a run."""
        from aiohttp import web

        number = self._number(request)
        if self._is_hidden(self.library.ids[number]):
            raise web.HTTPForbidden(text="not before your label\n")
        judge = int(request.match_info["judge"])
        found = await asyncio.to_thread(self.library.calls, number, judge)
        return json_response(found)

    async def picture(self, request: web.Request) -> web.StreamResponse:
        """Returns the screenshot of a state."""
        from aiohttp import web

        try:
            states = (
                await asyncio.to_thread(self.library.__getitem__, self._number(request))
            ).observations
        except InputError:
            raise web.HTTPNotFound from None
        state = int(request.match_info["state"])
        if state >= len(states):
            raise web.HTTPNotFound
        return await picture_response(states[state].screenshot)

    async def label(self, request: web.Request) -> web.StreamResponse:
        """Returns the label of the annotator at the page, with its version."""
        session, number = self._labelling(), self._number(request)
        return json_response(session.decision(number))

    async def save(self, request: web.Request) -> web.StreamResponse:
        """Saves the label of a run durably before responding."""
        session, number = self._labelling(), self._number(request)

        async def saved(asked: SaveRequest) -> object:
            decision = LabelDecision(choice=asked.choice, steps=asked.steps, note=asked.note)
            change = await session.put(number, decision, asked.version)
            self._relabel()
            return change

        return await change_response(request, SaveRequest, saved)

    async def undo(self, request: web.Request) -> web.StreamResponse:
        """Undoes the last label."""
        session = self._labelling()

        async def undone(asked: UndoRequest) -> object:
            taken_back = await session.take_back(asked.version)
            self._relabel()
            return {"number": taken_back and taken_back[0]}

        return await change_response(request, UndoRequest, undone)

    def _labelling(self) -> LabelSession:
        from aiohttp import web

        if self.session is None:
            raise web.HTTPNotFound(
                text="this page takes no labels: name an annotator and a label file\n"
            )
        return self.session

    def _relabel(self) -> None:
        if self.session is not None:
            self.library.own = dict(self.session.log.mine)
            self.library.relabel()

    def _number(self, request: web.Request) -> int:
        from aiohttp import web

        number = int(request.match_info["index"])
        if number >= len(self.library):
            raise web.HTTPNotFound
        return number

    def _mine(self, id: str) -> str | None:
        return self.session.choice(id) if self.session is not None else None

    def _is_hidden(self, id: str) -> bool:
        return self.blind and self._mine(id) is None

    def _shown(self, row: ReportRow) -> ReportRow:
        if not self._is_hidden(row.id):
            return row
        judges: list[Judge] = [replace(judge, verdicts={}) for judge in self.library.judges]
        return judged_row(replace(row, truth=""), judges)


def _some(changes: Iterator[int]) -> bool:
    """Reads for a moment; returns False if there is nothing more."""
    end = time.monotonic() + _SLICE
    return any(time.monotonic() >= end for _ in changes)


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
